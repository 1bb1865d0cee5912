"""How long an acquire waits through an outage, and who is told of it, and how often (C1, R38)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from redlock._core.kernel.ballot import Refusal
from redlock._core.kernel.quorum import Tally
from redlock._core.notes import Waited
from redlock._core.outages import EVERY, Outages
from redlock._core.outcomes import Failure
from redlock._core.watch import wait_until_free
from redlock._lock.refused import unreachable
from tests.core.test_attempts import HELD
from tests.core.test_local_queue import waiting_behind
from tests.core.world import GRANTS, NEVER, START, Master, World, down, held, refuses, tally_of, turns
from tests.owners import proves

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.effects import Op
    from redlock._core.kernel.ballot import Grant

pytestmark = proves("R38")

OUTAGE = 5.0  # the outage_timeout
DOWN = Failure("error", "connection refused", sent=False)


def world_of(*masters: Master, outage_timeout: float = OUTAGE) -> World:
    world = World(*masters)
    world.settings = world.settings._replace(outage_timeout=outage_timeout)
    return world


def for_ever(world: World, **spec: Any) -> Op[Grant | Refusal]:
    return world.acquire(world.spec(**spec), deadline=math.inf)


@pytest.mark.parametrize("masters", [
    pytest.param([down()] * 3, id="down"),
    pytest.param([down(), down(), Master(0.01)], id="a-majority-is-down"),
    pytest.param([down(), down(), held(0.01)], id="the-last-one-says-held"),
    pytest.param([Master(NEVER)] * 3, id="silent"),
])  # fmt: skip
def test_an_outage_ends_a_wait_that_has_no_other_end(masters: list[Master]) -> None:
    """At the end of that time there is one more attempt, as at a deadline."""
    world = world_of(*masters)
    refusal = world.refused(for_ever(world, pause=0.7))
    assert refusal.kind == "unreachable"
    assert OUTAGE <= world.after_start() <= OUTAGE + world.settings.node_timeout
    text = str(unreachable(world.spec(), refusal, world.settings))
    assert f"this outage has lasted for {world.after_start():.1f} s, and outage_timeout is 5 s" in text


def test_masters_that_answer_too_late_are_none() -> None:
    """R7: a majority grants it, and what is left of the lease is of no use, time and again."""
    world = world_of(*[Master(0.2)] * 3)
    assert world.refused(for_ever(world, min_validity=9.8)).kind == "slow"
    assert OUTAGE <= world.after_start() <= OUTAGE + world.settings.node_timeout


@pytest.mark.parametrize(("master", "ends"), [(down(), OUTAGE), (refuses("wrong user or password"), 0.0)])
def test_whoever_waits_until_it_is_free_gives_up_as_well(master: Master, ends: float) -> None:
    world = world_of(*[master] * 3)
    name, tally = world.run(wait_until_free(world.settings, ("a",), "redlock:", math.inf, START))
    assert (name, tally.unreachable) == ("a", True)
    assert world.after_start() == pytest.approx(ends)


ASLEEP = 3600.0


def suspended(world: World, after: float, then: Callable[[], object] = int) -> None:
    """In so many seconds the machine is suspended, for an hour (R5).  ``then``: 0.3 s after that."""

    def suspend() -> None:
        world.now += ASLEEP
        world.later(0.3, then)

    world.later(after, suspend)


@pytest.mark.parametrize("before", [HELD, DOWN], ids=["others-had-it", "an-outage-had-begun"])
def test_a_laptop_wakes_up_and_its_network_comes_two_seconds_later(before: Any) -> None:
    world = world_of(*[Master(0.0, {"acquire": turns(before, *[DOWN] * 5, GRANTS["acquire"])}) for _ in range(3)])
    suspended(world, 0.1)
    world.granted(for_ever(world))
    assert world.after_start() == pytest.approx(ASLEEP + 2.6, abs=0.5)


def test_an_outage_lasts_for_as_long_as_attempts_have_seen_it() -> None:
    """Two seconds before the machine is suspended, three after that."""
    world = world_of(*[down()] * 3)
    suspended(world, 2.1)
    refusal = world.refused(for_ever(world))
    assert refusal.kind == "unreachable"
    assert world.after_start() - ASLEEP == pytest.approx(OUTAGE, abs=1.0)  # a pause and an attempt may have passed
    text = str(unreachable(world.spec(), refusal, world.settings))
    assert "this outage has lasted for 5." in text


@pytest.mark.parametrize(("since", "told"), [(-3.0, OUTAGE), (2.0, 2.0 + OUTAGE)])
def test_who_stands_behind_hears_the_same(since: float, told: float) -> None:
    """After its own time, without a word to the masters: the one in front asks for all."""
    world = world_of(*[down()] * 3)
    front = waiting_behind(world)
    met = Refusal("unreachable", Tally(world.settings.masters), START, waited=Waited(7, START + since))
    world.later(max(since, 0.0), lambda: front.answered(met))
    refusal = world.refused(world.acquire(world.spec("a"), deadline=math.inf))
    assert (refusal.kind, refusal.waited.attempts, world.sent) == ("unreachable", 0, [])
    assert refusal.at - START == pytest.approx(told)


@pytest.mark.parametrize("holds", [True, False])
def test_behind_one_that_has_it_or_is_refused_there_is_no_outage(holds: bool) -> None:
    world = world_of(*[down()] * 3)
    front = waiting_behind(world)
    front.holds = START if holds else 0.0
    front.answered(Refusal("held", Tally(["a"]), START))
    world.later(33.0, lambda: world.local_queue.leave(front))
    refusal = world.refused(world.acquire(world.spec("a"), deadline=math.inf))
    assert refusal.kind == "unreachable"  # in its own attempts
    assert refusal.at - START == pytest.approx(33.0 + OUTAGE)


GONE, BACK, ELSEWHERE = ("error", "error", "granted"), ("granted", "granted"), ("held", "held", "error")


@pytest.mark.parametrize(("attempts", "told"), [
    pytest.param([(0, BACK), (1, ELSEWHERE), (2, BACK)], [], id="as-usual"),
    pytest.param([(0, GONE), (1, GONE), (59.9, GONE)], [("gone", 0)], id="once"),
    pytest.param([(0, GONE), (61, GONE), (62, GONE), (122, GONE)], [("gone", 0), ("still gone", 61), ("still gone", 122)],
                 id="every-minute"),
    pytest.param([(0, GONE), (7, BACK), (8, BACK)], [("gone", 0), ("back", 7)], id="back"),
    pytest.param([(0, GONE), (7, ELSEWHERE)], [("gone", 0), ("back", 7)], id="others-have-it"),
    pytest.param([(0, GONE), (7, BACK), (8, GONE), (67.9, GONE), (68, GONE)],
                 [("gone", 0), ("back", 7), ("gone", 0), ("still gone", 60)], id="another-one"),
])  # fmt: skip
def test_the_quorum_is_gone_still_gone_and_back(attempts: list[Any], told: list[Any]) -> None:
    heard: list[Any] = []
    outages = Outages(lambda what, seconds, _: heard.append((what, seconds)))
    for at, votes in attempts:
        outages.attempted(tally_of(*votes, size=3), START + at)
    assert [(what, pytest.approx(seconds)) for what, seconds in told] == heard


@pytest.mark.parametrize("look", [1, 2], ids=["before-it-decides", "while-it-decides"])
@pytest.mark.parametrize(("at", "told"), [(START, ["gone"]), (START + EVERY, ["gone", "still gone"])])
def test_a_thousand_waiters_are_one_record(at: float, told: list[str], look: int) -> None:
    """Another thread has an attempt that fails, in the middle of what one does with its own."""
    heard: list[Any] = []
    outages = Outages(lambda what, *_: heard.append(what))
    if at > START:
        outages.attempted(tally_of(*GONE, size=3), START)

    class Interleaved(Tally):
        looks = 0

        @property
        def unreachable(self) -> bool:
            self.looks += 1
            if self.looks == look:
                outages.attempted(tally_of(*GONE, size=3), at)
            return True

        def absent(self) -> int:
            return self.size

    outages.attempted(Interleaved(["a", "b", "c"]), at)
    outages.attempted(tally_of(*GONE, size=3), at)
    assert heard == told
