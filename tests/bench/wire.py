"""What is between one process and one master: connections that carry bytes, late, in pieces, or not at all.

Bytes of one connection arrive in their order.  What an aborted one has under way arrives before anything of the next
one, or never: whoever does not abort it may see it arrive later.
"""

from __future__ import annotations

import errno
import math
import socket
from typing import TYPE_CHECKING, Any

from tests.bench.machine import Descriptor

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.machine import Process
    from tests.bench.server import Server

REQUESTS, ANSWERS = 0, 1  # the directions of a way
FORKED = "an answer of another process"


class Line:
    """The way from one process to one master, and back."""

    def __init__(
        self, process: Process, server: Server, *, delay: float, slow: float, slowest: float, split: float, window: int
    ) -> None:
        self.world = process.world
        self.process, self.server = process, server
        self.tcps: list[Tcp] = []
        self.slow = slow  # share of what takes unusually long
        self.split = split  # share of what comes in two pieces
        self.window = window  # bytes that may be under way to a master that does not read
        self._delay, self._slowest = delay, slowest
        self._cuts = [0, 0]
        self._held: tuple[list[Any], list[Any]] = ([], [])
        self._well_since = -math.inf
        self._not_before = 0.0  # what aborted connections have under way arrives first

    def __repr__(self) -> str:
        return f"{self.process}-m{self.server.master.index}"

    def delay(self) -> float:
        chance = self.world.random
        if self.slow and chance.random() < self.slow:
            slow = chance.uniform(0.3, 1.0) * self._slowest
            self._well_since = self.world.now + slow
            return slow
        return chance.uniform(0.2, 1.8) * self._delay

    @property
    def well_since(self) -> float:
        """All that was asked since then came and went as it should."""
        master = self.server.master
        well = master.up and not (master.frozen or master.busy or master.refuses or any(self._cuts))
        if not well or any(tcp.silent or tcp.full for tcp in self.tcps):
            return math.inf
        return max(self._well_since, self.server.well_since)

    @property
    def longest_delay(self) -> float:
        return self._slowest if self.slow else 1.8 * self._delay

    def carry(self, direction: int, tcp: Tcp, action: Callable[..., None], *args: Any) -> None:
        if self._cuts[direction]:
            self._held[direction].append((tcp, action, args))
            return
        arrives = max(self.world.now + self.delay(), tcp.ready[direction])
        if direction == REQUESTS:
            arrives = max(arrives, self._not_before)
        tcp.ready[direction] = arrives
        self.world.at(arrives, action, *args)

    def cut(self, *directions: int) -> None:
        for direction in directions:
            self._cuts[direction] += 1

    def heal(self, *directions: int) -> None:
        self._well_since = self.world.now
        for direction in directions:
            assert self._cuts[direction], "this way was not cut"
            self._cuts[direction] -= 1
            if not self._cuts[direction]:
                held = self._held[direction][:]
                self._held[direction].clear()
                for tcp, action, args in held:
                    self.carry(direction, tcp, action, *args)

    def forget(self, tcp: Tcp) -> None:
        """``tcp`` was aborted: what is held of it never arrives, and what is under way does so before anything new."""
        for held in self._held:
            held[:] = [one for one in held if one[0] is not tcp]
        self._not_before = max(self._not_before, tcp.ready[REQUESTS])

    def snap(self) -> None:
        for tcp in self.tcps[:]:
            tcp.snap()

    def open(self) -> Socket:
        tcp = Tcp(self)
        self.tcps.append(tcp)
        return tcp.socket

    def closed(self, tcp: Tcp) -> None:
        if tcp.silent or tcp.full:
            self._well_since = self.world.now
        if tcp in self.tcps:
            self.tcps.remove(tcp)


