"""Waiting until a name is free: on the release channel, and on nothing but what the masters say."""

from __future__ import annotations

import threading

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


@pytest.mark.parametrize("timeout", [0, 0.5, -1])
def test_free_at_once_and_nothing_is_taken(redlock_servers, masters, timeout):
    assert masters.wait_until_free("job", timeout) is True
    assert masters.wait_until_free(["job", "another"], timeout=timeout) is True
    assert not any(key.startswith(("redlock:", "{")) for keys in redlock_servers.keys() for key in keys)  # nor a fence


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
