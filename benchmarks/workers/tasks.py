"""The load, for subjects that are awaited: the same loops for all of them."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.workers import serve

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

AT_ONCE = 200


class Handle(Protocol):
    """One contender's way to one name, as in `threads`."""

    @property
    def acquire(self) -> Callable[[], Awaitable[Any]]: ...

    @property
    def release(self) -> Callable[[], Awaitable[Any]]: ...

    async def attempt(self) -> bool: ...

    async def wait(self, until: float) -> bool: ...


class Load:
    def __init__(self, handle: Callable[[str], Handle], kept: Callable[[str], Any] | None = None) -> None:
        """``kept`` makes handles of leases that are renewed, and taken and given back by whomever; they know `lost`."""
        self._handle = handle
        self._kept = kept or handle
        self._mine = handle(serve.name())
        self._held: list[Any] = []

    async def cycles(self, times: int) -> dict[str, float]:
        acquire, release, clock = self._mine.acquire, self._mine.release, time.perf_counter
        for _ in range(times // 4):  # another process has run in the meantime: the caches are its own
            await acquire()
            await release()
        taking = 0.0
        cpu, began = time.process_time(), clock()
        for _ in range(times):
            start = clock()
            await acquire()
            taking += clock() - start
            await release()
        return {"seconds": clock() - began, "acquire": taking, "cpu": time.process_time() - cpu}

    async def attempt(self, name: str) -> dict[str, Any]:
        handle = self._handle(name)
        began = time.perf_counter()
        try:
            acquired, error = await handle.attempt(), ""
        except Exception as failure:  # noqa: BLE001 - that is how it says no
            acquired, error = False, type(failure).__name__
        took = time.perf_counter() - began
        if acquired:
            try:
                await handle.release()
            except Exception as failure:  # noqa: BLE001
                error = f"release: {type(failure).__name__}"
        return {"acquired": acquired, "seconds": took, "both": time.perf_counter() - began, "error": error}

    async def throughput(self, workers: int, lasts: float) -> dict[str, float]:
        handles = [self._handle(f"{serve.name()}-{number}") for number in range(workers)]

        async def work(handle: Handle, until: float) -> int:
            acquire, release, count = handle.acquire, handle.release, 0
            while time.monotonic() < until:
                await acquire()
                await release()
                count += 1
            return count

        await asyncio.gather(*(work(handle, time.monotonic() + 0.01) for handle in handles))
        cpu, began = time.process_time(), time.monotonic()
        counts = await asyncio.gather(*(work(handle, began + lasts) for handle in handles))
        return {"pairs": sum(counts), "seconds": time.monotonic() - began, "cpu": time.process_time() - cpu}

    async def contend(
        self, name: str, contenders: int, section: float, pause: float, begin: float, end: float
    ) -> dict[str, Any]:
        holds: list[tuple[float, float, int]] = []

        async def work(number: int) -> None:
            handle = self._handle(name)
            await asyncio.sleep(max(0.0, begin - time.monotonic()))
            while time.monotonic() < end and await handle.wait(end):
                acquired = time.monotonic()
                await asyncio.sleep(section)
                holds.append((acquired, time.monotonic(), number))
                await handle.release()
                if pause:
                    await asyncio.sleep(pause)

        await asyncio.gather(*(work(number) for number in range(contenders)))
        return {"holds": holds}

    async def hold(self, number: int) -> dict[str, float]:
        self._held = [self._kept(f"{serve.name()}-{index}") for index in range(number)]
        began = time.monotonic()
        for index in range(0, number, AT_ONCE):
            await asyncio.gather(*(handle.acquire() for handle in self._held[index : index + AT_ONCE]))
        return {"seconds": time.monotonic() - began, "threads": threading.active_count() - serve.THREADS}

    async def rest(self, lasts: float) -> dict[str, float]:
        cpu, began = time.process_time(), time.monotonic()
        await asyncio.sleep(lasts)
        lost = sum(handle.lost() for handle in self._held)
        return {"seconds": time.monotonic() - began, "cpu": time.process_time() - cpu, "lost": lost}

    async def drop(self) -> dict[str, Any]:
        for index in range(0, len(self._held), AT_ONCE):
            await asyncio.gather(*(handle.release() for handle in self._held[index : index + AT_ONCE]))
        self._held = []
        return {}

    async def footprint(self, what: str, number: int) -> dict[str, float]:
        """Bytes for each lock object, for each lease that is held (with its lock), for each task that waits."""
        first = self._kept(f"{serve.name()}-first")
        await first.acquire()
        names = [f"{serve.name()}-{index}" for index in range(number)]
        before = serve.memory()
        self._held = [self._kept(name) for name in names] if what != "waiting" else []
        if what == "held":
            for index in range(0, number, AT_ONCE):
                await asyncio.gather(*(handle.acquire() for handle in self._held[index : index + AT_ONCE]))
        tasks: list[asyncio.Task[None]] = []
        if what == "waiting":
            until = time.monotonic() + 60

            async def wait() -> None:
                handle = self._handle(f"{serve.name()}-first")
                if await handle.wait(until):
                    await handle.release()

            tasks = [asyncio.create_task(wait()) for _ in names]
            await asyncio.sleep(1.0)
        used = serve.memory() - before
        await first.release()
        await asyncio.gather(*tasks)
        if what == "held":
            await self.drop()
        return {"bytes": used / number}
