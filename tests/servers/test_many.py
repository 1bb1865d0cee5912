"""Many at once in one process, threads or tasks, or one after the other: each gets its own answers, and leaves nothing."""

from __future__ import annotations

import contextlib
import gc
import random
import threading
import time
import tracemalloc

import pytest

import redlock
from redlock import LeaseExtended
from redlock._core import renewals
from tests.servers.look import all_up, each, eventually, lock_keys, nothing_left, script_calls, take


def test_under_faults_they_get_their_own_answers(world, redlock_servers):
    """Connections break under 16 of them; nobody is handed somebody else's vote, nothing stays behind."""
    stop = threading.Event()
    errors: list[BaseException] = []
    granted = [0]
    inside: dict[str, int] = {}
    with world.Masters(redlock_servers.urls, restart_guard=False, node_timeout=0.2) as masters:

        def work(name):
            lock = masters.lock(name, ttl=10)
            while not stop.is_set():
                try:
                    with lock:
                        inside[name] = inside.get(name, 0) + 1
                        assert inside[name] == 1
                        granted[0] += 1
                        inside[name] -= 1
                except redlock.QuorumUnreachable:
                    pass
                except BaseException as error:  # noqa: BLE001
                    errors.append(error)
                    return

        threads = [threading.Thread(target=work, args=(f"job {i % 8}",)) for i in range(16)]
        for thread in threads:
            thread.start()
        choose = random.Random(1)
        until = time.monotonic() + 60
        killed = 0
        while killed < 40 or (granted[0] <= 50 and time.monotonic() < until):
            killed += 1
            with contextlib.suppress(Exception):
                redlock_servers.client(choose.randrange(5)).client_kill_filter(_type="normal")
            time.sleep(0.02)
        stop.set()
        for thread in threads:
            thread.join()
        assert not errors
        assert granted[0] > 50
        eventually(lambda: nothing_left(redlock_servers))


CYCLES = 300  # uncontended, and nothing is left behind (P7)


def test_a_frozen_master_keeps_no_key_once_it_thaws(world, redlock_servers):
    with world.Masters(redlock_servers.urls, restart_guard=False, node_timeout=0.1) as masters:
        lock = masters.lock("job", ttl=60)
        with lock:
            pass  # connected before it freezes, so it is sent what follows
        redlock_servers.pause(2)
        for _ in range(CYCLES):
            assert lock.acquire(timeout=1) is not None
            lock.release()
        redlock_servers.resume(2)
        # It works off what it had been sent, acquires and their releases in one order.
        eventually(lambda: nothing_left(redlock_servers))
        assert redlock_servers.client(2).ping()
        assert lock_keys(redlock_servers)[2] == set()


def test_a_lease_weighs_less_than_three_kilobytes(redlock_servers, masters):
    """Also after a burst; and it keeps nothing of the operation that acquired it."""
    eventually(lambda: all_up(masters))
    burst = [masters.lock(f"first-{i}") for i in range(100)]
    for lock in burst:
        take(lock)
    for lock in burst:
        lock.release()
    locks = [masters.lock(f"job-{i}") for i in range(400)]
    gc.collect()
    tracemalloc.start()
    try:
        for lock in locks:
            take(lock)
        # What a late master has not answered yet is no part of a lease.
        eventually(lambda: gc.collect() >= 0 and tracemalloc.get_traced_memory()[0] < 3000 * len(locks))
    finally:
        tracemalloc.stop()
    for lock in locks:
        lock.release()


# -- many leases, renewed in rounds for many -----------------------------------------------------------


TTL = 1.5
LEASES = 60
MAJORITY = range(3)


class Seen(list[str]):
    """An observer, and the extensions that it was told of."""

    def __call__(self, event):
        if isinstance(event, LeaseExtended):
            self.append(event.name)


@pytest.fixture
def seen():
    return Seen()


@pytest.fixture
def coarse(world, redlock_servers, monkeypatch, seen):
    # So few leases would seldom be due at one moment: with coarser steps they are.
    monkeypatch.setattr(renewals, "_STEP", 1 / 24)
    urls = redlock_servers.urls
    # Nothing but renewals goes to the masters: no list of masters either (R34).
    with world.Masters(
        urls, restart_guard=False, node_timeout=0.25, max_ttl=10.0, agreement="ignore", observer=seen
    ) as masters:
        eventually(lambda: all_up(masters))
        yield masters


@pytest.fixture
def lost():
    return []


@pytest.fixture
def held(coarse, redlock_servers, lost):
    """Locks by name, and their leases.  Every master has them all."""
    locks = {f"job-{number}": coarse.lock(f"job-{number}", ttl=TTL, on_lost=lost.append) for number in range(LEASES)}
    leases = {name: (lock, take(lock)) for name, lock in locks.items()}
    eventually(lambda: [len(keys) for keys in lock_keys(redlock_servers)] == [LEASES] * 5)
    return leases


def give_back(held, *others):
    for name, (lock, lease) in held.items():
        if name not in others:
            assert lease.valid, name
            lock.release()


def test_many_are_kept_and_few_requests_do_it(held, redlock_servers, seen, lost):
    before = script_calls(redlock_servers)
    until = time.monotonic() + 3 * TTL
    while time.monotonic() < until:
        assert all(lease.remaining() > 0 for _, lease in held.values())
        time.sleep(0.05)
    asked = [after - at_first for after, at_first in zip(script_calls(redlock_servers), before, strict=True)]
    assert set(seen) == set(held)  # an observer is told of each
    assert len(seen) >= 6 * LEASES  # a third of the TTL
    assert max(asked) < len(seen) / 3
    give_back(held)
    eventually(lambda: nothing_left(redlock_servers))
    assert not lost


def test_one_that_is_taken_over_and_one_that_is_deleted(held, redlock_servers, lost):
    clients = [redlock_servers.client(i) for i in MAJORITY]
    for client in clients:
        assert client.set("redlock:job-7", "somebody-else", xx=True, keepttl=True)
    taken, deleted = held["job-7"][1], held["job-23"][1]

    def both_are_lost():
        # Again: an extension under way repairs what is deleted before the last master has been asked (R14).
        each(redlock_servers, "delete", "redlock:job-23", masters=len(clients))
        return len(lost) == 2

    eventually(both_are_lost)
    assert {lease.name for lease in lost} == {"job-7", "job-23"}
    assert (taken.loss().reason, deleted.loss().reason) == ("taken", "expired")
    assert "somebody-else" in str(taken.loss()) or any("somebody-else" in vote.reason for vote in taken.loss().votes)
    time.sleep(2 * TTL)  # the others are renewed as if nothing had been
    for i in MAJORITY:
        client = redlock_servers.client(i)
        assert client.get("redlock:job-7") in (None, b"somebody-else")  # P8
        assert client.get("redlock:job-23") is None  # nothing brings it back
    give_back(held, "job-7", "job-23")
    assert len(lost) == 2
