"""Ends an operation from outside: from another thread, another task, or a signal handler.

A stop is an interruption as a Ctrl-C is.  It is thrown into the generator where that waits, so the operation takes its
keys back and ends (R11).  No operation has to know of it.

Also considered: a deadline that can be moved (each wait would have to look at it again, and one more attempt would
follow); to acquire for a second at a time (it would lose its place in line, and what it has subscribed to).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from redlock._core.effects import WokenBy

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.effects import Event, Op

T = TypeVar("T")


class Stopped(Exception):  # noqa: N818 - it is no error: who has asked for it catches it
    """The operation was stopped, and has left nothing behind."""


class Stop:
    """Asked for once, and then for good.

    A signal handler may ask for it, in the middle of anything.  So this takes no lock: each step is one operation on a
    dict.  Who begins to wait first says how it is woken, and then looks whether it was asked for already.
    """

    def __init__(self) -> None:
        self._requested = False
        self._wakes: dict[object, Callable[[], object]] = {}

    def requested(self) -> bool:
        return self._requested

    def request(self) -> None:
        self._requested = True
        self.wake()

    def wake(self) -> None:
        """Have all that wait look again."""
        for wake in list(self._wakes.values()):
            wake()

    def wakes(self, who: object, wake: Callable[[], object]) -> None:
        """From now on call ``wake`` for ``who``: in any thread, and from a signal handler."""
        self._wakes[who] = wake

    def forget(self, who: object) -> None:
        self._wakes.pop(who, None)


def until_stopped(op: Op[T], stop: Stop) -> Op[T]:
    """Run ``op``.  Raises `Stopped` if ``stop`` is requested before it is over."""
    event: Event | None = None
    error: BaseException | None = None
    stopped = False
    woken_by = WokenBy(stop)
    try:
        yield woken_by
        while True:
            if stop.requested() and error is None and not stopped:
                stopped, error = True, Stopped()
            effect = op.send(event) if error is None else op.throw(error)
            event = error = None
            try:
                event = yield effect
            except GeneratorExit:
                op.close()
                raise
            except BaseException as interruption:  # noqa: BLE001 - thrown into the operation, which raises it again
                error = interruption
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        stop.forget(woken_by)
