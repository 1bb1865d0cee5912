"""Leases that are kept, and holders that are told (P6, R13, R15, C6-C11)."""

from __future__ import annotations

import _thread
import os
import queue
import signal
import subprocess
import sys
import textwrap
import threading
import time
from typing import Any

import pytest

from redlock import ConfigurationError, LockLost, Masters, NotHeld, _clock
from tests.servers.look import all_up, eventually, lock_keys, no_thread_besides, nothing_left, take
from tests.servers.proxy import Proxy

TTL = 0.6


class Told(list[Any]):
    """An ``on_lost``, and what it was called with."""

    def __call__(self, lease):
        self.append((_clock.now(), lease))


@pytest.fixture
def quick(world, redlock_servers):
    with world.Masters(redlock_servers.urls, restart_guard=False, node_timeout=0.1, max_ttl=10.0) as masters:
        eventually(lambda: all_up(masters))
        yield masters


def freeze(servers):
    for i in range(5):
        servers.pause(i)


def thaw(servers):
    for i in range(5):
        servers.resume(i)


def test_a_lease_is_kept_for_as_long_as_it_is_held(quick, redlock_servers):
    told = Told()
    lock = quick.lock("job", ttl=TTL, on_lost=told)
    lease = take(lock)
    fence = lease.fence
    until = time.monotonic() + 4 * TTL
    while time.monotonic() < until:
        assert lease.remaining() > TTL / 3  # renewed at a third, long before its end (R15)
        time.sleep(0.01)
    assert lease.fence == fence  # R19
    assert lease.token.encode() == redlock_servers.client(0).get("redlock:job")
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
    freeze(redlock_servers)
    eventually(lambda: told, 3 * TTL)
    ((at, _),) = told
    thaw(redlock_servers)
    assert lease.valid_until <= at < lease.valid_until + watch.prompt
    assert lease.loss().reason == "unreachable"
    assert lease.wait_lost(0) is True
    with pytest.raises(LockLost, match="could not be renewed"):
        lock.release()
    eventually(lambda: nothing_left(redlock_servers))
    assert len(told) == 1


def test_who_waits_is_woken_in_time(quick, redlock_servers, watch):
    lock = quick.lock("job", ttl=TTL)
    lease = take(lock)
    freeze(redlock_servers)
    assert lease.wait_lost(5) is True
    assert _clock.now() < lease.valid_until + watch.prompt
    thaw(redlock_servers)
    with pytest.raises(LockLost):
        lock.release()


def test_a_majority_of_the_keys_deleted(quick, redlock_servers, watch):
    """R13: told at the next renewal, long before the time is up."""
    told = Told()
    lock = quick.lock("job", ttl=3.0, on_lost=told)
    lease = take(lock)
    eventually(lambda: all(lock_keys(redlock_servers)))
    began = time.monotonic()
    for i in range(3):
        redlock_servers.client(i).delete("redlock:job")
    eventually(lambda: told)
    assert time.monotonic() - began < 1.0 + watch.prompt
    assert lease.loss().reason == "expired"
    with pytest.raises(LockLost):
        lock.release()
    assert len(told) == 1


def test_a_release_that_finds_it_gone_tells_as_well(quick, redlock_servers):
    """C8, C9: it was lost, though its holder found out by itself."""
    told = Told()
    lock = quick.lock("job", ttl=3.0, on_lost=told)
    lease = take(lock)
    eventually(lambda: all(lock_keys(redlock_servers)))
    for i in range(5):
        redlock_servers.client(i).delete("redlock:job")
    with pytest.raises(LockLost):
        lock.release()
    assert lease.lost
    eventually(lambda: told)
    time.sleep(0.1)
    assert len(told) == 1


def test_two_deleted_keys_are_given_back(quick, redlock_servers):
    """R14, by the renewer."""
    lock = quick.lock("job", ttl=TTL)
    lease = take(lock)
    eventually(lambda: all(lock_keys(redlock_servers)))
    for i in range(2):
        redlock_servers.client(i).delete("redlock:job")
    eventually(lambda: all(lock_keys(redlock_servers)))
    assert lease.valid
    lock.release()
    eventually(lambda: nothing_left(redlock_servers))


