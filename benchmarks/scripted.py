"""Five masters without a server and without time, so that what is counted on them is the same each time.

The masters are pairs of sockets in this process.  Each hears a request before `send` returns.  Three answer at once;
two keep each answer until the next request comes, so that two answers of each round are late.
"""

from __future__ import annotations

import contextlib
import gc
import socket
import threading
import time
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import hiredis

from redlock import _connect, scripts
from redlock._core import wire
from redlock._core.kernel.quorum import majority
from redlock._core.voters import Facts
from redlock._system import clock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from redlock._core.pipeline import Pipeline
    from redlock._io.driver_threads import Driver

MASTERS: Final = 5
WARM: Final = 16  # pairs


def _time() -> bytes:
    return b"*2\r\n$10\r\n%d\r\n$6\r\n%06d\r\n" % divmod(int(time.time() * 1e6), 10**6)


class Wire(socket.socket):
    """The library's end of a connection.  What it sends is heard before `send` returns."""

    def __init__(self, master: Master, end: socket.socket) -> None:
        super().__init__(end.family, end.type, end.proto, end.detach())
        self.setblocking(False)
        self._master = master

    def send(self, data: Any, flags: int = 0) -> int:
        sent = super().send(data, flags)
        self._master.hear()
        return sent


class Master:
    """It grants and releases whatever it is asked for.  ``late``: it answers when the next request comes."""

    def __init__(self) -> None:
        end, self._sock = socket.socketpair()
        self.wire = Wire(self, end)
        self.heard = 0
        self.late = False
        self._unsaid = b""
        self._parser = hiredis.Reader()

    def hear(self) -> None:
        self._parser.feed(self._sock.recv(1 << 20))
        said, new = self._unsaid, b""
        while (words := self._parser.gets()) is not False:
            self.heard += 1
            new += self._answer(*words)
        self._unsaid = new if self.late else b""
        self._sock.sendall(said if self.late else new)

    @staticmethod
    def _answer(command: bytes, script: bytes = b"", keys: bytes = b"", *words: bytes) -> bytes:
        if command == b"TIME":  # on connecting (R43)
            return _time()
        if script.decode() == scripts.RELEASE.sha:
            return b"*2\r\n:1\r\n:0\r\n"
        if script.decode() == scripts.RENEW.sha:
            return wire.renewed(int(keys) // 2)
        if script.decode() == scripts.REPAIR.sha:  # two masters are late with all that they say (R37)
            return b"*1\r\n:1\r\n"
        assert script.decode() == scripts.ACQUIRE.sha
        proposal = words[int(keys) + 3]
        return b"*2\r\n:1\r\n$%d\r\n%b\r\n" % (len(proposal), proposal)

    def still(self, pipeline: Pipeline, proposals: Iterable[int]) -> None:
        """From now on nothing is sent, and no Python code answers these pairs: what is counted is the library's."""
        self._sock.send(b"!")  # there is always something to read
        pairs = ((b"*2\r\n:1\r\n$16\r\n%d\r\n" % one, b"*2\r\n:1\r\n:0\r\n") for one in proposals)
        pipeline.send, pipeline.recv = len, partial(next, iter([*chain.from_iterable(pairs)]))

    def awake(self, pipeline: Pipeline) -> None:
        """The wire sends and receives again, behind the last pair of `still`."""
        self.wire.recv(1)
        pipeline.send, pipeline.recv = self.wire.send, self.wire.recv

    def close(self) -> None:
        self.wire.close()
        self._sock.close()


@contextlib.contextmanager
def scripted() -> Iterator[list[Master]]:
    """Five masters.  A client that connects inside of this is connected to them."""
    masters = [Master() for _ in range(MASTERS)]
    left = [master.wire for master in masters]

    def connect(*_: Any) -> tuple[socket.socket, Facts]:
        wire = left.pop(0)
        return wire, Facts(f"run-{wire.fileno()}", 10**6)

    try:
        with mock.patch.object(_connect.Connector, "__call__", connect):
            yield masters
    finally:
        for master in masters:
            master.close()


@contextlib.contextmanager
def alone(driver: Driver) -> Iterator[None]:
    """Only the caller reads.  A pipeline that is `still` answers whenever it is read, as if it had been asked."""
    begun, over = threading.Event(), threading.Event()

    def stay_away() -> None:
        begun.set()
        over.wait()

    driver.call_soon(stay_away)
    begun.wait()
    try:
        yield
    finally:
        over.set()


def warming(masters: list[Master]) -> Iterator[None]:
    """Until all are connected; then, with a minority late, some more times."""
    while min(master.heard for master in masters) < WARM:
        yield
    for master in masters[majority(MASTERS) :]:
        master.late = True
    for _ in range(WARM):
        yield


def urls() -> list[str]:
    return [f"redis://master-{number}:6379" for number in range(MASTERS)]


@contextlib.contextmanager
def standstill() -> Iterator[None]:
    """No time passes: nothing is due, nobody is overdue.  Nobody collects garbage."""
    now, of_loops = partial(float, clock.now()), partial(float, time.monotonic())  # no bytecodes, as those have none
    gc.disable()
    try:
        with mock.patch.object(clock, "now", now), mock.patch.object(time, "monotonic", of_loops):
            yield
    finally:
        gc.enable()
