"""Contenders of one process: how often they take the lock together, as a ratio to one alone (R23)."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from typing import TYPE_CHECKING

from redlock import AsyncMasters, Masters

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock.testing import LocalMasters

TTL = 30.0
SECTION = 0.001     # how long each one holds it


def with_threads(servers: LocalMasters, contenders: int, lasts: float) -> list[int]:
    """How often each of them had it."""
    counts = [0] * contenders
    with Masters(servers.urls, restart_guard=False) as masters:
        until = time.monotonic() + lasts

        def work(number: int) -> None:
            lock = masters.lock("contended", ttl=TTL)
            while time.monotonic() < until:
                with lock:
                    time.sleep(SECTION)
                counts[number] += 1

        threads = [threading.Thread(target=work, args=(number,)) for number in range(contenders)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return counts


def with_tasks(servers: LocalMasters, contenders: int, lasts: float) -> list[int]:
    async def main() -> list[int]:
        counts = [0] * contenders
        async with AsyncMasters(servers.urls, restart_guard=False) as masters:
            until = time.monotonic() + lasts

            async def work(number: int) -> None:
                lock = masters.lock("contended", ttl=TTL)
                while time.monotonic() < until:
                    async with lock:
                        await asyncio.sleep(SECTION)
                    counts[number] += 1

            await asyncio.gather(*(work(number) for number in range(contenders)))
        return counts

    return asyncio.run(main())


def run(servers: LocalMasters, rounds: int, lasts: float) -> None:
    worlds: list[tuple[str, Callable[[LocalMasters, int, float], list[int]]]] = [
        ("threads", with_threads), ("asyncio", with_tasks),
    ]
    for world, measure in worlds:
        for contenders, bar in ((10, 0.65), (50, 0.6)):
            ratios, spread = [], []
            for _ in range(rounds):
                alone = sum(measure(servers, 1, lasts))
                counts = measure(servers, contenders, lasts)
                ratios.append(sum(counts) / max(1, alone))
                spread.append(max(counts) / max(1, min(counts)))
            middle = statistics.median(ratios)
            print(
                f"{f'{world}: {contenders} contenders / one alone':<50} hand-overs per second: median ratio "
                f"{middle:.2f}, bar {bar:g}: {'ok' if middle >= bar else 'BELOW IT'}; "
                f"luckiest to unluckiest {statistics.median(spread):.2f} : 1",
                flush=True,
            )