@pytest.mark.parametrize("leases", [1, 5])
def test_also_to_a_master_that_always_answers_last(world, redlock_servers, leases):
    """R14: when the others have decided already."""
    with Proxy(redlock_servers.ports[4]) as proxy:
        urls = [*redlock_servers.urls[:4], proxy.url]
        with world.Masters(urls, restart_guard=False, node_timeout=0.15, max_ttl=10.0) as masters:
            eventually(lambda: all_up(masters))
            proxy.delay = 0.05
            locks = [masters.lock(f"job-{number}", ttl=TTL) for number in range(leases)]
            held = [take(lock) for lock in locks]
            far = redlock_servers.client(4)
            names = [f"redlock:job-{number}" for number in range(leases)]
            eventually(lambda: far.exists(*names) == leases)
            far.delete(*names)
            eventually(lambda: far.exists(*names) == leases, 4 * TTL)
            assert all(lease.valid for lease in held)
            for lock in locks:
                lock.release()
            eventually(lambda: nothing_left(redlock_servers))


def test_such_a_master_is_not_kept_waiting_for_the_next_extension(world, redlock_servers):
    """R14: it has the key back as soon as it has said that it has none; nothing else is asked from then on."""
    with Proxy(redlock_servers.ports[4]) as proxy:
        urls = [*redlock_servers.urls[:4], proxy.url]
        with world.Masters(urls, restart_guard=False, node_timeout=1.0) as masters:
            eventually(lambda: all_up(masters))
            lock = masters.lock("job", ttl=30.0, auto_extend=False)
            lease = take(lock)
            far = redlock_servers.client(4)
            eventually(lambda: far.get("redlock:job") == lease.token.encode())
            far.delete("redlock:job")
            proxy.delay = 0.2
            lock.extend()
            assert [vote.outcome for vote in lease.votes].count("granted") >= 3
            eventually(lambda: far.get("redlock:job") == lease.token.encode())
            assert 0 < far.pttl("redlock:job") <= 30_000
            lock.release()
            eventually(lambda: nothing_left(redlock_servers))


def test_one_transient_error_on_every_master_in_turn_loses_nothing(quick, redlock_servers):
    told = Told()
    lock = quick.lock("job", ttl=TTL, on_lost=told)
    lease = take(lock)
    for i in range(5):
        client = redlock_servers.client(i)
        client.config_set("min-replicas-to-write", 1)
        time.sleep(TTL / 2)
        client.config_set("min-replicas-to-write", 0)
    for i in range(5):
        redlock_servers.pause(i)
        time.sleep(TTL / 2)
        redlock_servers.resume(i)
    for i in range(5):
        redlock_servers.client(i).script_flush()
    time.sleep(TTL)
    assert lease.valid
    assert not told
    lock.release()


def test_a_missed_renewal_is_tried_again(quick, redlock_servers):
    """R13: all masters away for half of the TTL."""
    lock = quick.lock("job", ttl=2.0)
    lease = take(lock)
    time.sleep(0.4)
    freeze(redlock_servers)
    time.sleep(1.0)
    thaw(redlock_servers)
    time.sleep(1.5)
    assert lease.valid
    lock.release()


def test_max_hold(quick, redlock_servers, watch):
    """C7."""
    told = Told()
    lock = quick.lock("job", ttl=10, max_hold=2 * TTL, on_lost=told)
    began = time.monotonic()
    lease = take(lock)
    assert lease.wait_lost(10)
    assert 2 * TTL <= time.monotonic() - began < 2 * TTL + 2 * watch.prompt
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
    """R15: the watchdog dies with its owner, whoever started that.  Of a task: see test_loss.py."""
    with Masters(redlock_servers.urls, restart_guard=False, node_timeout=0.1) as masters:
        leases: queue.SimpleQueue[Any] = queue.SimpleQueue()
        start(lambda: leases.put(take(masters.lock("job", ttl=TTL))))
        assert leases.get(timeout=30).wait_lost(3 * TTL)
    eventually(lambda: nothing_left(redlock_servers))


def test_a_hold_that_is_not_bound_may_be_given_back_by_anybody(quick, redlock_servers):
    """C10: and its renewer watches no owner."""
    lock = quick.lock("job", ttl=TTL, bound=False)
    thread = threading.Thread(target=lambda: take(lock))
    thread.start()
    thread.join()
    time.sleep(2 * TTL)
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


