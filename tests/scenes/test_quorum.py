"""What decides an attempt, and what it leaves: majorities, times, tokens and fences (P1, P2, P8, R2, R5-R9, R12, R16-R18, R21)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tenacity.wait import wait_fixed

from redlock import scripts
from tests.bench import scene
from tests.owners import proves

FENCE = "{redlock:job}:fence"


def unreachable(at, lock, says=None):
    return at.raises(at.errors.QuorumUnreachable, partial(lock.acquire, timeout=0), match=says)


# -- time ------------------------------------------------------------------------------------------------


@proves("R6")
@scene()
def test_a_lease_ends_earlier_than_its_keys_by_what_clocks_may_differ(at):
    lock, began = at.masters.lock("job", ttl=50.0, auto_extend=False), at.now
    lease = yield lock.acquire
    assert (yield partial(lease.wait_lost, 60))
    assert at.exactly(began + 50.0 - 0.502)  # R6
    assert at.keys() == 5


@proves("R5")
@scene()
def test_a_wall_clock_that_is_set_moves_the_end_of_no_lease(at):
    lock, _ = yield from at.held("job", ttl=5.0, auto_extend=False)
    yield lock.release
    began = at.now
    lease = yield lock.acquire
    for by in (-3600.0, 7200.0):
        at.client.skew += by
        assert lease.remaining() == pytest.approx(4.948 - (at.now - began), abs=0.01)  # R5
        yield at.sleep(1.0)
    at.client.skew -= 7200.0
    assert (yield partial(lease.wait_lost, 9))
    assert at.exactly(began + 4.948)


@proves("R7")
@scene()
def test_masters_that_grant_too_late_grant_nothing(at):
    """R7: less than the `min_validity` would be left."""
    lock, _ = yield from at.held("job", ttl=2.0, min_validity=1.9)
    yield lock.release
    at.freeze()
    job = yield at.begin(unreachable(at, lock, "answered too late"))
    yield at.sleep(0.1)
    at.thaw()
    yield from at.until(lambda: at.over(job))
    assert at.keys() == 0


@proves("R2")
@scene()
def test_no_client_waits_for_the_rest_of_a_round_that_a_refused_connection_decides(at):
    at.kill([0, 1])
    yield at.sleep(0.5)
    at.freeze([2])
    began = at.now
    job = yield at.begin(unreachable(at, at.masters.lock("job")))
    yield at.sleep(0.1)
    at.kill([2])
    yield from at.until(lambda: at.over(job))
    assert at.exactly(began + 0.1)  # R2


# -- tokens and rollback ---------------------------------------------------------------------------------


@proves("R9")
@scene()
def test_a_failed_attempt_is_taken_back_where_it_was_granted_and_where_masters_were_silent(at):
    at.put("redlock:job", "another", masters=[0, 1])
    at.freeze([3, 4])
    yield partial(at.masters.lock("job", ttl=30.0).acquire, timeout=0)
    yield at.sleep(0.1)
    at.thaw([3, 4])
    yield at.sleep(0.1)
    assert at.values() == ["another", "another", None, None, None]  # R9, P7


@proves("R8")
@scene()
def test_each_attempt_has_a_token_of_its_own(at):
    """R8: else what is late of one takes away the key of the next."""
    at.put("redlock:job", "another", masters=3)
    lock, tokens = at.masters.lock("job", retry=wait_fixed(0.1)), {"another", None}
    job = yield at.begin(waits(lock))
    while len(tokens) < 6:
        yield at.sleep(0.0002)
        tokens.update(at.values())
    at.put("redlock:job", None, masters=3)
    yield from at.until(lambda: at.over(job))


def waits(lock):
    yield lock.acquire
    yield lock.release


@scene()
def test_an_acquire_that_is_over_is_not_sent_again_behind_its_release_to_masters_that_have_forgotten_the_script(at):
    lock, _ = yield from at.held("job", ttl=30.0)
    yield lock.release
    for server in at.servers:
        server.master.flush_scripts()
        server.master._cached.add(scripts.RELEASE.sha)  # somebody else has released meanwhile
    at.cut(5, requests=False)
    yield from unreachable(at, lock)
    at.heal(5, requests=False)
    yield from at.none_left(1.0)  # R10


# -- extensions ------------------------------------------------------------------------------------------


@proves("R12")
@scene()
def test_an_extension_brings_no_lost_lease_back(at):
    lock, lease = yield from at.held("job", ttl=2.0, auto_extend=False, then=2.5)
    yield from at.raises(at.errors.LockLost, partial(lock.extend, 10.0))
    yield at.sleep(0.1)
    assert not lease.valid  # R12
    assert at.keys() == 0
    yield from at.raises(at.errors.LockLost, lock.release)


@scene(delay=0.02)
def test_an_extension_whose_answers_are_read_after_the_end_of_the_lease_comes_too_late(at):
    lock, lease = yield from at.held("job", ttl=2.0, auto_extend=False, bound=False, then=1.0)
    job = yield at.begin(at.raises(at.errors.LockLost, partial(lock.extend, 10.0)))
    yield at.sleep(0.01)
    at.stop(at.client, 3.0)
    yield at.sleep(0.001)
    yield from at.until(lambda: at.over(job))
    assert lease.lost  # R12
    assert not lease.valid


@proves("C6")
@scene(delay=0.02)
def test_an_extension_to_a_shorter_ttl_counts_from_when_it_is_sent(at):
    lock, lease = yield from at.held("job", ttl=30.0, auto_extend=False)
    at.cut(5, requests=False)  # they do it, and their answers are lost
    yield from at.raises(at.errors.NotExtended, partial(lock.extend, 1.0))
    assert lease.remaining() < 1.0  # C6
    at.heal(5, requests=False)
    assert (yield partial(lease.wait_lost, 2))


@scene(delay=0.02)
def test_an_extension_that_was_won_does_not_undo_a_shorter_one_that_was_sent_after_it(at):
    lock, lease = yield from at.held("job", ttl=10.0, auto_extend=False, bound=False)
    at.cut(5, requests=False)
    job = yield at.begin(partial(lock.extend, 60.0))
    yield at.sleep(0.1)
    at.heal(5, requests=False)
    at.cut(5, requests=False)  # the answers to the next one
    yield from at.raises(at.errors.NotExtended, partial(lock.extend, 10.0))
    assert at.over(job)
    assert lease.remaining() < 10.0  # C6
    at.heal(5, requests=False)
    yield lock.release


@scene()
def test_a_release_is_owed_for_as_long_as_an_extension_without_an_answer_lets_keys_live(at):
    lock, _ = yield from at.held("job", ttl=10.0, auto_extend=False)
    at.cut(5, requests=False)
    yield from at.raises(at.errors.NotExtended, partial(lock.extend, 60.0))
    at.snap()
    at.cut(5, answers=False)
    yield lock.release
    yield at.sleep(25.0)
    assert at.keys() == 5
    at.heal()
    yield from at.none_left(5.0)  # R10, P7


# -- fences ----------------------------------------------------------------------------------------------


@proves("R17")
@scene()
def test_fences_rise_whatever_the_wall_clocks_of_clients_show():
    fences: list[int] = []

    def takes(at, *, turn):
        at.client.skew = -60.0 * turn
        yield from at.until(lambda: len(fences) == turn)
        lock = at.masters.lock("job")
        fences.append((yield lock.acquire).fence)
        yield lock.release
        yield from at.until(lambda: len(fences) == 4)
        assert fences == sorted({*fences})  # P2: one that only its client knows is given twice (R17)

    return [partial(takes, turn=turn) for turn in range(4)]


@proves("R18")
@scene()
def test_a_fence_that_masters_have_already_is_not_granted_a_second_time(at):
    lock = at.masters.lock("job")
    first = (yield lock.acquire).fence
    yield lock.release
    at.client.skew = -60.0  # it proposes the next one
    at.put(FENCE, str(first + 1))
    assert (yield lock.acquire).fence == first + 2  # R18: equal is not greater
    yield lock.release


@scene()
def test_an_event_has_the_votes_of_a_second_round_where_there_was_one(at):
    told: list[Any] = []

    def observe(event):
        at.client._observe(event)
        if type(event).__name__ == "LockAcquired":
            told.append(event.settled)

    lock = at.client.make(observer=observe).lock("job")
    first = (yield lock.acquire).fence
    yield lock.release
    at.client.skew = -60.0
    at.put(FENCE, str(first + 1))
    yield lock.acquire
    yield lock.release
    yield from at.until(lambda: len(told) == 2)
    once, twice = told
    assert once == ()
    assert [vote.outcome for vote in twice].count("granted") >= 3


# -- masters that come back ------------------------------------------------------------------------------


@scene(masters=1, guard=True, max_ttl=10.0)
def test_an_uptime_of_one_second_may_be_hardly_more_than_nothing():
    """P5: it is counted in whole seconds of wall time."""
    granted: list[float] = []

    def holds(at):
        master = at.servers[0].master
        yield from at.until(lambda: 0.9 < master.wall() % 1 < 0.95)
        _, lease = yield from at.held("job", ttl=10.0, auto_extend=False)
        granted.append(at.now)
        at.kill([0])
        at.start([0])
        yield at.sleep(9.5)
        assert lease.valid

    def comes(at):
        yield from at.until(lambda: granted)
        yield at.masters.close
        yield at.sleep(granted[0] + 0.15 - at.now)  # it says that it is up for 1 s
        masters = yield at.client.make
        lock = masters.lock("job", ttl=10.0)
        yield partial(lock.acquire, timeout=60.0)
        assert at.now - granted[0] > 10.0
        yield lock.release
        yield masters.close

    return [holds, comes]


@proves("P4")
@scene()
def test_a_master_that_went_away_votes_again_when_it_is_back(at):
    lock = at.masters.lock("job")
    for masters in ([0, 1, 2], [2, 3, 4]):
        at.kill(masters)
        yield from at.raises(at.errors.QuorumUnreachable, partial(lock.acquire, timeout=1.0))
        at.start(masters)
        yield partial(lock.acquire, timeout=3.0)
        yield lock.release
