"""A name stays taken for a while after a grant (R28) or after a loss (R36)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tenacity.wait import wait_fixed

from tests.bench import scene

if TYPE_CHECKING:
    from tests.bench import At
    from tests.bench.users import Steps

LEAST = 1.5  # seconds
LATEST = LEAST * 1.01 + 0.002 + 0.1  # the allowance for clocks, and an attempt


def next_grant(at: At, **options: Any) -> Steps:
    """When another client gets it."""
    other = at.masters.lock("job", ttl=10.0, **options)
    yield other.acquire
    granted = at.now
    yield other.release
    return granted


@scene()
def test_a_release_before_the_time_gives_the_name_to_no_other_client(at: At) -> Steps:
    lock = at.masters.lock("job", ttl=10.0, hold_at_least=LEAST)
    began = at.now
    lease = yield lock.acquire
    yield lock.release
    assert not lease.valid
    assert not lease.lost
    granted = yield from next_grant(at, retry=wait_fixed(0.005))
    assert LEAST < granted - began < LATEST
    yield at.sleep(0.1)
    assert at.keys() == 0


@scene()
def test_a_refused_waiter_comes_back_then_and_not_at_the_end_of_the_ttl(at: At) -> Steps:
    lock = at.masters.lock("job", ttl=60.0, hold_at_least=LEAST)
    began = at.now
    yield lock.acquire
    yield lock.release
    granted = yield from next_grant(at, retry=wait_fixed(60))  # what masters say of the name brings the waiter back
    assert LEAST < granted - began < LATEST


@scene()
def test_a_lease_that_ends_by_max_hold_is_kept_from_others_as_well(at: At) -> Steps:
    lock = at.masters.lock("job", ttl=10.0, max_hold=0.2, hold_at_least=LEAST)
    began = at.now
    lease = yield lock.acquire
    assert (yield partial(lease.wait_lost, 5))
    assert at.exactly(began + 0.2)  # C7
    granted = yield from next_grant(at)
    assert LEAST < granted - began < LATEST
    with pytest.raises(at.errors.LockLost):
        yield lock.release


def guarded(at: At) -> Steps:
    lock = at.masters.lock("job", ttl=8.0, guard=2.0, max_hold=1.0)
    began = at.now
    lease = yield lock.acquire
    assert lease.remaining() < 8.0
    assert (yield partial(lease.wait_lost, 30))
    granted = yield from next_grant(at)
    assert 3.0 <= granted - began < 3.2  # R36: max_hold and the guard, long before the keys end
    lock = at.masters.lock("job", ttl=8.0, guard=2.0)
    yield lock.acquire
    yield lock.release
    released = at.now
    granted = yield from next_grant(at)
    assert granted - released < 0.1  # a release in order gives it back at once


test_after_a_loss_the_guard_and_after_a_release_nothing = scene()(guarded)
test_a_guard_where_expiries_are_confirmed = scene(confirm=True)(guarded)  # R35
