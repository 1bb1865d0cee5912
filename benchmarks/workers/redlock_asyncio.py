"""This library, for asyncio."""

from __future__ import annotations

import asyncio
import time

from benchmarks.workers import serve, tasks
from redlock import AsyncMasters, AsyncMultiLock


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


async def main() -> None:
    async with AsyncMasters(serve.urls(), restart_guard=False) as masters:
        load = tasks.Load(
            lambda name: Handle(masters.lock(name, ttl=serve.ttl())),
            lambda name: Handle(masters.lock(name, ttl=serve.ttl(), bound=False)),
        )
        await serve.serve_tasks(load)


if __name__ == "__main__":
    asyncio.run(main())
