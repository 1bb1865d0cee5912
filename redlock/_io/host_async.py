"""Looks after the operations of one event loop: of all locks and tasks there of one `AsyncMasters`.

If an operation is alone, its requests leave at once.  With several operations, all requests of one tick of the loop
are gathered, leave at its end in one packet for each master.  An answer is read when it comes, and steps operations.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

from redlock._core.effects import Op, Send, Turn
from redlock._core.operation import SteppedOperation
from redlock._core.outcomes import NEVER
from redlock._io import process
from redlock._io.connections import CLOSED, TICK, Connections
from redlock._system import clock
from redlock._system.dropped import when_dropped
from redlock.errors import RedlockError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from redlock._connect import Endpoint
    from redlock._core.settings import MastersSettings
    from redlock._io.stream import Stream

T = TypeVar("T")

LATE = 0.001  # seconds that are added to an alarm: some loops round down to milliseconds, and it would go off early
_MOST_SPARE = 100  # spare alarms that are kept at most
_LONGEST_TICK = 0.005  # the most seconds that a request waits for the end of the tick, as a task may block the loop
_ENOUGH = 24  # the most requests that are gathered, so that the masters can begin with them


class LoopHost:
    """The host of the operations of one event loop, and the port of their `Connections`; for one thread alone."""

    def __init__(
        self, endpoints: Sequence[Endpoint], settings: MastersSettings, tick_at: Callable[[float], object]
    ) -> None:
        self.mutex = threading.RLock()  # a loop needs no lock, but the collector may run our code in the middle
        self.connections = Connections(endpoints, settings, self)
        self.perform_local = self.connections.perform_local
        self.unlisten = self.connections.unlisten
        self.loop = asyncio.get_running_loop()
        self.tick_at = tick_at
        self.operations: set[Operation[Any]] = set()  # those under way
        self.spare: set[Alarm] = set()  # alarms of finished operations, until they go off
        self._to_step: deque[Operation[Any]] = deque()
        self._step_due = NEVER
        self._answers_due = NEVER  # when the background checks which connections are silent
        self._flush_due = NEVER  # when the coming call of `flush` was asked for
        self._sockets: set[socket.socket] = set()  # closed when this object is dropped, else Python warns of them
        # The loop watches one descriptor, and that watches all sockets: so one call of ours reads all that is there.
        # macOS has none.  There the loop watches the sockets.
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        self._watched = False  # the loop watches `_epoll`
        when_dropped(self, _close_all, self._sockets)

    @staticmethod
    def now() -> float:
        return clock.now()

    def send(self, request: Send, operation: Operation[Any]) -> None:
        connections = self.connections
        if connections.closed:
            raise RedlockError(CLOSED)
        if request.enters is not None:
            if not connections.local_queue.enter(request.enters, operation, clock.now()):
                return
        elif request.leaves is None:  # else the operation begins with it, and `Runtime.run` has checked
            process.check()
        now = clock.now()
        if now > self._answers_due:
            self._answers_due = now + connections.patience
            self.tick_at(self._answers_due)
        if len(self.operations) == 1:  # an extra turn of the loop for `flush` pays only if it is shared
            connections.submit(request, operation, now)
        else:
            self._send_with_others(request, operation, now)
        if request.leaves is not None:
            connections.leave(request.leaves)

    def _send_with_others(self, request: Send, operation: Operation[Any], now: float) -> None:
        if self._flush_due == NEVER or now - self._flush_due > TICK:  # no call is to come, or it was interrupted
            self._soon(self.flush)
            self._flush_due = now
        self.connections.submit(request, operation, now, corked=True)
        if now - self._flush_due > _LONGEST_TICK or len(self.connections.corked) > _ENOUGH:
            self.flush()  # do not wait for the end of a tick this long, or this full

    def step_soon(self, operation: Operation[Any]) -> None:
        self._to_step.append(operation)
        now = clock.now()
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

    def keep(self, sock: socket.socket) -> None:
        """Remember ``sock``, to be closed in the end; at once if this is closed already.  Any thread may call this."""
        self._sockets.difference_update([known for known in list(self._sockets) if known.fileno() < 0])
        self._sockets.add(sock)
        if self.connections.closed:
            sock.close()

    def flush(self) -> None:
        process.check()
        self._flush_due = NEVER
        self.connections.flush_cork(clock.now())

    def _readable(self, fd: int) -> None:
        if not process.usual[0] and process.notice():  # a callback of this loop has forked
            return
        self._step_due = now = clock.now()  # this method calls `step` itself
        self.connections.read_ready([(fd, 0)] if self._epoll is None else self._epoll.poll(0), now)
        if self._to_step:
            self.step()
        else:
            self._step_due = NEVER

    def read_and_close(self, request: Send | None) -> None:
        """Read what has arrived, before a `Timeout` is handed out; then close the round of ``request``."""
        self.read_all()
        if request is not None:
            request.open = False

    def read_all(self) -> None:
        """Read from all masters: the loop has not done so yet, or does not run."""
        process.check()
        now = clock.now()
        for connection in self.connections.all:
            self.connections.read(connection, now)

    def shut(self) -> None:
        """Interrupt the operations under way, hand the rest to the kernel, and close every descriptor."""
        for operation in list(self.operations):
            operation.interrupt(RedlockError(CLOSED))
        self.flush()
        while self.spare:
            self.spare.pop().handle.cancel()
        self.connections.hang_up()
        _close_all(self._sockets)
        self._close_epoll()
        self.step()

    def watch(self, stream: Stream) -> None:
        if self._epoll is None:
            self.loop.add_reader(stream.fd, self._readable, stream.fd)
            return
        if not self._watched:
            self.loop.add_reader(self._epoll.fileno(), self._readable, -1)
            self._watched = True
        self._epoll.register(stream.fd, select.EPOLLIN)

    def unwatch(self, stream: Stream, *, ours: bool) -> None:
        if ours and self._epoll is not None:
            with contextlib.suppress(OSError, ValueError):  # after an interruption this is the second time
                self._epoll.unregister(stream.fd)
        elif ours and not self.loop.is_closed():  # a closed loop watches nothing
            self.loop.remove_reader(stream.fd)
            self.loop.remove_writer(stream.fd)

    def watch_room(self, stream: Stream, *, wanted: bool) -> None:
        if self._epoll is not None:
            self._epoll.modify(stream.fd, select.EPOLLIN | select.EPOLLOUT if wanted else select.EPOLLIN)
        elif self.loop.is_closed():
            return
        elif wanted:
            self.loop.add_writer(stream.fd, self._readable, stream.fd)
        else:
            self.loop.remove_writer(stream.fd)

    def _close_epoll(self) -> None:
        if self._epoll is not None:
            if self._watched and not self.loop.is_closed():
                self.loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

    def disown(self) -> None:
        self.connections.disown()
        if self._epoll is not None:
            self._epoll.close()  # this copy of its descriptor; to unregister anything would reach the parent's
            self._epoll = None
        while self._sockets:
            with contextlib.suppress(OSError):
                os.close(self._sockets.pop().detach())


class Alarm:
    """Goes off for an operation when its time has come.

    Most operations end long before that, and the next one begins.  The next one takes over an alarm that is still set
    (`LoopHost.spare`): an early alarm does no harm, and setting a new one costs more than reading a clock.
    """

    __slots__ = ("_host", "at", "handle", "operation")

    def __init__(self, operation: Operation[Any], host: LoopHost, at: float) -> None:
        self.operation: Operation[Any] | None = operation
        self._host = host
        self.at = at  # on the loop's clock
        self.handle = host.loop.call_at(at, self._go_off)

    def _go_off(self) -> None:
        if self.operation is not None:
            self.operation.on_alarm()
        else:
            self._host.spare.discard(self)


class Operation(SteppedOperation[T, "LoopHost"]):
    """Steps a generator at each event for which it waits.  `future` has its result."""

    _alarm: Alarm | None = None

    def __init__(self, op: Op[T], host: LoopHost) -> None:
        self.events = deque()
        self._op, self._host = op, host
        self.future: asyncio.Future[T] = host.loop.create_future()

    def poke(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task is left that waits
            self._host.loop.call_soon_threadsafe(self.put, Turn(clock.now()))

    def _conclude(self, error: BaseException | None) -> bool:
        self._host.operations.discard(self)
        if self.subscription is not None:
            self._host.unlisten(self)
        alarm, self._alarm = self._alarm, None
        if alarm is not None:
            alarm.operation = None
            if len(self._host.spare) < _MOST_SPARE:
                self._host.spare.add(alarm)
            else:
                alarm.handle.cancel()
        if self.future.done() or self._host.loop.is_closed():  # its task was cancelled, or cannot see the end
            return False
        if error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(error)
        return False

    def _wait(self, now: float) -> None:
        """Set an alarm.  Or use one that goes off earlier, and is then set anew."""
        if self._alarm is None and self._host.spare:
            self._alarm = self._host.spare.pop()
        due = self._host.loop.time() + (self.until - now) + LATE
        if self._alarm is not None:
            if self._alarm.at <= due:
                self._alarm.operation = self
                return
            self._alarm.handle.cancel()
        self._alarm = None if self.until == float("inf") else Alarm(self, self._host, due)

    def on_alarm(self) -> None:
        self._alarm = None  # it cannot be used again
        super().on_alarm()


def _close_all(sockets: set[socket.socket]) -> None:
    while sockets:  # connecting threads may still add to the set
        with contextlib.suppress(KeyError):
            sockets.pop().close()
