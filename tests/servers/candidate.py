"""A candidate in a process of its own.

    python -m tests.servers.candidate WORLD URL ...

It prints ``leads NUMBER AT`` when a body begins, and ``ended NUMBER AT`` when that ends, half a second after it was told
to; the times are those of `time.monotonic`.  ``follows`` is another leader that it sees.  SIGTERM and SIGINT stop it.
"""

from __future__ import annotations

import asyncio
import sys
import time

import redlock


def said(what: str, term: redlock.Term | redlock.AsyncTerm) -> None:
    print(what, term.number, time.monotonic(), flush=True)


def follows(_: str) -> None:
    print("follows", flush=True)


def lead(term: redlock.Term) -> None:
    said("leads", term)
    term.wait_stop()
    time.sleep(0.5)
    said("ended", term)


async def lead_async(term: redlock.AsyncTerm) -> None:
    said("leads", term)
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.5)
        said("ended", term)


async def run(urls: list[str]) -> None:
    async with redlock.AsyncMasters(urls, restart_guard=False) as masters:
        await masters.leader("beat", ttl=30).run(lead_async, on_new_leader=follows)


def main() -> None:
    world, *urls = sys.argv[1:]
    if world == "asyncio":
        asyncio.run(run(urls))
    else:
        with redlock.Masters(urls, restart_guard=False) as masters:
            masters.leader("beat", ttl=30).run(lead, on_new_leader=follows)


if __name__ == "__main__":
    main()
