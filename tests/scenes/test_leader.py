"""One leader at a time, whatever becomes of the one before (R31)."""

from __future__ import annotations

import asyncio
import itertools
from functools import partial
from typing import Any

import pytest

from tests.bench import scene
from tests.owners import proves

TTL = 3.0


def leads(at, led, after, lasts=1000.0):
    """Stand for election, and lead for so long."""
    yield at.sleep(after)

    def body(election, term):
        began = at.now
        led.append((at.now, at.client.name, term.number))
        while not term.should_stop and at.now < began + lasts:
            yield at.sleep(0.05)
        if at.now >= began + lasts:
            election.stop()

    yield partial(at.client.kind.lead, at.masters.leader("beat", ttl=TTL), body)


@scene()
def test_another_candidate_leads_within_a_ttl_of_a_kill_and_of_a_freeze():
    led: list[Any] = []

    def nemesis(at):
        yield at.sleep(5.0)
        assert [name for _, name, _ in led] == [at.other(1).name]
        killed = at.now
        at.crash(at.other(1))
        yield from at.until(lambda: len(led) == 2)
        assert at.now - killed < TTL + 0.5
        yield at.sleep(2.0)
        stopped = at.now
        frozen = next(client for client in at.play.clients[2:] if client.name == led[1][1])
        at.stop(frozen, 10.0)
        yield from at.until(lambda: len(led) == 3)
        assert at.now - stopped < TTL + 0.5
        assert led[2][1] not in {led[0][1], led[1][1]}
        numbers = [number for _, _, number in led]
        assert numbers == sorted(set(numbers))  # P2
        yield from at.until(lambda: len(led) == 4)  # the third one gives it back, and the frozen one campaigns again
        assert led[3][1] == frozen.name

    candidates = [partial(leads, led=led, after=number / 2, lasts=20.0) for number in range(3)]
    return [nemesis, *candidates]


@scene()
def test_others_have_their_turn_after_a_term_that_ended_by_max_hold_and_its_guard():
    led: list[Any] = []

    def leads_in_turn(at, after):
        yield at.sleep(after)
        election = at.masters.leader("beat", ttl=TTL, max_hold=1.0, guard=0.5)

        def body(_, term):
            led.append((at.now, at.client.name))
            while not term.should_stop:
                yield at.sleep(0.01)
            if len(led) > 6:
                election.stop()

        yield partial(at.client.kind.lead, election, body)

    def looks(at):
        yield from at.until(lambda: len(led) > 6)
        for (began, leader), (ended, follower) in itertools.pairwise(led):
            assert follower != leader
            assert 0.0 <= ended - began - 1.5 < 0.1  # as soon as the guard is over

    return [looks, partial(leads_in_turn, after=0.0), partial(leads_in_turn, after=0.2)]


@scene()
def test_a_former_leader_that_lets_others_go_first_can_be_stopped(at):
    election = at.masters.leader("beat", ttl=TTL, max_hold=1.0, guard=20.0)

    def body(_, term):
        while not term.should_stop:
            yield at.sleep(0.01)

    job = yield at.begin(partial(at.client.kind.lead, election, body))
    yield at.sleep(5.0)
    election.stop()
    yield from at.until(lambda: at.over(job), 1.0)


@scene()
def test_a_candidate_can_be_stopped_while_no_master_answers(at):
    led: list[Any] = []
    at.kill(5)
    election = at.masters.leader("beat", ttl=TTL)

    def body(_, __):
        led.append(at.now)
        yield at.sleep(0.0)

    job = yield at.begin(partial(at.client.kind.lead, election, body))
    yield at.sleep(10.0)
    assert not at.over(job)
    election.stop()
    yield from at.until(lambda: at.over(job), 1.0)
    assert not led


# -- the order of what one candidate does ----------------------------------------------------------------


@proves("R31")
@scene()
def test_a_body_that_raises_ends_the_election_after_on_stopped_and_the_lock_is_free_at_once(at):
    election, said = at.masters.leader("job", ttl=30.0), list[str]()

    def body(_):
        if said:
            election.stop()
        said.append("leads")
        yield at.sleep(1.0)
        raise ZeroDivisionError

    stands = partial(at.client.kind.stand, election, body, on_stopped=lambda term: said.append(f"stopped {term.valid}"))
    yield from at.raises(ZeroDivisionError, stands)
    assert said == ["leads", "stopped True"]
    yield from at.none_left()


@scene()
def test_the_lock_is_given_back_when_the_body_has_ended_and_on_stopped_was_told(at):
    election, keys = at.masters.leader("job", ttl=30.0), list[int]()

    def body(_):
        yield at.sleep(1.0)
        keys.append(at.keys())
        election.stop()

    yield partial(at.client.kind.stand, election, body, on_stopped=lambda _: keys.append(at.keys()))
    assert keys == [5, 5]
    yield from at.none_left()


