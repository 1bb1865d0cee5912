"""The two commands, run as programs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

RUN = [sys.executable, "-W", "error", "-m", "redlock._cli.run"]
CHECK = [sys.executable, "-W", "error", "-m", "redlock._cli.check"]
PATIENT = ["--node-timeout", "2"]  # for a program that is new on a busy machine
NO_WAIT = ["--no-wait", *PATIENT]  # one try

# Neither it nor its child ends by SIGTERM.  It says who they are.
STUBBORN = "trap '' TERM; (trap '' TERM; while :; do sleep 0.1; done) & echo $$ $!; while :; do sleep 0.1; done"


def environment(urls: list[str] | None = None, **more: str) -> dict[str, str]:
    """Without what whoever runs the tests has set for masters of their own."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("REDLOCK_") and name != "COLUMNS"}
    return clean | ({"REDLOCK_MASTERS": ",".join(urls)} if urls else {}) | more


def run(command: list[str], urls: list[str] | None = None, *, seconds: float = 60, **options: Any):
    """To its end; no traceback, whatever happens."""
    more = options.pop("environment", {})
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=seconds, check=False, env=environment(urls, **more), **options
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def start(command: list[str], urls: list[str], **options: Any) -> subprocess.Popen[str]:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    return subprocess.Popen(command, text=True, env=environment(urls), **(streams | options))


@contextlib.contextmanager
def started(
    arguments: list[str], urls: list[str], program: list[str] = RUN, **options: Any
) -> Iterator[subprocess.Popen[str]]:
    """A `redlock-run`, and no process of it is left."""
    process = start([*program, *arguments], urls, start_new_session=True, **options)
    try:
        yield process
    finally:
        kill_session(process.pid)
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    """The next one of its output."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def kill_session(leader: int) -> None:
    """Its processes; the command is one of them, and so is a watchdog."""
    listed = subprocess.run(["ps", "-A", "-o", "sess=,pid="], capture_output=True, text=True, check=True).stdout
    for of, pid in map(str.split, listed.splitlines()):
        if of == str(leader):
            with contextlib.suppress(ProcessLookupError):  # some go with others
                os.kill(int(pid), 9)
