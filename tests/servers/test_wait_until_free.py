"""Waiting until a name is free: on the release channel, and on nothing but what the masters say."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time

import pytest

from redlock import AsyncMasters, ConfigurationError, RedlockError
from tests.servers.look import eventually, take
from tests.servers.waiter import Waiting, subscribers_up


class Looking:
    """A thread that waits until a name is free."""

    def __init__(self, masters, name, timeout=-1.0):
        self.outcome = None
        self._thread = threading.Thread(target=self._work, args=(masters, name, timeout))
        self._thread.start()

    def _work(self, masters, name, timeout):
        try:
            self.outcome = masters.wait_until_free(name, timeout)
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.outcome = error

    def goes_on(self):
        return self._thread.is_alive()

    def end(self, seconds=10.0):
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "it still waits"
        return self.outcome


def looks(servers, which=0):
    """How many scripts this master has run.  A holder whose renewal is not due yet runs none."""
    stats = servers.client(which).info("commandstats")
    return stats.get("cmdstat_evalsha", {}).get("calls", 0)


@pytest.mark.parametrize("timeout", [0, 0.5, -1])
def test_free_at_once_and_nothing_is_taken(redlock_servers, masters, timeout):
    assert masters.wait_until_free("job", timeout) is True
    assert masters.wait_until_free(["job", "another"], timeout=timeout) is True
    assert not any(key.startswith(("redlock:", "{")) for keys in redlock_servers.keys() for key in keys)  # nor a fence


def test_a_timeout(masters, others):
    held = others.lock("job", ttl=30)
    take(held)
    assert masters.wait_until_free("job", 0) is False
    began = time.monotonic()
    assert masters.wait_until_free("job", timeout=0.3) is False
    assert time.monotonic() - began >= 0.3
    held.release()


def test_a_release_wakes_all_who_wait_and_nobody_polls(world, redlock_servers, masters, others):
    held = others.lock("job", ttl=50)
    take(held)
    eventually(lambda: masters.status("job").token == held.lease.token)
    waiting = [Looking(masters, "job") for _ in range(3)]
    eventually(lambda: subscribers_up(world, masters) == 5)
    before = looks(redlock_servers)
    time.sleep(2.0)
    # After 0.5, 1, 2 s at most; a waiter that polls asks hundreds of times
    assert looks(redlock_servers) - before <= 3 * 12
    assert all(one.goes_on() for one in waiting)
    held.release()
    assert [one.end() for one in waiting] == [True] * 3


def test_beside_a_waiter_that_wants_it(world, masters, others):
    """Neither keeps the other from hearing, or from what it waits for."""
    held = others.lock("job", ttl=50)
    take(held)
    lock = masters.lock("job", ttl=50)
    before = Looking(masters, "job")
    eventually(lambda: subscribers_up(world, masters) == 5)
    wanting = Waiting(lock)
    after = Looking(masters, "job")
    time.sleep(0.1)
    held.release()
    assert wanting.end() is not None
    assert (before.end(), after.end()) == (True, True)


def test_a_holder_of_this_process_and_no_line(masters):
    """The one that waits for it stands in no line, so it keeps nobody from the lock."""
    lock = masters.lock("job", ttl=30, bound=False)
    lock.acquire()
    waiting = Looking(masters, "job")
    time.sleep(0.1)
    lock.release()
    assert waiting.end() is True


@pytest.mark.parametrize(
    ("name", "options"), [("", {}), ([], {}), ("a", {"timeout": "soon"}), ("a", {"timeout": None})]
)
def test_what_cannot_be_right(masters, name, options):
    with pytest.raises(ConfigurationError):
        masters.wait_until_free(name, **options)


def test_masters_that_are_closed(world, redlock_servers, others):
    held = others.lock("job", ttl=30)
    take(held)
    with world.Masters(redlock_servers.urls, restart_guard=False) as masters:
        waiting = Looking(masters, "job")
        eventually(lambda: subscribers_up(world, masters) == 5)
        masters.close()
        assert isinstance(waiting.end(), RedlockError)
        with pytest.raises(RedlockError, match="closed"):
            masters.wait_until_free("job")
    held.release()


# -- interruptions ---------------------------------------------------------------------------------------


def subscribed(servers):
    return [len(servers.client(i).client_list(_type="pubsub")) for i in range(len(servers))]


def test_a_task_that_is_cancelled_leaves_no_subscription_behind(redlock_servers, others):
    held = others.lock("job", ttl=30)
    take(held)

    async def run():
        async with AsyncMasters(redlock_servers.urls, restart_guard=False) as masters:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.3):
                    await masters.wait_until_free("job")
            await asyncio.sleep(1.2)
            assert subscribed(redlock_servers) == [0] * 5
            assert await masters.wait_until_free("job", 0) is False

    asyncio.run(run())
    held.release()


def test_ctrl_c_leaves_no_subscription_behind(redlock_servers, redlock_masters, others):
    held = others.lock("job", ttl=30)
    take(held)
    me = threading.get_ident()
    strike = threading.Timer(0.3, lambda: signal.pthread_kill(me, signal.SIGINT))
    strike.start()
    with pytest.raises(KeyboardInterrupt):
        redlock_masters.wait_until_free("job")
    strike.join()
    eventually(lambda: subscribed(redlock_servers) == [0] * 5)
    held.release()
