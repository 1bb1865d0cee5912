"""What one uncontended acquire and release costs, as a ratio to bare sockets in the same run.

    python -m benchmarks.bench [--rounds N] [--cycles N]

Machines are shared and noisy: rounds of library and baseline alternate, the figure is the median of
the ratios, and a single time proves nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import statistics
import time
from typing import TYPE_CHECKING

from benchmarks import contention, processes
from benchmarks.baseline import BareProtocols, BareSockets
from redlock import AsyncMasters, Masters, _connect
from redlock._core import wire
from redlock._core.quorum import majority
from redlock.testing import LocalMasters

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redlock import AsyncMultiLock

TTL = 30.0


def bare_cycle(bare: BareSockets, name: str) -> Callable[[], None]:
    keys = wire.keys_for("redlock:", [name])
    token = "0" * 40

    def cycle() -> None:
        proposal = time.time_ns() // 1000
        bare.round(_connect.pack(wire.acquire(keys, token, TTL, proposal, 3600.0)))
        bare.round(_connect.pack(wire.release(keys, token)))

    return cycle


def seconds(cycle: Callable[[], object], cycles: int) -> float:
    began = time.perf_counter()
    for _ in range(cycles):
        cycle()
    return (time.perf_counter() - began) / cycles


def compare(one: Callable[[], object], other: Callable[[], object], rounds: int, cycles: int) -> list[tuple[float, float]]:
    """Seconds per cycle of the two in turn, so that both meet the same noise."""
    for cycle in (one, other):
        seconds(cycle, cycles)      # caches, branch predictors, the first connection
    return [(seconds(one, cycles), seconds(other, cycles)) for _ in range(rounds)]


def report(title: str, pairs: list[tuple[float, float]], bar: float | None) -> None:
    ratios = sorted(a / b for a, b in pairs)
    middle = statistics.median(ratios)
    us = [statistics.median(column) * 1e6 for column in zip(*pairs, strict=True)]
    quarter = len(ratios) // 4
    line = (
        f"{title:<50} {us[0]:6.0f} µs {us[1]:6.0f} µs   median ratio {middle:.2f} "
        f"(half of them {ratios[quarter]:.2f} to {ratios[-1 - quarter]:.2f})"
    )
    if bar is not None:
        line += f", bar {bar:g}: {'ok' if middle <= bar else 'ABOVE IT'}"
    print(line, flush=True)


def threads(servers: LocalMasters, rounds: int, cycles: int) -> None:
    addresses = [("127.0.0.1", port) for port in servers.ports]
    with Masters(servers.urls, restart_guard=False) as masters:
        lock = masters.lock("bench", ttl=TTL)

        def cycle() -> None:
            lock.acquire()
            lock.release()

        comparisons: list[tuple[int, str, float | None]] = [
            (5, "threads / bare sockets that read the same replies", 1.4),
            # The limit: it leaves two replies of five unread until the next round, as the library does.
            (majority(5), "threads / bare sockets that wait for a majority", None),
        ]
        for need, title, bar in comparisons:
            bare = BareSockets(addresses, need)
            report(title, compare(cycle, bare_cycle(bare, "bare"), rounds, cycles), bar)
            bare.close()
        frozen_pairs = []
        for _ in range(max(1, rounds // 2)):
            healthy = seconds(cycle, cycles)
            servers.pause(4)
            lock.acquire(timeout=1)     # the one that finds out
            lock.release()
            frozen_pairs.append((seconds(cycle, cycles), healthy))
            servers.resume(4)
            cycle()
        report("threads: one master frozen / all five healthy", frozen_pairs, 1.1)


async def tasks(servers: LocalMasters, rounds: int, cycles: int) -> None:
    addresses = [("127.0.0.1", port) for port in servers.ports]
    async with AsyncMasters(servers.urls, restart_guard=False) as masters:

        async def one(lock: AsyncMultiLock, times: int) -> None:
            for _ in range(times):
                await lock.acquire()
                await lock.release()

        async def library() -> float:
            return await timed(one(masters.lock("bench", ttl=TTL), cycles)) / cycles

        comparisons: list[tuple[int, str, float | None]] = [
            (5, "asyncio / bare protocols that read the same replies", 1.5),
            (majority(5), "asyncio / bare protocols, wait for a majority", None),
        ]
        for need, title, bar in comparisons:
            bare = BareProtocols(need)
            await bare.connect(addresses)
            bare_seconds = functools.partial(bare_rounds, bare, cycles)
            await library(), await bare_seconds()
            report(title, [(await library(), await bare_seconds()) for _ in range(rounds)], bar)
            bare.close()

        locks = [masters.lock(f"bench:{i}", ttl=TTL) for i in range(64)]

        async def many() -> float:
            return await timed(asyncio.gather(*(one(lock, max(1, cycles // 4)) for lock in locks)))

        await many()
        each = 64 * max(1, cycles // 4)
        faster = [await library() * each / await many() for _ in range(max(1, rounds // 4))]
        print(
            f"{'asyncio: 64 tasks on distinct names / one task':<50} operations per second: median ratio "
            f"{statistics.median(faster):.2f}, bar 3: {'ok' if statistics.median(faster) >= 3 else 'BELOW IT'}"
        )
        open_now = await asyncio.to_thread(
            lambda: [servers.client(i).info("clients")["connected_clients"] - 1 for i in range(5)]
        )
        print(f"asyncio: connections open to each master after that: {open_now}", flush=True)


async def timed(work: Awaitable[object]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


async def bare_rounds(bare: BareProtocols, cycles: int) -> float:
    keys = wire.keys_for("redlock:", ["bare"])
    token = "0" * 40

    async def go() -> None:
        for _ in range(cycles):
            proposal = time.time_ns() // 1000
            await bare.round(_connect.pack(wire.acquire(keys, token, TTL, proposal, 3600.0)))
            await bare.round(_connect.pack(wire.release(keys, token)))

    return await timed(go()) / cycles


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=61, help="measurements of each (default %(default)s)")
    arguments.add_argument("--cycles", type=int, default=100, help="cycles in a measurement (default %(default)s)")
    options = arguments.parse_args()
    print(f"acquire + release, 5 masters on loopback, {options.rounds} rounds of {options.cycles} cycles\n")
    with LocalMasters(5) as servers:
        threads(servers, options.rounds, options.cycles)
        asyncio.run(tasks(servers, options.rounds, options.cycles))
        print("\nwaiting in line inside one process, critical section 1 ms\n")
        contention.run(servers, max(1, options.rounds // 12), max(0.1, min(1.0, options.cycles / 100)))
        print("\nwaiting for other processes, critical section 1 ms\n")
        processes.run(servers, max(1, options.rounds // 20), max(0.2, min(2.0, options.cycles / 50)))


if __name__ == "__main__":
    main()
