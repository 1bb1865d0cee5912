"""Leases that are kept, and holders that are told (P6, R13, R15, C6-C11)."""

import _thread
import queue
import threading
from typing import Any

import pytest

from redlock import Masters
from tests.owners import witness
from tests.servers.look import all_up, eventually, no_thread_besides, nothing_left, take

pytestmark = witness("R15")

TTL = 1.5


@pytest.fixture
def quick(world, redlock_servers):
    with world.Masters(redlock_servers.urls, restart_guard=False, node_timeout=0.4, max_ttl=10.0) as masters:
        eventually(lambda: all_up(masters))
        yield masters


@pytest.mark.parametrize(
    "start", [lambda work: threading.Thread(target=work).start(), lambda work: _thread.start_new_thread(work, ())]
)
def test_an_owner_that_has_ended_is_not_kept(redlock_servers, start):
    """R15: the watchdog dies with its owner, whoever started that; and the next one in line gets it (P3, R23)."""
    with Masters(redlock_servers.urls, restart_guard=False, node_timeout=0.4) as masters:
        leases: queue.SimpleQueue[Any] = queue.SimpleQueue()
        start(lambda: leases.put(take(masters.lock("job", ttl=TTL))))
        assert leases.get(timeout=30).wait_lost(3 * TTL)
        with masters.lock("job", ttl=10, timeout=5):
            pass
    eventually(lambda: nothing_left(redlock_servers))


def test_keeping_costs_no_thread_and_no_connection_for_each(world, redlock_servers):
    with world.Masters(redlock_servers.urls, restart_guard=False, node_timeout=1.5) as masters:
        eventually(lambda: all_up(masters))
        before = set(threading.enumerate())
        locks = [masters.lock(f"job:{i}", ttl=4.5, bound=False) for i in range(100)]
        until = {lock: take(lock).valid_until for lock in locks}
        eventually(lambda: no_thread_besides(before))
        eventually(lambda: all(lock.lease.valid_until > at for lock, at in until.items()))
        assert all(lock.lease.valid for lock in locks)
        assert [len(redlock_servers.client(i).client_list()) for i in range(5)] == [2] * 5
        for lock in locks:
            lock.release()
        eventually(lambda: nothing_left(redlock_servers))