@scene()
def test_at_max_hold_the_lock_stays_until_the_body_has_ended(at):
    election, keys = at.masters.leader("job", ttl=20.0, max_hold=1.0), list[int]()

    def body(term):
        try:
            yield from at.until(lambda: term.lost)
            yield at.sleep(0.1)  # a task is cancelled here
        finally:
            yield at.sleep(2.0)
            keys.append(at.keys())
            election.stop()

    yield partial(at.client.kind.stand, election, body)
    assert keys == [5]
    yield from at.none_left()


@scene()
def test_a_lost_term_ends_silently_and_the_next_one_begins(at):
    election, said, cancelled = at.masters.leader("job", ttl=TTL), list[tuple[str, int]](), list[str]()

    def body(term):
        said.append(("leads", term.number))
        if len(said) > 2:
            election.stop()
            return
        at.put("redlock:job", "another", ttl=1.5)
        try:
            yield partial(term.wait_lost, 10.0)
        except asyncio.CancelledError as error:
            cancelled.append(str(error))
            raise
        finally:
            assert term.lost
            assert term.should_stop
            assert election.term is None
            with pytest.raises(at.errors.LockLost):
                term.ensure()

    yield partial(at.client.kind.stand, election, body, on_stopped=lambda term: said.append(("stopped", term.number)))
    first, second = said[0][1], said[-1][1]
    assert first < second
    assert said == [("leads", first), ("stopped", first), ("leads", second), ("stopped", second)]
    assert [text.split(" ", 2)[2] for text in cancelled] == ["of 'job' was lost"] * (not at.threads)
    logged = "WARNING the lease on 'job' was lost: another client holds it; held for"
    assert [logged in text and "its body still ran" in text for text in at.log] == [True]


@scene()
def test_no_body_begins_while_that_of_a_lost_term_goes_on(at):
    election, bodies = at.masters.leader("job", ttl=TTL), list[str]()

    def body(term):
        bodies.append("begins")
        if len(bodies) > 2:
            election.stop()
        try:
            yield at.sleep(1.0)
            at.put("redlock:job", None)
            yield from at.until(lambda: term.lost)
            yield at.sleep(0.1)  # a task is cancelled here
        finally:
            yield at.sleep(2.0)
            bodies.append("ends")

    yield partial(at.client.kind.stand, election, body)
    assert bodies == ["begins", "ends", "begins", "ends"]


@scene()
@pytest.mark.parametrize("loops", [False, True])
def test_a_candidate_that_is_stopped_in_the_moment_of_the_grant_begins_no_body(at, loops):
    election, led = at.masters.leader("job", ttl=30.0), list[float]()
    elected = election._elected
    election._elected = lambda term: (election.stop(), elected(term))[1]

    def body(*_):
        led.append(at.now)
        yield at.sleep(0.0)

    yield partial(at.client.kind.lead if loops else at.client.kind.stand, election, body)
    assert not led
    yield from at.none_left()


@scene()
@pytest.mark.parametrize("loops", [False, True])
def test_a_candidate_that_was_frozen_until_its_term_was_over_stands_again(at, loops):
    election, led = at.masters.leader("job", ttl=TTL), list[bool]()
    elected = election._elected

    def frozen(term):
        if len(granted := [*granted_before, term.number]) == 1:
            at.cut(5)
            at.block(2 * TTL)
            at.heal(5)
        granted_before[:] = granted
        return elected(term)

    def body(*of):
        led.append(of[-1].valid)
        election.stop()
        yield at.sleep(0.0)

    granted_before: list[int] = []
    election._elected = frozen
    yield partial(at.client.kind.lead if loops else at.client.kind.stand, election, body)
    assert len(granted_before) == 2
    assert led == [True]


@scene()
def test_what_a_signal_handler_raises_between_two_steps_ends_the_election_in_order(at):
    election, said = at.masters.leader("job", ttl=30.0), list[str]()

    def struck(*_):
        del election._say_stopped
        raise KeyboardInterrupt

    def body(_):
        yield at.sleep(1.0)
        election._say_stopped = struck

    stands = partial(at.client.kind.stand, election, body, on_stopped=lambda term: said.append(f"stopped {term.valid}"))
    yield from at.raises(KeyboardInterrupt, stands)
    assert said == ["stopped True"]
    assert at.exactly(1.0)
    yield from at.none_left()


@scene()
def test_candidates_are_told_who_leads_and_what_they_raise_then_is_logged():
    def body(at, election):
        yield at.sleep(2.0)
        election.stop()

    def first(at):
        election = at.masters.leader("job", ttl=TTL, owner="first")
        yield partial(at.client.kind.stand, election, lambda _: body(at, election))

    def second(at):
        def tells(owner):
            told.append(owner)
            raise ZeroDivisionError

        at.expects("ZeroDivisionError")
        election, told = at.masters.leader("job", ttl=TTL), list[str]()
        yield at.sleep(0.5)
        stands = partial(at.client.kind.stand, election, lambda _: body(at, election))
        yield partial(stands, on_new_leader=tells)
        assert told == ["first"]
        assert ["on_new_leader of 'job' failed" in text for text in at.log] == [True]

    return [first, second]
