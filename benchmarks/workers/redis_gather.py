"""What people write themselves with redis-py on asyncio: `gather` of SET NX on every master, DEL if it is ours.

… gather
… single        no quorum: redis-py's own `Lock` on the first master
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, Any

import redis.asyncio

from benchmarks.workers import serve, tasks
from benchmarks.workers.redis_py import PAUSE, UNLOCK

if TYPE_CHECKING:
    from collections.abc import Callable


class Gather:
    def __init__(self, masters: list[redis.asyncio.Redis], name: str) -> None:
        self._masters = masters
        self._unlock = [master.register_script(UNLOCK) for master in masters]
        self._name = name
        self._token = ""
        self.acquire = self.attempt

    async def attempt(self) -> bool:
        self._token = secrets.token_hex(20)
        ms = int(serve.ttl() * 1000)
        answers = await asyncio.gather(
            *(master.set(self._name, self._token, nx=True, px=ms) for master in self._masters), return_exceptions=True
        )
        if sum(answer is True for answer in answers) > len(self._masters) // 2:
            return True
        await self.release()
        return False

    async def release(self) -> None:
        calls = (script(keys=[self._name], args=[self._token]) for script in self._unlock)
        await asyncio.gather(*calls, return_exceptions=True)

    async def wait(self, until: float) -> bool:
        while time.monotonic() < until:
            if await self.attempt():
                return True
            await asyncio.sleep(PAUSE)
        return False


class Single:
    def __init__(self, master: redis.asyncio.Redis, name: str) -> None:
        lock = master.lock(name, timeout=serve.ttl(), thread_local=False)
        self._lock = lock
        self.acquire: Callable[[], Any] = lock.acquire
        self.release: Callable[[], Any] = lock.release

    async def attempt(self) -> bool:
        return bool(await self._lock.acquire(blocking=False))

    async def wait(self, until: float) -> bool:
        return bool(await self._lock.acquire(blocking_timeout=max(0.0, until - time.monotonic())))


async def main() -> None:
    masters = [redis.asyncio.Redis.from_url(url) for url in serve.urls()]
    make: Callable[[str], tasks.Handle]
    if serve.options() == ["single"]:

        def make(name: str) -> tasks.Handle:
            return Single(masters[0], name)
    else:

        def make(name: str) -> tasks.Handle:
            return Gather(masters, name)

    load = tasks.Load(make)
    await serve.serve_tasks(load)


if __name__ == "__main__":
    asyncio.run(main())
