"""A process that prints what it does, and a thread that reads it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from tests.servers.look import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Process:
    def __init__(self, popen: subprocess.Popen[str]) -> None:
        self.popen = popen
        self.lines: list[str] = []
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self.lines.append(line.rstrip())

    def said(self, start: str, after: int = 0) -> list[str]:
        return [line for line in self.lines[after:] if line.startswith(start)]

    def says(self, start: str, after: int = 0, seconds: float = 20.0) -> str:
        """Wait until it says so.  Returns the first such line."""
        lines: list[str] = eventually(lambda: self.said(start, after), seconds)
        return lines[0]

    def ends(self) -> int:
        code = self.popen.wait(20)
        self.reader.join()
        return code


@contextlib.contextmanager
def started(
    *command: str, cwd: Path | None = None, environment: dict[str, str] | None = None, stdin: int | None = None
) -> Iterator[Process]:
    """A program in Python, in a group of its own, all of which is killed at the end."""
    process = Process(
        subprocess.Popen(
            [sys.executable, *command],
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.popen.pid, signal.SIGKILL)
        process.ends()
        assert process.popen.stdout is not None
        process.popen.stdout.close()


def run(
    *command: str, cwd: Path | None = None, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A program in Python, to its end."""
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def soon(condition: Callable[[], object]) -> None:
    """`eventually` on an event loop.  The caller has a timeout."""
    while not condition():  # noqa: ASYNC110 - it looks from outside
        await asyncio.sleep(0.01)
