"""Many leases held at once: what one keeper costs, and whether it loses any (R15).

    python -m benchmarks.held [--leases 10000] [--ttl 30] [--seconds 120]
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import resource
import threading
import time
from typing import TYPE_CHECKING

from redlock import AsyncMasters, Masters
from redlock.testing import LocalMasters

if TYPE_CHECKING:
    from redlock import AsyncLease, Lease

AT_ONCE = 200


def report(world: str, leases: list[Lease] | list[AsyncLease], seconds: float, cpu: float, memory: float) -> None:
    lost = sum(lease.lost for lease in leases)
    print(
        f"{world}: {len(leases)} leases held for {seconds:.0f} s: {lost} lost, keeper {100 * cpu / seconds:.1f} % of a "
        f"core (bar 25), {threading.active_count()} threads, {memory / len(leases):.1f} KB each",
        flush=True,
    )


def peak() -> float:
    """KB of memory, at most until now."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def with_threads(urls: list[str], number: int, ttl: float, seconds: float) -> None:
    with Masters(urls, restart_guard=False) as masters:
        with masters.lock("first", ttl=ttl):
            before = peak()
        locks = [masters.lock(f"job-{i}", ttl=ttl, bound=False) for i in range(number)]
        leases = [lease for lock in locks if (lease := lock.acquire()) is not None]
        memory = peak() - before
        cpu = time.process_time()
        time.sleep(seconds)
        report("threads", leases, seconds, time.process_time() - cpu, memory)
        for lock in locks:
            lock.release()


def with_tasks(urls: list[str], number: int, ttl: float, seconds: float) -> None:
    async def main() -> None:
        async with AsyncMasters(urls, restart_guard=False) as masters:
            async with masters.lock("first", ttl=ttl):
                before = peak()
            locks = [masters.lock(f"job-{i}", ttl=ttl, bound=False) for i in range(number)]
            leases: list[AsyncLease] = []
            for begin in range(0, number, AT_ONCE):
                some = await asyncio.gather(*(lock.acquire() for lock in locks[begin : begin + AT_ONCE]))
                leases += [lease for lease in some if lease is not None]
            memory = peak() - before
            cpu = time.process_time()
            await asyncio.sleep(seconds)
            report("asyncio", leases, seconds, time.process_time() - cpu, memory)
            for begin in range(0, number, AT_ONCE):
                await asyncio.gather(*(lock.release() for lock in locks[begin : begin + AT_ONCE]))

    asyncio.run(main())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leases", type=int, default=10_000)
    parser.add_argument("--ttl", type=float, default=30.0)
    parser.add_argument("--seconds", type=float, default=120.0)
    options = parser.parse_args()
    with LocalMasters(5) as servers:
        for measure in (with_threads, with_tasks):      # each in a process of its own: memory is only ever given
            held = (servers.urls, options.leases, options.ttl, options.seconds)
            process = multiprocessing.get_context("spawn").Process(target=measure, args=held)
            process.start()
            process.join()


if __name__ == "__main__":
    main()
