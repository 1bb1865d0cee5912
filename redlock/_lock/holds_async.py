"""What tasks hold.

The body of an ``async with`` is cancelled when its lease is lost (see `Cancelling`).  The release of a lost lease is
sent, and no task waits for its answers.  An error of the body goes on, with a note.
"""

from __future__ import annotations

import asyncio
import weakref
from types import MethodType
from typing import TYPE_CHECKING, Any

from redlock._core.lease import LeaseState
from redlock._io.runtime import running_loop
from redlock._lock.callbacks import call
from redlock._lock.cancelling import Cancelling
from redlock._lock.holds import Hold, Holder
from redlock._lock.lease_async import AsyncLease

if TYPE_CHECKING:
    from collections.abc import Callable


class TaskLeaseState(LeaseState):
    """Knows its event loop."""

    kind = "AsyncLease"
    __slots__ = ("_loop",)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._loop = running_loop()

    def is_here(self) -> bool:
        return running_loop() is self._loop


class TaskHold(Hold[AsyncLease]):
    """A hold that a task entered."""

    def notify_lost(self, on_lost: Callable[[AsyncLease], object] | None) -> None:
        """Cancel the body, and call each `on_lost`.  Runs on the loop."""
        for hold in reversed(self.state.holds):
            if isinstance(hold, Body):
                hold.lost()  # the innermost body: its `LockLost` passes through the outer ones
                break
        super().notify_lost(on_lost)

    def _tell(self, on_lost: Callable[[AsyncLease], object]) -> None:
        call(on_lost, self.lease, "on_lost")


class Body(Cancelling, TaskHold):
    """A hold whose body, under ``async with``, is cancelled when the lease is lost."""

    __slots__ = ()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.start_body()

    def lost(self) -> None:
        self.cancel_body(f"the lease on {self.state.shown} was lost")


class TaskHoldings:
    """What each task holds."""

    def __init__(self) -> None:
        self._own: dict[weakref.ref[asyncio.Task[Any]], Holder[AsyncLease]] = {}  # each until its task is gone

    @property
    def holds(self) -> Holder[AsyncLease]:
        """The holds of the running task."""
        try:
            task = asyncio.current_task()
        except RuntimeError:  # no loop runs in this thread
            task = None
        if task is None:
            return Holder(bool)
        holder = self._own.get(weakref.ref(task))
        if holder is None:
            own = weakref.ref(task, self._own.pop)
            self._own[own] = holder = Holder(MethodType(_goes_on, own))
        return holder


def _goes_on(own: weakref.ref[asyncio.Task[Any]]) -> bool:
    task = own()
    return task is not None and not task.done()
