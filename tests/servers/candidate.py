"""A candidate in a process of its own.

    python -m tests.servers.candidate WORLD OWNER TTL LASTS URL ...

It prints ``leads NUMBER AT`` when a body begins, and ``ended NUMBER AT`` when that ends; the times are those of
`time.monotonic`.  A body ends ``LASTS`` seconds after it was told to, and not before.  SIGTERM and SIGINT stop it.
"""

from __future__ import annotations

import asyncio
import sys
import time

import redlock


def said(what: str, term: redlock.Term | redlock.AsyncTerm) -> None:
    print(what, term.number, time.monotonic(), flush=True)


def main() -> None:
    world, owner, ttl, lasts, *urls = sys.argv[1:]

    def lead(term: redlock.Term) -> None:
        said("leads", term)
        term.wait_stop()
        time.sleep(float(lasts))
        said("ended", term)

    async def lead_async(term: redlock.AsyncTerm) -> None:
        said("leads", term)
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(float(lasts))
            said("ended", term)

    async def run() -> None:
        async with redlock.AsyncMasters(urls, restart_guard=False, owner=owner) as masters:
            await masters.leader("beat", ttl=float(ttl)).run(lead_async)

    if world == "asyncio":
        asyncio.run(run())
    else:
        with redlock.Masters(urls, restart_guard=False, owner=owner) as masters:
            masters.leader("beat", ttl=float(ttl)).run(lead)
    print("over", time.monotonic(), flush=True)


if __name__ == "__main__":
    main()
