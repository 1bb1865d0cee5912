"""A lease is kept, or it is lost: when, why, who is told, and what stays (P6, R12, R13, R15, C7-C9)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.bench import scene

if TYPE_CHECKING:
    from tests.bench import At
    from tests.simulation.shipped.users import Steps


@scene()
def test_a_lease_that_is_renewed_never_falls_below_a_third_of_its_ttl(at: At) -> Steps:
    lock = at.masters.lock("job", ttl=3.0)
    lease = yield lock.acquire
    for _ in range(100):
        assert lease.remaining() > 1.0  # R15: it is extended when a third of its time is over
        yield at.sleep(0.1)
    yield lock.release
    assert not lease.lost  # C8
    yield at.sleep(0.1)
    assert at.keys() == 0


@scene()
def test_a_lease_that_is_not_renewed_is_lost_at_its_end(at: At) -> Steps:
    told: list[float] = []
    lock = at.masters.lock("job", ttl=1.5, auto_extend=False, on_lost=lambda _: told.append(at.now))
    began = at.now
    lease = yield lock.acquire
    assert (yield partial(lease.wait_lost, 5))
    assert at.exactly(began + 1.5 - 0.017)  # R6: less the drift; P6: no later
    yield at.sleep(0.1)
    assert len(told) == 1  # C9
    with pytest.raises(at.errors.LockLost) as error:
        yield lock.release
    assert error.value.reason == "expired"


@scene()
def test_a_lease_is_lost_in_time_although_every_master_hangs(at: At) -> Steps:
    told: list[float] = []
    lock = at.masters.lock("job", ttl=1.5, on_lost=lambda _: told.append(at.now))
    began = at.now
    lease = yield lock.acquire
    at.freeze()
    assert (yield partial(lease.wait_lost, 5))
    assert at.exactly(began + 1.5 - 0.017)  # P6
    assert lease.loss().reason == "unreachable"
    at.thaw()
    with pytest.raises(at.errors.LockLost, match="could not be renewed"):
        yield lock.release
    yield at.sleep(2.0)
    assert len(told) == 1
    assert at.keys() == 0  # P7


@scene()
def test_max_hold_ends_a_lease_and_gives_its_keys_back(at: At) -> Steps:
    told: list[float] = []
    lock = at.masters.lock("job", ttl=10.0, max_hold=3.0, on_lost=lambda _: told.append(at.now))
    began = at.now
    lease = yield lock.acquire
    assert (yield partial(lease.wait_lost, 10))
    assert at.exactly(began + 3.0)  # C7
    assert lease.loss().reason == "max_hold"
    yield at.sleep(0.2)
    assert len(told) == 1
    assert at.keys() == 0


@scene()
def test_a_body_is_cancelled_when_its_lease_is_lost(at: At) -> Steps:
    began: list[float] = []
    ended: list[float] = []

    def body(_: object) -> Steps:
        began.append(at.now)
        at.freeze()
        try:
            yield at.sleep(10)
        finally:
            ended.append(at.now)

    with pytest.raises(at.errors.LockLost) as error:
        yield at.within(at.masters.lock("job", ttl=2.0), body)
    assert error.value.reason == "unreachable"
    lasted = ended[0] - began[0]
    assert 9.9 < lasted < 10.1 if at.threads else 1.8 < lasted < 2.0  # nothing interrupts a thread
    at.thaw()
