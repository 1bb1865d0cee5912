"""What threads hold.

All tasks of an event loop run in one thread.  If one task holds a `MultiLock`, or the thread took it outside of all
tasks, another task of that loop does not re-enter it but gets `WouldDeadlock`.  Else both would be in the section.
"""

from __future__ import annotations

import threading
import weakref

from redlock._core.lease import LeaseState
from redlock._io import process
from redlock._lock.holds import Hold, Holder
from redlock._lock.lease_threads import Lease


class ThreadLeaseState(LeaseState):
    """Guards its extensions: the renewer may extend it in its thread while the holder does so in another one."""

    brief = process.brief


class ThreadHold(Hold[Lease]):
    """A hold that a thread entered."""


class ThreadHoldings(threading.local):
    """What each thread holds."""

    def __init__(self) -> None:
        self._life: set[None] = set()  # an object that ends with its thread
        life = weakref.ref(self._life)
        # `Thread.is_alive` is always true for threads that `threading` did not start.
        self.holds: Holder[Lease] = Holder(lambda: life() is not None)
