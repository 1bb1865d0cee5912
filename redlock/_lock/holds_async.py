"""What tasks hold.  A lost lease cancels the body of its ``async with``.  No task waits for answers to its release."""

from __future__ import annotations

import asyncio
import inspect
import weakref
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any, TypeVar

from redlock._core.lease import LeaseState
from redlock._io import process
from redlock._io.report import report_failure
from redlock._io.runtime import running_loop
from redlock._lock.holds import Hold, Holder
from redlock._lock.lease_async import AsyncLease

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class TaskLeaseState(LeaseState):
    """Knows its event loop."""

    kind = "AsyncLease"
    brief = process.brief  # not for other threads: Python code costs more to enter than its lock
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
                # The innermost body: its `LockLost` passes through the outer ones.
                hold.cancel_body(f"the lease on {self.state.shown} was lost")
                break
        super().notify_lost(on_lost)

    def _tell(self, on_lost: Callable[[AsyncLease], object]) -> None:
        call(on_lost, self.lease, "on_lost")


class Cancelling:
    """Cancels a body from outside, in the way of `asyncio.timeout`.  It runs in the task that called `start_body`.

    Our cancellation is counted, and taken back at the end.  A cancellation from outside at the same time wins (C13).
    If ours comes when the body has just ended, it is caught before it can strike in the code that follows.
    """

    __slots__ = ("_before", "_body", "cancelled")

    def start_body(self) -> None:
        task = this_task()
        self.cancelled = False
        self._body = weakref.ref(task)  # weak: the task may end long before the body
        self._before = task.cancelling()

    @property
    def is_ours(self) -> bool:
        return self._body() is this_task()

    def cancel_body(self, why: str) -> None:
        task = self._body()
        self.cancelled = task is not None and task.cancel(why)

    def uncancel(self) -> None:
        """Take our cancellation back: the body's generator was thrown away, perhaps in another task."""
        task = self._body()
        if self.cancelled and task is not None:
            self.cancelled = False
            task.uncancel()

    async def finish_body(self, error: BaseException | None) -> bool:
        """The body ended with ``error``.  Take our cancellation back.  True if ``error`` is not its effect.

        A cancellation from outside goes on (C13).  A second call, after an exception has struck in the first one,
        finds it still `cancelled`, unless it was taken back.
        """
        late: asyncio.CancelledError | None = None
        if not isinstance(error, asyncio.CancelledError):
            try:
                await asyncio.sleep(0)  # if the body ended before ours could strike, it strikes here
            except asyncio.CancelledError as cancelled:
                late = cancelled
        uncancel = this_task().uncancel
        self.cancelled = False
        left = uncancel()
        if left <= self._before:
            return error is not None and not isinstance(error, asyncio.CancelledError)
        if late is not None:
            raise late
        return True


class Body(Cancelling, TaskHold):
    """A hold whose body, under ``async with``, is cancelled when the lease is lost."""

    __slots__ = ()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.start_body()


class TaskHoldings:
    """What each task holds."""

    def __init__(self) -> None:
        self._own: dict[weakref.ref[asyncio.Task[Any]], Holder[AsyncLease]] = {}  # each until its task is gone

    @property
    def holds(self) -> Holder[AsyncLease]:
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


def this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - the code that awaits us runs in a task
    return task


def call(function: Callable[[T], object], argument: T, name: str) -> None:
    """Call ``function`` on the running loop; a coroutine function in a task of its own.  ``name``: for the log."""
    result = function(argument)
    if inspect.iscoroutine(result):
        task = asyncio.get_running_loop().create_task(result)
        _TASKS.add(task)  # the loop holds its tasks only by weak references
        task.add_done_callback(partial(_report_failed, name))


def _report_failed(name: str, task: asyncio.Task[Any]) -> None:
    _TASKS.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        report_failure(f"{name} failed", error)


_TASKS: set[asyncio.Task[Any]] = set()
