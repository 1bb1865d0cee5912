"""The state of a lease that tasks may wait for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from redlock import _clock, options
from redlock._core.lease import LeaseState
from redlock._io.loop import running_loop

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.ballots import Grant


# A wait is cut into chunks of this many seconds: the clock of a loop stands still while the machine sleeps (R5).
_CHUNK = 1.0


class TaskLeaseState(LeaseState):
    """Lets tasks wait for the end of the lease, and knows its event loop."""

    kind = "AsyncLease"
    __slots__ = ("_loop", "_waiting")

    def __init__(
        self,
        names: tuple[str, ...],
        ttl: float,
        grant: Grant,
        *,
        clock: Callable[[], float],
        mine: Callable[[], bool],
        resumed: bool = False,
    ) -> None:
        super().__init__(names, ttl, grant, clock=clock, mine=mine, resumed=resumed)
        self._loop = running_loop()

    def is_here(self) -> bool:
        return running_loop() is self._loop

    async def wait_lost(self, timeout: float | None) -> bool:  # noqa: ASYNC109 - as for threads
        until = None if timeout is None else _clock.now() + options.patience("timeout", timeout)
        while not self.lost and not self.released:
            now = _clock.now()
            if until is not None and now >= until:
                return False
            ends_at = self.ends_at  # infinite for a resumed lease before its first extension
            left = min(ends_at, ends_at if until is None else until) - now
            await self._sleep(max(0.0, min(left, _CHUNK)))
            if not self.mine():
                return False
        return self.lost

    async def _sleep(self, seconds: float) -> None:
        """Sleep for ``seconds``, or until the lease has changed."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        alarm = loop.call_later(seconds, _wake, future)
        waiting: dict[asyncio.Future[None], None] | None = getattr(self, "_waiting", None)
        if waiting is None:  # made on demand: few leases are waited for
            self._waiting = waiting = {}
        waiting[future] = None
        try:
            if not (self.released or self._lost):  # it may have ended in another thread just now
                await future
        finally:
            alarm.cancel()
            del waiting[future]

    def changed(self) -> None:
        super().changed()
        waiting: dict[asyncio.Future[None], None] | None = getattr(self, "_waiting", None)
        for future in list(waiting or ()):
            loop = future.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(_wake, future)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
