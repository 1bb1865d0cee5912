"""Who stands in line inside a process, and when an operation enters and leaves it (R23)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from redlock._core import readings
from redlock._core.acquire import _who_holds
from redlock._core.kernel.ballot import Refusal
from redlock._core.kernel.quorum import Tally
from redlock._core.kernel.release import release
from redlock._core.local_queue import LocalQueue, Place
from redlock._core.notes import Waited
from tests.core.world import NEVER, START, WALL, Master, World, breaks, down, held, refuses
from tests.owners import proves
from tests.properties.profile import PROPERTY
from tests.servers.interrupt import at_every_line

pytestmark = proves("R23", "R40")


def line(*names: str) -> tuple[LocalQueue, list[Place]]:
    """A local queue, and who came in the order of ``names``: "ab" wants both at once."""
    local_queue = LocalQueue()
    places = [Place(tuple(keys)) for keys in names]
    for place in places:
        local_queue.enter(place, None, START)
    return local_queue, places


def first_of(there: list[Place]) -> list[Place]:
    """Those before whom nobody stands in any of their lines."""
    return [
        place
        for number, place in enumerate(there)
        if all(set(place.keys).isdisjoint(before.keys) for before in there[:number])
    ]


def test_one_that_never_came_may_leave() -> None:
    local_queue, (first,) = line("a")
    assert local_queue.leave(Place(("a", "b"))) == []
    assert first.turn
    assert len(local_queue) == 1


def test_who_comes_when_enough_wait_is_not_to_wait() -> None:
    """R40; the first one in line holds the lock or asks for it, and is none of those who wait."""
    local_queue, (first, _, _) = line("a", "a", "ab")
    assert first.turn
    crowds = []
    for keys, most in (("a", 3), ("a", 3), ("b", 1), ("ba", 4), ("c", 1)):
        place = Place(tuple(keys), most=most)
        local_queue.enter(place, None, START)
        crowds.append(place.crowd)
        local_queue.leave(place)
    assert crowds == [0, 0, 1, 0, 0], "so many wait for a, for b one, for c nobody"
    place = Place(("a",), most=2)
    local_queue.enter(place, None, START)
    assert place.crowd == 2


steps = st.lists(
    st.one_of(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True), st.integers(0, 30)), max_size=40
)


@PROPERTY
@given(steps=steps)
def test_nobody_is_forgotten_and_nobody_overtakes(steps: list[list[str] | int]) -> None:
    """After every step those whose turn it is are exactly those whom nobody stands before, and they were told."""
    local_queue = LocalQueue()
    there: list[Place] = []  # in the order in which they came
    gone: list[Place] = []
    told: list[Place] = []
    for step in steps:
        if isinstance(step, list):
            place = Place(tuple(step))
            local_queue.enter(place, None, START)
            there.append(place)
            told += [place] if place.turn else []
        elif there or gone:
            place = (there + gone)[step % len(there + gone)]
            news = local_queue.leave(place)
            if place in there:
                assert set(news).isdisjoint(told)
                there.remove(place)
                gone.append(place)
            told += news
        first = first_of(there)
        assert [place for place in there if place.turn] == first
        assert {place for place in told if place in there} == set(first)
        assert len(local_queue) == len({key for place in there for key in place.keys})
    for place in reversed(there):
        local_queue.leave(place)
    assert len(local_queue) == 0  # a name that nobody wants costs nothing


@pytest.mark.parametrize("names", [["a", "a"], ["ab", "a", "b"], ["ab", "ba", "a"]], ids="-".join)
def test_interrupted_at_any_line_and_insisted_on(names: list[str]) -> None:
    """R11: a Ctrl-C in the thread of who leaves, and `despite_interrupts` does it again: those behind are told all the same.

    Told is who has its `turn` and was returned; whoever drives tells nobody else.
    """
    for interrupt in at_every_line(3):
        local_queue, (leaves, *others) = line(*names)
        told = None
        with interrupt.strikes():
            told = local_queue.leave(leaves)
        if told is None:
            told = local_queue.leave(leaves)
        assert [other for other in others if other.turn] == told == first_of(others)


WAYS: dict[str, list[Master]] = {
    "held": [held(0.01)] * 3, "unreachable": [down(), down(), Master(0.01)], "broken": [breaks(0.01)] * 3,
    "silent": [Master(NEVER)] * 3, "slow": [Master(0.2)] * 3, "misconfigured": [refuses()] * 3,
    "granted": [Master(0.01)] * 3, "second-round": [Master(0.01, {"acquire": [2, str(2 * WALL).encode()]})] * 3,
}  # fmt: skip


def waiting_behind(world: World) -> Place:
    """One more, for the same names and others."""
    place = Place(world.spec("b", "a", "z").keys.locks)
    world.local_queue.enter(place, None, START)
    return place


@pytest.mark.parametrize("way", WAYS)
def test_enters_first_and_leaves_last_unless_it_is_granted(way: str) -> None:
    world = World(*WAYS[way])
    spec = world.spec("a", "b", min_validity=9.8 if way == "slow" else None)
    outcome = world.run(world.acquire(spec, deadline=world.now + 0.1))
    kinds = [kind for kind, _ in world.effects]
    assert [sent.request.enters is None for sent in world.sent[:1]] == [False]
    assert all(sent.request.enters is None for sent in world.sent[1:])
    behind = waiting_behind(world)
    if isinstance(outcome, Refusal):
        assert kinds.count("Leave") == 1
        assert kinds[-1] == "Leave"
        assert world.verbs()[-1] == "release" or way == "unreachable"  # R10: the rollback is written before
        assert behind.turn
    else:
        assert "Leave" not in kinds
        assert outcome.place is not None
        assert outcome.place.turn
        assert not behind.turn  # the holder stays in front


@pytest.mark.parametrize("timeout", [-3.0, 0.0, 0.3])
def test_not_its_turn_in_time(timeout: float) -> None:
    """C3: no master was asked, and the refusal says so."""
    world = World(*[Master()] * 3)
    front = waiting_behind(world)  # of an empty line
    front.holds = START
    refusal = world.refused(world.acquire(world.spec("a"), deadline=world.now + timeout))
    assert (refusal.kind, refusal.waited.attempts, refusal.holder, refusal.remaining) == ("held", 0, "", None)
    assert refusal.at - START == pytest.approx(max(timeout, 0.0))
    assert not readings.misconfigured(refusal.tally)
    assert len(refusal.tally.votes()) == 3
    assert world.sent == []
    assert [kind for kind, _ in world.effects] == ["Send", "Wait", "LookAhead", "Leave"]
    assert front.turn
    world.local_queue.leave(front)
    assert len(world.local_queue) == 0


def refused(kind: Any, *masters: Master) -> Refusal:
    tally = Tally(World(*masters).settings.masters)
    return Refusal(kind, tally, START - 1, waited=Waited(7, before=(Refusal(kind, tally, START - 2),)))


@pytest.mark.parametrize("patience", [0.0, 0.1])
@pytest.mark.parametrize(("learns", "at", "told", "ends"), [
    pytest.param("unreachable", 0.2, "unreachable", 0.2, id="an-outage"),
    pytest.param("held", 0.2, "held", 0.2, id="others-hold-it"),
    pytest.param("granted", 0.2, "held", 0.2, id="it-holds-the-lock"),
    pytest.param("unreachable", 0.05, "unreachable", 0.1, id="it-is-known-already"),
    pytest.param("", 0.0, "held", 0.5, id="for-as-long-as-an-attempt-may-take"),
])  # fmt: skip
def test_a_first_answer_that_is_on_its_way_is_waited_for(
    patience: float, learns: str, at: float, told: str, ends: float
) -> None:
    """As that to an attempt of its own would be.  Nothing else wakes whoever waits in line."""
    world = World(*[Master()] * 3, node_timeout=0.25)
    front = waiting_behind(world)

    def learn() -> bool:
        if learns == "granted":
            front.holds = START
        else:
            front.answered(refused(learns))
        return front.awaited and bool(world.local_queue.behind(front))

    if learns:
        world.later(at, learn)
    refusal = world.refused(world.acquire(world.spec("a"), deadline=world.now + patience))
    assert refusal.kind == told
    late = 0.05 if ends == 0.1 and not patience else ends  # who does not wait hears of it then
    assert refusal.at - START == pytest.approx(late if learns else patience + ends)


@pytest.mark.parametrize("asked", [True, False])
def test_each_refusal_is_told_at_once_to_a_waiter_that_asked_for_it(asked: bool) -> None:
    world = World(*[held(0.01)] * 3)

    def ask() -> None:
        behind = waiting_behind(world)
        if asked:
            world.local_queue.look_ahead(behind)

    world.later(0.005, ask)
    world.run(world.acquire(world.spec("a"), deadline=START + 0.3))
    woken = [at - START for kind, at in world.effects if kind == "WakeBehind"]
    assert woken == ([pytest.approx(0.01)] if asked else [])


def test_what_was_learned_is_handed_down() -> None:
    """The next one in front has no answer of its own yet: it goes on with the latest that there is."""
    local_queue, (first, second, third) = line("ab", "a", "a")
    outage = refused("unreachable")
    first.answered(outage)
    assert local_queue.leave(first) == [second]
    assert local_queue.look_ahead(third) == [outage]
    second.answered(other := refused("held"))
    assert local_queue.look_ahead(third) == [other]
    second.holds = START
    assert local_queue.look_ahead(third) == [START]
    assert local_queue.leave(second) == [third]
    assert third.learned is None  # what a holder knew before it had the lock is no news


@pytest.mark.parametrize(("masters", "lost", "kinds"), [
    pytest.param([Master(0.01)] * 3, False, ["Send", "Leave", "Wait"], id="released"),
    pytest.param([Master(0.01, {}, {"release": NEVER})] * 3, False, ["Send", "Leave", "Wait"], id="nobody-answers"),
    pytest.param([Master(0.01)] * 3, True, ["Send", "Leave"], id="lost"),
])  # fmt: skip
def test_a_release_lets_the_next_one_go_when_it_is_written(masters: list[Master], lost: bool, kinds: list[str]) -> None:
    """R10: on every connection its acquire stands behind the release, so it need not wait for the answers."""
    world = World(*masters)
    spec = world.spec("a")
    lease, behind, before = world.acquired(spec), waiting_behind(world), world.now
    world.effects.clear()
    if lost:
        lease.lose("taken")
    assert world.run(release(world.settings, spec, lease)) is not lost
    assert [kind for kind, _ in world.effects][:3] == kinds
    assert world.effects[1][1] == before
    assert behind.turn


def test_the_latest_attempts_are_kept_for_an_observer():
    place = Place(("a",))
    assert place.attempts == ()
    for number in range(100):
        place.failed(number)
    assert place.attempts == tuple(range(84, 100))


def test_of_several_names_the_log_says_who_holds_one():
    assert _who_holds([None, 5.0], 7.0, World().settings.fences) == "by another thread or task of this process for 2 s"
