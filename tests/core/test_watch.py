"""What a watcher of a name is told (R41): what is new, nothing twice, and no earlier holder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tenacity.wait import wait_fixed

from redlock._core.watch import Watch
from redlock.errors import QuorumUnreachable
from tests.core.world import START, Master, World, down, refuses, turns

if TYPE_CHECKING:
    from redlock._core.inspect import LockStatus

FREE: list[Any] = [b"", -2, b"7"]
PAUSE = 0.5
US, OTHER = "1" * 40, "2" * 40


def held(by: str, fence: int, ms: int = 60_000) -> list[Any]:
    return [by.encode(), ms, str(fence).encode()]


def told(world: World, times: int) -> list[tuple[str | None, float]]:
    """The holder, and when it was told."""
    watch = Watch(world.settings, "invoice:42", "redlock:invoice:42", wait_fixed(PAUSE))
    found = []
    for _ in range(times):
        status: LockStatus = world.run(watch.more())
        found.append((status.token, round(world.now - START, 3)))
    return found


def all_say(*answers: Any) -> list[Master]:
    return [Master(0.0, {"status": turns(*answers)}) for _ in range(3)]


def test_a_watcher_is_told_of_another_value_that_begins_alike_and_sees_eight_characters() -> None:
    """With ``prefix=""``, of another library or another program."""
    world = World(*all_say(held("session-1", 0), held("session-1", 0), held("session-2", 0)))
    assert told(world, 2) == [("session-…", 0.0), ("session-…", PAUSE)]


def test_it_never_goes_back_to_an_earlier_holder() -> None:
    """Masters that have forgotten: a lease with a smaller fence is not the newest, whoever says so."""
    world = World(*all_say(held(US, 8), held(OTHER, 7), held(OTHER, 7), held(US, 8), FREE))
    assert told(world, 2) == [(US, 0.0), (None, 3 * PAUSE)]


def test_a_clock_that_was_once_ahead_hides_nobody_for_good() -> None:
    """The fence of that client is from the year 2100.  Then the masters forget it, as they do after `fence_ttl`."""
    ahead, nothing = held(US, 4_000_000_000_000_000), [b"", -2, b"0"]
    assert told(World(*all_say(ahead, nothing, held(OTHER, 7))), 3) == [(US, 0.0), (None, 0.0), (OTHER, 0.0)]


def test_a_minority_that_was_emptied_proves_nothing() -> None:
    emptied = all_say(held(US, 8), [b"", -2, b"0"], held(OTHER, 7), FREE)[0]
    others = all_say(held(US, 8), held(OTHER, 7), held(OTHER, 7), FREE)[1:]
    assert told(World(emptied, *others), 2) == [(US, 0.0), (None, 2 * PAUSE)]


def test_the_fence_of_an_attempt_that_failed_hides_nobody() -> None:
    """One master has it, and it is greater than that of the next holder."""
    first = Master(0.0, {"status": turns(held(OTHER, 99), held(OTHER, 99), down().says["status"])})
    others = all_say(held(OTHER, 7), held(OTHER, 7), held(US, 8))[1:]
    assert told(World(first, *others), 2) == [(OTHER, 0.0), (US, PAUSE)]


def test_c1_a_wrong_password_is_not() -> None:
    with pytest.raises(QuorumUnreachable, match="wrong user or password"):
        told(World(*[refuses("wrong user or password")] * 3), 1)
