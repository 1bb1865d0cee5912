"""A lock that is always open in a forked child.

The parent may fork while another of its threads holds the lock.  That thread does not exist in the child, so it would
never open the lock there.  Use it only for state that is right in the child whatever that thread was doing.
"""

from __future__ import annotations

import threading
import weakref

from redlock._io import process


class ForkLock:
    """Has a ``lock`` to use in a ``with``; every child gets a new one.

    This object is no lock itself: a Ctrl-C inside an `__enter__` written in Python would leave it locked.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        _LOCKS.add(self)

    def renew(self) -> None:
        self.lock = threading.Lock()


_LOCKS: weakref.WeakSet[ForkLock] = weakref.WeakSet()


def _in_child() -> None:
    for lock in list(_LOCKS):
        lock.renew()


process.in_child(_in_child)
