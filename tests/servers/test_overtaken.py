"""A release that does not travel where its acquire did must not leave the key behind (R10, P7).

One master's connection lags: what was asked on it waits in a proxy, while other connections to that master do not.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from typing import Any

import pytest

from redlock import AsyncMasters
from tests.servers.look import eventually, lock_keys, nothing_left, script_calls
from tests.servers.proxy import Proxy

LAGS = 4
SOON = 4.0  # seconds, of a TTL of 20
OPTIONS: dict[str, Any] = {
    "restart_guard": False,
    "node_timeout": 0.1,
}  # so often what is owed is asked again, at first


@pytest.fixture
def proxy(redlock_servers):
    with Proxy(redlock_servers.ports[LAGS]) as proxy:
        yield proxy


@pytest.fixture
def urls(redlock_servers, proxy):
    return [*redlock_servers.urls[:LAGS], proxy.url]


async def soon(condition):
    await asyncio.to_thread(eventually, condition, SOON)


async def everywhere(masters, servers) -> int:
    """Connect to all of them; then how many scripts the one behind the lagging connection has run."""
    loop = asyncio.get_running_loop()

    def there():
        votes = asyncio.run_coroutine_threadsafe(masters.status("whatever"), loop).result().votes
        return all(vote.outcome == "free" for vote in votes)

    await soon(there)
    return scripts_there(servers)


def elsewhere(work):
    """Await ``work()`` on a loop of its own, in a thread of its own."""
    return asyncio.to_thread(lambda: asyncio.run(work()))


def scripts_there(servers) -> int:
    """How many scripts the master behind the lagging connection has run."""
    return script_calls(servers)[LAGS]


def acquired_there(servers) -> int:
    """How often a key was set there."""
    return int(servers.client(LAGS).info("commandstats").get("cmdstat_set", {"calls": 0})["calls"])


def test_released_on_another_loop_while_that_of_the_acquire_runs(redlock_servers, proxy, urls):
    """The loop of the acquire sends it as well, behind the acquire, however long the connection lags."""
    masters = AsyncMasters(urls, **OPTIONS)
    lock = masters.lock("job", ttl=1, bound=False, auto_extend=False)

    async def main():
        await everywhere(masters, redlock_servers)
        proxy.lag()
        await lock.acquire()
        await elsewhere(releases)
        await masters.close()

    async def releases():
        before = await everywhere(masters, redlock_servers)
        await lock.release()
        await soon(lambda: scripts_there(redlock_servers) > before)
        await asyncio.sleep(2.5)  # now it is owed no more: its key must have expired
        assert lock_keys(redlock_servers) == [set()] * 5
        before, seen = scripts_there(redlock_servers), acquired_there(redlock_servers)
        proxy.catch_up()
        await soon(lambda: acquired_there(redlock_servers) > seen and scripts_there(redlock_servers) >= before + 2)
        assert lock_keys(redlock_servers) == [set()] * 5

    asyncio.run(main())


def test_a_release_on_another_loop_whose_connections_lag_does_not_find_the_lock_gone(redlock_servers):
    """The loop of the acquire sends one as well, and that one is faster: this is no loss (C8)."""
    told: list[Any] = []
    with contextlib.ExitStack() as stack:
        lagging = [stack.enter_context(Proxy(port)) for port in redlock_servers.ports[:3]]
        urls = [*(proxy.url for proxy in lagging), *redlock_servers.urls[3:]]
        masters = AsyncMasters(urls, restart_guard=False, node_timeout=2)
        lock = masters.lock("job", ttl=20, bound=False, on_lost=told.append)

        async def main():
            await elsewhere(functools.partial(releases, asyncio.get_running_loop()))
            await masters.close()

        async def acquires():
            await everywhere(masters, redlock_servers)
            await lock.acquire()

        async def releases(loop_of_the_acquire):
            await everywhere(masters, redlock_servers)
            for proxy in lagging:
                proxy.lag()
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(acquires(), loop_of_the_acquire))
            await soon(lambda: all(lock_keys(redlock_servers)))
            releasing = asyncio.create_task(lock.release())
            with contextlib.suppress(AssertionError):  # they stay, until this release has been judged
                await asyncio.to_thread(eventually, lambda: nothing_left(redlock_servers), 0.5)
            for proxy in lagging:
                proxy.catch_up()
            await releasing
            assert lock.lease is not None
            assert not lock.lease.lost
            await soon(lambda: nothing_left(redlock_servers))

        asyncio.run(main())
    assert told == []


def test_released_on_another_loop_when_that_of_the_acquire_was_closed(redlock_servers, proxy, urls):
    """Each call of a worker has a loop of its own."""
    masters = AsyncMasters(urls, **OPTIONS)
    lock = masters.lock("job", ttl=20, bound=False, auto_extend=False)

    async def acquires():
        await everywhere(masters, redlock_servers)
        proxy.lag()
        await lock.acquire()

    async def releases():
        before = await everywhere(masters, redlock_servers)
        await lock.release()
        await soon(lambda: scripts_there(redlock_servers) > before)
        seen = acquired_there(redlock_servers)
        proxy.catch_up()
        await soon(lambda: acquired_there(redlock_servers) > seen)
        await soon(lambda: nothing_left(redlock_servers))
        await masters.close()

    asyncio.run(acquires())
    asyncio.run(releases())
