"""Promises and rules about majorities, each once, on real servers.  The scenes and tables of the same subject prove them."""

import time

import pytest

from redlock import QuorumUnreachable
from redlock.testing import LocalMasters, clock_available
from tests.owners import witness
from tests.servers.look import all_up, each, eventually, lock_keys, nothing_left, take
from tests.servers.needs import missing


@witness("P4", "P7", "R2", "R9")
def test_a_master_that_hangs_keeps_no_client_waiting_and_no_key(world, redlock_servers):
    with world.Masters(redlock_servers.urls, restart_guard=False, node_timeout=9.0) as masters:
        eventually(lambda: all_up(masters))
        redlock_servers.pause(4)
        began = time.monotonic()
        for _ in range(5):
            with masters.lock("job", ttl=30):
                pass
        assert time.monotonic() - began < 9.0
        redlock_servers.resume(4)
        eventually(lambda: nothing_left(redlock_servers))


@witness("P8", "R1")
def test_a_majority_that_another_client_holds_is_a_refusal_and_stays_untouched(masters, servers):
    eventually(lambda: all_up(masters))
    each(servers, "set", "redlock:job", "another", px=60_000, masters=3)
    assert masters.lock("job").acquire(timeout=0) is None
    eventually(lambda: lock_keys(servers) == [{"redlock:job"}] * 3 + [set()] * 2)
    assert [servers.client(index).get("redlock:job") for index in range(3)] == [b"another"] * 3


@witness("P3")
def test_a_lease_without_a_holder_ends_with_its_ttl(masters, others):
    began = time.monotonic()
    take(masters.lock("job", ttl=4.0, auto_extend=False))
    other = others.lock("job")
    take(other, timeout=60)
    assert time.monotonic() - began > 3.9
    other.release()


@witness("R43")
def test_masters_whose_clocks_are_slewed_let_no_second_client_in_and_both_say_why(world):
    if not clock_available():
        missing("libfaketime")
    with LocalMasters(3, clock=True) as servers, _slewed(world, servers) as first, _slewed(world, servers) as second:
        eventually(lambda: all_up(first) and all_up(second))
        take(first.lock("job", ttl=9.0, auto_extend=False))
        for number in range(3):
            servers.slew(number, 3.0)
        eventually(lambda: not any(lock_keys(servers)) and all(len(_fast(one)) >= 2 for one in (first, second)))
        for masters, name in ((second, "job"), (first, "another")):
            with pytest.raises(QuorumUnreachable, match="faster than ours"):
                masters.lock(name, ttl=9.0).acquire(timeout=0)
        assert all("clock-rate" in str(one.findings) for one in first.check().masters)


def _slewed(world, servers):
    return world.Masters(servers.urls, restart_guard=False, max_ttl=9.0)


def _fast(masters):
    try:
        votes = masters.status("job").votes
    except QuorumUnreachable as error:
        votes = error.votes
    return [vote for vote in votes if "faster" in vote.reason]
