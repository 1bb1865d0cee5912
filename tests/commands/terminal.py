"""A person at a terminal, who types and reads."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from typing import Any

from tests.servers.commands import environment, kill_session

# A program in a session of its own whose terminal is its standard input.
CONTROLLING = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


class Terminal:
    """A command on a terminal of 24 lines of 80 columns; ``controlling``: which sends it signals."""

    def __init__(
        self,
        command: list[str],
        urls: list[str] | None = None,
        *,
        controlling: bool = True,
        cwd: Any = "/",
        **more: str,
    ) -> None:
        self._ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            [sys.executable, "-c", CONTROLLING, *command] if controlling else command,
            stdin=its, stdout=its, stderr=its, cwd=cwd, start_new_session=not controlling,
            env=environment(urls, **{"PS1": "<$ >", "TERM": "dumb"} | more),
        )  # fmt: skip
        os.close(its)
        self.seen = ""
        self._looked = 0  # so much of it

    def type(self, keys: str, *shows: str, within: float = 30) -> None:
        """Type it, and wait until each of these was shown, one behind the other."""
        os.write(self._ours, keys.encode())
        for text in shows:
            self.read_until(text, within)

    def read_until(self, text: str, seconds: float = 30) -> str:
        """Behind what was read for before, as it may have come together with that; returns what came until then."""
        until = time.monotonic() + seconds
        while text not in self.seen[self._looked :]:
            assert time.monotonic() < until, f"no {text!r} in {self.seen!r}"
            self._read(0.1)
        before, self._looked = self._looked, self.seen.index(text, self._looked) + len(text)
        return self.seen[before : self._looked]

    def end(self) -> int:
        """Its exit code, once it has ended; all that it has written is in `seen` then."""
        code = self.process.wait(30)
        while self._read(0.1):
            pass
        return code

    def _read(self, seconds: float) -> bytes:
        data = b""
        if select.select([self._ours], [], [], seconds)[0]:
            with contextlib.suppress(OSError):  # EIO: it has ended, and so has its terminal
                data = os.read(self._ours, 65536)
        self.seen += data.decode()
        return data

    def foreground(self) -> int:
        """The process group that has the terminal."""
        return os.tcgetpgrp(self._ours)

    @property
    def there(self) -> bool:
        return self._ours >= 0

    def hang_up(self) -> None:
        os.close(self._ours)
        self._ours = -1

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        kill_session(self.process.pid)
        self.process.wait()
        if self.there:
            self.hang_up()
