"""Leases that are kept, and holders that are told (P6, R13, R15, C6-C11)."""

from __future__ import annotations

import _thread
import asyncio
import queue
import signal
import sys
import threading
import time
from typing import Any

import pytest

from redlock import AsyncMasters, ConfigurationError, LockLost, Masters, NotHeld, _clock
from tests.servers.look import all_up, each, eventually, lock_keys, no_thread_besides, nothing_left, pause, resume, take
from tests.servers.process import started

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


def test_a_lease_is_kept_for_as_long_as_it_is_held(quick, redlock_servers, watch):
    told = Told()
    lock = quick.lock("job", ttl=LONG, on_lost=told)
    lease = take(lock)
    fence = lease.fence
    until = time.monotonic() + 1.2 * LONG
    while time.monotonic() < until:
        assert lease.remaining() > LONG / 3 - watch.late  # renewed at a third, long before its end (R15)
        time.sleep(0.01)
    assert lease.fence == fence  # R19
    eventually(lambda: lease.token.encode() == redlock_servers.client(0).get("redlock:job"))
    lock.release()
    eventually(lambda: nothing_left(redlock_servers))
    time.sleep(TTL)
    assert nothing_left(redlock_servers)
    assert not told
    assert not lease.lost


def test_without_it_a_lease_lasts_for_its_ttl(quick, watch):
    told = Told()
    lock = quick.lock("job", ttl=TTL, auto_extend=False, on_lost=told)
    lease = take(lock)
    assert lease.wait_lost(2 * TTL)
    eventually(lambda: told)
    ((at, same),) = told
    assert lease.valid_until <= at < lease.valid_until + watch.prompt
    assert same.token == lease.token
    with pytest.raises(LockLost) as caught:
        lock.release()
    assert caught.value.reason == "expired"
    assert len(told) == 1


def test_all_masters_frozen_right_after_acquire(quick, redlock_servers, watch):
    """P6: nothing on the network can delay it."""
    told = Told()
    lock = quick.lock("job", ttl=TTL, on_lost=told)
    lease = take(lock)
    pause(redlock_servers)
    assert lease.wait_lost(5) is True
    assert _clock.now() < lease.valid_until + watch.prompt
    eventually(lambda: told, 3 * TTL)
    ((at, _),) = told
    resume(redlock_servers)
    assert lease.valid_until <= at < lease.valid_until + watch.prompt
    assert lease.loss().reason == "unreachable"
    with pytest.raises(LockLost, match="could not be renewed"):
        lock.release()
    eventually(lambda: nothing_left(redlock_servers))
    assert len(told) == 1


def test_somebody_else_has_a_majority_of_the_keys(quick, redlock_servers, watch):
    """R13: told at the next renewal, long before the time is up."""
    told = Told()
    lock = quick.lock("job", ttl=3.0, on_lost=told)
    lease = take(lock)
    eventually(lambda: all(lock_keys(redlock_servers)))
    began = time.monotonic()
    each(redlock_servers, "set", "redlock:job", "somebody", px=60_000, masters=3)
    eventually(lambda: told)
    assert time.monotonic() - began < 1.0 + watch.prompt
    assert lease.loss().reason == "taken"
    with pytest.raises(LockLost):
        lock.release()
    assert len(told) == 1


def test_two_deleted_keys_are_given_back(quick, redlock_servers):
    """R14, by the renewer."""
    lock = quick.lock("job", ttl=LONG)
    lease = take(lock)
    eventually(lambda: all(lock_keys(redlock_servers)))
    each(redlock_servers, "delete", "redlock:job", masters=2)
    eventually(lambda: all(lock_keys(redlock_servers)))
    assert lease.valid
    lock.release()
    eventually(lambda: nothing_left(redlock_servers))


