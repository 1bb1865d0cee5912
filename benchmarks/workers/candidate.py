"""One candidate of an election.

    python -m benchmarks.workers.candidate threads|asyncio URL,URL… TTL

It prints the time at which it leads, on `time.monotonic`, and ends when it was stopped: by a signal, or by ``stop`` on
its standard input.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from typing import TYPE_CHECKING

from redlock import AsyncMasters, Masters

if TYPE_CHECKING:
    from redlock import AsyncElection, AsyncTerm, Election, Term


def main() -> None:
    world, urls, ttl = sys.argv[1:]
    if world == "threads":
        with Masters(urls.split(","), restart_guard=False) as masters:
            election = masters.leader("bench:leader", ttl=float(ttl))
            _listen(election)
            election.run(_lead)
    else:
        asyncio.run(_run(urls.split(","), float(ttl)))


async def _run(urls: list[str], ttl: float) -> None:
    async with AsyncMasters(urls, restart_guard=False) as masters:
        election = masters.leader("bench:leader", ttl=ttl)
        _listen(election)
        await election.run(_lead_async)


def _lead(term: Term) -> None:
    print(time.monotonic(), flush=True)
    term.wait_stop()


async def _lead_async(_: AsyncTerm) -> None:
    print(time.monotonic(), flush=True)
    await asyncio.sleep(3600)


def _listen(election: Election | AsyncElection) -> None:
    def read() -> None:
        if sys.stdin.readline().strip() == "stop":
            election.stop()

    threading.Thread(target=read, daemon=True).start()
    print("stands", flush=True)


if __name__ == "__main__":
    main()
