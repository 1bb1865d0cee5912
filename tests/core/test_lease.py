"""What a holder has: the states of a lease, and that no look at it is ever late (P6, C8)."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, get_args

import pytest

from redlock._core.kernel.ballot import Grant
from redlock._core.lease import LeaseState, PendingExtension
from redlock._lock.lease import LeaseBase
from redlock.errors import ConfigurationError, LockLost, Reason, Vote
from tests.core.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

REASONS: tuple[Reason, ...] = get_args(Reason)
VOTES = (Vote("redis-a:6379", "granted", 0.001),)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0
        self.mine = True

    def lease(self, *names: str, valid_until: float = 110.0) -> LeaseState:
        grant = Grant("token", 7, valid_until, 100.0, frozenset([0, 1]), lambda: VOTES)
        return LeaseState(World().spec(*names or ("a",)), grant, clock=lambda: self.now, mine=lambda: self.mine)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lease(clock: Clock) -> LeaseState:
    return clock.lease()


def test_a_fresh_one() -> None:
    lease = Clock().lease("a", "b")
    assert (lease.name, lease.names, lease.token, lease.fence, lease.ttl) == ("a, b", ("a", "b"), "token", 7, 10.0)
    assert lease.votes == VOTES
    assert (lease.valid, lease.lost, lease.remaining(), lease.valid_until) == (True, False, 10.0, 110.0)
    lease.ensure()
    lease.ensure(9.9)
    assert "has not ended: it is valid for another 10.000 s" in str(lease.loss())


@pytest.mark.parametrize(
    ("at", "valid"), [(100.0, True), (109.999, True), (110.0, False), (110.001, False), (1e9, False)]
)
@pytest.mark.parametrize("look", ["valid", "remaining", "lost", "ensure", "loss", "repr"])
def test_the_first_look_says_so_whichever_it_is(
    clock: Clock, lease: LeaseState, at: float, valid: bool, look: str
) -> None:
    """P6: after a pause of any length.  Nothing has to run for a lease to end."""
    clock.now = at
    seen: dict[str, Callable[[], bool]] = {
        "valid": lambda: lease.valid,
        "remaining": lambda: lease.remaining() > 0,
        "lost": lambda: not lease.lost,
        "ensure": lambda: ensures(lease),
        "loss": lambda: "expired" not in str(lease.loss()),
        "repr": lambda: "s left" in repr(lease),
    }
    assert seen[look]() == valid
    assert lease.lost == (not valid)


def ensures(lease: LeaseState, at_least: float = 0.0) -> bool:
    try:
        lease.ensure(at_least)
    except LockLost:
        return False
    return True


@pytest.mark.parametrize(("at_least", "enough"), [(0.0, True), (4.9, True), (5.1, False), (100.0, False)])
def test_ensure_says_how_much_is_left(clock: Clock, lease: LeaseState, at_least: float, enough: bool) -> None:
    clock.now = 105.0
    assert ensures(lease, at_least) == enough
    assert not lease.lost  # too short for that step is not over
    if not enough:
        with pytest.raises(LockLost, match=rf"5\.000 s left, {at_least:g} s are needed") as caught:
            lease.ensure(at_least)
        assert (caught.value.name, caught.value.votes) == ("a", VOTES)


@pytest.mark.parametrize("wrong", ["2", None, timedelta(seconds=2), Decimal(2), math.nan, True, 1 << 3000])
def test_ensure_refuses_what_is_no_number_of_seconds(lease: LeaseState, wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"^at_least={re.escape(repr(wrong)[:9])}"):
        LeaseBase(lease).ensure(wrong)


@pytest.mark.parametrize("released", [False, True])
@pytest.mark.parametrize("reason", REASONS)
def test_lost_for_a_reason_and_the_first_one_stays(lease: LeaseState, reason: Reason, released: bool) -> None:
    """Also one that its release has found gone (C8)."""
    if released:
        lease.end()
        lease.found_gone(reason)
    else:
        lease.lose(reason)
    lease.lose("max_hold")
    lease.end()  # what was lost cannot be released
    assert (lease.lost, lease.valid, lease.remaining()) == (True, False, 0.0)
    error = lease.loss()
    assert (error.reason, error.name, error.votes) == (reason, "a", VOTES)
    assert f"lost: {reason}" in repr(lease)
    with pytest.raises(LockLost) as caught:
        lease.ensure()
    assert caught.value.reason == reason


def test_an_extension_that_never_began_ends_no_other(lease: LeaseState) -> None:
    """Interrupted in between: whoever ends it cannot know."""
    one = PendingExtension(150.0, 40.0)
    lease.on_change = lambda _: pytest.fail("it does not end earlier")
    lease.begin_extension(one)
    lease.end_extension(PendingExtension(150.0, 40.0))
    assert lease.all_pending == {one: True}


def test_in_a_forked_child_it_is_nobodys(clock: Clock, lease: LeaseState) -> None:
    """The parent holds it: here it is not valid, and not lost either."""
    clock.mine = False
    assert (lease.valid, lease.lost, lease.remaining()) == (False, False, 0.0)
    with pytest.raises(LockLost, match="process"):
        lease.ensure()
    clock.now = 1e9
    assert not lease.lost


def test_no_attribute_by_mistake() -> None:
    with pytest.raises(AttributeError):
        LeaseBase(Clock().lease()).valid_untill = 1.0  # type: ignore[attr-defined]


def test_repr_shows_no_token() -> None:
    """Anybody that knows the token can release: it does not belong into logs."""
    lease = Clock().lease("a")
    assert "token" not in repr(lease)
    assert "fence=7" in repr(lease)
    assert "10.000 s left" in repr(lease)


def test_how_long_it_was_held(clock: Clock, lease: LeaseState) -> None:
    """Until its time was over, not until somebody noticed."""
    clock.now = 103.0
    assert lease.held_for == 3.0
    clock.now = 1000.0
    assert lease.lost
    assert lease.held_for == 10.0
