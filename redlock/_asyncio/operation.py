"""One operation under way on an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from redlock._base.operation import OperationBase

if TYPE_CHECKING:
    import asyncio

    from redlock._asyncio.connections import Connections
    from redlock._core.effects import Op

T = TypeVar("T")

# Some loops count whole milliseconds and round down: an alarm that is too early would ring on and on.
LATE = 0.001
_MOST_SPARE = 100  # alarms that wait for an operation


class Alarm:
    """Rings for an operation once its time has come.

    Most operations end long before, and the next one begins: it takes over an alarm that is set (`Connections.spare`),
    for one that goes off too early does no harm, and to set one costs more than to look at a clock.
    """

    __slots__ = ("_connections", "_handle", "operation")

    def __init__(self, operation: Operation[Any], connections: Connections, at: float) -> None:
        self.operation: Operation[Any] | None = operation
        self._connections = connections
        self._handle = connections.loop.call_at(at, self._go_off)

    @property
    def at(self) -> float:
        """On the clock of the loop."""
        return self._handle.when()

    def cancel(self) -> None:
        self._handle.cancel()

    def _go_off(self) -> None:
        if self.operation is not None:
            self.operation.alarm_goes_off()
        else:
            self._connections.spare.discard(self)


class Operation(OperationBase[T, "Connections"]):
    """Steps a generator whenever something happens that it waits for; `ended` has its result.

    All of that is done by callbacks of the loop, not by a task of its own: the caller's task sleeps
    until the end, so a round wakes it once and not once an answer, and there is no task of ours that
    somebody could cancel, or destroy with its loop.
    """

    __slots__ = ("_alarm", "_loop", "ended")

    def __init__(self, op: Op[T], connections: Connections) -> None:
        super().__init__(op, connections)
        self._loop = connections.loop
        self._alarm: Alarm | None = None
        self.ended: asyncio.Future[T] = connections.loop.create_future()

    def _ended(self, result: T) -> None:
        if self._awaited:
            self.ended.set_result(result)

    def _failed(self, error: BaseException) -> None:
        if self._awaited:
            self.ended.set_exception(error)

    @property
    def _awaited(self) -> bool:
        """Whether there can be somebody to see the end: no task that was cancelled, no closed loop."""
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
        """Set an alarm, or let one serve that goes off earlier, and is then set anew."""
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
        """The `Alarm`."""
        self._alarm = None
        self.on_alarm()


AnyOperation = Operation[Any]
