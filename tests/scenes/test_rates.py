"""Clocks of masters that run faster than `drift_factor` allows, or slower, and what a client makes of that (R43)."""

from __future__ import annotations

from functools import partial

from redlock._core.outcomes import ErrorReply
from tests.bench import scene
from tests.owners import proves

SLEWED = 1.0833  # what chrony does to a clock by default


def quarantined(error):
    return [vote.reason for vote in error.votes if vote.outcome == "quarantined"]


def outcomes(at):
    """What each master says: an acquire is decided before the last ones have answered."""
    return [(vote.outcome, vote.reason) for vote in (yield partial(at.masters.status, "job")).votes]


@proves("R43")
@scene()
def test_a_master_whose_clock_is_slewed_does_not_vote_until_it_was_right_for_max_ttl(at):
    at.rate([4], SLEWED)
    began = at.now
    assert (yield from outcomes(at)) == [("free", "")] * 5, "it was not measured yet"
    yield at.sleep(1.1)
    *others, (outcome, reason) = yield from outcomes(at)
    assert (others, outcome) == ([("free", "")] * 4, "quarantined")
    assert "% faster than ours, and its keys" in reason
    at.rate([4], 1.0)
    while "right rate again" not in (yield from outcomes(at))[4][1]:
        yield at.sleep(0.1)
    assert at.now < began + 4.0, "at the next announcement"
    while (yield from outcomes(at))[4][0] == "quarantined":
        yield at.sleep(0.1)
    assert began + 61.0 < at.now < began + 61.5, "`max_ttl` after it was last seen to be fast"
    assert sum("m4" in text and "faster" in text for text in at.log) == 1


@scene(ttl=30.0, masters=3)
def test_where_the_clocks_of_all_masters_are_slewed_no_second_client_is_let_in_and_both_say_why():
    def first(at):
        lease = yield at.masters.lock("job", auto_extend=False).acquire
        yield at.sleep(0.5)
        at.rate(3, SLEWED)
        assert not (yield partial(lease.wait_lost, 29.0)), "it is valid, and its keys have gone before that"
        assert at.keys() == 0
        yield partial(lease.wait_lost, 1.0)
        refused = yield from at.raises(at.errors.QuorumUnreachable, partial(at.masters.status, "job"))
        assert all("all masters look fast" in text for text in quarantined(refused))

    def second(at):
        yield at.sleep(0.2)
        lock = at.masters.lock("job")
        yield from at.raises((at.errors.QuorumUnreachable, at.errors.NotAcquired), partial(lock.acquire, timeout=29.0))
        refused = yield from at.raises(at.errors.QuorumUnreachable, partial(lock.acquire, timeout=0))
        assert len(quarantined(refused)) >= 2

    return [first, second]


@scene()
def test_answers_that_take_longer_now_and_then_make_no_clock_look_fast(at):
    """The first answer came late, the second at once: from one to the other too little has passed."""
    yield from outcomes(at)
    at.far(3, 0.2)
    at.snap([3])
    yield at.sleep(0.9)
    at.far(3, 0.001)
    yield at.sleep(40.0)
    assert (yield from outcomes(at)) == [("free", "")] * 5
    assert not any("faster" in text for text in at.log)


@scene()
def test_a_master_that_is_fast_does_not_vote_over_a_new_connection_either(at):
    at.rate([2], SLEWED)
    yield from outcomes(at)
    yield at.sleep(2.0)
    at.snap([2])
    yield at.sleep(0.2)
    assert (yield from outcomes(at))[2][0] == "quarantined"


@scene()
def test_a_client_that_may_not_announce_its_list_measures_all_the_same(at):
    """Its user has no right to the key of lists (R34)."""
    for server in at.servers:
        server.master.evaluate = partial(_without_lists, server.master.evaluate)
    yield from outcomes(at)
    yield at.sleep(5.0)
    at.rate([3], SLEWED)
    yield at.sleep(30.0)
    assert (yield from outcomes(at))[3][0] == "quarantined"


def _without_lists(evaluate, call, *given, **more):
    if call.keys and call.keys[0].startswith("redlock-fleet:"):
        return ErrorReply("NOPERM this user has no permissions to access one of the keys used as arguments")
    return evaluate(call, *given, **more)


@scene(max_ttl=300.0)
def test_a_fast_clock_is_seen_from_far_away_as_well(at):
    """One second says nothing where an answer takes 160 ms; the next announcement, after 15 s, would be too late."""
    at.far(4, 0.08)
    at.rate([4], SLEWED)
    yield from outcomes(at)
    yield at.sleep(6.0)
    assert [outcome for outcome, _ in (yield from outcomes(at))] == ["free"] * 4 + ["quarantined"]


@scene()
def test_a_slow_master_votes_and_is_told_once(at):
    at.rate([1], 0.9)
    yield from outcomes(at)
    yield at.sleep(70.0)
    assert (yield from outcomes(at))[1][0] == "free"
    assert sum("slower" in text for text in at.log) == 1


@scene()
def test_a_client_whose_own_clock_is_slow_is_told_that_all_masters_look_fast(at):
    at.client.runs(0.9)
    yield from outcomes(at)
    yield at.sleep(3.0)
    refused = yield from at.raises(at.errors.QuorumUnreachable, partial(at.masters.lock("job").acquire, timeout=0))
    assert all("that of this machine slower" in text for text in quarantined(refused))
