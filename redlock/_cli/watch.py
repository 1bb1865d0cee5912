"""``--watch``: check again and again. A terminal shows the table in place, and changes with their time."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, NoReturn

from redlock._cli import table
from redlock._cli.pause import pause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType
    from typing import Self

    from redlock import Finding, Health, MasterHealth

_REMEMBERED = 8  # changes that are shown
_CLEAR, _HOME, _TO_THE_END = "\x1b[2J", "\x1b[H", "\x1b[J"
_HIDE, _SHOW, _REST_OF_LINE = "\x1b[?25l", "\x1b[?25h", "\x1b[K"
_COLOUR = re.compile("(\x1b\\[[0-9;]*m)")
_FIGURES = re.compile(r"\S*\d\S*( (ms|s|min|h|d)\b)?")  # figures, and names and tokens that are new at every check
_ENDS = (signal.SIGTERM, signal.SIGHUP)  # signals that by default end a program without unwinding


def watch(check: Callable[[], Health], every: float, style: table.Style) -> Health:
    """Check until Ctrl-C. Returns the last `Health`. Without any, Ctrl-C raises KeyboardInterrupt."""
    if not style.terminal:
        return _watch(check, every, style, None)
    with Screen() as screen:
        return _watch(check, every, style, screen)


def _watch(check: Callable[[], Health], every: float, style: table.Style, screen: Screen | None) -> Health:
    before: Health | None = None
    last: Health | None = None
    known: dict[str, str] = {}  # the run_id that was seen last at each address
    history: deque[str] = deque(maxlen=_REMEMBERED)
    with ended_by_ctrl_c():
        while True:
            begun = time.monotonic()
            health = last = check()
            news = [] if before is None else [*restarts(known, health), *changes(before, health)]
            known.update((master.name, master.run_id) for master in health.masters if master.run_id)
            stamp = time.strftime("%H:%M:%S")
            history.extend(f"{stamp}  {text}" for _, text in news)
            if screen is not None:
                screen.show(_frame(health, style, frozenset(name for name, _ in news), history, every))
            elif before is None:
                print("\n".join(table.lines(health, style)), flush=True)  # noqa: T201
            else:
                for _, text in news:
                    print(f"{stamp}  {text}", flush=True)  # noqa: T201
            before = health
            pause(every - (time.monotonic() - begun), sys.stdout)
    if last is None:
        raise KeyboardInterrupt
    return last


@contextlib.contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end a watch. The terminal shows ^C at the cursor, so the prompt gets a new line."""
    try:
        yield
    except KeyboardInterrupt:
        if sys.stdout.isatty():
            print(flush=True)  # noqa: T201


class Screen:
    """A clear screen without a cursor. The cursor comes back while we are stopped, and at the end, even by a signal."""

    def __init__(self) -> None:
        self._frame = ""

    def __enter__(self) -> Self:
        # A signal that was ignored when we started (nohup) stays ignored.
        handlers = {**dict.fromkeys(_ENDS, _end), signal.SIGTSTP: self._stop}
        self._before = {
            number: signal.signal(number, handler)
            for number, handler in handlers.items()
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        _put(_HIDE + _CLEAR)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # the terminal has gone
            _put(_SHOW)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def show(self, frame: str) -> None:
        self._frame = frame
        _put(_HOME + frame + _TO_THE_END)

    def _stop(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Handle Ctrl-Z. The shell gets a cursor back.

        When the shell continues us, the last frame is drawn again: the next check may be far off.
        """
        _put(_SHOW)
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)  # we stop here
        signal.signal(number, self._stop)
        _put(_HIDE + _CLEAR + _HOME + self._frame)


def _put(text: str) -> None:
    """Write ``text`` past the buffer of `sys.stdout`. A signal may interrupt a write into that buffer.

    Its handler must not write into the same buffer.
    """
    data = text.encode(sys.stdout.encoding, "backslashreplace")
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]


def _end(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    for one in _ENDS:
        signal.signal(one, _not_again)
    sys.exit(128 + number)


def _not_again(number: int, frame: FrameType | None) -> None:
    """Ignore the second signal. Often both come, and nothing may interrupt the end.

    SIG_IGN would not do: Python complains of it if a signal is pending.
    """


def _frame(health: Health, style: table.Style, changed: frozenset[str], history: deque[str], every: float) -> str:
    report = [f"Every {every:g} s, Ctrl-C ends it.   {time.strftime('%H:%M:%S')}", ""]
    report += table.lines(health, style, changed)
    if history:
        report += ["", style.paint("Changes", "bold"), *history]
    columns, rows = shutil.get_terminal_size()
    # If the terminal broke a line, the first lines would scroll away. Terminals differ at the last column, so it stays
    # free.
    shown = [cut(line, columns - 1) for line in report[: rows - 1]]
    return "".join(f"{line}{_REST_OF_LINE}\n" for line in shown)


def cut(line: str, columns: int) -> str:
    """The first ``columns`` characters of ``line``, and all of its colours, which take no room."""
    shown = ""
    for part in _COLOUR.split(line):
        if not part.startswith("\x1b"):
            part, columns = part[:columns], columns - len(part[:columns])  # noqa: PLW2901
        shown += part
    return shown


def changes(before: Health, after: Health) -> Iterator[tuple[str, str]]:
    """The changes from one check to the next: the name of the master ("" for the quorum), and a line for people."""
    if before.status != after.status:
        yield "", f"{before.status} -> {after.status}: {after.quorum.voting} of {after.quorum.size} masters vote"
    for old, new in zip(before.masters, after.masters, strict=True):
        for text in _of_a_master(old, new):
            yield new.name, f"{new.name}: {text}"
    yield from (("", f"the quorum: {text}") for text in _of_findings(before, after))


def restarts(known: Mapping[str, str], health: Health) -> Iterator[tuple[str, str]]:
    """The masters whose run_id differs from the one seen last at their address, perhaps long ago."""
    for master in health.masters:
        if master.run_id and known.get(master.name, master.run_id) != master.run_id:
            yield master.name, f"{master.name}: it is another process than before, so it was restarted"


def _of_a_master(old: MasterHealth, new: MasterHealth) -> Iterator[str]:
    if old.role and new.role and old.role != new.role:
        yield f"{old.role} -> {new.role}"
    if old.votes != new.votes:
        yield "votes again" if new.votes else "does not vote any more"
    yield from _of_findings(old, new)


def _of_findings(old: Health | MasterHealth, new: Health | MasterHealth) -> Iterator[str]:
    was = {_news(finding) for finding in old.findings}
    yield from (f"{finding.code}: {finding.message}" for finding in new.findings if _news(finding) not in was)
    over = {finding.code for finding in old.findings} - {finding.code for finding in new.findings}
    yield from (f"{code} has ended" for code in sorted(over))


def _news(finding: Finding) -> tuple[str, str, str]:
    """A key that tells whether a finding is news. A changed level, or another text of the same code, is news."""
    return finding.code, finding.level, _FIGURES.sub("", finding.message)
