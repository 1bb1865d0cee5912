"""R10, R11: a release that could not be delivered is owed, and paid."""

import asyncio
from typing import Any

import pytest
from tenacity import wait_fixed

from redlock import AsyncMasters
from redlock._io import connections
from tests.owners import witness
from tests.servers.look import all_up, eventually, lock_keys, nothing_left, script_calls
from tests.servers.process import run
from tests.servers.relay import Relay

pytestmark = witness("R10")


def test_at_the_close_a_master_that_is_back_is_connected_to_at_once(world, redlock_servers, monkeypatch):
    """P7: it can be reached.  The pause between two attempts to connect would end after the close."""
    monkeypatch.setattr(connections, "BETWEEN_CONNECTIONS", wait_fixed(600))
    with Relay(redlock_servers.ports[0]) as proxy:
        urls = [proxy.url, *redlock_servers.urls[1:]]
        masters = world.Masters(urls, restart_guard=False, node_timeout=5.0)
        lock = masters.lock("job", ttl=60)
        eventually(lambda: all_up(masters))
        lock.acquire()
        eventually(lambda: all(lock_keys(redlock_servers)))
        proxy.strike = lambda _, when: when == "after"  # every attempt to connect fails as well
        proxy.drop()
        eventually(lambda: not all_up(masters))
        lock.release()
        proxy.strike = None
        masters.close()
        assert nothing_left(redlock_servers)


HEAD = """
import sys, time
from redlock import Masters
masters = Masters(sys.argv[1:], restart_guard=False, node_timeout=NODE_TIMEOUT)
lock = masters.lock("job", ttl=60)
"""


def test_at_interpreter_exit(redlock_servers):
    """Exits right behind a release that nobody had time to confirm."""
    code = f"NODE_TIMEOUT = 5\n{HEAD}masters.status('job')\nfor _ in range(20): lock.acquire(); lock.release()"
    with Relay(redlock_servers.ports[0]) as proxy:
        proxy.answer_late(0.02)  # in its handshake as well
        done = run("-W", "error", "-c", code, proxy.url, *redlock_servers.urls[1:])
        assert (done.returncode, done.stderr) == (0, "")
    eventually(lambda: nothing_left(redlock_servers))


# -- a release that does not travel where its acquire did, to a master whose connection lags -----------


LAGS = 4
SOON = 4.0  # seconds, of a TTL of 20
OPTIONS: dict[str, Any] = {
    "restart_guard": False,
    "node_timeout": 0.1,
}  # so often what is owed is asked again, at first


@pytest.fixture
def proxy(redlock_servers):
    with Relay(redlock_servers.ports[LAGS]) as proxy:
        yield proxy


@pytest.fixture
def urls(redlock_servers, proxy):
    return [*redlock_servers.urls[:LAGS], proxy.url]


async def soon(condition):
    await asyncio.to_thread(eventually, condition, SOON)


async def everywhere(masters, servers):
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


def scripts_there(servers):
    """How many scripts the master behind the lagging connection has run."""
    return script_calls(servers)[LAGS]


def acquired_there(servers):
    """How often a key was set there."""
    return int(servers.client(LAGS).info("commandstats").get("cmdstat_set", {"calls": 0})["calls"])


def test_released_on_another_loop_while_that_of_the_acquire_runs(redlock_servers, proxy, urls, monkeypatch):
    """The loop of the acquire sends it as well, behind the acquire, however long the connection lags."""
    monkeypatch.setattr(connections, "_SILENT", 1000)  # as if no second one got through: it would replace this one
    masters = AsyncMasters(urls, **OPTIONS)
    lock = masters.lock("job", ttl=1, bound=False, auto_extend=False)
    loops: list[asyncio.AbstractEventLoop] = []

    async def main():
        await everywhere(masters, redlock_servers)
        proxy.lag()
        loops.append(asyncio.get_running_loop())
        await elsewhere(releases)
        await masters.close()

    async def releases():
        before = await everywhere(masters, redlock_servers)  # first, for that may take as long as the lease lasts
        assert asyncio.run_coroutine_threadsafe(lock.acquire(), loops[0]).result()
        await lock.release()
        await soon(lambda: scripts_there(redlock_servers) > before)
        redlock_servers.client(0).set("another", "", px=2500)
        await asyncio.to_thread(eventually, lambda: nothing_left(redlock_servers))
        # Now it is owed no more: its own key, with a shorter time, must have expired as well.
        before, seen = scripts_there(redlock_servers), acquired_there(redlock_servers)
        proxy.catch_up()
        await soon(lambda: acquired_there(redlock_servers) > seen and scripts_there(redlock_servers) >= before + 2)
        assert lock_keys(redlock_servers) == [set()] * 5

    asyncio.run(main())


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
