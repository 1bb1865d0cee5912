"""A held lock, for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import math

# > from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from redlock import options
from redlock._lock.lease import LeaseBase
from redlock._system import clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.stop import Watchers


class AsyncLease(LeaseBase):
    __doc__ = LeaseBase.__doc__
    __slots__ = ()

    async def downgrade(self) -> None:
        """Share the lock with readers from now on (R33), without a moment in which another client may write.

        From this call on this lease promises only the shared lock, whatever the masters answer.  The fence
        stays.  Nothing changes in a lease that is shared already.  There is no way back but a release.

        Raises:
            NotHeld: this task does not hold it.
            NotExtended: too few masters answered.  The lease is shared all the same, and keeps its validity;
                readers get in only after the next renewal.
            LockLost: the lease had ended, or a majority of masters denied it now.
            WouldDeadlock: it was entered more than once: the outer ``with`` needs it exclusively.
            ConfigurationError: it has a ``hold_at_least``, or is a slot.
        """
        await self._lock()._downgrade(self._state)  # noqa: SLF001 - a lease is a face of its lock

    async def wait_lost(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - as for threads
        """Wait until this lease is lost.  True if it is; False if it was released or ``timeout`` has passed.

        ``timeout``: seconds; None: no limit.  An extension of the lease makes the wait longer, too.
        """
        state = self._state
        ended, left = lambda: state.over or not state.mine(), lambda: state.valid_until - clock.now()
        await wait_until(state.watchers, ended, timeout, left)
        return state.lost


async def wait_until(
    watchers: Watchers,
    done: Callable[[], bool],
    timeout: float | None,  # noqa: ASYNC109 - as for threads
    most: Callable[[], float] = lambda: clock.NAP,
) -> bool:
    """Wait until ``done``, for ``timeout`` seconds at most, and look again after ``most`` of them."""
    until = math.inf if timeout is None else clock.now() + options.patience("timeout", timeout)
    # asyncio only
    loop = asyncio.get_running_loop()
    woken = asyncio.Event()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(woken.set)

    watchers.subscribe(woken, wake)
    # threads instead
    # > woken: SimpleQueue[None] = SimpleQueue()  # a signal handler may put into it
    # > watchers.subscribe(woken, lambda: woken.put(None))
    # both again
    try:
        while not done():
            left = until - clock.now()
            if left <= 0:
                return False
            pause = max(0.0, min(left, most(), clock.NAP))
            # asyncio only
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await woken.wait()
            woken.clear()
            # threads instead
            # > with contextlib.suppress(Empty):
            # >     woken.get(timeout=pause)
            # both again
        return True
    finally:
        watchers.unsubscribe(woken)
