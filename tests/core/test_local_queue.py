"""Who stands in line inside a process, and when an operation enters and leaves it (R23)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from redlock._core import readings
from redlock._core.effects import Effect, Op, Send, Turn, Wait
from redlock._core.kernel.ballot import Grant, Refusal
from redlock._core.kernel.quorum import Tally
from redlock._core.kernel.release import release
from redlock._core.local_queue import LocalQueue, Place
from redlock._core.notes import Waited
from tests.core.world import NEVER, START, WALL, Master, World, breaks, down, held, refuses
from tests.owners import proves
from tests.properties.profile import PROPERTY

if TYPE_CHECKING:
    from redlock._core.lease import LeaseState
    from redlock._core.settings import LockSpec

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


# -- the line ----------------------------------------------------------------------------------------


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


class _Struck(BaseException):
    """As a Ctrl-C."""


@pytest.mark.parametrize("names", [["a", "a"], ["ab", "a", "b"], ["ab", "ba", "a"]], ids="-".join)
def test_interrupted_at_any_line_and_insisted_on(names: list[str]) -> None:
    """R11: a Ctrl-C in the thread of who leaves, and `despite_interrupts` does it again: those behind are told all the same.

    Told is who has its `turn` and was returned; whoever drives tells nobody else.
    """
    at = 0
    while True:
        at += 1
        local_queue, (leaves, *others) = line(*names)
        left = at

        def strike(frame: Any, event: str, argument: Any) -> Any:
            nonlocal left
            if frame.f_code.co_filename != sys.modules[LocalQueue.__module__].__file__:
                return None
            if event == "line":
                left -= 1
                if left == 0:
                    raise _Struck
            return strike

        previous = sys.gettrace()
        sys.settrace(strike)
        told = None
        try:
            told = local_queue.leave(leaves)
        except _Struck:
            pass
        finally:
            sys.settrace(previous)
        if told is None:
            told = local_queue.leave(leaves)
        first = first_of(others)
        assert [other for other in others if other.turn] == first, at
        assert told == first, at
        if left > 0:
            break


# -- entering and leaving ----------------------------------------------------------------------------

WAYS: dict[str, list[Master]] = {
    "held": [held(0.01)] * 3, "unreachable": [down(), down(), Master(0.01)], "broken": [breaks(0.01)] * 3,
    "silent": [Master(NEVER)] * 3, "slow": [Master(0.2)] * 3, "misconfigured": [refuses()] * 3,
    "granted": [Master(0.01)] * 3, "second-round": [Master(0.01, {"acquire": [2, str(2 * WALL).encode()]})] * 3,
}  # fmt: skip


def acquiring(masters: list[Master]) -> tuple[World, Op[Grant | Refusal]]:
    world = World(*masters)
    floor = 9.8 if masters is WAYS["slow"] else None
    return world, world.acquire(world.spec("a", "b", min_validity=floor), deadline=world.now + 0.1)


def waiting_behind(world: World) -> Place:
    """One more, for the same names and others."""
    place = Place(world.spec("b", "a", "z").keys.locks)
    world.local_queue.enter(place, None, START)
    return place


@pytest.mark.parametrize("way", WAYS)
def test_enters_first_and_leaves_last_unless_it_is_granted(way: str) -> None:
    world, op = acquiring(WAYS[way])
    outcome = world.run(op)
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


# -- in line -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [-3.0, 0.0, 0.3])
def test_not_its_turn_in_time(timeout: float) -> None:
    """C3: no master was asked, and the refusal says so."""
    world = World(*[Master()] * 3)
    front = waiting_behind(world)  # of an empty line
    front.holds = START
    refusal = world.run(world.acquire(world.spec("a"), deadline=world.now + timeout))
    assert isinstance(refusal, Refusal)
    assert (refusal.kind, refusal.waited.attempts, refusal.holder, refusal.remaining) == ("held", 0, "", None)
    assert refusal.at - START == pytest.approx(max(timeout, 0.0))
    assert not readings.misconfigured(refusal.tally)
    assert len(refusal.tally.votes()) == 3
    assert world.sent == []
    assert [kind for kind, _ in world.effects] == ["Send", "Wait", "LookAhead", "Leave"]
    assert front.turn
    world.local_queue.leave(front)
    assert len(world.local_queue) == 0


# -- what the one in front has learned (C2) ----------------------------------------------------------


def refused(kind: Any, *masters: Master) -> Refusal:
    tally = Tally(World(*masters).settings.masters)
    return Refusal(kind, tally, START - 1, waited=Waited(7, before=(Refusal(kind, tally, START - 2),)))


@pytest.mark.parametrize("patience", [0.0, 0.3], ids=["tries-once", "waits"])
@pytest.mark.parametrize(("learned", "told"), [
    pytest.param(True, "held", id="it-holds-the-lock"),
    pytest.param(refused("held"), "held", id="others-hold-it"),
    pytest.param(refused("unreachable"), "unreachable", id="an-outage"),
    pytest.param(refused("slow"), "slow", id="masters-that-answer-too-late"),
])  # fmt: skip
def test_an_outage_is_told_to_all_who_wait(learned: Any, told: str, patience: float) -> None:
    """And not that others have the lock.  A caller that does not want to wait is told at once."""
    world = World(*[Master()] * 3)
    front = waiting_behind(world)
    if learned is True:
        front.holds = START
    else:
        front.answered(learned)
    refusal = world.run(world.acquire(world.spec("a"), deadline=world.now + patience))
    assert isinstance(refusal, Refusal)
    assert (refusal.kind, refusal.waited.attempts, refusal.waited.before) == (told, 0, ())
    assert (refusal.tally is getattr(learned, "tally", None)) is (told != "held")  # with its votes
    assert refusal.at - START == pytest.approx(max(patience, 0.0))
    assert world.sent == []


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
    refusal = world.run(world.acquire(world.spec("a"), deadline=world.now + patience))
    assert isinstance(refusal, Refusal)
    assert refusal.kind == told
    late = 0.05 if ends == 0.1 and not patience else ends  # who does not wait hears of it then
    assert refusal.at - START == pytest.approx(late if learns else patience + ends)


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


def test_an_attempt_tells_those_behind_as_soon_as_it_is_answered() -> None:
    world = World(*[down()] * 3)
    seen: list[Any] = []
    op = world.acquire(world.spec("a"), deadline=world.now + 2.0)
    world.later(0.1, lambda: seen.append(world.local_queue.look_ahead(behind)))
    world.later(0.2, lambda: setattr(world, "masters", [Master()] * 3))
    request = op.send(None)
    assert isinstance(request, Send)
    world._send(request)
    behind = waiting_behind(world)
    assert world.local_queue.look_ahead(behind) == [None]

    def rest() -> Op[Grant | Refusal]:
        event: Any = request
        while True:
            try:
                event = yield op.send(event)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]

    assert isinstance(world.run(rest()), Grant)
    ((refusal,),) = seen
    assert refusal.kind == "unreachable"
    assert world.local_queue.look_ahead(behind) == [world.now]  # since when it has it


class Queued:
    """An acquire of "a" that stands behind somebody, and has yielded its first `Wait`."""

    def __init__(self, *masters: Master, patience: float = 5.0) -> None:
        self.world = World(*(masters or [Master(0.01)] * 3))
        self.front = waiting_behind(self.world)
        self.op = self.world.acquire(self.world.spec("a"), deadline=START + patience)
        request = self.op.send(None)
        assert isinstance(request, Send)
        assert request.enters is not None
        self.place = request.enters
        self.world._send(request)

    def waits(self) -> Effect:
        return self.op.send(None)

    def pass_on(self) -> Turn:
        assert self.world.local_queue.leave(self.front) == [self.place]
        return Turn(self.world.now)


@pytest.mark.parametrize("in_line", [False, True])
@pytest.mark.parametrize("number", range(3))
def test_one_that_is_dropped_says_nothing(number: int, in_line: bool) -> None:
    """GeneratorExit: nobody would carry out what it yields; who drives it sees to its place."""
    world, op = acquiring(WAYS["second-round"])
    if in_line:
        waiting_behind(world)
    effect = op.send(None)
    for _ in range(number):
        event = None
        if isinstance(effect, Send):
            besides = world._send(effect)
            effect = besides[-1] if besides else effect
        if isinstance(effect, Wait):
            if in_line:
                break
            event = world._next(effect)
        effect = op.send(event)
    op.close()  # a generator that yields now makes this a RuntimeError


@pytest.mark.parametrize("when", ["while-it-waits", "as-its-time-is-up", "at-once"])
def test_its_turn_comes(when: str) -> None:
    """The first in line goes to the masters, and has one attempt also if its time is up (C1).

    Another thread leaves just after it has entered, or just before the time is up: `Place.turn` is seen before the
    `Turn` is taken from the inbox.  That one comes out in the middle of the round, and is no answer of the masters.
    """
    queued = Queued()
    world, op = queued.world, queued.op
    if when == "at-once":
        turn = queued.pass_on()
        request = queued.waits()
    else:
        wait = queued.waits()
        assert isinstance(wait, Wait)
        assert wait.quiet  # who stands in line does not listen to the masters
        assert wait.until == START + 5.0  # its own patience
        turn = queued.pass_on()
        request = op.send(turn if when == "while-it-waits" else world._next(wait))
    assert isinstance(request, Send)
    world._write(request)
    effect = op.send(None)
    assert isinstance(effect, Wait)
    effect = op.send(turn)
    with pytest.raises(StopIteration) as ended:
        while True:
            assert isinstance(effect, Wait), effect
            effect = op.send(world._next(effect))
    assert isinstance(ended.value.value, Grant)


# -- the end of a hold -------------------------------------------------------------------------------


def holding(*masters: Master) -> tuple[World, LockSpec, LeaseState, Place]:
    """A lease that was granted, and who waits behind it."""
    world = World(*(masters or [Master(0.01)] * 3))
    spec = world.spec("a")
    grant = world.run(world.acquire(spec, deadline=START))
    assert isinstance(grant, Grant)
    lease = world.lease(spec, **grant._asdict())
    world.effects.clear()
    world.sent.clear()
    return world, spec, lease, waiting_behind(world)


@pytest.mark.parametrize(("masters", "lost", "kinds"), [
    pytest.param([Master(0.01)] * 3, False, ["Send", "Leave", "Wait"], id="released"),
    pytest.param([Master(0.01, {}, {"release": NEVER})] * 3, False, ["Send", "Leave", "Wait"], id="nobody-answers"),
    pytest.param([Master(0.01)] * 3, True, ["Send", "Leave"], id="lost"),
])  # fmt: skip
def test_a_release_lets_the_next_one_go_when_it_is_written(masters: list[Master], lost: bool, kinds: list[str]) -> None:
    """R10: on every connection its acquire stands behind the release, so it need not wait for the answers."""
    world, spec, lease, behind = holding(*masters)
    before = world.now
    if lost:
        lease.lose("taken")
    assert world.run(release(world.settings, spec, lease)) is not lost
    assert [kind for kind, _ in world.effects][:3] == kinds
    assert world.effects[1][1] == before
    assert behind.turn


def test_one_without_a_place_has_none_to_leave() -> None:
    """C11: taken over, it never stood in line here."""
    world = World(*[Master(0.01)] * 3)
    spec = world.spec("a")
    world.run(release(world.settings, spec, world.lease(spec)))
    assert "Leave" not in [kind for kind, _ in world.effects]


def test_the_latest_attempts_are_kept_for_an_observer():
    place = Place(("a",))
    assert place.attempts == ()
    for number in range(100):
        place.failed(number)
    assert place.attempts == tuple(range(84, 100))
