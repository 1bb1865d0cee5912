"""Waiting until a name is free: on the release channel, and on nothing but what the masters say."""

from __future__ import annotations

import threading
import time

import pytest

from redlock import RedlockError
from tests.servers.look import eventually, take
from tests.servers.waiter import subscribers_up


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
    return servers.client(which).info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0)


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
    time.sleep(1.0)
    # After 0.5, 1, 2 s at most; a waiter that polls asks hundreds of times
    assert looks(redlock_servers) - before <= 3 * 12
    assert all(one.goes_on() for one in waiting)
    held.release()
    assert [one.end() for one in waiting] == [True] * 3


def test_a_holder_of_this_process_and_no_line(masters):
    """The one that waits for it stands in no line, so it keeps nobody from the lock."""
    lock = masters.lock("job", ttl=30, bound=False)
    lock.acquire()
    waiting = Looking(masters, "job")
    time.sleep(0.1)
    lock.release()
    assert waiting.end() is True


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
