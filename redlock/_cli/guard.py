"""A program that ends the command before another client can hold the lock, even if redlock-run cannot do that.

The guard is the parent of the command, and needs no network. redlock-run may hang, be stopped, or be killed with
SIGKILL: then the times of its last order still apply. The guard reads orders from one pipe, and writes news to
another one. End of file on the orders means that redlock-run is gone.

`watchdog` starts this file as a program, wherever there is an interpreter for it. So it imports nothing of the package.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import struct
import sys
import time

NAME = "redlock-guard"
# News. READY, TERMINATED, KILLED: what the guard has done. CHANGED: the state of the command has changed.
# STATUS: the answer to LOOK, a status as `os.waitpid` gives it.
READY, TERMINATED, KILLED, CHANGED, STATUS = b"R", b"T", b"K", b"C", b"S"
NEWS = struct.Struct("<ci")
NOTHING_NEW = -1
# Orders. WATCH: send SIGTERM and SIGKILL at these times. LOOK: report the status of the command.
WATCH, LOOK = b"W", b"L"
ORDER = struct.Struct("<cdd")
# Seconds of one poll() at most: poll() is stopped while the machine sleeps, the clock does not.
_CHUNK = 1.0
_LOOK_AGAIN = 0.02  # seconds between two looks whether a signalled group is gone


class Guard:
    """Watches over the process group ``group``. Its leader is our child."""

    def __init__(self, clock: int, orders: int, news: int, group: int) -> None:
        self._clock = clock
        self._orders = orders
        self._news = news
        self._group = group
        self._watches = self._orphaned = self._terminated = self._killed = False
        self._term_at = self._kill_at = math.inf

    def run(self) -> None:
        poll = select.poll()
        poll.register(self._orders, select.POLLIN)
        poll.register(_children(), select.POLLIN)
        self._tell(READY)
        self._tell(CHANGED)  # the command may have changed before we watched
        while True:
            now = time.clock_gettime(self._clock)
            if now >= self._kill_at and not self._killed:
                self._killed = self._terminated = True
                self._signal(signal.SIGKILL)
                self._tell(KILLED)
            if now >= self._term_at and not self._terminated:
                self._terminated = True
                self._signal(signal.SIGTERM)
                self._signal(signal.SIGCONT)  # a stopped process would not handle SIGTERM
                self._tell(TERMINATED)
            if self._orphaned and (self._killed or not self._watches or self._gone()):
                return
            next_at = math.inf if self._killed else self._kill_at if self._terminated else self._term_at
            pause = min(max(0.0, next_at - now), _LOOK_AGAIN if self._orphaned else _CHUNK)
            for descriptor, _ in poll.poll(math.ceil(pause * 1000)):
                if descriptor != self._orders:
                    os.read(descriptor, 4096)
                    self._tell(CHANGED)
                elif not self._read():
                    poll.unregister(self._orders)
                    self._orphaned = True
                    self._term_at = min(self._term_at, time.clock_gettime(self._clock))

    def _read(self) -> bool:
        """Read and follow orders. False: redlock-run is gone."""
        data = os.read(self._orders, ORDER.size * 64)
        for what, term_at, kill_at in ORDER.iter_unpack(data):
            if what == LOOK:
                self._tell(STATUS, self._status())
                continue
            self._watches = True
            if self._terminated:  # SIGTERM cannot be taken back; SIGKILL can only come earlier
                self._kill_at = min(self._kill_at, kill_at)
            else:
                self._term_at, self._kill_at = term_at, kill_at
        return bool(data)

    def _status(self) -> int:
        """The status of the command. Only this call reaps it: its process id is not reused before."""
        try:
            pid, status = os.waitpid(self._group, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
        except ChildProcessError:  # its end was reported already
            return NOTHING_NEW
        return status if pid else NOTHING_NEW

    def _gone(self) -> bool:
        self._status()
        return not exists(self._group)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._group, number)

    def _tell(self, what: bytes, status: int = 0) -> None:
        with contextlib.suppress(OSError):
            os.write(self._news, NEWS.pack(what, status))


def exists(group: int) -> bool:
    """Whether any process of ``group`` is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it runs as another user now
        return True
    return True


def _children() -> int:
    """A descriptor that becomes readable whenever the state of a child changes."""
    wakes, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return wakes


def main(clock: int, orders: int, news: int, group: int) -> None:
    with contextlib.suppress(OSError):  # the name for `killall` and `ps -o comm`, which would say Python
        os.write(os.open("/proc/self/comm", os.O_WRONLY), NAME.encode())
    Guard(clock, orders, news, group).run()


if __name__ == "__main__":
    os.dup2(1, 0)  # standard input was the text of this program, and we read nothing else from it
    main(*map(int, sys.argv[1:]))
