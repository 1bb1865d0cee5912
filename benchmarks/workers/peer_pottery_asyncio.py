"""pottery (PyPI), for asyncio."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from pottery import AIORedlock
from redis.asyncio import Redis

from benchmarks.workers import serve, tasks


class Handle:
    def __init__(self, masters: set[Any], name: str) -> None:
        lock = AIORedlock(key=name, masters=masters, auto_release_time=serve.ttl())
        self._lock = lock
        self.acquire = lock.acquire
        self.release = lock.release

    async def attempt(self) -> bool:
        return bool(await self._lock.acquire(blocking=False))

    async def wait(self, until: float) -> bool:
        return bool(await self._lock.acquire(timeout=max(0.0, until - time.monotonic())))


async def main() -> None:
    logging.disable()
    masters = {Redis.from_url(url) for url in serve.urls()}
    load = tasks.Load(lambda name: Handle(masters, name))
    await serve.serve_tasks(load)


if __name__ == "__main__":
    asyncio.run(main())
