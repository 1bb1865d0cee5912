"""All connections of one `AsyncMasters` on one event loop, shared by all its locks and tasks.

What an operation sends that is alone leaves at once.  As soon as there are others, what is sent in one tick of
the loop is gathered, and leaves in one packet for each master at its end.  What a master answers is read when
it comes, and steps the operations that wait for it.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections import deque
from typing import TYPE_CHECKING

from redlock import _clock
from redlock._asyncio.operation import Alarm, AnyOperation
from redlock._base.connection import Connection
from redlock._base.connections import CLOSED, TICK, ConnectionsBase, Reports
from redlock._base.forklock import ForkLock
from redlock._core.effects import Leave
from redlock._core.outcomes import NEVER
from redlock.errors import RedlockError

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable, Sequence

    from redlock._base.stream import Stream
    from redlock._connect import Endpoint
    from redlock._core.effects import LocalEffect, Send
    from redlock._core.voters import Facts, Voters

# How long what is written waits for the end of the tick at most, in seconds: somebody blocks the loop.  And how
# many bytes for one master: some twenty requests, so that it can begin while we go on with the next ones.
_LONGEST_TICK = 0.005
_ENOUGH = 8192
_ADMITTING = ForkLock()  # what is known of the masters is shared by the loops of all threads


class Connections(ConnectionsBase[AnyOperation]):
    """The connections of one loop.  Only its thread may touch them, except where it says otherwise."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        voters: Voters,
        node_timeout: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(endpoints, voters, node_timeout)
        self.loop = loop
        self.operations: set[AnyOperation] = set()  # under way
        self.unclaimed: set[AnyOperation] = set()  # ... or over, and its task has not been resumed
        self.on_broken: Callable[[Stream], None] = _ignore
        self.on_listening: Callable[[], None] = _nothing
        self.on_change: Callable[[], None] = _nothing
        self.spare: set[Alarm] = set()  # of operations that are over, until they go off
        self._to_step: deque[AnyOperation] = deque()
        self._step_due = NEVER
        # In the order in which it was written: everybody asks the masters in the same one, or contenders
        # would collect them from opposite ends.
        self._to_flush: deque[Stream] = deque()
        self._flush_due = NEVER  # since when there is a call of `flush` to come
        self._paying: set[Connection[AnyOperation]] = set()  # whose debts are looked at soon
        # Sockets are closed with us, whoever forgets to do it; from here, for whoever finds a socket
        # that nobody closed warns of it.
        self._sockets: set[socket.socket] = set()
        weakref.finalize(self, _close_all, self._sockets).atexit = False

    # -- for operations ------------------------------------------------------------------------------

    def send(self, request: Send, operation: AnyOperation) -> None:
        """Write ``request`` to its masters, now or at the end of this tick."""
        if self.closed:
            raise RedlockError(CLOSED)
        now = _clock.now()
        if len(self.operations) == 1:  # a turn of the loop for `flush` is worth it only if it is shared
            self._submit(request, operation, now)
            return
        if self._flush_due == NEVER or now - self._flush_due > TICK:  # not yet, or it was interrupted
            self._soon(self.flush)
            self._flush_due = now
        self._submit(request, operation, now, self._to_flush)
        if now - self._flush_due > _LONGEST_TICK or len(self.all[0].backlog) > _ENOUGH:
            self.flush()  # a tick that takes this long, or sends this much, is no reason to wait

    def perform_local(self, effect: LocalEffect, operation: AnyOperation) -> None:
        """Do what concerns no master."""
        if isinstance(effect, Leave):
            self.pass_by(effect)
        elif self.closed:
            raise RedlockError(CLOSED)
        else:
            self._perform_local(effect, operation)

    def pass_by(self, effect: Leave) -> None:
        """Let others pass."""
        for inbox in self._leave(effect.place):
            inbox.wake()

    def wake(self, operation: AnyOperation) -> None:
        """It has an event; see `step`."""
        self._to_step.append(operation)
        now = _clock.now()
        if now - self._step_due > TICK:  # not yet, or it was interrupted
            self._step_due = now
            self._soon(self.step)

    def step(self) -> None:
        """Step the operations that have events.  Not in the middle of reading: they may send."""
        self._step_due = NEVER
        try:
            while self._to_step:
                self._to_step.popleft().step()
        finally:
            if self._to_step:  # interrupted
                self._soon(self.step)

    def _soon(self, callback: Callable[[], None]) -> None:
        if not self.loop.is_closed():  # else it is up to whoever closes us
            self.loop.call_soon(callback)

    # -- sockets -------------------------------------------------------------------------------------

    def keep(self, sock: socket.socket) -> None:
        """See to it that ``sock`` is closed in the end, which may be now.  From any thread."""
        self._sockets.add(sock)
        if self.closed:
            sock.close()

    def flush(self) -> None:
        """Hand what was written to the kernel."""
        self._flush_due = NEVER
        now = _clock.now()
        while self._to_flush:
            self._push(self._to_flush[0], now)
            self._to_flush.popleft()

    def _readable(self, connection: Stream) -> None:
        self._step_due = now = _clock.now()  # by us
        self._read(connection, now)
        if self._to_step:
            self.step()
        else:
            self._step_due = NEVER

    def last_look(self, request: Send | None) -> None:
        """Read what is there, before somebody is told that nothing is."""
        self.look()
        if request is not None:
            request.open = False

    def look(self) -> None:
        """Read whatever there is: the loop has not come to it yet, or does not run."""
        now = _clock.now()
        for connection in self.all:
            self._read(connection, now)

    def _pay(self, connection: Connection[AnyOperation]) -> None:
        self._paying.discard(connection)
        self.send_owed(connection, _clock.now())

    def shut(self) -> None:
        """Interrupt what is under way, hand the rest to the kernel, close every descriptor."""
        for operation in list(self.operations):
            operation.interrupt(RedlockError(CLOSED))
        self.flush()
        while self.spare:
            self.spare.pop().cancel()
        self.hang_up()
        _close_all(self._sockets)
        self.step()

    # -- what `ConnectionsBase` asks for -------------------------------------------------------------------

    def _watch(self, connection: Stream) -> None:
        self.loop.add_reader(connection.fd, self._readable, connection)

    def _unwatch(self, connection: Stream) -> None:
        if not self.loop.is_closed():  # a closed one watches nothing
            self.loop.remove_reader(connection.fd)
            self.loop.remove_writer(connection.fd)
        if connection.sock is not None:
            self._sockets.discard(connection.sock)

    def _watch_room(self, connection: Stream, *, wanted: bool) -> None:
        if self.loop.is_closed():
            return
        if wanted:
            self.loop.add_writer(connection.fd, self._readable, connection)
        else:
            self.loop.remove_writer(connection.fd)

    def _lost(self, connection: Stream) -> None:
        self.on_broken(connection)

    def _in_debt(self, connection: Stream) -> None:
        if (
            isinstance(connection, Connection)
            and connection.sock is not None
            and connection not in self._paying
            and not self.loop.is_closed()
        ):
            self._paying.add(connection)
            self.loop.call_later(TICK, self._pay, connection)

    def _want_subscribers(self) -> None:
        self.on_listening()

    def _tell(self) -> None:
        self.on_change()

    def attach(self, stream: Stream, sock: socket.socket, facts: Facts | None, now: float) -> Reports:
        with _ADMITTING.lock:
            reports = super().attach(stream, sock, facts, now)
        if stream.sock is not sock:  # nobody wants it any more
            self._sockets.discard(sock)
        return reports

    def disown(self) -> None:
        super().disown()
        while self._sockets:
            with contextlib.suppress(OSError):
                os.close(self._sockets.pop().detach())


def _close_all(sockets: set[socket.socket]) -> None:
    while sockets:  # threads that connect may add to them meanwhile
        with contextlib.suppress(KeyError):
            sockets.pop().close()


def _ignore(stream: Stream) -> None:
    pass


def _nothing() -> None:
    pass
