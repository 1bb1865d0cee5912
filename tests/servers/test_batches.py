"""Many leases of one client, renewed in rounds for many: what becomes of one is nothing to the others (R12, R13, R15)."""

from __future__ import annotations

import time

import pytest

from redlock import LeaseExtended
from redlock._core import renewals
from tests.servers.look import all_up, eventually, nothing_left, script_calls, take

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
def masters(world, redlock_servers, monkeypatch, seen):
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
def held(masters, lost):
    """Locks by name, and their leases."""
    locks = {f"job-{number}": masters.lock(f"job-{number}", ttl=TTL, on_lost=lost.append) for number in range(LEASES)}
    return {name: (lock, take(lock)) for name, lock in locks.items()}


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
    for i in MAJORITY:
        client = redlock_servers.client(i)
        assert client.set("redlock:job-7", "somebody-else", xx=True, keepttl=True)
        assert client.delete("redlock:job-23") == 1
    taken, deleted = held["job-7"][1], held["job-23"][1]
    eventually(lambda: len(lost) == 2)
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


def test_a_key_of_another_type_on_one_master(held, redlock_servers, lost):
    """It is one vote of one lease: on that master, too, all the others live on."""
    client = redlock_servers.client(4)
    client.delete("redlock:job-11")
    client.rpush("redlock:job-11", "not a lock")
    time.sleep(3 * TTL)
    assert all(client.exists(f"redlock:{name}") for name in held)
    assert client.type("redlock:job-11") == b"list"
    assert held["job-11"][1].valid
    client.delete("redlock:job-11")
    give_back(held)
    assert not lost


def test_a_master_that_does_not_do_several_at_once(held, redlock_servers, lost, monkeypatch):
    """Permitted are some names only, as a cluster does only those of one slot: each is then renewed by itself."""
    client = redlock_servers.client(3)
    client.acl_setuser("default", enabled=True, reset_keys=True, keys=["redlock:job-[0-4]*", "{redlock:job-[0-4]*"])
    try:
        permitted = [f"redlock:{name}" for name in held if name[len("job-")] in "01234"]
        time.sleep(3 * TTL)
        assert all(lease.valid for _, lease in held.values())
        client.acl_setuser("default", enabled=True, keys=["*"])
        assert client.exists(*permitted) == len(permitted)  # though others of their rounds were refused
    finally:
        client.acl_setuser("default", enabled=True, keys=["*"])
    give_back(held)
    assert not lost
