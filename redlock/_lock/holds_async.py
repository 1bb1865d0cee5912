"""What tasks hold.

The body of an ``async with`` is cancelled when its lease is lost (see `Cancelling`).  The release of a lost lease is
sent and not waited for.  An error of the body goes on, with a note.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import weakref
from typing import TYPE_CHECKING, Any

from redlock._lock.callbacks import call
from redlock._lock.cancelling import Cancelling
from redlock._lock.holds import Hold, Holder
from redlock._lock.lease_async import AsyncLease

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping


class TaskHold(Hold[AsyncLease]):
    """A hold that a task entered."""

    def tell_lost(self, on_lost: Callable[[AsyncLease], object] | None) -> None:
        """Cancel the body, and call each `on_lost`.  Runs on the loop."""
        for hold in reversed(self.state.holds):
            if isinstance(hold, Body):
                hold.lost()  # the innermost body: its `LockLost` passes through the outer ones
                break
        with contextlib.ExitStack() as all_of_them:  # calls the others also if one raises
            for told in self._to_be_told(on_lost):
                all_of_them.callback(call, told, self.lease, "on_lost")


class Body(Cancelling, TaskHold):
    """A hold whose body, under ``async with``, is cancelled when the lease is lost."""

    __slots__ = ()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.body_begins()

    def lost(self) -> None:
        self.cancel_body(f"the lease on {self.state.shown} was lost")


def of_this_task(own: MutableMapping[asyncio.Task[Any], Holder[AsyncLease]]) -> Holder[AsyncLease]:
    """What the running task holds, of all that ``own`` has by task."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs in this thread
        task = None
    if task is None:
        return Holder(bool)
    holder = own.get(task)
    if holder is None:
        own[task] = holder = Holder(functools.partial(_is_alive, weakref.ref(task)))
    return holder


def _is_alive(reference: weakref.ref[asyncio.Task[Any]]) -> bool:
    task = reference()
    return task is not None and not task.done()
