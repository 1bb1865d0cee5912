"""A lock that a forked child finds open.

Its parent may have forked while another thread held it, and that thread is not in the child to let
go of it.  Only for state that is right in the child whatever that thread was about to do.
"""

from __future__ import annotations

import os
import threading
import weakref


class ForkLock:
    """A `threading.Lock` for ``with``, made anew in every child."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _LOCKS.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _renew(self) -> None:
        self._lock = threading.Lock()


_LOCKS: weakref.WeakSet[ForkLock] = weakref.WeakSet()


def _in_child() -> None:
    for lock in list(_LOCKS):
        lock._renew()  # noqa: SLF001 - its own module


os.register_at_fork(after_in_child=_in_child)
