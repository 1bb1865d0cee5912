"""`redlock.compat.redlock_py`: the calls of redlock-py, as its README shows them, on real masters."""

from __future__ import annotations

import gc
import pickle
import threading
import warnings
from typing import Any

import pytest
import redis

from redlock import ConfigurationError, Masters
from redlock.compat.redlock_py import CannotObtainLock, Lock, MultipleRedlockException, Redlock
from tests.servers.look import all_up, eventually, no_thread_besides
from tests.servers.process import run

OLD = "ignore:.*there for the way over:DeprecationWarning"
pytestmark = pytest.mark.filterwarnings(OLD)


@pytest.fixture
def dlm(redlock_servers):
    dlm = Redlock([{"host": "127.0.0.1", "port": port} for port in redlock_servers.ports], restart_guard=False)
    eventually(lambda: all_up(dlm.masters))
    yield dlm
    dlm.masters.close()


@pytest.fixture
def other(redlock_servers):
    """Another process would have another one."""
    other = Redlock(redlock_servers.urls, retry_count=1, restart_guard=False)
    yield other
    other.masters.close()


def test_a_lock_is_a_named_tuple(dlm, redlock_servers):
    lock = dlm.lock("my_resource_name", 1000)
    validity, resource, key = lock
    assert (validity, resource, key) == (lock.validity, lock.resource, lock.key)
    assert isinstance(validity, int)
    assert 500 <= validity < 1000
    assert resource == "my_resource_name"
    # The key has no prefix: the old library and this one exclude each other.
    eventually(lambda: [server.get("my_resource_name") for server in dlm.servers] == [key] * 5)
    assert dlm.unlock(lock) is None
    eventually(lambda: not any(redlock_servers.keys("my_resource_name")))


def test_false_where_somebody_else_has_it(dlm, other):
    lock = dlm.lock("pants", 10_000)
    assert other.lock("pants", 1000) is False
    assert dlm.lock("pants", 1000) is False  # not re-entered, in the same thread neither
    dlm.unlock(lock)
    assert other.lock("pants", 1000)


def test_the_old_library_and_this_one_exclude_each_other(dlm, redlock_servers):
    """What the old one does on each master is one SET."""
    for i in range(5):
        redlock_servers.client(i).set("pants", "theirs", nx=True, px=10_000)
    assert dlm.lock("pants", 1000) is False
    for i in range(5):
        redlock_servers.client(i).delete("pants")
    assert dlm.lock("pants", 10_000)
    assert [redlock_servers.client(i).set("pants", "theirs", nx=True, px=10_000) for i in range(5)].count(None) >= 3


def test_another_process_may_unlock_it(dlm, other, redlock_servers):
    lock = pickle.loads(pickle.dumps(dlm.lock("pants", 30_000)))  # noqa: S301
    other.unlock(lock)
    eventually(lambda: not any(redlock_servers.keys("pants")))
    other.unlock(lock)  # nothing is said


def test_only_its_own_lock_is_given_back(dlm, other):
    lock = dlm.lock("pants", 30_000)
    other.unlock(Lock(0, "pants", b"somebody else's"))
    eventually(lambda: [server.get("pants") for server in dlm.servers] == [lock.key] * 5)


@pytest.mark.parametrize("dropped", ["tuple", "manager"])
def test_a_lock_that_is_dropped_lasts_for_its_ttl(redlock_servers, dropped):
    """A program that does something once a minute never unlocks."""
    before = {*threading.enumerate()}
    dlm = Redlock(redlock_servers.urls, restart_guard=False)
    eventually(lambda: all_up(dlm.masters))
    assert dlm.lock("once", 60_000)
    eventually(lambda: all(redlock_servers.keys("once")))
    gc.collect()
    if dropped == "manager":
        del dlm
        gc.collect()
        eventually(lambda: no_thread_besides(before))
    else:  # a release is sent behind all that was to be sent before
        other = dlm.lock("other", 60_000)
        assert other
        dlm.unlock(other)
        eventually(lambda: not any(redlock_servers.keys("other")))
    assert all(redlock_servers.keys("once"))


def test_a_lock_that_is_dropped_at_the_exit_lasts_as_well(redlock_servers):
    taken = f"Redlock({redlock_servers.urls}, restart_guard=False).lock('once', 20_000)"
    run("-c", f"from redlock.compat.redlock_py import Redlock\n(lambda: {taken})()")
    assert sum(map(bool, redlock_servers.keys("once"))) >= 3


def test_locks_that_ended_are_forgotten(dlm):
    for i in range(5):
        assert dlm.lock(f"short:{i}", 750)

    def only_the_last():
        lock = dlm.lock("last", 10_000)
        kept = len(dlm._held)
        dlm.unlock(lock)
        return kept == 1

    eventually(only_the_last)


def test_an_outage_is_false_and_is_logged(dlm, redlock_servers, caplog):
    lock = dlm.lock("pants", 30_000)
    for i in range(3):
        redlock_servers.kill(i)
    assert dlm.lock("other", 1000) is False
    assert "2 of 5" in caplog.text or "3 of 5" in caplog.text
    dlm.unlock(lock)  # owed to the three


@pytest.mark.parametrize("ttl", [1000.0, "1000", 10, 61_000])
def test_a_wrong_ttl_is_a_value_error(dlm, ttl):
    """A TTL may be shorter than 750 ms only with a shorter ``node_timeout``, and longer than a minute with ``max_ttl``."""
    with pytest.raises(ValueError, match="ttl"):
        dlm.lock("pants", ttl)


def test_the_options_of_masters_are_taken(redlock_servers):
    dlm = Redlock(redlock_servers.urls, restart_guard=False, max_ttl=600, node_timeout=0.03, prefix="p:")
    eventually(lambda: dlm.lock("pants", 600_000))  # 30 ms are little for a busy machine
    dlm.lock("shorts", 100)
    assert [redlock_servers.client(i).exists("p:pants") for i in range(5)].count(1) >= 3
    dlm.masters.close()


def test_wrong_masters():
    with pytest.raises(Warning, match="cat"):
        Redlock([{"cat": "hog"}])
    with pytest.raises(Warning, match="scheme"):
        Redlock(["http://127.0.0.1"])
    with pytest.raises(ConfigurationError, match="same server"):
        Redlock([redis.Redis(db=0), redis.Redis(db=1)])


def test_their_exceptions():
    both = MultipleRedlockException([ValueError("one"), ValueError("two")])
    assert str(both) == "one :: two"
    assert len(both.errors) == 2
    assert issubclass(CannotObtainLock, Exception)


@pytest.mark.filterwarnings("error::DeprecationWarning")
def test_each_call_says_what_to_write_instead(redlock_servers):
    """In the line that calls, and what it says runs."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        dlm = Redlock(redlock_servers.urls, restart_guard=False)
        lock = dlm.lock("pants", 10_000)
        assert lock
        dlm.unlock(lock)
    dlm.masters.close()
    assert [one.category for one in said] == [DeprecationWarning] * 3
    assert {one.filename for one in said} == {__file__}
    new = [str(one.message).partition("Write instead:  ")[2] for one in said]
    assert new[0] == 'masters = Masters(["redis://…", …], prefix="")'
    names: dict[str, Any] = {
        "masters": Masters(redlock_servers.urls, prefix="", restart_guard=False),
        "resource": "pants",
    }
    exec("\n".join(new[1:]), names)  # noqa: S102
    assert names["lease"].ttl == 10
    assert names["lease"].lost is False
    names["masters"].close()
    eventually(lambda: not any(redlock_servers.keys("pants")), 5)  # long before the TTL
