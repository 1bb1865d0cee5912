"""aioredlock (PyPI), for asyncio.  Only leases that are held for long are renewed, which is to its advantage."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from aioredlock import Aioredlock, LockError

from benchmarks.workers import serve, tasks


class Handle:
    def __init__(self, manager: Any, once: Any, name: str, lease: float | None) -> None:
        self._manager, self._once, self._name, self._lease = manager, once, name, lease
        self._lock: Any = None

    async def acquire(self) -> None:
        self._lock = await self._manager.lock(self._name, lock_timeout=self._lease)

    async def release(self) -> None:
        await self._manager.unlock(self._lock)

    async def attempt(self) -> bool:
        self._lock = await self._once.lock(self._name, lock_timeout=self._lease)
        return True

    async def wait(self, until: float) -> bool:
        while time.monotonic() < until:
            try:
                await self.acquire()
            except LockError:
                continue
            return True
        return False

    def lost(self) -> bool:
        return not self._lock.valid


async def main() -> None:
    logging.disable()
    manager = Aioredlock(serve.urls(), internal_lock_timeout=serve.ttl())
    once = Aioredlock(serve.urls(), retry_count=1)
    load = tasks.Load(
        lambda name: Handle(manager, once, name, serve.ttl()), lambda name: Handle(manager, once, name, None)
    )
    await serve.serve_tasks(load)


if __name__ == "__main__":
    asyncio.run(main())
