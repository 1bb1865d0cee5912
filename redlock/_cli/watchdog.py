"""Ends the command before somebody else can hold the lock, whatever has become of redlock-run.

A process of its own, forked before there is any thread: it needs no network, no lock of the interpreter and
no luck.  redlock-run may hang, be stopped or be killed with SIGKILL; the time that it was told last stands.
On the pipe from redlock-run come orders, on the one to it goes a byte for everything that is done; end of
file there means that redlock-run is gone.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from redlock._cli import clock

if TYPE_CHECKING:
    from typing import Self

TERMINATED, KILLED, GONE = b"T", b"K", b"G"

# The process group (0: it is over), and when it gets SIGTERM and SIGKILL.
_ORDER = struct.Struct("<qdd")
# poll() stands still while the machine sleeps, the clock does not.
_CHUNK = 1.0
_LOOK_AGAIN = 0.02      # whether a group is gone, once it was told to go


class Watchdog:
    """The end of it that redlock-run has.  To be made before any thread.

    While another process has ``descriptors`` open, it does not see the end of this one.
    """

    def __init__(self) -> None:
        orders, self._orders = os.pipe()
        self.news, news = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(self._orders)
                os.close(self.news)
                _become(orders, news)
            finally:
                os._exit(0)
        os.close(orders)
        os.close(news)
        self._pid = pid
        self.descriptors = (self._orders, self.news)
        os.set_blocking(self.news, False)

    def order(self, group: int, term_at: float, kill_at: float) -> None:
        """``group`` gets SIGTERM and SIGKILL then, unless another order comes before."""
        with contextlib.suppress(BrokenPipeError):      # `heard` says that it is gone
            os.write(self._orders, _ORDER.pack(group, term_at, kill_at))

    def heard(self) -> bytes:
        """What it has done since the last time, or that it is `GONE` itself."""
        try:
            return os.read(self.news, 64) or GONE
        except BlockingIOError:
            return b""

    def dismiss(self) -> None:
        """There is nothing to watch any more."""
        self.order(0, math.inf, math.inf)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.dismiss()
        os.close(self._orders)
        os.waitpid(self._pid, 0)
        os.close(self.news)


def _become(orders: int, news: int) -> None:
    with contextlib.suppress(OSError):      # `killall redlock-run` is not for it either
        Path("/proc/self/comm").write_text("redlock-guard", "ascii")
    os.setsid()     # neither Ctrl-C nor a signal to the job's group is for this process
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):      # whoever reads our output to its end must not wait for this process
        os.dup2(null, standard)
    Guard(orders, news).run()


class Guard:
    """What the process does."""

    def __init__(self, orders: int, news: int) -> None:
        self._orders = orders
        self._news = news
        self._group = 0
        self._term_at = self._kill_at = math.inf
        self._orphaned = self._terminated = False

    def run(self) -> None:
        poll = select.poll()
        poll.register(self._orders, select.POLLIN)
        while True:
            now = clock.now()
            if self._group:
                if now >= self._kill_at:
                    self._signal(signal.SIGKILL)
                    self._tell(KILLED)
                    return
                if now >= self._term_at and not self._terminated:
                    self._terminated = True
                    self._signal(signal.SIGTERM)
                    self._signal(signal.SIGCONT)    # one that is stopped would not hear of it
                    self._tell(TERMINATED)
                if self._orphaned and not exists(self._group):
                    return
            elif self._orphaned:
                return
            next_at = self._kill_at if self._terminated else self._term_at
            pause = min(max(0.0, next_at - now), _LOOK_AGAIN if self._orphaned else _CHUNK)
            if poll.poll(math.ceil(pause * 1000)) and not self._read():
                poll.unregister(self._orders)
                self._orphaned = True
                self._term_at = min(self._term_at, clock.now())

    def _read(self) -> bool:
        """Take what was ordered last.  False: nobody is there any more, or needs us."""
        data = os.read(self._orders, _ORDER.size * 64)
        if not data:
            return False
        for at in range(0, len(data), _ORDER.size):
            group, term_at, kill_at = _ORDER.unpack_from(data, at)
            if not group:
                os._exit(0)
            self._group = group
            if self._terminated:        # there is no way back, only a quicker one forward
                self._kill_at = min(self._kill_at, kill_at)
            else:
                self._term_at, self._kill_at = term_at, kill_at
        return True

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._group, number)

    def _tell(self, what: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self._news, what)


def exists(group: int) -> bool:
    """Whether any process of ``group`` is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:     # it has become another user's
        return True
    return True
