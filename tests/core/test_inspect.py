"""Looking at a name: the view of a majority, with its holes."""

from __future__ import annotations

import math
from typing import Any

import pytest

from redlock import QuorumUnreachable
from redlock._core.inspect import LockStatus, inspect, inspect_many
from redlock._core.voters import Facts
from redlock._lock.refused import is_locked
from tests.core.world import START, Master, World, down, outcomes


def sees(holder: str = "", ms: int = -2, fence: int = 0, after: float = 0.01) -> Master:
    return Master(after, {"status": [holder.encode(), ms, str(fence).encode()]})


def look(*masters: Master, **options: Any) -> tuple[LockStatus, World]:
    world = World(*masters, **options)
    status, _ = world.run(inspect(world.settings, "a", "redlock:a"))
    return status, world


@pytest.mark.parametrize(("masters", "token", "remaining"), [
    pytest.param([sees(), sees(), sees()], None, 0.0, id="free"),
    pytest.param([sees("ann", 1000)] * 3, "ann", 1.0, id="all"),
    # The majority lasts as long as the second longest of three keys: not the median of what answered.
    pytest.param([sees("ann", 1000), sees("ann", 9000), sees("ann", 2000)], "ann", 2.0, id="second-longest"),
    pytest.param([sees("ann", 1500), sees("ann", 19_800), down()], "ann", 1.5, id="two-answer"),
    pytest.param([sees("ann", 5000), sees("ann", 4000), sees("ann", 3000), down(), down()], "ann", 3.0,
        id="three-of-five"),
    pytest.param([sees("ann", 1000), sees(), sees()], None, 0.0, id="minority"),
    pytest.param([sees("ann", 1000), sees("bob", 1000), sees()], None, 0.0, id="split"),
    pytest.param([sees("ann", 9000), sees("bob", 1000), sees("bob", 4000)], "bob", 1.0, id="two-of-bob"),
    pytest.param([sees("a session x", 1000), sees("a session y", 1000), sees()], None, 0.0, id="two-that-begin-alike"),
    pytest.param([sees("ann", -1), sees("ann", -1), sees()], "ann", math.inf, id="without-expiry"),
    pytest.param([sees("ann", 1000), sees("ann", 1000)], "ann", 1.0, id="two-masters"),
    pytest.param([sees("ann", 1000), sees()], None, 0.0, id="one-of-two"),
    pytest.param([down()] * 3, None, 0.0, id="down"),
    pytest.param([sees("ann", 5000), sees("ann", 4000), sees("ann", 3000), sees("ann", 2000), down()], "ann", 3.0,
        id="five"),
])  # fmt: skip
def test_holder(masters: list[Master], token: str | None, remaining: float) -> None:
    status, _ = look(*masters)
    assert (status.name, status.token, status.remaining) == ("a", token, remaining)


SESSION = '{"user": "ann", "card": "4111 1111"}'


def test_a_session_of_another_program_is_not_shown_whole() -> None:
    """With ``prefix=""`` each key can be looked at.  Eight characters tell two clients of other libraries apart."""
    status, _ = look(*[sees(SESSION, 1000)] * 3)
    assert (status.token, status.owner) == ('{"user":…', "")
    assert {vote.reason for vote in status.votes} == {'by {"user":… for 1.000 s'}
    readers = Master(0.01, {"status": [b"shared:", 1000, b"0", SESSION.encode(), b"f" * 40 + b":web-1"]})
    status, _ = look(*[readers] * 3)
    assert set(status.shared) == {'{"user":…', "f" * 40 + ":web-1"}
    world = World(*[Master(0.01, {"look": [[SESSION.encode(), 1000, b"0"]]})] * 3)
    [(status, _)] = world.run(inspect_many(world.settings, ["a"], ""))
    assert (status.token, status.owner) == ('{"user":…', "")


def test_what_is_left_to_nobody_is_in_doubt() -> None:
    """R35: a majority has to have it."""
    for masters, doubt in (
        ([sees("expired:ann", 1000)] * 3, True),
        ([sees("expired:ann", 1000), sees(), sees()], False),
    ):
        status, _ = look(*masters)
        assert (status.in_doubt, status.released, status.owner) == (doubt, False, "")


def test_a_vote_that_does_not_count_makes_no_majority() -> None:
    world = World(*[sees("ann", 1000)] * 2, sees(), guard=True)
    world.settings.voters.admit(0, Facts("restarted", 1), START)
    status, tally = world.run(inspect(world.settings, "a", "redlock:a"))
    assert status.token is None
    assert outcomes(status.votes) == ["quarantined", "held", "free"]
    assert tally.complete


@pytest.mark.parametrize(("masters", "locked"), [
    pytest.param([sees("ann", 1000)] * 3 + [sees()] * 2, True, id="a-majority-has-a-holder"),
    pytest.param([sees("ann", 1000)] * 2 + [sees("bob", 1000)] + [sees()] * 2, True, id="whoever-it-is"),
    pytest.param([sees("ann", 1000)] * 2 + [sees()] * 3, False, id="a-minority"),
    pytest.param([sees("ann", 1000)] * 2 + [sees()] * 2, False, id="a-tie-of-all"),
    pytest.param([sees("ann", 1000)] + [sees()] * 3 + [down()], False, id="the-absent-one-cannot-matter"),
    pytest.param([sees("ann", 1000)] * 2 + [sees()] * 2 + [down()], None, id="the-absent-one-decides"),
    pytest.param([sees()] * 2 + [down()] * 3, None, id="too-few"),
])  # fmt: skip
def test_locked_is_not_said_where_it_is_not_known(masters, locked):
    world = World(*masters)
    status, tally = world.run(inspect(world.settings, "a", "redlock:a"))
    if locked is None:
        with pytest.raises(QuorumUnreachable):
            is_locked(status, tally)
    else:
        assert is_locked(status, tally) is locked
