"""A held lock, for asyncio."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from redlock import _clock
from redlock._core.lease import LeaseState

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

    from redlock._core.acquire import Grant


class AsyncLease(LeaseState):
    __doc__ = LeaseState.__doc__
    __slots__ = ("_loop", "_waiting")

    # In the chunks of a wait: the clock of a loop stands still while the machine sleeps (R5).
    _CHUNK: Final = 1.0

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
        self._loop = asyncio._get_running_loop()  # noqa: SLF001 - the documented one raises where none runs

    def _is_here(self) -> bool:
        return asyncio._get_running_loop() is self._loop  # noqa: SLF001

    async def wait_lost(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - as for threads
        """Wait until this lease is lost; True if it is, False if it was released or ``timeout`` has passed.

        Args:
            timeout: seconds, None: as long as it lasts.  A lease that is extended lasts longer.
        """
        until = None if timeout is None else _clock.now() + timeout
        while not self.lost and not self._released:
            now = _clock.now()
            if until is not None and now >= until:
                return False
            ends_at = self._ends_at  # never, before an extension has confirmed one that was handed over
            left = min(ends_at, ends_at if until is None else until) - now
            await self._sleep(max(0.0, min(left, self._CHUNK)))
            if not self._mine():
                return False
        return self.lost

    async def _sleep(self, seconds: float) -> None:
        """For so long, or until it has ended."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        alarm = loop.call_later(seconds, _wake, future)
        waiting: dict[asyncio.Future[None], None] | None = getattr(self, "_waiting", None)
        if waiting is None:  # few leases are ever waited for
            self._waiting = waiting = {}
        waiting[future] = None
        try:
            if not (self._released or self._lost):  # it may have ended in another thread just now
                await future
        finally:
            alarm.cancel()
            del waiting[future]

    def _changed(self) -> None:
        super()._changed()
        waiting: dict[asyncio.Future[None], None] | None = getattr(self, "_waiting", None)
        for future in list(waiting or ()):
            loop = future.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(_wake, future)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
