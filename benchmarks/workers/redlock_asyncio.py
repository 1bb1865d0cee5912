"""This library, for asyncio."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from benchmarks.workers import serve, tasks
from redlock import AsyncMasters, AsyncMultiLock, LockAcquired


class Handle:
    def __init__(self, lock: AsyncMultiLock) -> None:
        self._lock = lock
        self.acquire = lock.acquire
        self.release = lock.release

    async def attempt(self) -> bool:
        return await self._lock.acquire(timeout=0) is not None

    async def wait(self, until: float) -> bool:
        return await self._lock.acquire(timeout=max(0.0, until - time.monotonic())) is not None

    def lost(self) -> bool:
        lease = self._lock.lease
        return lease is None or lease.lost


class Load(tasks.Load):
    _attempts = 0  # of the latest acquire in `settle`
    _watched: AsyncMasters | None = None

    def _told(self, event: object) -> None:
        if isinstance(event, LockAcquired):
            self._attempts = event.attempts

    async def settle(self, name: str, pause: float) -> dict[str, int]:
        """Take it once, by masters of its own: an observer costs time.  The first time only connects."""
        if self._watched is None:
            self._watched = AsyncMasters(serve.urls(), restart_guard=False, observer=self._told)
            await self._watched.status(name)
        await asyncio.sleep(pause)
        await lock(self._watched, name, ttl=serve.ttl()).acquire()
        return {"attempts": self._attempts}


def lock(masters: AsyncMasters, name: str, **options: Any) -> AsyncMultiLock:
    """``3-slots-of-NAME`` and ``in-order-NAME`` are what they say."""
    limit, of, group = name.partition("-slots-of-")
    if name.startswith("in-order-"):
        options["fair"] = True
    return masters.slots(group, limit=int(limit), **options) if of else masters.lock(name, **options)


async def main() -> None:
    async with AsyncMasters(serve.urls(), restart_guard=False) as masters:
        load = Load(
            lambda name: Handle(lock(masters, name, ttl=serve.ttl())),
            lambda name: Handle(masters.lock(name, ttl=serve.ttl(), bound=False)),
        )
        await serve.serve_tasks(load)


if __name__ == "__main__":
    asyncio.run(main())