def test_handed_over_to_another_process(quick, redlock_servers):
    """C11."""
    first = quick.lock("job", ttl=TTL)
    lease = take(first)
    code = textwrap.dedent(f"""
        import time
        from redlock import ConfigurationError, Masters
        with Masters({redlock_servers.urls!r}, restart_guard=False, node_timeout=0.1) as masters:
            lock = masters.lock("job", ttl={TTL}, token={lease.token!r}, fence={lease.fence!r})
            assert not lock.lease.valid and not lock.lease.lost and not lock.owned()
            try:
                lock.acquire()
            except ConfigurationError:
                pass
            else:
                raise SystemExit("acquired")
            assert lock.extend().valid
            print("took over", flush=True)
            time.sleep({3 * TTL})
            assert lock.owned() and lock.lease.fence == {lease.fence!r}
            lock.release()
            print("released", flush=True)
        """)
    with subprocess.Popen([sys.executable, "-W", "error", "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "took over\n"
        time.sleep(TTL)
        assert first.owned()  # both keep it, until one releases
        assert process.stdout.readline() == "released\n"
    assert process.returncode == 0
    eventually(lambda: lease.lost, 3 * TTL)
    assert lease.loss().reason == "expired"
    eventually(lambda: nothing_left(redlock_servers))


def test_taken_over_by_several_extensions_at_a_time_and_kept_once(redlock_servers, monkeypatch):
    """C9: `on_lost` is called once."""
    with Masters(redlock_servers.urls, restart_guard=False) as masters:
        first = masters.lock("job", ttl=9, auto_extend=False)
        lease = take(first)
        told: list[Any] = []
        lock = masters.lock("job", ttl=9, token=lease.token, fence=lease.fence, on_lost=told.append, max_hold=0.5)
        both = threading.Barrier(2)
        real = lock._extended

        def extended(*what):
            real(*what)
            both.wait(30)  # it is confirmed now, and kept by nobody

        monkeypatch.setattr(lock, "_extended", extended)
        other = threading.Thread(target=lock.extend)
        other.start()
        lock.extend()
        other.join()
        eventually(lambda: told)
        time.sleep(0.3)
        assert len(told) == 1


def test_a_token_of_nobody(quick):
    lock = quick.lock("job", ttl=TTL, token="nobody's")  # noqa: S106 - of a lease
    with pytest.raises(LockLost):
        lock.extend()
    assert lock.lease.lost
    for wrong in ("", 5, b"bytes"):
        with pytest.raises(ConfigurationError, match="token="):
            quick.lock("job", ttl=TTL, token=wrong)
    for wrong in (0, -1, "7", True):
        with pytest.raises(ConfigurationError, match="fence="):
            quick.lock("job", ttl=TTL, token="x", fence=wrong)  # noqa: S106
    with pytest.raises(ConfigurationError, match="without token"):
        quick.lock("job", ttl=TTL, fence=7)


def test_the_holder_may_extend_besides_its_renewer(quick, redlock_servers):
    """C6: to less, and to more than the renewer would; it then keeps that."""
    lock = quick.lock("job", ttl=5.0)
    lease = take(lock)
    lock.extend(TTL)
    assert lease.remaining() < TTL
    time.sleep(2 * TTL)
    assert lease.valid
    # One that the renewer has under way at this very moment holds both to the lesser: then once more.
    eventually(lambda: lock.extend(8.0).remaining() > 7)
    time.sleep(0.2)
    assert lease.remaining() > 7
    lock.release()
    eventually(lambda: nothing_left(redlock_servers))


def test_releasing_a_stale_lease_does_not_disturb_the_next_holder(quick, world, redlock_servers):
    told = Told()
    stale = quick.lock("job", ttl=TTL, auto_extend=False)
    lease = take(stale)
    assert lease.wait_lost(2 * TTL)
    with world.Masters(redlock_servers.urls, restart_guard=False, node_timeout=0.1) as others:
        lock = others.lock("job", ttl=TTL, on_lost=told)
        mine = take(lock, timeout=5)
        for _ in range(3):
            with pytest.raises((LockLost, NotHeld)):
                stale.release()
            time.sleep(TTL / 2)
        assert mine.valid
        assert not told
        lock.release()


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
    with Masters(redlock_servers.urls, restart_guard=False, node_timeout=0.1) as masters:
        take(masters.lock("a", ttl=TTL, auto_extend=False, on_lost=lambda _: sys.exit(1)))
        kept = masters.lock("b", ttl=TTL, bound=False)
        take(kept)
        time.sleep(1.5 * TTL)
        take(masters.lock("c", ttl=TTL, auto_extend=False, on_lost=told))
        time.sleep(1.5 * TTL)
        assert kept.lease is not None
        assert kept.lease.valid
        assert len(told) == 1
        kept.release()


def test_where_it_is_not_bound_each_with_gives_back_its_own(quick, redlock_servers):
    """The first holder has lost it, and the second one holds it, when the first one leaves."""
    lock = quick.lock("job", ttl=TTL, bound=False, max_hold=TTL)
    taken, leave = threading.Event(), threading.Event()

    def second():
        with lock as lease:
            taken.set()
            assert leave.wait(5)
            seen.append(lease.valid)

    seen: list[bool] = []
    thread = threading.Thread(target=second)
    with pytest.raises(LockLost) as caught:
        with lock as lease:
            thread.start()
            assert taken.wait(5)
            assert lease.lost
    leave.set()
    thread.join()
    assert caught.value.reason == "max_hold"
    assert seen == [True]


def test_who_waits_is_woken_in_time_though_the_ttl_was_made_shorter(quick, redlock_servers, watch):
    """C6, P6."""
    lock = quick.lock("job", ttl=5.0, auto_extend=False)
    lease = take(lock)
    woken = []
    waits = threading.Thread(target=lambda: woken.append((lease.wait_lost(10), _clock.now())))
    waits.start()
    time.sleep(0.1)
    lock.extend(0.4)
    waits.join()
    ((lost, at),) = woken
    assert lost
    assert at < lease.valid_until + watch.prompt
    with pytest.raises(LockLost):
        lock.release()


def test_keeping_costs_no_thread_and_no_connection_for_each(quick, redlock_servers):
    before = set(threading.enumerate())
    locks = [quick.lock(f"job:{i}", ttl=3 * TTL, bound=False) for i in range(200)]
    for lock in locks:
        take(lock)
    eventually(lambda: no_thread_besides(before))
    time.sleep(4 * TTL)
    assert all(lock.lease.valid for lock in locks)
    assert [len(redlock_servers.client(i).client_list()) for i in range(5)] == [2] * 5
    for lock in locks:
        lock.release()
    eventually(lambda: nothing_left(redlock_servers))


def test_wrong_values(quick):
    for options in ({"max_hold": 0}, {"max_hold": float("nan")}, {"max_hold": -1}):
        with pytest.raises(ConfigurationError, match="max_hold"):
            quick.lock("job", ttl=TTL, **options)


@pytest.mark.parametrize("program", ["threads", "asyncio"])
def test_stopped_beyond_its_ttl_the_first_look_says_lost(redlock_servers, program):
    """P6: after SIGSTOP, before any callback or renewer has had a chance."""
    sync = f"""
        import os, signal, time
        from redlock import Masters
        masters = Masters({redlock_servers.urls!r}, restart_guard=False, node_timeout=0.1)
        told = []
        lease = masters.lock("job", ttl={TTL}, on_lost=told.append).acquire()
        print("up", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
        print(lease.valid, lease.lost, flush=True)
        until = time.monotonic() + 30
        while not told and time.monotonic() < until:
            time.sleep(0.1)
        print(len(told), flush=True)
        """
    loop = f"""
        import asyncio, os, signal, time
        from redlock import AsyncMasters
        async def main():
            masters = AsyncMasters({redlock_servers.urls!r}, restart_guard=False, node_timeout=0.1)
            told = []
            lock = masters.lock("job", ttl={TTL}, on_lost=told.append)
            lease = await lock.acquire()
            print("up", flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)
            print(lease.valid, lease.lost, flush=True)
            until = time.monotonic() + 30
            while not told and time.monotonic() < until:
                await asyncio.sleep(0.1)
            print(len(told), flush=True)
        asyncio.run(main())
        """
    code = textwrap.dedent(sync if program == "threads" else loop)
    with subprocess.Popen([sys.executable, "-W", "error", "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        time.sleep(2 * TTL)
        os.kill(process.pid, signal.SIGCONT)
        assert process.stdout.readline() == "False True\n"
        assert process.stdout.readline() == "1\n"
    assert process.returncode == 0
