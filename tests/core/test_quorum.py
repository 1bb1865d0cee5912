"""Counting votes, and the time that a majority is worth (R1, R2, R6, C2).  Properties over all orders."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, strategies as st

from redlock._core import readings
from redlock._core.kernel.quorum import Tally, majority
from redlock._core.kernel.validity import drift, valid_until
from redlock.errors import OUTCOMES, Outcome
from tests.core.world import tally_of
from tests.owners import proves
from tests.properties.profile import PROPERTY

pytestmark = proves("R3")

VOTES: tuple[Outcome, ...] = tuple(outcome for outcome in OUTCOMES if outcome not in ("free", "pending"))
ABSENT: tuple[Outcome, ...] = tuple(outcome for outcome in OUTCOMES if OUTCOMES[outcome].took == "absent")


full_sets = st.lists(st.sampled_from(VOTES), min_size=1, max_size=9)
orders = full_sets.flatmap(lambda votes: st.tuples(st.just(votes), st.permutations(range(len(votes)))))


@PROPERTY
@given(full_sets)
def test_every_full_set_of_votes_decides(votes: list[Outcome]) -> None:
    tally = tally_of(*votes)
    assert tally.complete
    assert tally.decided
    assert tally.conclusive
    assert tally.won != tally.lost
    assert tally.won == (votes.count("granted") > len(votes) / 2)
    assert tally.denied == (votes.count("held") > len(votes) / 2)
    absent = sum(vote in ABSENT for vote in votes)
    assert tally.unreachable == (absent > len(votes) - majority(len(votes)))


@PROPERTY
@given(orders)
def test_it_is_decided_at_the_first_vote_that_decides_and_never_changes_its_mind(
    case: tuple[list[Outcome], list[int]],
) -> None:
    """Neither a vote too early nor one too late: what is open can no longer change the result."""
    votes, order = case
    need, size = majority(len(votes)), len(votes)
    tally = tally_of(size=size)
    verdicts: set[tuple[bool, bool]] = set()
    proofs: set[tuple[bool, bool]] = set()
    assert not tally.decided
    for count, master in enumerate(order, 1):
        tally.count(master, votes[master])
        so_far = [votes[asked] for asked in order[:count]]
        yes, denials, left = so_far.count("granted"), so_far.count("held"), size - count
        assert tally.decided == (tally.won or tally.lost) == (yes >= need or yes + left < need)
        could = [
            (y >= need, d >= need)
            for y, d in product(range(yes, yes + left + 1), range(denials, denials + left + 1))
            if y - yes + d - denials <= left
        ]
        assert tally.conclusive == (len(set(could)) == 1)
        if tally.decided:
            verdicts.add((tally.won, tally.lost))
        if tally.conclusive:
            proofs.add((tally.won, tally.denied))
    assert (len(verdicts), len(proofs)) == (1, 1)


@PROPERTY
@given(orders, st.sampled_from(VOTES))
def test_a_master_votes_once(case: tuple[list[Outcome], list[int]], again: Outcome) -> None:
    votes, order = case
    tally = tally_of(*votes)
    before = tally.votes(), tally.yes, tally.won, tally.denied, tally.unreachable
    for master in order:
        tally.count(master, again, 0.5, "again", configuration=True)
    assert (tally.votes(), tally.yes, tally.won, tally.denied, tally.unreachable) == before
    assert not readings.misconfigured(tally)


@pytest.mark.parametrize(
    ("wrong", "size", "hopeless"), [(1, 2, True), (1, 3, False), (2, 3, True), (2, 5, False), (3, 5, True)]
)
def test_misconfigured_is_a_majority_that_waiting_will_not_bring(wrong: int, size: int, hopeless: bool) -> None:
    tally = tally_of(size=size)
    for master in range(wrong):
        tally.count(master, "error", configuration=True)
    assert readings.misconfigured(tally) == hopeless
    for master in range(wrong, size):
        tally.count(master, "error", configuration=False)
    assert readings.misconfigured(tally) == hopeless


def test_votes_in_the_order_of_the_configuration() -> None:
    tally = Tally(["a", "b", "c"])
    tally.count(2, "held", 0.02, "by ann")
    tally.count(0, "granted", 0.01)
    votes = tally.votes()
    assert [(v.master, v.outcome, v.latency, v.reason) for v in votes] == [
        ("a", "granted", 0.01, ""),
        ("b", "pending", None, "decided without it"),
        ("c", "held", 0.02, "by ann"),
    ]
    assert (tally.outcome(0), tally.outcome(1), tally.outcome(2)) == ("granted", None, "held")


@pytest.mark.parametrize(("ttl", "factor", "expected"), [(30.0, 0.01, 0.302), (1.0, 0.01, 0.012), (10.0, 0.0, 0.002)])
def test_drift(ttl: float, factor: float, expected: float) -> None:
    assert drift(ttl, factor) == pytest.approx(expected)


@PROPERTY
@given(
    sent_at=st.floats(0, 1e6),
    ttl=st.floats(0.1, 60),
    factor=st.floats(0, 0.1),
    slow=st.floats(-1, 1),
    delay=st.floats(0, 1),
)
def test_the_lease_ends_before_the_key(sent_at: float, ttl: float, factor: float, slow: float, delay: float) -> None:
    """P1: the master sets the key after `sent_at`, its clock runs faster by up to the factor, and it
    rounds by a millisecond."""
    set_at = sent_at + delay
    key_gone = set_at + (ttl - 0.001) / (1 + abs(slow) * factor)
    assert valid_until(sent_at, ttl, factor) <= key_gone + 1e-9


@pytest.mark.parametrize("vote", VOTES)
@pytest.mark.parametrize("configuration", [True, False])
def test_a_vote_is_inherited_as_it_was(vote: Outcome, configuration: bool) -> None:
    """R3: of a master that is not asked again, with all that it said."""
    before, after = tally_of(size=3), tally_of(size=3)
    before.count(1, vote, 0.003, "why", configuration=configuration)
    assert after.inherit(before, 1)
    assert after.votes() == before.votes()
    assert (after.yes, after.outcome(1)) == (before.yes, vote)
    assert readings.misconfigured(after) == readings.misconfigured(before)
    after.count(1, "granted")  # a master votes once
    assert after.votes() == before.votes()


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_without_one_that_is_in_the_way_the_next_round_is_lost_as_well(size: int) -> None:
    """So a release that none of those announces is no reason to try again (R24, R25).  A vote that does not count, and
    what somebody has to set up first, stay what they are; all others may grant it the next time.
    """
    seen = 0
    set_up: tuple[Outcome, bool] = ("error", True)
    choices = [*((vote, False) for vote in VOTES), set_up, None]
    for votes in product(choices, repeat=size):
        tally = tally_of(size=size)
        for master, vote in enumerate(votes):
            if vote is not None:
                tally.count(master, vote[0], configuration=vote[1])
        if tally.lost:
            seen += 1
            said_no = readings.in_the_way(tally)
            never = [master for master, vote in enumerate(votes) if vote in (("quarantined", False), set_up)]
            assert not set(said_no) & set(never)
            assert size - len(said_no) - len(never) < tally.need
    assert seen


@pytest.mark.parametrize(("said", "unreachable", "outage"), [
    pytest.param("nnn", True, False, id="a-majority-objects-to-the-name"),
    pytest.param("nnnnn", True, False, id="all-object"),
    pytest.param("nddg", True, False, id="two-are-dead-and-one-votes"),
    pytest.param("ndd", True, False, id="two-are-dead"),
    pytest.param("nddd", True, True, id="three-are-dead"),
    pytest.param("ddd", True, True, id="dead-as-ever"),
    pytest.param("nnhhh", False, False, id="held-elsewhere"),
    pytest.param("ggg", False, False, id="granted"),
])  # fmt: skip
def test_masters_that_object_to_a_name_are_no_outage(said: str, unreachable: bool, outage: bool) -> None:
    """C1: other names can be locked, so the quorum is not gone, though this one cannot be had."""
    tally = tally_of(size=5)
    for master, what in enumerate(said):
        if what == "n":
            tally.count(master, "error", configuration=True, of_name=True)
        else:
            tally.count(master, {"d": "timeout", "g": "granted", "h": "held"}[what])  # type: ignore[arg-type]
    assert (tally.unreachable, readings.outage(tally)) == (unreachable, outage)
    later = Tally(tally.masters)
    for master in range(5):
        later.inherit(tally, master)
    assert readings.outage(later) == outage
