"""A process with a scheduler, which prints what it does.

    python -m tests.adapters.scheduler WORLD TTL URL ...

WORLD is ``threads`` or ``asyncio``.
"""

import asyncio
import sys
import time

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.background import BackgroundScheduler

from redlock import AsyncMasters, Masters
from redlock.adapters.apscheduler import AsyncWhileLeading, WhileLeading


def scheduled(scheduler, election):
    def job():
        began, term = time.time(), election.term
        print("job", began, term and term.number, flush=True)

    scheduler.add_job(job, "interval", seconds=0.1, misfire_grace_time=None)
    print("candidate", flush=True)
    return scheduler


def threads(ttl, urls):
    with Masters(urls, restart_guard=False) as masters:
        election = masters.leader("scheduler", ttl=ttl)
        with WhileLeading(scheduled(BackgroundScheduler(), election)) as lead:
            election.run(lead)


async def on_loop(ttl, urls):
    async with AsyncMasters(urls, restart_guard=False) as masters:
        election = masters.leader("scheduler", ttl=ttl)
        async with AsyncWhileLeading(scheduled(AsyncIOScheduler(), election)) as lead:
            await election.run(lead)


if __name__ == "__main__":
    _, world, ttl, *urls = sys.argv
    if world == "threads":
        threads(float(ttl), urls)
    else:
        asyncio.run(on_loop(float(ttl), urls))
    print("ended", flush=True)
