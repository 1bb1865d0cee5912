"""One operation under way on an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from redlock._core.operation import SteppedOperation

if TYPE_CHECKING:
    import asyncio

    from redlock._core.effects import Op
    from redlock._io.connections_async import Connections

T = TypeVar("T")

# Some loops count whole milliseconds and round down.  An alarm that is set without this addition, in seconds, would
# go off too early again and again.
LATE = 0.001
_MOST_SPARE = 100  # spare alarms that are kept at most


class Alarm:
    """Goes off for an operation when its time has come.

    Most operations end long before that, and the next one begins.  The next one takes over an alarm that is still set
    (`Connections.spare`): an alarm that goes off too early does no harm, and to set a new one costs more than to look
    at a clock.
    """

    __slots__ = ("_connections", "_handle", "operation")

    def __init__(self, operation: Operation[Any], connections: Connections, at: float) -> None:
        self.operation: Operation[Any] | None = operation
        self._connections = connections
        self._handle = connections.loop.call_at(at, self._go_off)

    @property
    def at(self) -> float:
        """When it goes off, on the clock of the loop."""
        return self._handle.when()

    def cancel(self) -> None:
        self._handle.cancel()

    def _go_off(self) -> None:
        if self.operation is not None:
            self.operation.alarm_goes_off()
        else:
            self._connections.spare.discard(self)


class Operation(SteppedOperation[T, "Connections"]):
    """Steps a generator at each event for which it waits.  `ended` has its result.

    Callbacks of the loop do all of that, not a task.  The caller's task sleeps until the end, so a round wakes it
    once, not once for each answer.  And no task of ours exists that a user could cancel, or that could be destroyed
    with its loop.
    """

    _alarm: Alarm | None = None

    def __init__(self, op: Op[T], connections: Connections) -> None:
        super().__init__(op, connections)
        self._loop = connections.loop
        self.ended: asyncio.Future[T] = connections.loop.create_future()

    def _ended(self, result: T) -> None:
        if self._awaited:
            self.ended.set_result(result)

    def _failed(self, error: BaseException) -> bool:
        if self._awaited:
            self.ended.set_exception(error)
        return False

    @property
    def _awaited(self) -> bool:
        """Whether a task can still see the end: it was not cancelled, and its loop is not closed."""
        return not (self.ended.done() or self._loop.is_closed())

    def _end(self) -> None:
        super()._end()
        if self.subscription is not None:
            self._host.unlisten(self)
        alarm, self._alarm = self._alarm, None
        if alarm is not None:
            alarm.operation = None
            if len(self._host.spare) < _MOST_SPARE:
                self._host.spare.add(alarm)
            else:
                alarm.cancel()

    def _wait(self, now: float) -> None:
        """Set an alarm.  Or use one that goes off earlier, and is then set anew."""
        if self._alarm is None and self._host.spare:
            self._alarm = self._host.spare.pop()
        due = self._loop.time() + (self.until - now) + LATE
        if self._alarm is not None:
            if self._alarm.at <= due:
                self._alarm.operation = self
                return
            self._alarm.cancel()
        self._alarm = None if self.until == float("inf") else Alarm(self, self._host, due)

    def alarm_goes_off(self) -> None:
        """Called by the `Alarm`, which cannot be used again."""
        self._alarm = None
        self.on_alarm()


AnyOperation = Operation[Any]
