"""Cancels the body of an ``async with`` from outside, in the way of `asyncio.timeout`.

Our cancellation is counted, and taken back at the end.  A cancellation from outside at the same time wins (C13).  If
ours comes when the body has just ended, it is caught before it can strike in the code that follows.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import Any


class Cancelling:
    """One body, which runs in the task that called `start_body`."""

    __slots__ = ("_before", "_body", "cancelled")

    def start_body(self) -> None:
        task = this_task()
        self.cancelled = False
        self._body = weakref.ref(task)  # weak: the task may end long before the body
        self._before = task.cancelling()

    @property
    def is_ours(self) -> bool:
        """Whether the calling task runs the body."""
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


def this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - the code that awaits us runs in a task
    return task
