"""A name stays taken for a while after a grant (R28) or after a loss (R36)."""

from __future__ import annotations

from functools import partial

import pytest
from tenacity.wait import wait_fixed

from tests.bench import scene
from tests.owners import proves

LEAST = 1.5  # seconds
LATEST = LEAST * 1.01 + 0.002 + 0.1  # the allowance for clocks, and an attempt


def next_grant(at, **options):
    """When another client gets it."""
    other = at.masters.lock("job", ttl=10.0, **options)
    yield other.acquire
    granted = at.now
    yield other.release
    return granted


@proves("R28")
@scene()
@pytest.mark.parametrize(("ttl", "retry"), [(10.0, 0.005), (60.0, 60.0)])
def test_a_release_before_the_time_gives_the_name_to_no_other_client(at, ttl, retry):
    """A waiter that pauses longer comes back then, for masters have said when, and not at the end of the TTL."""
    lock = at.masters.lock("job", ttl=ttl, hold_at_least=LEAST)
    began = at.now
    lease = yield lock.acquire
    yield lock.release
    assert not lease.valid
    assert not lease.lost
    granted = yield from next_grant(at, retry=wait_fixed(retry))
    assert LEAST < granted - began < LATEST
    yield from at.none_left()


@scene()
def test_a_lease_that_ends_by_max_hold_is_kept_from_others_as_well(at):
    lock = at.masters.lock("job", ttl=10.0, max_hold=0.2, hold_at_least=LEAST)
    began = at.now
    lease = yield lock.acquire
    assert (yield partial(lease.wait_lost, 5))
    assert at.exactly(began + 0.2)  # C7
    granted = yield from next_grant(at)
    assert LEAST < granted - began < LATEST
    yield from at.raises(at.errors.LockLost, lock.release)


@scene()
def test_fast_clocks_of_masters_give_nothing_away_sooner(at):
    at.rate(5, 1.009)  # `drift_factor` allows for one per cent
    lock, other = (at.masters.lock("job", ttl=60.0, hold_at_least=least) for least in (50.0, 0.0))
    began = at.now
    yield lock.acquire
    yield lock.release
    yield at.sleep(49.0)
    while (yield partial(other.acquire, timeout=0)) is None:
        yield at.sleep(0.1)
    assert 50.0 <= at.now - began < 50.2
    yield other.release


@scene()
def test_a_release_makes_no_key_live_longer(at):
    lock = at.masters.lock("job", ttl=30.0, hold_at_least=30.0)
    began = at.now
    yield lock.acquire
    yield lock.release
    yield from at.until(lambda: at.keys() == 0)
    assert at.exactly(began + 30.0)  # and not with the allowance for clocks


@scene()
def test_a_grant_that_leaves_less_than_that_is_none(at):
    """Its holder may die right after it, and then what is left of the lease is all that keeps others out."""
    lock = at.masters.lock("job", ttl=2.0, hold_at_least=LEAST, min_validity=0.1, bound=False)
    yield partial(at.masters.status, "job")  # over connections that are up
    at.cut(5, requests=False)
    job = yield at.begin(lock.acquire)
    yield at.sleep(0.1)
    at.stop(at.client, 1.0)
    at.heal(5, requests=False)  # masters have granted it, and their answers are there when it goes on
    yield from at.until(lambda: at.over(job))
    assert lock.lease.remaining() > LEAST  # it has asked again


@scene()
def test_an_attempt_that_fails_keeps_nothing(at):
    at.put("redlock:job", "another", masters=3)
    lock = at.masters.lock("job", ttl=10.0, hold_at_least=LEAST)
    assert (yield partial(lock.acquire, timeout=0)) is None
    yield at.sleep(0.1)
    assert at.values() == ["another"] * 3 + [None] * 2


def guarded(at):
    lock = at.masters.lock("job", ttl=8.0, guard=2.0, max_hold=1.0)
    began = at.now
    lease = yield lock.acquire
    assert lease.remaining() < 8.0
    assert (yield partial(lease.wait_lost, 30))
    granted = yield from next_grant(at)
    assert 3.0 <= granted - began < 3.2  # R36: max_hold and the guard, long before the keys end
    yield from at.takes("job", ttl=8.0, guard=2.0)
    released = at.now
    granted = yield from next_grant(at)
    assert granted - released < 0.1  # a release in order gives it back at once


test_after_a_loss_the_guard_and_after_a_release_nothing = proves("R36")(scene()(guarded))
test_a_guard_where_expiries_are_confirmed = scene(confirm=True)(guarded)  # R35


@scene()
def test_clocks_that_step_by_less_than_the_guard_give_a_name_away_to_no_one(at):
    lock = at.masters.lock("job", ttl=8.0, guard=4.0, auto_extend=False)
    for extended in (False, True):
        lease = yield lock.acquire
        yield at.sleep(2.0)
        if extended:
            yield lock.extend
        for server in at.servers:
            server.master.step(3.9)
        while lease.valid:
            assert at.keys() == 5
            yield at.sleep(0.1)
        yield at.sleep(4.0)
        yield from at.raises(at.errors.LockLost, lock.release)


@scene()
def test_keys_live_no_longer_than_max_ttl_with_their_guard(at):
    with pytest.raises(at.errors.ConfigurationError, match="allowed is max_ttl for both together"):
        at.masters.lock("job", ttl=50.0, guard=10.1)  # a master that has forgotten a key votes after max_ttl (P5)
    yield at.sleep(0.0)
