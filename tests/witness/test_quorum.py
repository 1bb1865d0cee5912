"""Promises and rules about majorities, each once, on real servers.  The scenes and tables of the same subject prove them."""

from __future__ import annotations

import time

import pytest

from redlock import QuorumUnreachable
from redlock.testing import LocalMasters
from tests.owners import witness
from tests.servers.look import all_up, each, eventually, lock_keys, nothing_left, take


@witness("P4", "P7", "R2", "R9")
def test_a_master_that_hangs_keeps_no_client_waiting_and_no_key(world, redlock_servers):
    with world.Masters(redlock_servers.urls, restart_guard=False, node_timeout=9.0) as masters:
        eventually(lambda: all_up(masters))
        redlock_servers.pause(4)
        began = time.monotonic()
        for _ in range(20):
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
def test_masters_whose_clocks_are_slewed_let_nobody_in_and_a_check_says_why(world):
    with (
        LocalMasters(3, clock_rates=(1.0833,) * 3) as servers,
        world.Masters(servers.urls, restart_guard=False) as masters,
    ):
        eventually(lambda: all("clock-rate" in str(one.findings) for one in masters.check().masters))
        eventually(lambda: sum("faster" in one for one in _reasons(masters)) >= 2)
        with pytest.raises(QuorumUnreachable, match="faster than ours"):
            masters.lock("job").acquire(timeout=0)


def _reasons(masters):
    try:
        return [vote.reason for vote in masters.status("job").votes]
    except QuorumUnreachable as error:
        return [vote.reason for vote in error.votes]
