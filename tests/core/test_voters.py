"""Who may vote: quarantine, promotion, durable masters, announcements, duplicates (R21, R22, C16)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from redlock._core.voters import Facts, Voters
from redlock._core.wire import Announced, Known
from tests.owners import proves
from tests.properties.profile import PROPERTY

pytestmark = proves("C16")

NAMES = ("redis-a:6379", "redis-b:6379", "redis-c:6379")
NOW = 1000.0


def voters_of(*facts: Facts, max_ttl: float = 60.0, guard: bool = True) -> Voters:
    """The first masters have said this, at `NOW`."""
    voters = Voters(NAMES, max_ttl, restart_guard=guard)
    for master, one in enumerate(facts):
        voters.admit(master, one, NOW)
    return voters


def outcome(voters: Voters, at: float, master: int = 0) -> str | None:
    not_counted = voters.why_not_counted(master, at)
    return None if not_counted is None else not_counted.outcome


def assert_votes_from(voters: Voters, since: float, votes_from: float | None) -> None:
    """The first master votes after ``votes_from`` seconds, counted from ``since``; None: it votes at once."""
    if votes_from is None:
        assert outcome(voters, since) is None
        assert voters.quarantined_for(0, since) == 0.0
        return
    end = since + votes_from
    assert outcome(voters, since) == "quarantined"
    assert outcome(voters, end) == "quarantined"  # exceeds, not reaches
    assert outcome(voters, end + 0.001) is None
    assert voters.quarantined_for(0, since) == pytest.approx(votes_from)


@pytest.mark.parametrize(("uptime", "votes_after"), [
    # INFO counts whole seconds and cuts at both ends: an uptime of 1 may have been a moment.
    pytest.param(0, 60.0, id="just-now"),
    pytest.param(1, 60.0, id="one-second-may-be-none"),
    pytest.param(2, 59.0, id="two"),
    pytest.param(30, 31.0, id="half-way"),
    pytest.param(60, 1.0, id="sixty-may-be-fifty-nine"),
    pytest.param(61, 0.0, id="not-yet-exceeded"),
    pytest.param(62, None, id="exceeded"),
    pytest.param(10**6, None, id="old"),
])  # fmt: skip
def test_it_votes_when_its_uptime_exceeds_max_ttl_for_certain(uptime: int, votes_after: float | None) -> None:
    assert_votes_from(voters_of(Facts("run", uptime)), NOW, votes_after)


@pytest.mark.parametrize(("clocks", "votes_after"), [
    pytest.param((500.0, 0.0, 0.1), 60.0, id="ahead-so-it-may-have-been-met-at-its-start"),
    pytest.param((50.0, 0.0, 0.1), 11.0, id="ahead-by-less-than-its-uptime"),
    pytest.param((0.0, 0.0, -500.0), None, id="another-one-is-behind"),
    pytest.param((-500.0, 0.0, 0.0), None, id="behind"),
    pytest.param((500.0, 0.0), None, id="two-cannot-tell-which-is-wrong"),
    pytest.param((500.0, None, None), None, id="they-do-not-say"),
])  # fmt: skip
def test_an_uptime_counts_by_the_clocks_of_a_majority(
    clocks: tuple[float | None, ...], votes_after: float | None
) -> None:
    said = [Facts(f"run-{at}", 100, clock=None if one is None else 1e9 + one) for at, one in enumerate(clocks)]
    assert voters_of(*said).quarantined_for(0, NOW) == pytest.approx(votes_after or 0.0, abs=0.2)


@PROPERTY
@given(
    started=st.floats(0, 500),
    asked=st.floats(0, 500),
    answered=st.floats(0, 1),
    at=st.floats(0, 1000),
    cut=st.booleans(),
)
def test_never_early(started: float, asked: float, answered: float, at: float, cut: bool) -> None:
    """Whatever the rounding: who votes has been up for longer than max_ttl."""
    asked += started
    # both ends may be cut to whole seconds
    uptime = math.floor(asked) - math.floor(started) if cut else math.floor(asked - started)
    voters = voters_of()
    voters.admit(0, Facts("run", uptime), asked + answered)
    if voters.why_not_counted(0, at) is None:
        assert at - started > 60.0 - 1e-6


def test_the_message_names_the_seconds_and_the_page() -> None:
    """R22."""
    voters = voters_of(Facts("run", 20))
    not_counted, soon = voters.why_not_counted(0, NOW + 1), voters.why_not_counted(0, NOW + 40.99)
    assert not_counted is not None
    assert "40.0 s" in not_counted.reason
    assert soon is not None
    assert "in 0.1 s" in soon.reason  # not in 0.0 s
    assert "docs/concepts/restarts.md" in not_counted.reason
    assert not not_counted.configuration  # waiting helps


@proves("R22")
def test_the_guard_can_be_switched_off() -> None:
    """R22: for brand-new deployments and tests."""
    voters = voters_of(Facts("run", 0), Facts(None, None), guard=False)
    assert [outcome(voters, NOW, master) for master in (0, 1)] == [None, None]
    assert voters.quarantined_for(0, NOW) == 0.0


OLD, DURABLE = Facts("old", 10_000), Facts("old", 10_000, durable=True)
NEVER = Facts("run", 10_000, known=Known("a", None))


def later(replid: str, age: float | None, *, durable: bool = False) -> Facts:
    return Facts("run", 10_000, durable, known=Known(replid, age))


@pytest.mark.parametrize(("connections", "votes_from"), [
    # Seconds, and what the master said then; it was alive until shortly before the last one.
    pytest.param([(0, OLD), (500, Facts("old", 0))], None, id="the-same-process-whatever-it-says-now"),
    pytest.param([(0, Facts("run", 0)), (5, Facts("run", 5))], 55, id="nor-does-its-quarantine-begin-anew"),
    # Not from its start: a replica may be young, too, and have taken over only now.
    pytest.param([(0, OLD), (110, Facts("new", 3))], 60, id="another-process-has-restarted-when-we-see-it"),
    # Its uptime is old, but what it has of the old master's keys is anybody's guess.
    pytest.param([(0, OLD), (110, Facts("new", 5000))], 60, id="a-promoted-replica"),
    pytest.param([(0, DURABLE), (110, Facts("new", 5000, durable=True))], 60, id="a-durable-replica"),
    pytest.param([(0, OLD), (110, Facts("new", 5000)), (130, Facts("new", 5020))], 40,
        id="a-reconnection-does-not-make-it-old"),
    pytest.param([(0, OLD), (1, Facts(None, None)), (2, Facts("new", 5000))], 60,
        id="without-permission-between-two-others"),
    # Of another client, for so long.
    pytest.param([(0, Facts("old", 10_000, announced=Announced(300.0))), (101, Facts("new", 101))], 300, id="announced"),
    # A client that starts an hour after the last restart need not wait.
    pytest.param([(0, Facts("run", 3000))], None, id="the-first-one-is-as-old-as-it-says"),
    pytest.param([(0, Facts("run", 0, durable=True))], None, id="the-first-one-is-durable"),
    # Append-only file, written before every answer: it forgets nothing.
    pytest.param([(0, DURABLE), (103, Facts("new", 0, durable=True))], None, id="a-durable-one-restarts"),
    # P5: the process that forgot was not durable.  Switching persistence on is a restart like any other; nor is it
    # enough that the old one was: what the new one does not read from a file it does not have.
    pytest.param([(0, OLD), (103, Facts("new", 0, durable=True))], 60, id="it-becomes-durable-by-restarting"),
    pytest.param([(0, DURABLE), (103, Facts("new", 0))], 60, id="it-was-durable"),
    pytest.param([(0, Facts(None, None)), (10, OLD)], None, id="once-INFO-is-permitted-it-counts"),
    # A server that was a replica for a moment has forgotten what it granted, and its run_id and its uptime stay.
    pytest.param([(0, NEVER)], None, id="never-a-replica"),
    pytest.param([(0, NEVER), (100, NEVER)], None, id="nor-since-then"),
    pytest.param([(0, later("b", 0.0))], 60, id="the-first-client-of-all"),
    pytest.param([(0, later("b", 25.0))], 35, id="others-have-known-it-for-a-while"),
    pytest.param([(0, later("b", 61.0))], None, id="others-have-known-it-for-long"),
    pytest.param([(0, later("b", 0.0, durable=True))], 60, id="on-disk-it-has-the-data-of-another-one-too"),
    pytest.param([(0, later("b", 25.0)), (10, later("b", 35.0))], 25, id="the-same-once-more"),
    # Its own clock decides where we knew it before: that of the master may have been set forward.
    pytest.param([(0, NEVER), (100, later("b", 0.0))], 60, id="a-replica-for-a-moment"),
    pytest.param([(0, NEVER), (100, later("b", 3600.0))], 60, id="whatever-is-on-record"),
    pytest.param([(0, later("b", 61.0)), (100, later("c", 0.0))], 60, id="and-another-time"),
    pytest.param([(0, NEVER), (100, later("b", None))], 60, id="so-long-ago-that-it-shows-no-more"),
    pytest.param([(0, NEVER), (100, Facts("run", 10_100)), (101, later("b", 0.0))], 60, id="once-it-did-not-say"),
    pytest.param([(0, NEVER), (100, Facts("new", 0, durable=True, known=Known("b", None)))], 60, id="a-restart-is-one"),
    pytest.param([(0, Facts("old", 10_000, durable=True, known=Known("a", None))),
                  (103, Facts("new", 0, durable=True, known=Known("b", None)))], None, id="a-durable-restart-is-none"),
])  # fmt: skip
def test_restarts(connections: list[tuple[float, Facts]], votes_from: float | None) -> None:
    """R21; ``votes_from``: seconds after the last connection was made."""
    voters = voters_of()
    for after, facts in connections:
        voters.heard(0, NOW + after - 3)
        voters.admit(0, facts, NOW + after)
    assert_votes_from(voters, NOW + connections[-1][0], votes_from)


def test_who_stays_connected_sees_it_with_the_next_announcement() -> None:
    voters = voters_of(NEVER, Facts("other", 10_000))
    voters.known_answered(0, Known("a", None), NOW + 30)
    assert outcome(voters, NOW + 30) is None
    voters.known_answered(0, Known("b", 12.0), NOW + 60)
    assert_votes_from(voters, NOW + 60, 60)
    assert outcome(voters, NOW + 60, 1) is None
    not_counted = voters.why_not_counted(0, NOW + 61)
    assert not_counted is not None
    assert "another master_replid, as after REPLICAOF, and may have forgotten" in not_counted.reason
    voters.known_answered(0, None, NOW + 62)  # it does not say any more
    assert voters.quarantined_for(0, NOW + 62) == pytest.approx(58.0)


def test_a_record_counts_by_the_clocks_of_a_majority() -> None:
    """It is wall time, as an uptime is."""
    said = [Facts(f"run-{at}", 10_000, clock=1e9 + ahead, known=Known("b", 90.0 if ahead else None))
            for at, ahead in enumerate((50.0, 0.0, 0.0))]  # fmt: skip
    assert voters_of(*said).quarantined_for(0, NOW) == pytest.approx(20.0)


def test_where_INFO_is_not_permitted_somebody_has_to_change_that() -> None:  # noqa: N802
    not_counted = voters_of(Facts(None, None)).why_not_counted(0, NOW + 1e6)  # no waiting helps
    assert not_counted is not None
    assert not_counted.outcome == "error"
    assert not_counted.configuration
    assert "INFO" in not_counted.reason
    assert "docs/concepts/restarts.md" in not_counted.reason


@pytest.mark.parametrize("guard", [True, False])
def test_the_second_name_of_a_server_has_no_vote(guard: bool) -> None:
    voters = voters_of(*(Facts(run_id, 1000) for run_id in ("one", "two", "one")), guard=guard)
    assert [outcome(voters, NOW, master) for master in (0, 1)] == [None, None]
    not_counted = voters.why_not_counted(2, NOW + 1e6)
    assert not_counted is not None
    assert not_counted.outcome == "error"
    assert not_counted.configuration
    assert "redis-a:6379" in not_counted.reason
    assert "redis-b:6379" not in not_counted.reason


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_which_one_votes_does_not_depend_on_who_connected_first(order: tuple[int, ...]) -> None:
    voters = voters_of()
    for master in order:
        voters.admit(master, Facts("same", 1000), NOW)
    assert [outcome(voters, NOW, master) for master in range(3)] == [None, "error", "error"]


def test_the_largest_announced_max_ttl_governs() -> None:
    """R21: another client may have had a lease for so long."""
    voters = voters_of(Facts("a", 100, announced=Announced(60.0)))
    assert outcome(voters, NOW) is None
    voters.admit(1, Facts("b", 5000, announced=Announced(300.0)), NOW)
    # it concerns all masters, also those that connected before
    assert voters.longest(NOW)[0] == 300.0
    assert outcome(voters, NOW) == "quarantined"
    assert outcome(voters, NOW + 201.001) is None


@pytest.mark.parametrize("announced", [(60.0, 300.0, 300.0), (300.0, 90.0, 120.0)], ids=["two-agree", "masters-differ"])
def test_a_difference_is_told_once(announced: tuple[float, ...]) -> None:
    """R21: "a difference is logged once"; also if a master that was down has missed the larger announcement."""
    voters = voters_of()
    notices = [
        voters.admit(number, Facts("abc"[number], 100, announced=Announced(one)), NOW)
        for number, one in enumerate(announced)
    ]
    [notice] = [notice for notice in notices if notice]
    for part in ("60 s", "300 s", NAMES[announced.index(300.0)], "max_ttl"):
        assert part in notice
    assert voters.admit(1, Facts("b", 100, announced=Announced(300.0)), NOW) is None
    assert voters.admit(0, Facts("a", 100), NOW) is None  # nothing announced


@pytest.mark.parametrize(("announced", "told"), [
    *((one, False) for one in (60.001, 59.999, 60.0)), *((one, True) for one in (60.002, 59.998, 10.0, 600.0)),
])  # fmt: skip
def test_a_rounded_one_is_no_difference(announced: float, told: bool) -> None:
    assert (voters_of().admit(0, Facts("a", 100, announced=Announced(announced)), NOW) is not None) == told


def test_before_lists_of_masters_are_known_no_vote_counts():
    voters = voters_of(Facts("run", uptime=10**6))
    voters.votes_from[0] = NOW + 1.0
    assert outcome(voters, NOW) == "quarantined"  # R34
