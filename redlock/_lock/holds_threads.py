"""What threads hold.

All tasks of an event loop run in one thread.  If one task holds a `MultiLock`, or the thread took it outside of all
tasks, another task of that loop does not re-enter it but gets `WouldDeadlock`.  Else both would be in the section.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from typing import TYPE_CHECKING

from redlock._lock.holds import Hold, Holder
from redlock._lock.lease_threads import Lease

if TYPE_CHECKING:
    from collections.abc import Callable


class ThreadHold(Hold[Lease]):
    """A hold that a thread entered."""

    def tell_lost(self, on_lost: Callable[[Lease], object] | None) -> None:
        with contextlib.ExitStack() as all_of_them:  # calls the others also if one raises
            for told in self._to_be_told(on_lost):
                all_of_them.callback(told, self.lease)


class _Life:
    """An object that ends with its thread."""

    __slots__ = ("__weakref__",)


class Own(threading.local):
    """The holds of each thread."""

    def __init__(self) -> None:
        self._life = _Life()
        # `Thread.is_alive` is always true for threads that `threading` did not start.
        self.holds: Holder[Lease] = Holder(functools.partial(_goes_on, weakref.ref(self._life)))


def _goes_on(life: weakref.ref[_Life]) -> bool:
    return life() is not None
