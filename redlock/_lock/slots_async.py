"""Slots, for asyncio: at most ``limit`` holders at once (R32)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redlock._lock.lease_async import AsyncLease
from redlock._lock.lock_async import AsyncMultiLock
from redlock._lock.masters_async import AsyncMasters
from redlock._lock.slots import SlotsBase
from redlock._lock.typed import SlotOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.inspect import SlotsStatus


class AsyncSlotsOptions(SlotOptions, total=False):
    """The options of `AsyncSlots`, for type checkers."""

    on_lost: Callable[[AsyncLease], object] | None
    cancel_on_loss: bool  # asyncio only


class AsyncSlots(SlotsBase[AsyncMasters, AsyncLease], AsyncMultiLock):
    """At most ``limit`` holders of one name at once, each with a slot of its own.

    Slot i is the lock ``name#i``, with all promises of a lock.  `AsyncLease.slot` says which one it is, and its fence
    orders the holders of *that slot*.  A waiter gets the slot that is free first.

    Many tasks may use one object; each of them holds a slot for itself.  A task that has a slot and acquires
    again gets the same one, counted (R26).  With ``bound=False`` it gets another one, and a release gives back the
    latest one.
    """

    async def status(self) -> SlotsStatus:
        """Which slots are free, and who holds the others; each is looked at by itself.

        It takes at most `node_timeout` for each slot.

        Raises:
            QuorumUnreachable: too few masters answered to know.
        """
        return await self._runtime.run(self._inspection())

    async def locked(self) -> bool:
        """Whether no slot is free, as far as a majority of masters says.

        Raises:
            QuorumUnreachable: too few masters answered to know.
        """
        status = await self.status()
        return status.free == 0
