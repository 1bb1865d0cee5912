"""Who may vote: quarantine, promotion, durable masters, announcements, duplicates (R21, R22, C16)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from redlock._core.voters import Facts, Voters
from tests.core.world import PROPERTY

NAMES = ("redis-a:6379", "redis-b:6379", "redis-c:6379")
NOW = 1000.0


def voters_of(max_ttl: float = 60.0, *, guard: bool = True) -> Voters:
    return Voters(NAMES, max_ttl, guard=guard)


def outcome(voters: Voters, at: float, master: int = 0) -> str | None:
    not_counted = voters.why_not_counted(master, at)
    return None if not_counted is None else not_counted.outcome


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
    voters = voters_of(60.0)
    voters.admit(0, Facts("run", uptime), NOW)
    if votes_after is None:
        assert outcome(voters, NOW) is None
        assert voters.quarantined_for(0, NOW) == 0.0
        return
    end = NOW + votes_after
    assert outcome(voters, NOW) == "quarantined"
    assert outcome(voters, end) == "quarantined"  # exceeds, not reaches
    assert outcome(voters, end + 0.001) is None
    assert voters.quarantined_for(0, NOW) == pytest.approx(votes_after)


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
    voters = voters_of(60.0)
    voters.admit(0, Facts("run", uptime), asked + answered)
    if voters.why_not_counted(0, at) is None:
        assert at - started > 60.0 - 1e-6


def test_the_message_names_the_seconds_and_the_switch() -> None:
    """R22."""
    voters = voters_of(60.0)
    voters.admit(0, Facts("run", 20), NOW)
    not_counted = voters.why_not_counted(0, NOW + 1)
    assert not_counted is not None
    assert "40.0 s" in not_counted.reason
    assert "restart_guard=False" in not_counted.reason
    assert not not_counted.configuration  # waiting helps


def test_one_that_never_connected_has_no_vote() -> None:
    assert outcome(voters_of(), NOW) == "quarantined"


def test_the_guard_can_be_switched_off() -> None:
    """R22: for brand-new deployments and tests."""
    voters = voters_of(guard=False)
    voters.admit(0, Facts("run", 0), NOW)
    voters.admit(1, Facts(None, None), NOW)
    assert outcome(voters, NOW, 0) is None
    assert outcome(voters, NOW, 1) is None
    assert voters.quarantined_for(0, NOW) == 0.0


# -- restarts ----------------------------------------------------------------------------------------


def test_a_reconnection_to_the_same_process_changes_nothing() -> None:
    voters = voters_of()
    voters.admit(0, Facts("run", 1000), NOW)
    voters.admit(0, Facts("run", 0), NOW + 500)  # whatever it says now: it is the same process
    assert outcome(voters, NOW + 500) is None
    # and one in quarantine does not start from the beginning
    voters = voters_of(60.0)
    voters.admit(0, Facts("run", 0), NOW)
    voters.admit(0, Facts("run", 5), NOW + 5)
    assert outcome(voters, NOW + 60.001) is None


def test_another_process_has_restarted_when_we_see_it() -> None:
    """Not from its start: a replica may be young, too, and have taken over only now."""
    voters = voters_of(60.0)
    voters.admit(0, Facts("old", 1000), NOW)
    voters.heard(0, NOW + 100)
    voters.admit(0, Facts("new", 3), NOW + 110)
    assert outcome(voters, NOW + 110) == "quarantined"
    assert outcome(voters, NOW + 170) == "quarantined"
    assert outcome(voters, NOW + 170.001) is None


@pytest.mark.parametrize("durable", [False, True])
def test_a_promoted_replica_counts_as_restarted_now(durable: bool) -> None:
    """Its uptime is old, but what it has of the old master's keys is anybody's guess."""
    voters = voters_of(60.0)
    voters.admit(0, Facts("old", 1000), NOW)
    voters.heard(0, NOW + 100)
    voters.admit(0, Facts("new", 5000, durable=durable), NOW + 110)
    assert outcome(voters, NOW + 110) == "quarantined"
    assert outcome(voters, NOW + 170) == "quarantined"
    assert outcome(voters, NOW + 170.001) is None
    # a reconnection does not make it old
    voters.admit(0, Facts("new", 5020, durable=durable), NOW + 130)
    assert outcome(voters, NOW + 170) == "quarantined"


def test_a_promoted_replica_behind_a_quiet_connection_counts_as_restarted_now() -> None:
    """R21: "a change of run_id behind an old uptime".

    Nobody needed a lock here for an hour.  In that hour a replica was started, and then took over from
    the master that had been granting locks to others until that moment.
    """
    voters = voters_of(60.0)
    voters.admit(0, Facts("old", 10_000), NOW)
    voters.heard(0, NOW)
    took_over = NOW + 3600
    voters.admit(0, Facts("replica", 3000), took_over + 1)
    assert outcome(voters, took_over + 1) == "quarantined"


@pytest.mark.parametrize("uptime", [0, 40, 61, 62, 3000])
@pytest.mark.parametrize("durable", [False, True])
def test_another_process_counts_as_restarted_now_whatever_its_uptime(uptime: int, durable: bool) -> None:
    """It cannot be told from a replica that was promoted a moment ago (R21)."""
    voters = voters_of(60.0)
    voters.admit(0, Facts("old", 10_000), NOW)
    voters.heard(0, NOW)
    voters.admit(0, Facts("new", uptime, durable=durable), NOW + 3600)
    assert outcome(voters, NOW + 3660) == "quarantined"
    assert outcome(voters, NOW + 3660.001) is None


def test_what_was_announced_by_others_decides_how_long() -> None:
    voters = voters_of(60.0)
    voters.admit(0, Facts("old", 10_000, announced=300.0), NOW)
    voters.admit(0, Facts("new", 101), NOW + 3600)
    assert outcome(voters, NOW + 3900) == "quarantined"
    assert outcome(voters, NOW + 3900.001) is None


def test_one_that_is_seen_for_the_first_time_is_as_old_as_it_says() -> None:
    """Whoever starts an hour after the last restart has not to wait."""
    voters = voters_of(60.0)
    voters.admit(0, Facts("run", 3000), NOW)
    voters.admit(1, Facts("another", 0, durable=True), NOW)
    assert outcome(voters, NOW, 0) is None
    assert outcome(voters, NOW, 1) is None


def test_a_durable_master_may_vote_right_after_its_restart() -> None:
    """R21: append-only file, written before every answer: it forgets nothing."""
    voters = voters_of(60.0)
    voters.admit(0, Facts("old", 1000, durable=True), NOW)
    voters.heard(0, NOW + 100)
    voters.admit(0, Facts("new", 0, durable=True), NOW + 103)
    assert outcome(voters, NOW + 103) is None


@pytest.mark.parametrize(("before", "after"), [(False, True), (True, False), (False, False)])
def test_a_master_that_becomes_durable_by_restarting_has_forgotten(before: bool, after: bool) -> None:
    """P5: the process that forgot was not durable.  Switching persistence on is a restart like any other.

    Nor is it enough that the old one was: what the new one does not read from a file it does not have.
    """
    voters = voters_of(60.0)
    voters.admit(0, Facts("old", 1000, durable=before), NOW)
    voters.heard(0, NOW + 100)
    voters.admit(0, Facts("new", 0, durable=after), NOW + 103)
    assert outcome(voters, NOW + 103) == "quarantined"
    assert outcome(voters, NOW + 163.001) is None


# -- what is not permitted ---------------------------------------------------------------------------


def test_where_INFO_is_not_permitted_somebody_has_to_change_that() -> None:  # noqa: N802
    voters = voters_of()
    voters.admit(0, Facts(None, None), NOW)
    not_counted = voters.why_not_counted(0, NOW + 1e6)  # no waiting helps
    assert not_counted is not None
    assert not_counted.outcome == "error"
    assert not_counted.configuration
    assert "INFO" in not_counted.reason
    assert "restart_guard=False" in not_counted.reason


def test_once_it_is_permitted_it_counts() -> None:
    voters = voters_of()
    voters.admit(0, Facts(None, None), NOW)
    voters.admit(0, Facts("run", 1000), NOW + 10)
    assert outcome(voters, NOW + 10) is None


# -- two names of one server (C16) -------------------------------------------------------------------


@pytest.mark.parametrize("guard", [True, False])
def test_the_second_name_of_a_server_has_no_vote(guard: bool) -> None:
    voters = voters_of(guard=guard)
    for master, run_id in enumerate(["one", "two", "one"]):
        voters.admit(master, Facts(run_id, 1000), NOW)
    assert outcome(voters, NOW, 0) is None
    assert outcome(voters, NOW, 1) is None
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


def test_it_votes_again_once_they_are_two_servers() -> None:
    voters = voters_of()
    voters.admit(0, Facts("same", 1000), NOW)
    voters.admit(1, Facts("same", 1000), NOW)
    assert outcome(voters, NOW, 1) == "error"
    voters.admit(0, Facts("another", 5000), NOW + 10)
    assert outcome(voters, NOW + 10, 1) is None


def test_unknown_run_ids_are_not_the_same() -> None:
    voters = voters_of(guard=False)
    for master in range(3):
        voters.admit(master, Facts(None, None), NOW)
    assert [outcome(voters, NOW, master) for master in range(3)] == [None] * 3


# -- announcements -----------------------------------------------------------------------------------


def test_the_largest_announced_max_ttl_governs() -> None:
    """R21: another client may have had a lease for so long."""
    voters = voters_of(60.0)
    voters.admit(0, Facts("a", 100, announced=60.0), NOW)
    assert outcome(voters, NOW) is None
    voters.admit(1, Facts("b", 5000, announced=300.0), NOW)
    # it concerns all masters, also those that connected before
    assert voters.max_ttl == 300.0
    assert outcome(voters, NOW) == "quarantined"
    assert outcome(voters, NOW + 201.001) is None


def test_a_smaller_one_changes_nothing() -> None:
    voters = voters_of(60.0)
    voters.admit(0, Facts("a", 61, announced=10.0), NOW)
    assert voters.max_ttl == 60.0
    assert outcome(voters, NOW) == "quarantined"


def test_a_difference_is_told_once() -> None:
    voters = voters_of(60.0)
    assert voters.admit(0, Facts("a", 100, announced=60.0), NOW) is None
    notice = voters.admit(1, Facts("b", 100, announced=300.0), NOW)
    assert notice is not None
    for part in ("60 s", "300 s", "redis-b:6379", "max_ttl"):
        assert part in notice
    assert voters.admit(2, Facts("c", 100, announced=300.0), NOW) is None
    assert voters.admit(1, Facts("b", 100, announced=300.0), NOW) is None
    assert voters.admit(0, Facts("a", 100), NOW) is None  # nothing announced


def test_a_difference_is_told_once_also_if_masters_differ() -> None:
    """R21: "a difference is logged once".  A master that was down missed the larger announcement."""
    voters = voters_of(60.0)
    notices = [
        voters.admit(0, Facts("a", 100, announced=300.0), NOW),
        voters.admit(1, Facts("b", 100, announced=90.0), NOW),
        voters.admit(2, Facts("c", 100, announced=120.0), NOW),
    ]
    assert sum(notice is not None for notice in notices) == 1


@pytest.mark.parametrize(("announced", "told"), [
    (60.001, False),
    (59.999, False),
    (0.0, False),  # rounded to a millisecond, or nothing
    (60.002, True),
    (59.998, True),
    (10.0, True),
    (600.0, True),
])  # fmt: skip
def test_a_rounded_one_is_no_difference(announced: float, told: bool) -> None:
    voters = voters_of(60.0)
    assert (voters.admit(0, Facts("a", 100, announced=announced), NOW) is not None) == told


def test_a_young_replica() -> None:
    voters = Voters(["a"], 60.0, guard=True)
    voters.admit(0, Facts("old", 10_000), 0.0)
    voters.heard(0, 1000.0)  # our connection to it broke here; it went on for others
    # the replica started at 1010, took over at 1050
    voters.admit(0, Facts("replica", 41), 1051.0)
    assert voters.why_not_counted(0, 1109.0) is not None  # a lease granted at 1049 lives until 1109


def test_a_process_without_permission_between_two_others() -> None:
    voters = Voters(["a"], 60.0, guard=True)
    voters.admit(0, Facts("old", 10_000), 0.0)
    voters.admit(0, Facts(None, None), 1000.0)
    voters.admit(0, Facts("replica", 5000), 1001.0)
    assert voters.why_not_counted(0, 1002.0) is not None
