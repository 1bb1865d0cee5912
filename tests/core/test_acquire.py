"""One attempt: when it is decided, and what the majority is worth (R1, R2, R6, R7).  Exact times."""

from __future__ import annotations

import pytest

from redlock._core.kernel.attempt import attempt
from redlock._core.kernel.ballot import Grant, Refusal
from tests.core.world import NEVER, OTHER, START, Master, World, breaks, down, held, outcomes, refuses

YES, NO = Master, held  # so that a row of a table reads as what it is


@pytest.mark.parametrize(("masters", "granted", "at"), [
    pytest.param([YES(0.1)], True, 0.1, id="one-master"),
    pytest.param([YES(0.1), YES(0.12), YES(0.2), YES(0.21), YES(0.22)], True, 0.2, id="third-of-five"),
    pytest.param([YES(0.1), YES(0.1), YES(0.2), YES(NEVER), YES(NEVER)], True, 0.2, id="two-hang"),
    pytest.param([YES(0.1), YES(0.1), YES(NEVER), YES(NEVER), YES(NEVER)], False, 0.25, id="deadline"),
    pytest.param([NO(0.1), NO(0.12), NO(0.15), YES(0.2), YES(0.2)], False, 0.15, id="third-no"),
    pytest.param([NO(0.1), down(), down(), YES(0.2), YES(0.2)], False, 0.1, id="down-counts-as-no"),
    pytest.param([down(), down(), down(), YES(0.2), YES(0.2)], False, 0.0, id="majority-down-at-once"),
    pytest.param([breaks(0.1), breaks(0.1), YES(0.0), YES(0.0), breaks(0.2)], False, 0.2, id="breaking"),
    # Ties: nobody waits for a vote that cannot change anything (R1).
    pytest.param([YES(0.1), NO(0.15)], False, 0.15, id="one-one"),
    pytest.param([YES(0.01), YES(0.02), NO(0.05), down()], False, 0.05, id="tie-with-one-down"),
])  # fmt: skip
def test_decided_at_the_first_moment_that_decides(masters: list[Master], granted: bool, at: float) -> None:
    world = World(*masters)
    outcome = world.run(attempt(world.target()))
    assert isinstance(outcome, Grant if granted else Refusal)
    assert world.after_start() == pytest.approx(at)
    assert (outcome.decided_at if isinstance(outcome, Grant) else outcome.at) == world.now


@pytest.mark.parametrize(("ttl", "factor", "decided", "left"), [
    (10.0, 0.01, 0.2, 10 - 0.2 - 0.102),
    (10.0, 0.0, 0.2, 10 - 0.2 - 0.002),
    (30.0, 0.01, 0.0, 30 - 0.302),
    (1.0, 0.1, 0.1, 1 - 0.1 - 0.102),
])  # fmt: skip
def test_validity_is_what_R6_says(ttl: float, factor: float, decided: float, left: float) -> None:  # noqa: N802
    world = World(*[Master(decided)] * 3, drift_factor=factor)
    grant = world.granted(ttl=ttl, min_validity=0.0)
    assert grant.valid_until - grant.decided_at == pytest.approx(left)
    # Counted from the sending: the slowest vote makes it shorter, never longer.
    assert grant.valid_until == pytest.approx(START + ttl - ttl * factor - 0.002)


def test_a_grant_says_where_keys_may_be_and_who_voted_how() -> None:
    world = World(Master(0.01), Master(0.02), Master(0.03), Master(0.1), down())
    grant = world.granted()
    # The slow one may have a key by now, the one that is down cannot.
    assert grant.asked == {0, 1, 2, 3}
    assert grant.attempts == 1
    assert outcomes(grant.votes()) == ["granted", "granted", "granted", "pending", "error"]
    assert [vote.latency for vote in grant.votes()[:3]] == pytest.approx([0.01, 0.02, 0.03])


def test_every_vote_is_recorded_with_its_reason() -> None:
    """R3: master, outcome, latency and reason."""
    world = World(Master(0.01), held(0.02), down("no route to host"), refuses("NOPERM", after=0.01), Master(NEVER))
    refusal = world.refused()
    by_master = {vote.master: vote for vote in refusal.tally.votes()}
    assert list(by_master) == list(world.settings.masters)
    assert [(v.outcome, v.reason) for v in by_master.values()] == [
        ("granted", ""),
        ("held", f"by {OTHER[:8]}… for 5.000 s"),
        ("error", "no route to host"),
        ("error", "NOPERM"),
        ("pending", "decided without it"),
    ]
    assert by_master["redis-b:6379"].latency == pytest.approx(0.02)
    assert by_master["redis-c:6379"].latency is None


@pytest.mark.parametrize(("masters", "kind"), [
    # C2: unreachable only if those known not to have voted exclude a majority by themselves.
    pytest.param([held(), held(), held(), YES(), YES()], "held", id="held"),
    pytest.param([held(0.1), down(), down(), down(), held(0.1)], "unreachable", id="three-down"),
    pytest.param([YES(), YES(), *[YES(NEVER)] * 3], "unreachable", id="three-hang"),
    pytest.param([held(), held(), YES(), YES(NEVER), YES(NEVER)], "held", id="two-held-two-hang"),
    pytest.param([held(), YES()], "held", id="one-one"),
    pytest.param([held(0.1), down()], "unreachable", id="two-masters-held-and-down"),
    pytest.param([refuses(), refuses(), refuses(), YES(), YES()], "unreachable", id="not-permitted"),
])  # fmt: skip
def test_held_or_unreachable(masters: list[Master], kind: str) -> None:
    world = World(*masters)
    refusal = world.refused()
    assert refusal.kind == kind
    if kind == "unreachable":
        assert (refusal.holder, refusal.remaining) == ("", None)