def test_max_hold(quick, redlock_servers, watch):
    """C7."""
    told = Told()
    lock = quick.lock("job", ttl=10, max_hold=2 * TTL, on_lost=told)
    began = time.monotonic()
    lease, taken = take(lock), time.monotonic()
    assert lease.wait_lost(10)
    assert began + 2 * TTL <= time.monotonic() < taken + 2 * TTL + 2 * watch.prompt
    assert lease.loss().reason == "max_hold"
    eventually(lambda: nothing_left(redlock_servers), 5)  # long before its TTL
    with pytest.raises(LockLost) as caught:
        lock.release()
    assert caught.value.reason == "max_hold"
    eventually(lambda: told)
    assert len(told) == 1


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


def test_a_task_that_has_ended_is_not_kept(redlock_servers):
    async def main():
        async with AsyncMasters(redlock_servers.urls, restart_guard=False, node_timeout=0.4) as masters:
            lease = await asyncio.create_task(masters.lock("job", ttl=TTL).acquire())
            assert lease is not None
            assert await lease.wait_lost(3 * TTL)
            async with masters.lock("job", ttl=10, timeout=5):
                pass

    asyncio.run(main())


def test_a_hold_that_is_not_bound_may_be_given_back_by_anybody(quick, redlock_servers):
    """C10: and its renewer watches no owner."""
    lock = quick.lock("job", ttl=LONG, bound=False)
    thread = threading.Thread(target=lambda: take(lock))
    thread.start()
    thread.join()
    time.sleep(1.1 * LONG)
    assert lock.owned()
    assert lock.lease.valid
    assert lock.extend(2 * TTL).valid
    thread = threading.Thread(target=lock.release)
    thread.start()
    thread.join()
    assert not lock.owned()
    with pytest.raises(NotHeld):
        lock.release()
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
        time.sleep(TTL)
        assert first.owned()  # both keep it, until one releases
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


def test_an_on_lost_that_raises_is_logged_and_harms_nobody(quick, redlock_servers, caplog):
    def broken(lease):
        raise ZeroDivisionError("mine")

    told = Told()
    locks = [
        quick.lock("a", ttl=TTL, auto_extend=False, on_lost=broken),
        quick.lock("b", ttl=TTL, auto_extend=False, on_lost=told),
    ]
    for lock in locks:
        take(lock)
    eventually(lambda: told, 3 * TTL)
    assert "ZeroDivisionError: mine" in caplog.text
    for lock in locks:
        with pytest.raises(LockLost):
            lock.release()
    with pytest.raises(ConfigurationError, match="on_lost"):
        quick.lock("c", ttl=TTL, on_lost=5)


def test_an_on_lost_that_exits_ends_nothing_else(redlock_servers):
    """In a thread of ours there is nothing to exit from; others are kept, and told, all the same."""
    told = Told()
    with Masters(redlock_servers.urls, restart_guard=False, node_timeout=0.4) as masters:
        take(masters.lock("a", ttl=TTL, auto_extend=False, on_lost=lambda _: sys.exit(1)))
        kept = masters.lock("b", ttl=LONG, bound=False)
        take(kept)
        time.sleep(1.5 * TTL)
        take(masters.lock("c", ttl=TTL, auto_extend=False, on_lost=told))
        eventually(lambda: told)
        assert kept.lease is not None
        assert kept.lease.valid
        assert len(told) == 1
        kept.release()


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


@pytest.mark.parametrize("world", ["threads", "asyncio"])
def test_stopped_beyond_its_ttl_the_first_look_says_lost(redlock_servers, world):
    """P6: after SIGSTOP.  Which thread goes on first, and so which line comes first, is not ours to say."""
    code = STOPPED.replace("TTL", str(TTL))
    with started("-W", "error", "-c", code, world, *redlock_servers.urls) as process:
        process.says("up")
        time.sleep(2 * TTL)
        process.popen.send_signal(signal.SIGCONT)
        assert process.ends() == 0
        lines = set(process.lines)
        (logged,) = lines - {"up", "False True", "1"}
        assert len(process.lines) == 4
        assert "it expired" in logged
