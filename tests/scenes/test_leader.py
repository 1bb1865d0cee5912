"""One leader at a time, whatever becomes of the one before (R31)."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.bench import scene

if TYPE_CHECKING:
    from tests.bench import At
    from tests.bench.users import Steps

TTL = 3.0


def leads(at: At, led: list[Any], after: float, lasts: float = 1000.0) -> Steps:
    """Stand for election, and lead for so long."""
    yield at.sleep(after)

    def body(election: Any, term: Any) -> Steps:
        began = at.now
        led.append((at.now, at.client.name, term.number))
        while not term.should_stop and at.now < began + lasts:
            yield at.sleep(0.05)
        if at.now >= began + lasts:
            election.stop()

    yield partial(at.client.kind.lead, at.masters.leader("beat", ttl=TTL), body)


@scene()
def test_another_candidate_leads_within_a_ttl_of_a_kill_and_of_a_freeze() -> list[Any]:
    led: list[Any] = []

    def nemesis(at: At) -> Steps:
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
def test_a_leader_that_is_stopped_hands_over_when_its_body_has_ended() -> list[Any]:
    led: list[Any] = []
    ended: list[float] = []

    def resigns(at: At) -> Steps:
        election = at.masters.leader("beat", ttl=30.0)

        def body(election: Any, term: Any) -> Steps:
            led.append(at.now)
            try:
                yield at.sleep(2.0)
                election.stop()
                yield at.sleep(0.1)  # a task is cancelled here
            finally:
                yield at.sleep(1.0)
                assert term.valid  # the lock stays until the body has ended
                ended.append(at.now)

        yield partial(at.client.kind.lead, election, body)

    def follows(at: At) -> Steps:
        yield from leads(at, led, after=1.0, lasts=0.1)
        assert 0.0 <= led[1][0] - ended[0] < 0.1  # at once, and not after a TTL

    return [resigns, follows]


@scene()
def test_others_have_their_turn_after_a_term_that_ended_by_max_hold_and_its_guard() -> list[Any]:
    led: list[Any] = []

    def leads_in_turn(at: At, after: float) -> Steps:
        yield at.sleep(after)
        election = at.masters.leader("beat", ttl=TTL, max_hold=1.0, guard=0.5)

        def body(_: Any, term: Any) -> Steps:
            led.append((at.now, at.client.name))
            while not term.should_stop:
                yield at.sleep(0.01)
            if len(led) > 6:
                election.stop()

        yield partial(at.client.kind.lead, election, body)

    def looks(at: At) -> Steps:
        yield from at.until(lambda: len(led) > 6)
        for (began, leader), (ended, follower) in itertools.pairwise(led):
            assert follower != leader
            assert 0.0 <= ended - began - 1.5 < 0.1  # as soon as the guard is over

    return [looks, partial(leads_in_turn, after=0.0), partial(leads_in_turn, after=0.2)]


@scene()
def test_a_former_leader_that_lets_others_go_first_can_be_stopped(at: At) -> Steps:
    election = at.masters.leader("beat", ttl=TTL, max_hold=1.0, guard=20.0)

    def body(_: Any, term: Any) -> Steps:
        while not term.should_stop:
            yield at.sleep(0.01)

    def campaigns() -> Steps:
        yield partial(at.client.kind.lead, election, body)

    job = yield at.begin(campaigns())
    yield at.sleep(5.0)
    election.stop()
    yield from at.until(lambda: at.over(job), 1.0)


@scene()
def test_a_candidate_can_be_stopped_while_no_master_answers(at: At) -> Steps:
    led: list[Any] = []
    at.kill(5)
    election = at.masters.leader("beat", ttl=TTL)

    def body(_: Any, __: Any) -> Steps:
        led.append(at.now)
        yield at.sleep(0.0)

    def campaigns() -> Steps:
        yield partial(at.client.kind.lead, election, body)

    job = yield at.begin(campaigns())
    yield at.sleep(10.0)
    assert not at.over(job)
    election.stop()
    yield from at.until(lambda: at.over(job), 1.0)
    assert not led
