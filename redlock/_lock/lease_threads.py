# Made from redlock/_lock/lease_async.py by tools/unasync.py: change that file, then run `make faces`.
"""A held lock, for threads."""

from __future__ import annotations

import contextlib
import math
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from redlock import options
from redlock._lock.lease import LeaseBase
from redlock._system import clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.stop import Watchers


class Lease(LeaseBase):
    __doc__ = LeaseBase.__doc__
    __slots__ = ()

    def downgrade(self) -> None:
        """Share the lock with readers from now on (R33), without a moment in which another client may write.

        From this call on this lease promises only the shared lock, whatever the masters answer.  The fence
        stays.  Nothing changes in a lease that is shared already.  There is no way back but a release.

        Raises:
            NotHeld: this thread does not hold it.
            NotExtended: too few masters answered.  The lease is shared all the same, and keeps its validity;
                readers get in only after the next renewal.
            LockLost: the lease had ended, or a majority of masters denied it now.
            WouldDeadlock: it was entered more than once: the outer ``with`` needs it exclusively.
            ConfigurationError: it has a ``hold_at_least``, or is a slot.
        """
        self._lock()._downgrade(self._state)  # noqa: SLF001 - a lease is a face of its lock

    def wait_lost(self, timeout: float | None = None) -> bool:
        """Wait until this lease is lost.  True if it is; False if it was released or ``timeout`` has passed.

        ``timeout``: seconds; None: no limit.  An extension of the lease makes the wait longer, too.
        """
        state = self._state
        ended, left = lambda: state.over or not state.mine(), lambda: state.valid_until - clock.now()
        wait_until(state.watchers, ended, timeout, left)
        return state.lost


def wait_until(
    watchers: Watchers,
    done: Callable[[], bool],
    timeout: float | None,
    most: Callable[[], float] = lambda: clock.NAP,
) -> bool:
    """Wait until ``done``, for ``timeout`` seconds at most, and look again after ``most`` of them."""
    until = math.inf if timeout is None else clock.now() + options.patience("timeout", timeout)
    woken: SimpleQueue[None] = SimpleQueue()  # a signal handler may put into it
    watchers.subscribe(woken, lambda: woken.put(None))
    try:
        while not done():
            left = until - clock.now()
            if left <= 0:
                return False
            pause = max(0.0, min(left, most(), clock.NAP))
            with contextlib.suppress(Empty):
                woken.get(timeout=pause)
        return True
    finally:
        watchers.unsubscribe(woken)
