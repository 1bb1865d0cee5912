"""A lease goes on in another process, and nothing of it is left in the first one (C11)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.bench import scene
from tests.owners import proves

if TYPE_CHECKING:
    from tests.bench import At, Life
    from tests.bench.users import Steps

TTL = 4.0


@proves("C11")
@scene()
def test_who_hands_a_lease_over_hears_no_alarm_one_ttl_later() -> list[Life]:
    """Whoever has it goes on for as long as it takes, and gives it to the next one."""
    handed: list[str] = []
    told: list[Any] = []

    def gives(at: At) -> Steps:
        lock = at.masters.lock("job", ttl=TTL, on_lost=told.append)

        def body(lease: Any) -> Steps:
            yield at.sleep(1.2 * TTL)  # it was renewed
            handed.append(lease.hand_over())
            assert (lease.valid, lease.lost) == (False, False)
            yield at.sleep(2 * TTL)

        yield at.within(lock, body)
        yield at.sleep(TTL)
        assert (told, at.log) == ([], [])

    def takes(at: At) -> Steps:
        yield from at.until(lambda: handed)
        lock = at.masters.lock("job", ttl=TTL, token=handed[0])
        assert (yield lock.extend).valid
        yield at.sleep(3 * TTL)
        assert at.keys() == 5
        yield lock.release
        yield at.sleep(0.1)
        assert at.keys() == 0

    return [gives, takes]


@scene()
@pytest.mark.parametrize("bound", [True, False], ids=["bound", "not bound"])
@pytest.mark.parametrize("auto_extend", [True, False], ids=["renewed", "not renewed"])
def test_a_text_that_is_lost_leaves_the_name_for_one_ttl(at: At, bound: bool, auto_extend: bool) -> Steps:
    """Nothing is renewed, given back or told of; the lease and its lock say that it has ended."""
    told: list[Any] = []
    lock = at.masters.lock("job", ttl=TTL, bound=bound, auto_extend=auto_extend, on_lost=told.append)
    began = at.now

    def body(lease: Any) -> Steps:
        yield at.sleep(TTL / 5)  # before its first renewal
        lease.hand_over()
        assert not lock.owned()
        for call in (lock.release, lock.extend):
            with pytest.raises(at.errors.NotHeld):
                yield call
        assert (yield lease.wait_lost) is False
        with pytest.raises(at.errors.LockLost, match="handed over"):
            lease.hand_over()
        yield from at.until(lambda: at.keys() == 0)
        assert at.exactly(began + TTL)
        yield at.sleep(TTL)
        assert (lease.valid, lease.lost, lease.remaining()) == (False, False, 0.0)

    yield at.within(lock, body)
    assert (told, at.log) == ([], [])


@scene()
@pytest.mark.parametrize("extended", [0, 2])
@pytest.mark.parametrize("lags", [0.01, 0.2, 1.0, 8.0])
def test_the_release_of_another_process_comes_before_the_acquire(lags: float, extended: int) -> list[Life]:
    """R10, P7: what order no connection keeps, for the way of the first process to one master is slow."""
    handed: list[str] = []
    released: list[float] = []

    def gives(at: At) -> Steps:
        yield partial(at.masters.status, "job")
        at.cut([4], answers=False)
        lease = yield at.masters.lock("job", ttl=10.0).acquire
        handed.append(lease.hand_over())
        yield from at.until(lambda: released)
        yield at.sleep(lags)
        at.heal([4], answers=False)
        yield from at.until(lambda: at.keys() == 1, tick=0.0005)  # the acquire
        yield at.sleep(8 * 0.25)  # the longest pause
        assert at.keys() == 0

    def takes(at: At) -> Steps:
        yield from at.until(lambda: handed)
        lock = at.masters.lock("job", ttl=10.0, token=handed[0])
        for _ in range(extended):  # a master that answers last gets the key back one extension later
            yield lock.extend
            yield at.sleep(0.1)
        yield lock.release
        released.append(at.now)

    return [gives, takes]


@scene()
def test_a_token_that_came_another_way_is_kept_by_both_until_one_releases() -> list[Life]:
    given: list[Any] = []
    released: list[float] = []

    def gives(at: At) -> Steps:
        lock = at.masters.lock("job", ttl=TTL)
        lease = yield lock.acquire
        given.append(lease)
        yield from at.until(lambda: released)
        assert lease.valid
        yield partial(lease.wait_lost, TTL)
        assert at.now - released[0] < TTL / 2  # R13: at its next renewal
        assert lease.loss().reason == "expired"
        with pytest.raises(at.errors.LockLost):
            yield lock.release

    def takes(at: At) -> Steps:
        yield from at.until(lambda: given)
        lock = at.masters.lock("job", ttl=TTL, token=given[0].token, fence=given[0].fence)
        assert (lock.lease.valid, lock.lease.lost, lock.owned()) == (False, False, False)
        with pytest.raises(at.errors.ConfigurationError):
            yield lock.acquire
        assert (yield lock.extend).valid
        yield at.sleep(2 * TTL)
        assert lock.owned()
        assert lock.lease.fence == given[0].fence
        yield lock.release
        released.append(at.now)

    return [gives, takes]
