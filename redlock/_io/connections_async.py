"""All connections of one `AsyncMasters` on one event loop, shared by all its locks and tasks.

If an operation is alone, its requests leave at once.  With several operations, all requests of one tick of the loop
are gathered, and leave at its end in one packet for each master.  An answer is read when it comes, and steps the
operations that wait for it.
"""

from __future__ import annotations

import contextlib
import os
import select
import weakref
from collections import deque
from os import getpid
from typing import TYPE_CHECKING

from redlock import _clock
from redlock._core.effects import Turn
from redlock._core.outcomes import NEVER
from redlock._io import process
from redlock._io.connections import CLOSED, TICK, ConnectionsBase
from redlock._io.forklock import ForkLock
from redlock.errors import RedlockError

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable, Sequence

    from redlock._connect import Endpoint
    from redlock._core.effects import Send
    from redlock._core.voters import Facts, Voters
    from redlock._io.operation_async import Alarm, AnyOperation
    from redlock._io.report import Reports
    from redlock._io.stream import Stream

# Seconds for which a request waits for the end of the tick, at most: a task may block the loop.  And the most requests
# that are gathered: the masters can begin while we go on with the next ones.
_LONGEST_TICK = 0.005
_ENOUGH = 24
_ADMITTING = ForkLock()  # the loops of all threads share the `Voters`


