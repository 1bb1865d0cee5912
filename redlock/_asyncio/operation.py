"""One operation under way on an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from redlock._base.operation import OperationBase

if TYPE_CHECKING:
    import asyncio

    from redlock._asyncio.links import Links
    from redlock._core.effects import Op

T = TypeVar("T")

# Some loops count whole milliseconds and round down: an alarm that is too early would ring on and on.
LATE = 0.001


class Operation(OperationBase[T, "Links"]):
    """Steps a generator whenever something happens that it waits for; `ended` has its result.

    All of that is done by callbacks of the loop, not by a task of its own: the caller's task sleeps
    until the end, so a round wakes it once and not once an answer, and there is no task of ours that
    somebody could cancel, or destroy with its loop.
    """

    __slots__ = ("_alarm", "_loop", "ended")

    def __init__(self, op: Op[T], links: Links) -> None:
        super().__init__(op, links)
        self._loop = links.loop
        self._alarm: asyncio.TimerHandle | None = None
        self.ended: asyncio.Future[T] = links.loop.create_future()

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
        if self.ear is not None:
            self._host.unlisten(self)
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _wait(self, now: float) -> None:
        """Set an alarm.

        One that goes off earlier does no harm, it is set anew: most waits of an operation end long
        before their time and at times that grow, so one alarm serves many.
        """
        due = self._loop.time() + (self.until - now) + LATE
        if self._alarm is not None:
            if self._alarm.when() <= due:
                return
            self._alarm.cancel()
        self._alarm = None if self.until == float("inf") else self._loop.call_at(due, self._rings)

    def _rings(self) -> None:
        self._alarm = None
        self.ring()


AnyOperation = Operation[Any]
