"""Fencing tokens: proposed with every acquire, settled by a majority, at most one more round (R16-R19)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from redlock._core.kernel.attempt import attempt
from redlock._core.kernel.ballot import Grant, Refusal
from redlock._core.tokens import LIMIT, FenceClock
from redlock._core.voters import Facts
from tests.core.world import NEVER, START, WALL, Master, World, breaks, down, held, outcomes, turns
from tests.owners import proves
from tests.properties.profile import PROPERTY

pytestmark = proves("R16", "C14")

HIGH = WALL + 1000  # of a client whose wall clock is ahead


def has(fence: int, after: float = 0.01, then: list[object] | None = None, later: float | None = None) -> Master:
    """Takes it, but has a fence that is not smaller; answers the second round with ``then``."""
    master = Master(after, {"acquire": [2, str(fence).encode()]})
    if then is not None:
        master.says["fence"] = then
    if later is not None:
        master.slow["fence"] = later
    return master


def granted(*masters: Master, **spec: Any) -> tuple[World, Grant]:
    world = World(*masters)
    return world, world.granted(**spec)


def test_a_broken_wall_clock_does_not_use_up_the_numbers() -> None:
    """Lua counts exactly up to 2**53: a date in the year 3000 must not get there."""
    clock = FenceClock(lambda: 2**70)
    assert clock.propose() == LIMIT
    assert clock.propose() == LIMIT + 1
    assert LIMIT < 2**53


@pytest.mark.parametrize(
    ("fence", "learned"),
    [(LIMIT - 1, True), (LIMIT, False), (LIMIT + 1, False), (2**53 - 1, False), (10**400, False)],
    ids=["below", "limit", "beyond", "largest-stored", "absurd"],
)
def test_what_no_clock_can_have_made_is_not_learned(fence: int, learned: bool) -> None:
    """One key that somebody wrote must not decide about the proposals for all names."""
    clock = FenceClock(lambda: 100_000)
    clock.learn(5000)
    clock.learn(fence)
    assert clock.propose() == (fence + 1 if learned else 5001)


@PROPERTY
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("wall"), st.integers(0, 2**52)), st.tuples(st.just("learn"), st.integers(0, 2**52 - 1))
        )
    )
)
def test_every_proposal_is_greater_than_all_before(steps: list[tuple[str, int]]) -> None:
    wall, highest = 0, 0
    clock = FenceClock(lambda: wall * 1000)
    for kind, number in steps:
        if kind == "wall":
            wall = number
        else:
            clock.learn(number)
            highest = max(highest, number)
        proposal = clock.propose()
        assert proposal > highest
        assert proposal >= wall
        highest = proposal


@pytest.mark.parametrize(("masters", "to", "at"), [
    # The second round goes to those that granted or may yet grant, and to nobody else.
    pytest.param([has(HIGH), has(HIGH), Master(0.02)], {0, 1, 2}, 0.02, id="nobody-stored-it"),
    pytest.param([has(HIGH), Master(0.02), Master(0.1)], {0, 1, 2}, 0.04, id="one-of-two-stored-it"),
    pytest.param([has(HIGH), has(HIGH), held(0.0)], {0, 1}, 0.02, id="not-to-the-one-that-refused"),
    pytest.param([has(HIGH), has(HIGH), down()], {0, 1}, 0.02, id="not-to-the-one-that-is-down"),
    pytest.param([has(HIGH), has(HIGH), breaks(0.0)], {0, 1}, 0.02, id="not-to-the-one-that-broke"),
    pytest.param([has(HIGH), has(HIGH), Master(NEVER)], {0, 1, 2}, 0.02, id="to-the-one-that-is-slow"),
])  # fmt: skip
def test_otherwise_there_is_one(masters: list[Master], to: set[int], at: float) -> None:
    world, grant = granted(*masters)
    assert world.verbs() == ["acquire", "fence"]
    first, second = world.sent
    assert second.to == to
    assert second.token == first.token
    assert second.request.call.args[2] == str(HIGH + 1)
    assert grant.fence == HIGH + 1
    assert world.after_start() == pytest.approx(at)
    # R6: time counts from the first byte of the first round
    assert grant.valid_until == pytest.approx(START + 10 - 0.102)
    assert grant.decided_at == pytest.approx(START + at)


@pytest.mark.parametrize("masters", [[has(WALL)] * 3, [has(WALL), has(WALL), Master(0.0)]])
def test_taken_is_not_stored_whatever_the_fence(masters: list[Master]) -> None:
    """R18: {2, fence}.  That a fence is equal to the proposal does not make it ours."""
    world, grant = granted(*masters)
    assert world.verbs() == ["acquire", "fence"]
    assert grant.fence == WALL + 1


@pytest.mark.parametrize("says", [
    {"acquire": [1, str(WALL + 1).encode()]},  # stored, but not what we have proposed
    {"acquire": [1, b"1"]},  # the answer to a release
    {"acquire": [2, str(WALL - 1).encode()]},  # smaller, so ours would have been stored
    {"acquire": [2, str(HIGH).encode()], "fence": [1, str(HIGH + 2).encode()]},
    {"acquire": [2, str(HIGH).encode()], "fence": [0, str(HIGH).encode()]},
], ids=["stored-of-somebody", "stored-smaller", "seen-smaller", "second-of-somebody", "second-smaller"])  # fmt: skip
def test_a_grant_that_cannot_be_ours_is_no_vote(says: dict[str, object]) -> None:
    """P1: two processes read from one socket, as after a fork that nobody has noticed.  The connection is torn."""
    world = World(*[Master(0.01, says)] * 2, Master(0.01))
    refusal = world.refused()
    assert refusal.kind == "unreachable"
    assert [vote.outcome for vote in refusal.tally.votes()].count("error") == 2
    assert all("this client has not proposed it" in vote.reason for vote in refusal.tally.votes()[:2])
    assert world.sent[-1].to == frozenset(range(3))  # and it is taken back everywhere


def test_what_a_vote_that_does_not_count_has_stored_does_not_count() -> None:
    """R21: a quarantined master may have stored the proposal, but may forget it as it forgot before."""
    # Two of the three that count have stored it, and the one that does not count.
    world = World(Master(0.0), Master(0.01), Master(0.01), has(HIGH, 0.02), Master(NEVER), guard=True)
    world.settings.voters.admit(0, Facts(run_id="another", uptime=1), START)
    grant = world.granted()
    assert world.verbs() == ["acquire", "fence"]
    assert world.sent[1].to == {1, 2, 3, 4}
    assert grant.fence == HIGH + 1
    assert outcomes(grant.votes())[0] == "quarantined"


@pytest.mark.parametrize(("masters", "kind", "at"), [
    # Equal is not greater, and neither is smaller (R18).
    pytest.param([has(HIGH, then=[0, str(HIGH + 1).encode()])] * 3, "held", 0.02, id="equal"),
    pytest.param([has(HIGH, then=[0, str(HIGH + 9).encode()])] * 3, "held", 0.02, id="overtaken"),
    pytest.param([has(HIGH, then=[-1, b"0"])] * 3, "held", 0.02, id="not-the-owner-any-more"),
    pytest.param([has(HIGH, later=NEVER)] * 3, "unreachable", 0.25, id="within-the-time-of-the-attempt"),
    pytest.param([has(HIGH), has(HIGH, then=[0, str(HIGH + 1).encode()]), Master(0.01, slow={"fence": NEVER})], "held",
        0.25, id="one-vote-is-no-majority"),
    pytest.param([has(HIGH), has(HIGH, later=0.2), down()], None, 0.21, id="just-in-time"),
    pytest.param([has(HIGH), has(HIGH, later=0.245), down()], "unreachable", 0.25, id="just-too-late"),
])  # fmt: skip
def test_the_majority_of_the_second_round_decides(masters: list[Master], kind: str | None, at: float) -> None:
    world = World(*masters)
    outcome = world.run(attempt(world.target()))
    assert world.after_start() == pytest.approx(at)
    if kind is None:
        assert isinstance(outcome, Grant)
        return
    assert isinstance(outcome, Refusal)
    assert outcome.kind == kind
    assert world.verbs() == ["acquire", "fence", "release"]
    taken, _, released = world.sent
    assert released.token == taken.token
    assert released.to == {number for number, master in enumerate(masters) if master.after}  # not: down


def test_it_learns_from_grants_refusals_and_second_rounds() -> None:
    """R16: whoever was refused knows the fence of the holder, and need not ask twice next time."""
    world = World(held(fence=HIGH), held(fence=HIGH + 5), held(fence=3))
    world.run(attempt(world.target()))
    assert world.settings.fences.propose() == HIGH + 6

    world = World(*[has(HIGH, then=[0, str(HIGH + 70).encode()])] * 3)
    world.run(attempt(world.target()))
    assert world.settings.fences.propose() == HIGH + 71


def test_it_learns_from_masters_whose_votes_do_not_count() -> None:
    world = World(held(fence=HIGH), guard=True)
    world.settings.voters.admit(0, Facts(run_id="another", uptime=1), START)
    world.run(attempt(world.target()))
    assert world.settings.fences.propose() == HIGH + 1


def test_having_learned_the_next_attempt_needs_one_round() -> None:
    first_high = [turns([0, str(HIGH).encode(), b"ann", 10], lambda call: [1, call.args[3].encode()]) for _ in "abc"]
    world = World(*[Master(0.01, {"acquire": says}) for says in first_high])
    grant = world.granted(world.acquire(world.spec(), deadline=world.now + 0.1))
    assert grant.fence == HIGH + 1
    assert world.verbs() == ["acquire", "release", "acquire"]


def test_without_fencing_no_fence_key_is_touched() -> None:
    """C14."""
    world, grant = granted(*[Master(0.01)] * 3, fencing=False)
    assert grant.fence is None
    assert world.verbs() == ["acquire"]
    assert world.sent[0].request.call.keys == ("redlock:invoice:42",)
    assert world.settings.fences.propose() == WALL  # not even a proposal was used up


def test_several_names_have_one_fence() -> None:
    """docs/reference/wire.md: all names in one script, lock keys first, then their fence keys."""
    world, grant = granted(*[Master(0.01)] * 3, names=("a", "b{x}", "c"))
    assert grant.fence == WALL
    call = world.sent[0].request.call
    locks, fences = (
        ("redlock:a", "redlock:b{x}", "redlock:c"),
        ("{redlock:a}:fence", "redlock:b{x}:fence", "{redlock:c}:fence"),
    )
    assert call.keys == locks + fences
    assert call.args == ("3", "token-1", "10000", str(WALL), "3600000")
