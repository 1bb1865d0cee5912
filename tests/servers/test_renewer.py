"""Leases that are kept, and holders that are told (P6, R13, R15, C6-C11)."""

from __future__ import annotations

import _thread
import queue
import threading
from typing import Any

import pytest

from redlock import ConfigurationError, LockLost, Masters, _clock
from tests.owners import witness
from tests.servers.look import all_up, eventually, no_thread_besides, nothing_left, take
from tests.servers.process import started

pytestmark = witness("R15")

TTL = 1.5
LONG = 4.0  # of what is to be kept although this machine may stand still for a second or two


class Told(list[Any]):
    """An ``on_lost``, and what it was called with."""

    def __call__(self, lease):
        self.append((_clock.now(), lease))


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


TAKES_OVER = """
import sys, time
from redlock import ConfigurationError, Masters
token, fence, *urls = sys.argv[1:]
with Masters(urls, restart_guard=False, node_timeout=0.4) as masters:
    lock = masters.lock("job", ttl=TTL, token=token, fence=int(fence))
    assert not lock.lease.valid and not lock.lease.lost and not lock.owned()
    try:
        sys.exit(f"acquired {lock.acquire()}")
    except ConfigurationError:
        pass
    assert lock.extend().valid
    print("took over", flush=True)
    time.sleep(1.2 * TTL)
    assert lock.owned() and lock.lease.fence == int(fence)
    lock.release()
"""


def test_handed_over_to_another_process(quick, redlock_servers):
    """C11."""
    first = quick.lock("job", ttl=LONG)
    lease = take(first)
    code = TAKES_OVER.replace("TTL", str(LONG))
    with started("-W", "error", "-c", code, lease.token, str(lease.fence), *redlock_servers.urls) as process:
        process.says("took over")
        until = lease.valid_until
        eventually(lambda: lease.valid_until > until)  # both keep it, until one releases
        assert first.owned()
        assert process.ends() == 0, process.lines
    eventually(lambda: lease.lost)
    assert lease.loss().reason == "expired"
    eventually(lambda: nothing_left(redlock_servers))


def test_a_token_of_nobody(quick):
    nobodys = "0" * 40
    lock = quick.lock("job", ttl=TTL, token=nobodys)
    with pytest.raises(LockLost):
        lock.extend()
    assert lock.lease.lost
    for wrong in ("", "nobody's", 5, b"bytes"):
        with pytest.raises(ConfigurationError, match="token="):
            quick.lock("job", ttl=TTL, token=wrong)
    for wrong in (0, -1, "7", True):
        with pytest.raises(ConfigurationError, match="fence="):
            quick.lock("job", ttl=TTL, token=nobodys, fence=wrong)
    with pytest.raises(ConfigurationError, match="without token"):
        quick.lock("job", ttl=TTL, fence=7)


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


STOPPED = """
import asyncio, os, signal, sys, time
from redlock import AsyncMasters, Masters
options = {"restart_guard": False, "node_timeout": 0.5}
told = []

def look(lease):
    print("up", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    print(f"{lease.valid} {lease.lost}\\n", end="", flush=True)  # in one write, beside a log

def threads():
    masters = Masters(sys.argv[2:], **options)
    look(masters.lock("job", ttl=TTL, on_lost=told.append).acquire())
    while not told:
        time.sleep(0.1)

async def tasks():
    masters = AsyncMasters(sys.argv[2:], **options)
    look(await masters.lock("job", ttl=TTL, on_lost=told.append).acquire())
    while not told:
        await asyncio.sleep(0.1)

threads() if sys.argv[1] == "threads" else asyncio.run(tasks())
print(f"{len(told)}\\n", end="", flush=True)
"""
