"""Gives a server a wall clock of its own, which libfaketime moves while the server runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

# Where Debian, Fedora, Alpine and `make install` put libfaketime.
_PLACES: Final = (
    "lib/*/faketime/libfaketime.so.1",
    "lib64/faketime/libfaketime.so.1",
    "lib/faketime/libfaketime.so.1",
    "local/lib/*/faketime/libfaketime.so.1",
    "local/lib/faketime/libfaketime.so.1",
)


class ClockUnavailable(RuntimeError):  # noqa: N818 - its name says what is the case, like those of redlock's errors
    """Clocks of servers cannot be moved here. The text says why and what to do."""


class Clock:
    """The wall clock of one server: true time plus an offset, or at a rate of its own, kept in restarts of the server.

    Only the wall clock moves, not the monotonic one. A server computes its uptime from the wall clock, so a jump
    changes the uptime as well.
    """

    def __init__(self, program: Path, file: Path, rate: float = 1.0) -> None:
        self._preload = preload(program)
        self._file = file
        self._first_rate = rate
        self._started = 0.0
        self.reset()

    def reset(self) -> None:
        self.rate, self.offset, self._since = self._first_rate, 0.0, time.time()

    @property
    def moved(self) -> bool:
        return self.offset != 0 or self.rate != self._first_rate

    def started(self) -> None:
        """Its server starts: libfaketime starts from then on."""
        self._started = time.time()
        self.jump(0.0)

    def environment(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": self._preload,
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",  # else a jump could take effect ten seconds later
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def jump(self, seconds: float) -> None:
        self.offset += seconds
        at_start = self.offset + (self._started - self._since) * (self.rate - 1.0)
        # Replaced in one step: the server may be reading it.
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{at_start:+.6f} x{self.rate:.6f}\n")
        fresh.replace(self._file)

    def slew(self, rate: float) -> None:
        """From now on it runs at ``rate``."""
        now = time.time()
        gained = (now - self._since) * (self.rate - 1.0)
        self.rate, self._since = rate, now
        self.jump(gained)


@cache
def preload(program: Path) -> str:
    """The LD_PRELOAD with which this server starts."""
    if sys.platform != "linux":
        raise ClockUnavailable(f"clocks of servers can be moved on Linux only, this is {sys.platform}")
    library = next((found for place in _PLACES for found in Path("/usr").glob(place)), None)
    if library is None:
        raise ClockUnavailable("there is no libfaketime: install the system package faketime or libfaketime")
    # Debian's servers use jemalloc, which asks for the time while it is loaded. Then libfaketime is not ready, and the
    # server waits for ever, unless libc is preloaded too.
    for candidate in (f"{library}:libc.so.6", str(library)):
        if _starts(program, candidate):
            return candidate
    raise ClockUnavailable(f"{program} does not start with {library} preloaded: try another server")


def _starts(program: Path, candidate: str) -> bool:
    with subprocess.Popen(
        [program, "--version"],
        env={**os.environ, "LD_PRELOAD": candidate, "FAKETIME": "+0"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        try:
            output, _ = process.communicate(timeout=5.0)
        except subprocess.TimeoutExpired:
            return False
        finally:
            process.kill()
            process.wait()
            forget_shared_memory(process.pid)
    # If something cannot be preloaded, the loader only prints a remark, and the program succeeds.
    return process.returncode == 0 and b"cannot be preloaded" not in output


def forget_shared_memory(pid: int) -> None:
    """Remove the files that libfaketime leaves behind for every killed process.

    A live process needs their names only while it starts.
    """
    for name in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
        with suppress(FileNotFoundError):
            Path("/dev/shm", name).unlink()  # noqa: S108 - the C library chooses this place