class Connections(ConnectionsBase):
    """The connections of one event loop.  Only the loop's thread may call methods, except where they say otherwise."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        voters: Voters,
        node_timeout: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(endpoints, voters, node_timeout)
        self.loop = loop
        self.operations: set[AnyOperation] = set()  # those under way
        self.unclaimed: set[AnyOperation] = set()  # those under way, or over while their tasks were not resumed yet
        self.spare: set[Alarm] = set()  # alarms of finished operations, until they go off
        self._to_step: deque[AnyOperation] = deque()
        self._step_due = NEVER
        self._answers_due = NEVER  # the background looks then which connections answer nothing
        self._flush_due = NEVER  # when the coming call of `flush` was asked for
        # All sockets, to be closed when this object is dropped, should the user forget to close it.  A socket that
        # nobody closed makes Python warn.
        self._sockets: set[socket.socket] = set()
        # The loop watches one descriptor, and that watches all sockets: so one call of ours reads all that is there.
        # macOS has none.  There the loop watches the sockets.
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        self._watched = False  # the loop watches `_epoll`
        weakref.finalize(self, _close_all, self._sockets).atexit = False

    # -- for operations ------------------------------------------------------------------------------

    @staticmethod
    def now() -> float:
        return _clock.now()

    def send(self, request: Send, operation: AnyOperation) -> None:
        """Write ``request`` to its masters, now or at the end of this tick."""
        if self.closed:
            raise RedlockError(CLOSED)
        if request.enters is not None:
            if not self._enter(request.enters, operation):
                return
        elif request.leaves is None:  # else the operation begins with it, and `Runtime.run` has looked
            process.look()
        now = _clock.now()
        if now > self._answers_due:
            self._answers_due = now + self._patience
            self.look_after(self._answers_due)
        if len(self.operations) == 1:  # an extra turn of the loop for `flush` pays only if it is shared
            self._submit(request, operation, now)
        else:
            self._send_with_others(request, operation, now)
        if request.leaves is not None:
            self.leave(request.leaves)

    def _send_with_others(self, request: Send, operation: AnyOperation, now: float) -> None:
        """Write ``request`` at the end of this tick."""
        if self._flush_due == NEVER or now - self._flush_due > TICK:  # no call is to come, or it was interrupted
            self._soon(self.flush)
            self._flush_due = now
        self._submit(request, operation, now, corked=True)
        if now - self._flush_due > _LONGEST_TICK or len(self.corked) > _ENOUGH:
            self.flush()  # do not wait for the end of a tick this long, or this full

    def poke(self, operation: AnyOperation) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self.loop.call_soon_threadsafe(operation.put, Turn(_clock.now()))

    def wake(self, operation: AnyOperation) -> None:
        """``operation`` has an event: have it stepped soon, by `step`."""
        self._to_step.append(operation)
        now = _clock.now()
        if now - self._step_due > TICK:  # no call is to come, or it was interrupted
            self._step_due = now
            self._soon(self.step)

    def step(self) -> None:
        """Step the operations that have events.  Never in the middle of reading, as they may send."""
        self._step_due = NEVER
        try:
            while self._to_step:
                self._to_step.popleft().step()
        finally:
            if self._to_step:  # interrupted
                self._soon(self.step)

    def _soon(self, callback: Callable[[], None]) -> None:
        if not self.loop.is_closed():  # else `shut` does it
            self.loop.call_soon(callback)

    # -- sockets -------------------------------------------------------------------------------------

    def keep(self, sock: socket.socket) -> None:
        """Remember ``sock``, to be closed in the end; at once if this is closed already.  Any thread may call this."""
        self._sockets.add(sock)
        if self.closed:
            sock.close()

    def flush(self) -> None:
        """Hand to the kernel what was written."""
        process.look()
        self._flush_due = NEVER
        self._flush_cork(_clock.now())

    def _readable(self, fd: int) -> None:
        if getpid() != process.pid:  # a callback of this loop has forked
            process.notice()
            return
        self._step_due = now = _clock.now()  # this method calls `step` itself
        self.read_ready([(fd, 0)] if self._epoll is None else self._epoll.poll(0), now)
        if self._to_step:
            self.step()
        else:
            self._step_due = NEVER

    def last_look(self, request: Send | None) -> None:
        """Read what has arrived, before a `Timeout` is handed out; then close the round of ``request``."""
        self.look()
        if request is not None:
            request.open = False

    def look(self) -> None:
        """Read from all masters: the loop has not done so yet, or does not run."""
        process.look()
        now = _clock.now()
        for connection in self.all:
            self._read(connection, now)

    def shut(self) -> None:
        """Interrupt the operations under way, hand the rest to the kernel, and close every descriptor."""
        for operation in list(self.operations):
            operation.interrupt(RedlockError(CLOSED))
        self.flush()
        while self.spare:
            self.spare.pop().cancel()
        self.hang_up()
        _close_all(self._sockets)
        self._close_epoll()
        self.step()

    # -- what `ConnectionsBase` asks for -------------------------------------------------------------

    def _watch(self, connection: Stream) -> None:
        if self._epoll is None:
            self.loop.add_reader(connection.fd, self._readable, connection.fd)
            return
        if not self._watched:
            self.loop.add_reader(self._epoll.fileno(), self._readable, -1)
            self._watched = True
        self._epoll.register(connection.fd, select.EPOLLIN)

    def _unwatch(self, connection: Stream) -> None:
        self._streams.pop(connection.fd, None)
        if self._epoll is not None:
            with contextlib.suppress(OSError, ValueError):  # after an interruption this is the second time
                self._epoll.unregister(connection.fd)
        elif not self.loop.is_closed():  # a closed loop watches nothing
            self.loop.remove_reader(connection.fd)
            self.loop.remove_writer(connection.fd)
        if connection.sock is not None:
            self._sockets.discard(connection.sock)

    def _watch_room(self, connection: Stream, *, wanted: bool) -> None:
        if self._epoll is not None:
            self._epoll.modify(connection.fd, select.EPOLLIN | select.EPOLLOUT if wanted else select.EPOLLIN)
        elif self.loop.is_closed():
            return
        elif wanted:
            self.loop.add_writer(connection.fd, self._readable, connection.fd)
        else:
            self.loop.remove_writer(connection.fd)

    def _close_epoll(self) -> None:
        if self._epoll is not None:
            if self._watched and not self.loop.is_closed():
                self.loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

    def attach(self, stream: Stream, sock: socket.socket, facts: Facts | None, now: float) -> Reports:
        with _ADMITTING.lock:
            reports = super().attach(stream, sock, facts, now)
        if stream.sock is not sock:  # it was closed: it is not wanted any more
            self._sockets.discard(sock)
        return reports

    def disown(self) -> None:
        super().disown()
        if self._epoll is not None:
            self._epoll.close()  # this copy of its descriptor; to unregister anything would reach the parent's
            self._epoll = None
        while self._sockets:
            with contextlib.suppress(OSError):
                os.close(self._sockets.pop().detach())


def _close_all(sockets: set[socket.socket]) -> None:
    while sockets:  # connecting threads may still add to the set
        with contextlib.suppress(KeyError):
            sockets.pop().close()
