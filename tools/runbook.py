"""The situations of docs/howto/runbook.md, brought about on real servers, and what a person then sees.

    python -m tools.runbook                    shows all of them
    python -m tools.runbook fleet clocks       shows these
    python -m tools.runbook --write            writes what they say into the page

Takes a minute.  Nothing is left behind.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias

from chaos.backends.relay import Relay
from redlock.testing import LocalMasters, clock_available
from tools.check_situations import abridged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PAGE = Path(__file__).parent.parent / "docs" / "howto" / "runbook.md"
NUMBERS = range(1, 6)
_COLUMNS = 100
JOB = "sh -c 'echo \"fence $REDLOCK_FENCE\"; sleep 60'"
_WITHIN = 60.0  # seconds for one command

Scene: TypeAlias = "Callable[[Desk], None]"
SCENES: dict[str, Scene] = {}
CLOCKS = {"clocks"}  # scenes that need libfaketime


def scene(play: Scene) -> Scene:
    SCENES[play.__name__.strip("_").replace("_", "-")] = play
    return play


class Desk:
    """Where an operator types.  ``lines`` is what stands on the page: commands, what they said, and remarks.

    Masters and the two jobs of which one loses its lease are so many times ``slower``, and have so many times more time:
    a busy machine then matters less.
    """

    def __init__(self, folder: Path, *, clock: bool, slower: float) -> None:
        self.lines: list[str] = []
        self.slower = slower
        self.servers = LocalMasters(5, persistence="always", clock=clock)
        self._folder = folder
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self.servers)
        self.call_them(self.servers.ports)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def call_them(self, ports: Sequence[int]) -> None:
        """From now on ``lock-1`` and so on are the servers at these ports, also for redis-cli."""
        self.named = {f"lock-{number}": port for number, port in zip(NUMBERS, ports, strict=True)}
        cases = "; ".join(f"{name}) port={port}" + ";" for name, port in self.named.items())
        program = self._folder / "redis-cli"
        program.write_text(
            f'#!/bin/sh\ncase $2 in {cases} esac\nshift 2\nexec {shutil.which("redis-cli")} -p "$port" "$@"\n'
        )
        program.chmod(0o755)

    def fresh(self, count: int) -> list[int]:
        """The ports of ``count`` servers that were started just now and keep nothing on disk."""
        return self._stack.enter_context(LocalMasters(count)).ports

    def masters(self, *numbers: int) -> str:
        return ",".join(f"lock-{number}=redis://127.0.0.1:{self.named[f'lock-{number}']}" for number in numbers)

    @property
    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join((str(self._folder), str(Path(sys.executable).parent), os.environ["PATH"]))
        kept = {name: value for name, value in os.environ.items() if not name.startswith("REDLOCK_")}
        return {
            **kept, "PATH": path, "TERM": "xterm", "NO_COLOR": "1", "COLUMNS": str(_COLUMNS), "LC_ALL": "C.UTF-8",
            "REDLOCK_MASTERS": self.masters(*NUMBERS), "OLD": self.masters(1, 2, 3), "NEW": self.masters(3, 4, 5),
        }  # fmt: skip

    def remark(self, text: str) -> None:
        self.lines.append(f"# {text}")

    def type(self, command: str) -> None:
        with self.window(command) as window:
            window.ended()

    @contextlib.contextmanager
    def window(self, command: str) -> Iterator[Window]:
        """A command in a terminal of its own; ended with the block."""
        times = {"run": f"--node-timeout {0.25 * self.slower}"}
        times["check"] = f"{times['run']} --timeout {3.0 * self.slower}"
        patient = "".join(
            f'redlock-{name}() {{ command redlock-{name} {more} "$@"; }}; ' for name, more in times.items()
        )
        opened = Window(self, command, patient if self.slower != 1 else "", self._environment)
        try:
            yield opened
        finally:
            opened.close()


class Window:
    def __init__(self, desk: Desk, command: str, before: str, environment: dict[str, str]) -> None:
        self._desk = desk
        self._command = command
        self._said = ""
        self._terminal, theirs = pty.openpty()
        self._process = subprocess.Popen(
            ["bash", "-c", before + command],  # noqa: S607
            stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=environment, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)

    def until(self, said: str) -> None:
        """Returns when it has said that."""
        while said not in self._said and self._read():
            pass

    def ended(self) -> None:
        """Waits for its end; then command, output and exit code stand on the page."""
        while self._read():
            pass
        code = self._process.wait(_WITHIN)
        self._desk.lines += [f"$ {self._command}", *self._said.replace("\r", "").splitlines()]
        if code:
            self._desk.lines += ["$ echo $?", str(code)]

    def close(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait(_WITHIN)
        os.close(self._terminal)

    def _read(self) -> str:
        try:
            found = os.read(self._terminal, 65536).decode()
        except OSError:  # nobody has the other end any more
            found = ""
        self._said += found
        return found


# -- the situations ----------------------------------------------------------------------------------


@scene
def _locks_fail(desk: Desk) -> None:
    desk.remark("three of the five are killed")
    for i in (2, 3, 4):
        desk.servers.kill(i)
    desk.type("redlock-run invoices --no-wait -- echo done")
    desk.type("redlock-check")
    desk.remark("one of them is started again")
    desk.servers.restart(2)
    desk.type("redlock-run invoices --no-wait -- echo done")


@scene
def _somebody_has_it(desk: Desk) -> None:
    with desk.window("redlock-run invoices --owner web-3 --verbose -- sleep 60") as other:
        other.until("acquired")
        desk.type("redlock-run invoices --no-wait -- echo done")
        desk.type("redlock-check --held")


@scene
def _locks_are_slow(desk: Desk) -> None:
    relay = Relay()
    links = [(1, number) for number in NUMBERS]
    desk.call_them([relay.open(link, "127.0.0.1", 0, desk.servers.ports[link[1] - 1]) for link in links])
    relay.change({link: {"slow": 0.13 * desk.slower} for link in links[2:]})
    desk.remark("the answers of three of the five are 130 ms late")
    desk.type("redlock-check")
    desk.type("redis-cli -h lock-3 SLOWLOG LEN")


@scene
def _one_is_gone(desk: Desk) -> None:
    with desk.window(f"redlock-run other -- {JOB}") as client:  # from which masters know max_ttl
        client.until("fence")
        desk.servers.kill(4)
        desk.remark("lock-5 is killed")
        desk.type("redlock-check")
        desk.remark("it is started again as a server that keeps nothing on disk")
        desk.call_them([*desk.servers.ports[:4], *desk.fresh(1)])
        desk.type("redlock-check")


@scene
def _two_held_it(desk: Desk) -> None:
    with desk.window(f"redlock-run nightly --owner web-3 --ttl {12 * desk.slower:g} -- {JOB}") as first:
        first.until("fence")
        desk.remark("somebody types FLUSHALL on three of the masters, while a job runs under the lock")
        for i in range(3):
            desk.servers.client(i).flushall()
        desk.type(f"redlock-run nightly --no-wait -- {JOB.replace('60', f'{6 * desk.slower:g}')}")
        desk.remark("meanwhile, in the window of the first job")
        first.ended()
    desk.type("redlock-check --no-probe | head -n 1")
    told = "cmdstat_flush[a-z]+:calls=[0-9]+|evicted_keys:[0-9]+|uptime_in_seconds:[0-9]+"
    desk.type(f"for n in 1 2 3 4 5; do echo lock-$n $(redis-cli -h lock-$n INFO all | grep -oE '{told}'); done")


@scene
def _fleet(desk: Desk) -> None:
    with desk.window("REDLOCK_MASTERS=$OLD redlock-run nightly --verbose -- sleep 60") as other:
        other.until("acquired")
        desk.remark("a job runs with OLD, which is lock-1, lock-2 and lock-3. NEW is lock-3, lock-4 and lock-5")
        desk.type("REDLOCK_MASTERS=$NEW redlock-run nightly --no-wait -- echo done")
        desk.type('REDLOCK_MASTERS=$OLD redlock-check --plan "$NEW"')


@scene
def _clocks(desk: Desk) -> None:
    with desk.window(f"redlock-run nightly --owner web-3 --ttl {12 * desk.slower:g} -- {JOB}") as first:
        first.until("fence")
        desk.remark("a job runs, and the clocks of three masters jump ahead by 90 s")
        time.sleep(5)  # until it has looked at the clocks twice (R43): it does so again half a minute later
        for i in range(3):
            desk.servers.jump(i, 90)
        desk.type(f"redlock-run nightly --no-wait -- {JOB.replace('60', f'{6 * desk.slower:g}')}")
        desk.remark("meanwhile, in the window of the first job")
        first.ended()
    desk.type("redlock-check --no-probe")
    desk.type("for n in 1 2 3 4 5; do redis-cli -h lock-$n TIME | head -n 1; done; date +%s")


@scene
def _all_restarted(desk: Desk) -> None:
    desk.remark("a power failure; the masters keep nothing on disk, and are up again")
    desk.call_them(desk.fresh(5))
    desk.type("redlock-run invoices --no-wait -- echo done")
    desk.type("redlock-check")


# -- what is made of them ----------------------------------------------------------------------------


def played(name: str, slower: float = 1.0) -> str:
    """All that was typed and said."""
    with tempfile.TemporaryDirectory() as folder, Desk(Path(folder), clock=name in CLOCKS, slower=slower) as desk:
        SCENES[name](desk)
        return shortened(abridged("\n".join(desk.lines)))


def shortened(said: str) -> str:
    """Without votes that are like the one before or that came too late, and without what the last line says again."""
    lines: list[str] = []
    last = ""
    for line in said.splitlines():
        alike = re.sub(r"[\d.]+", "", line) if re.match(r"  lock-\d  (error|quarantined|timeout)\b", line) else ""
        if line.endswith((": decided without it", ": still connecting")):
            continue
        if not alike or alike != last:
            lines.append(line)
        elif lines[-1] != "  …":
            lines.append("  …")
        last = alike
    again = r"^((?:WARNING|CRITICAL): [^;|\n]*(?:\n  [^;\n]*)*);[^\n]*(?:\n  [^\n]+)*"
    return re.sub(again, r"\1; …", "".join(f"{line}\n" for line in lines), flags=re.MULTILINE)


def on_the_page(text: str) -> dict[str, str]:
    """What the page has of each situation."""
    return dict(re.findall(r"<!-- (\S+) -->\n\n```text\n(.*?)```", text, re.DOTALL))


def main(arguments: list[str]) -> None:
    if {"-h", "--help"} & set(arguments):
        sys.exit(f"{__doc__}\nSituations: {', '.join(SCENES)}")
    wanted = [name for name in arguments if name != "--write"] or list(SCENES)
    unknown = [name for name in wanted if name not in SCENES]
    if unknown:
        sys.exit(f"no such situation: {', '.join(unknown)}; there are {', '.join(SCENES)}")
    if CLOCKS & set(wanted) and not clock_available():
        sys.exit("libfaketime is needed to move a clock")
    for name in wanted:
        said = played(name)
        if "--write" in arguments:
            text = PAGE.read_text(encoding="utf-8")
            old = on_the_page(text)[name]
            PAGE.write_text(
                text.replace(f"<!-- {name} -->\n\n```text\n{old}```", f"<!-- {name} -->\n\n```text\n{said}```"),
                encoding="utf-8",
            )
        else:
            print(f"=== {name}\n\n{said}")


if __name__ == "__main__":
    main(sys.argv[1:])
