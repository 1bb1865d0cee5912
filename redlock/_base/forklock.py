"""A lock that a forked child finds open.

Its parent may have forked while another thread held it, and that thread is not in the child to let
go of it.  Only for state that is right in the child whatever that thread was about to do.
"""

from __future__ import annotations

import os
import threading
import weakref


class ForkLock:
    """Has a ``lock`` to use in a ``with``, made anew in every child.

    It is not a lock itself: a Ctrl-C inside an `__enter__` written in Python would leave it locked.
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


os.register_at_fork(after_in_child=_in_child)