class Tcp:
    """One connection."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.process = line.process
        self.server = line.server
        self.ready = [0.0, 0.0]
        self.incarnation: int | None = None  # of the process that has accepted it
        self.under_way = 0  # bytes that the master has not read
        self.full = False  # it has not taken all that it was given
        self.survivors = 0  # ... of a dead one that still arrive
        self.dead = False  # it carries nothing any more
        self.silent = False  # what stands between takes bytes and passes nothing on
        self._swallowed: list[tuple[bytes, float]] = []
        self.socket = Socket(self)
        line.carry(REQUESTS, self, self._asked)

    def __repr__(self) -> str:
        return f"{self.line}#{self.socket.fd}"

    # -- to the master -------------------------------------------------------------------------------

    def _asked(self) -> None:
        if not self.server.master.up:
            self.line.carry(ANSWERS, self, self.socket.fails, ConnectionRefusedError(errno.ECONNREFUSED, "refused"))
            return
        self.incarnation = self.server.master.incarnation
        self.server.accept(self)
        self.line.carry(ANSWERS, self, self.socket.connects)

    def send(self, data: bytes) -> None:
        self.under_way += len(data)
        for part in self._parts(data):
            self.line.carry(REQUESTS, self, self._arrives, part, self.line.world.now)

    def _parts(self, data: bytes) -> list[bytes]:
        chance = self.line.world.random
        if len(data) > 1 and chance.random() < self.line.split:
            at = chance.randrange(1, len(data))
            return [data[:at], data[at:]]
        return [data]

    def _arrives(self, data: bytes, sent_at: float) -> None:
        if self.silent:
            self._swallowed.append((data, sent_at))
            return
        master = self.server.master
        if self.dead:
            data = data[: self.survivors]
            self.survivors -= len(data)
            if not data:
                return
        if master.frozen:
            master.waiting.append((self._is_read, (data, sent_at)))
        else:
            self._is_read(data, sent_at)

    def _is_read(self, data: bytes, sent_at: float) -> None:
        self.under_way -= len(data)
        master = self.server.master
        if not master.up or self.incarnation != master.incarnation:
            self.resets()
            return
        self.server.hear(self, data, sent_at)
        if not self.dead:
            self.process.changed()  # there is room again

    # -- to the client -------------------------------------------------------------------------------

    def answer(self, data: bytes) -> None:
        if not self.dead:
            for part in self._parts(data):
                self.line.carry(ANSWERS, self, self._answered, part)

    def _answered(self, data: bytes) -> None:
        if not (self.dead or self.silent):
            self.socket.receives(data)

    def resets(self) -> None:
        """The other end is gone, and its kernel says so."""
        if not self.dead:
            self.line.carry(ANSWERS, self, self.snap)

    def snap(self) -> None:
        """It breaks: a part of what is under way still arrives, no answer does."""
        if not self.dead:
            self.line._well_since = self.line.world.now
            self._die()
            self.socket.fails(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def _die(self) -> None:
        self.dead = True
        self.survivors = self.line.world.random.randint(0, self.under_way)
        self.line.forget(self)
        self.line.closed(self)
        self.server.gone(self)

    # -- the client closes it ------------------------------------------------------------------------

    def abort(self) -> None:
        if not self.dead:
            self._die()

    def close(self) -> None:
        """What is under way still arrives, whenever that is; so does what was held back, or taken by a silent one."""
        self.line.closed(self)
        if self.silent:
            self.line.world.after(self.line.world.random.random(), self._flows)
        if not self.dead:
            self.line.carry(REQUESTS, self, self._ends)

    def _flows(self) -> None:
        self.silent = False
        for data, sent_at in self._swallowed:
            self._arrives(data, sent_at)
        self._ends()

    def _ends(self) -> None:
        """The master reads that it was closed, behind all that was sent."""
        master = self.server.master
        if self.silent:
            return
        if master.frozen:
            master.waiting.append((self.server.gone, (self,)))
        else:
            self.server.gone(self)


class Socket(Descriptor):
    """The client's end of a connection; it does not block."""

    family = socket.AF_UNIX  # no options of TCP

    def __init__(self, tcp: Tcp) -> None:
        super().__init__(tcp.process)
        self.tcp = tcp
        self.inbox = bytearray()
        self.connected = False
        self.error: OSError | None = None
        self.ended = False
        self.closed = False
        self._aborts = False

    # -- what arrives --------------------------------------------------------------------------------

    def connects(self) -> None:
        self.connected = True
        self.process.changed()

    def receives(self, data: bytes) -> None:
        if not self.closed:
            self.inbox += data
            self.process.changed()

    def fails(self, error: OSError) -> None:
        if not self.closed:
            self.error = error
            self.process.changed()

    # -- what is called ------------------------------------------------------------------------------

    def send(self, data: bytes) -> int:
        self._used()
        if self.error is not None:
            error, self.error, self.ended = self.error, None, True
            raise error
        if self.ended:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        room = self.tcp.line.window - self.tcp.under_way
        if self.tcp.full:
            self.tcp.line._well_since = self.tcp.line.world.now
        self.tcp.full = room < len(data)
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        taken = bytes(data[:room])
        self.tcp.send(taken)
        self.process.step()
        return len(taken)

    def recv(self, most: int) -> bytes:
        self._used()
        if self.inbox:
            data = bytes(self.inbox[:most])
            del self.inbox[:most]
            self.process.step()
            return data
        if self.error is not None:
            error, self.error, self.ended = self.error, None, True
            raise error
        if self.ended:
            return b""
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    def _used(self) -> None:
        self.process.called()
        if self.closed:
            raise OSError(errno.EBADF, "Bad file descriptor")
        if self.pid != self.process.pid:
            self.tcp.server.judge.fail(FORKED, f"{self.process} uses {self.tcp}, which belongs to its parent")

    def fileno(self) -> int:
        return -1 if self.closed else self.fd

    def setblocking(self, _: bool) -> None: ...

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        self._aborts = self._aborts or option == socket.SO_LINGER

    def shutdown(self, _: int) -> None:
        self.fails(ConnectionAbortedError(errno.ECONNABORTED, "it was shut down"))

    def close(self) -> None:
        if not self.closed:
            self.process.close(self.fd)
            self.closed = True

    def detach(self) -> int:
        self.closed = True
        return self.fd

    # -- what poll() asks ----------------------------------------------------------------------------

    def readable(self) -> bool:
        return bool(self.inbox) or self.error is not None or self.ended

    def writable(self) -> bool:
        return self.connected and self.tcp.under_way < self.tcp.line.window

    def hung_up(self) -> bool:
        return self.error is not None or self.ended

    def shut(self) -> None:
        self.closed = True
        if self._aborts:
            self.tcp.abort()
        else:
            self.tcp.close()
