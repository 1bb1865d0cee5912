"""Interrupted anywhere, an operation leaves no key behind, does not hang, and says so (R11)."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from redlock import scripts
from redlock._core import acquire as acquiring, release as releasing
from redlock._core.effects import Leave, Send, wait
from redlock._core.lease import LeaseState, PendingExtension
from redlock._core.slots import SlotTarget
from tests.simulation.interruption import (
    KEY,
    MAJORITY,
    MASTERS,
    MINORITY,
    PATIENCE,
    TTL,
    Stage,
    acquire,
    every,
    extend,
    release,
)
from tests.simulation.master import Key
from tests.simulation.network import ANSWERS, REQUESTS
from tests.simulation.variants import VARIANTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redlock._core.effects import Op

ALL = tuple(range(MASTERS))


# -- scenes --------------------------------------------------------------------------------------------


def all_well(stage: Stage) -> None:
    pass


def held(stage: Stage) -> None:
    """By somebody else, all the time."""
    rival = stage.rival
    rival.take()
    stage.finish(rival)

    def give() -> None:
        rival.give()
        stage.finish(rival)

    stage.heals.append(give)


def given_back(stage: Stage) -> None:
    """Held by somebody else, who releases it while we wait for our second attempt."""
    held(stage)
    stage.heals.clear()
    stage.world.after(0.05, stage.rival.give)


def awaited(stage: Stage) -> None:
    """By somebody else, who is told of the release, and gets it."""
    rival = stage.rival
    rival.take(PATIENCE)
    stage.wait(0.1)

    def give() -> None:
        stage.finish(rival)
        rival.give()
        stage.finish(rival)

    stage.heals.append(give)


def greater_fence(stage: Stage) -> None:
    """On so many masters that no majority stores what we propose: a second round is needed (R17)."""
    for master in MAJORITY:
        fence = stage.caller.client.wall_us() + 1_000_000
        stage.masters[master].keys[f"{{{KEY}}}:fence"] = Key(str(fence), None)


def greater_fences(stage: Stage) -> None:
    """The same for each slot."""
    for master in MAJORITY:
        fence = stage.caller.client.wall_us() + 1_000_000
        for number in range(3):
            stage.masters[master].keys[f"{{{KEY}#{number}}}:fence"] = Key(str(fence), None)


def on_record(marks: str) -> Callable[[Stage], None]:
    """Somebody has vanished, and these are its last extensions, one on each master (R35)."""

    def scene(stage: Stage) -> None:
        for master, mark in zip(stage.masters, marks, strict=True):
            master.keys[f"{{{KEY}}}:grant"] = Key(f"{mark} {TTL * 1000:.0f} 5 somebody", None)

        if max(map(marks.count, marks)) > len(marks) // 2:
            return  # it is over for certain

        def comes_after() -> None:
            """Where nobody can tell, the name is left to nobody for a TTL; once more, if that came to few masters."""
            rival = stage.rival
            while rival.hold is None:
                stage.wait(1.2 * TTL)
                rival.take()
                stage.finish(rival)
            rival.give()
            stage.finish(rival)

        stage.heals.append(comes_after)

    return scene


def second_round_unanswered(stage: Stage) -> None:
    """... and a majority is cut off when it has begun."""
    greater_fence(stage)

    def cut(request: Send) -> None:
        if request.call.script is scripts.FENCE and not stage.heals:
            cut_links(ANSWERS, masters=MAJORITY)(stage)

    stage.caller.told = cut


def second_round_breaks(stage: Stage) -> None:
    greater_fence(stage)

    def snap(request: Send) -> None:
        if request.call.script is scripts.FENCE:
            for link in stage.links(MAJORITY):
                stage.world.after(0.0005, link.snap)

    stage.caller.told = snap


def down(masters: tuple[int, ...], *, wait: float = 0.1) -> Callable[[Stage], None]:
    """For so long that we know of it, or not."""

    def scene(stage: Stage) -> None:
        stop(stage, masters)
        stage.wait(wait)
        stage.heals.append(partial(start, stage, masters, remember=True))
        after_quarantine(stage, masters)

    return scene


def stop(stage: Stage, masters: tuple[int, ...]) -> None:
    for index in masters:
        stage.masters[index].stop()
        for link in stage.run.links_to(stage.masters[index]):
            link.hang_up()


def start(stage: Stage, masters: tuple[int, ...], *, remember: bool) -> None:
    for index in masters:
        stage.masters[index].start(remember=remember)


def frozen(masters: tuple[int, ...]) -> Callable[[Stage], None]:
    """They carry it all out when they go on."""

    def scene(stage: Stage) -> None:
        for index in masters:
            stage.masters[index].freeze()
            stage.heals.append(stage.masters[index].thaw)

    return scene


def cut_links(*directions: int, masters: tuple[int, ...]) -> Callable[[Stage], None]:
    """Requests, or answers, wait until it heals."""

    def scene(stage: Stage) -> None:
        for link in stage.links(masters):
            link.cut(*directions)
            stage.heals.append(partial(link.heal, *directions))

    return scene


def slow(seconds: float, masters: tuple[int, ...]) -> Callable[[Stage], None]:
    """Each way takes so long."""

    def scene(stage: Stage) -> None:
        for link in stage.links(masters):
            stage.heals.append(partial(setattr, link, "_delay", link._delay))
            link._delay = seconds

    return scene


def breaks(masters: tuple[int, ...], after: float = 0.0005) -> Callable[[Stage], None]:
    """What is under way may arrive, or some of it; its answers do not."""

    def scene(stage: Stage) -> None:
        for link in stage.links(masters):
            stage.world.after(after, link.snap)

    return scene


def quarantined(masters: tuple[int, ...]) -> Callable[[Stage], None]:
    """Restarted without memory: they are asked, they set keys, they are not counted (R21)."""

    def scene(stage: Stage) -> None:
        stop(stage, masters)
        start(stage, masters, remember=False)
        stage.wait(1.5)
        assert all(stage.caller.client.pipelines[master].down is None for master in masters)
        after_quarantine(stage, masters)

    return scene


def after_quarantine(stage: Stage, masters: tuple[int, ...]) -> None:
    """Where nobody can get anything for so long, what was left would expire meanwhile: look for it now."""

    def heal() -> None:
        stage.wait(3.0)
        assert not stage.keys(), f"left behind on {stage.keys()}"
        stage.wait(2 * TTL * 1.05)

    if len(masters) > MASTERS // 2:
        stage.heals.append(heal)


def forgotten(stage: Stage) -> None:
    """Scripts: what is not there by its name is sent as text, if somebody still wants it."""
    for master in stage.masters:
        master.flush_scripts()


def forgotten_but_release(stage: Stage) -> None:
    forgotten(stage)
    for master in stage.masters:
        master._cached.add(scripts.RELEASE.sha)


def busy_then(masters: tuple[int, ...], how: str) -> Callable[[Stage], None]:
    """As soon as it has what it was sent first, a master cannot do anything for a while."""

    def scene(stage: Stage) -> None:
        healed: list[bool] = []

        def strike() -> None:
            for index in () if healed else masters:
                stage.masters[index].busy = how == "BUSY"
                stage.masters[index].refuses = "" if how == "BUSY" else how

        def heal() -> None:
            healed.append(True)
            for index in masters:
                stage.masters[index].busy, stage.masters[index].refuses = False, ""

        stage.world.after(0.004, strike)
        stage.heals.append(heal)

    return scene


def at_once(masters: tuple[int, ...], how: str) -> Callable[[Stage], None]:
    def scene(stage: Stage) -> None:
        busy_then(masters, how)(stage)
        stage.wait(0.005)

    return scene


def missing(masters: tuple[int, ...]) -> Callable[[Stage], None]:
    """They have lost the key, and say so in time: an extension that is won gives it back (R14)."""

    def scene(stage: Stage) -> None:
        for index in masters:
            del stage.masters[index].keys[KEY]
        slow(0.01, tuple(set(ALL) - set(masters)))(stage)

    return scene


def missing_and_not_asked(masters: tuple[int, ...]) -> Callable[[Stage], None]:
    """They were known to be down when the lock was taken: only the repair makes a release ask them."""

    def scene(stage: Stage) -> None:
        caller = stage.caller
        caller.give()
        stage.finish(caller)
        down(masters)(stage)
        caller.take()
        stage.finish(caller)
        stage.heal()
        slow(0.01, tuple(set(ALL) - set(masters)))(stage)

    return scene


def taken(stage: Stage) -> None:
    """By a key that is none of ours, on a majority: the lease is lost, its other keys are not."""
    for index in MAJORITY:
        stage.masters[index].keys[KEY] = Key("somebody-else", None)
        stage.heals.append(partial(stage.masters[index].keys.__delitem__, KEY))


def plant(stage: Stage, slots: dict[int, tuple[int, ...]]) -> None:
    """Somebody has these slots on these masters."""
    for slot, masters in slots.items():
        for master in masters:
            stage.masters[master].keys[f"{KEY}#{slot}"] = Key("somebody-else", None)
            stage.heals.append(partial(stage.masters[master].keys.__delitem__, f"{KEY}#{slot}"))


def any_of_two(stage: Stage) -> None:
    """The first slot is taken, and each of the others on one master: that one gives the other slot."""
    plant(stage, {0: ALL, 1: (0,), 2: (1,)})


def any_of_two_too_late(stage: Stage) -> None:
    """The first slot is taken; when it asks for the others, a majority has given them to somebody else."""
    plant(stage, {0: ALL, 1: (0,), 2: (1,)})

    def take(request: Send) -> None:
        if request.call.script is scripts.OCCUPY and f"{KEY}#1" in request.call.keys and len(request.call.args) > 6:
            plant(stage, {1: (1, 2), 2: (0, 2)})

    stage.caller.told = take


def then(*scenes: Callable[[Stage], None]) -> Callable[[Stage], None]:
    def scene(stage: Stage) -> None:
        for part in scenes:
            part(stage)

    return scene


# -- broken on purpose, beside those of variants.py ---------------------------------------------------

BROKEN: dict[str, Callable[[], Any]] = {}
_MODULES = (acquiring, releasing)  # they roll back, and insist on it


def broken(function: Callable[[], list[Any]]) -> Callable[[], list[Any]]:
    @contextmanager
    def applied() -> Iterator[None]:
        with ExitStack() as stack:
            for patch in function():
                stack.enter_context(patch)
            yield

    BROKEN[function.__name__.replace("_", "-")] = applied
    return function


for _name in ("no-rollback", "rollback-only-where-granted", "release-not-owed", "shortening-forgotten"):
    BROKEN[_name] = VARIANTS[_name].applied


@broken
def only_failures_rolled_back() -> list[Any]:
    """An attempt that is interrupted leaves its keys to their TTL."""
    correct = acquiring.rollback

    def rollback(*args: Any) -> Op[Any]:
        if sys.exception() is not None:  # we are inside of its `except`
            return None
        return (yield from correct(*args))

    return [mock.patch.object(acquiring, "rollback", rollback)]


@broken
def not_insisted() -> list[Any]:
    """A second interruption ends the cleanup."""

    def despite_interrupts(*effects: Send | Leave) -> Op[BaseException | None]:
        yield from effects
        return None

    return [mock.patch.object(module, "despite_interrupts", despite_interrupts) for module in _MODULES]


@broken
def interrupted_release_given_up() -> list[Any]:
    """A release that is interrupted has reached whom it has reached."""

    def despite_interrupts(*effects: Send | Leave) -> Op[BaseException | None]:
        yield from ()
        return None

    return [mock.patch.object(releasing, "despite_interrupts", despite_interrupts)]


@broken
def swallowed() -> list[Any]:
    """An interruption of the rollback of a failed attempt is forgotten, and the next attempt made."""
    correct = acquiring.rollback

    def rollback(*args: Any) -> Op[Any]:
        yield from correct(*args)

    return [mock.patch.object(acquiring, "rollback", rollback)]


@broken
def cleanup_waits() -> list[Any]:
    """The rollback is only over when it is answered."""
    correct = acquiring.despite_interrupts

    def despite_interrupts(*effects: Send | Leave) -> Op[BaseException | None]:
        first = yield from correct(*effects)
        for effect in effects:
            if isinstance(effect, Send):
                yield from wait(effect.sent_at + 0.1)
        return first

    return [mock.patch.object(module, "despite_interrupts", despite_interrupts) for module in _MODULES]


@broken
def way_back_forgotten() -> list[Any]:
    """Nobody keeps a grant for whoever is interrupted on the way back to the caller."""
    correct = acquiring.acquire

    def acquire(settings: Any, target: Any, deadline: float, began: float, won: Any = None) -> Any:
        return correct(settings, target, deadline, began)

    return [mock.patch.object(acquiring, "acquire", acquire)]


@broken
def other_slots_kept() -> list[Any]:
    """What masters gave that is no part of the majority is left to its TTL (R32)."""
    return [mock.patch.object(SlotTarget, "besides", return_value=())]


@broken
def believed_before_answered() -> list[Any]:
    """An extension counts once it is sent (R6, R13)."""
    correct = LeaseState.begin_extension

    def begins(lease: LeaseState, pending: PendingExtension) -> None:
        correct(lease, pending)
        lease.valid_until = pending.valid_until

    return [mock.patch.object(LeaseState, "begin_extension", begins)]


@broken
def never_under_way_no_more() -> list[Any]:
    """An extension that was interrupted limits all that follow (C6)."""
    return [mock.patch.object(LeaseState, "end_extension", return_value=None)]


@broken
def repair_forgotten() -> list[Any]:
    """A master that was given a key back is not asked to release it (R14, P7)."""
    return [mock.patch.object(LeaseState, "may_be_on", return_value=None)]


# -- the table -----------------------------------------------------------------------------------------

TAKES = "no-rollback only-failures-rolled-back not-insisted cleanup-waits "
WINS = TAKES + "way-back-forgotten "
FAILS = TAKES + "swallowed "
EXTENDS = "believed-before-answered never-under-way-no-more "
GIVES = "interrupted-release-given-up not-insisted cleanup-waits "

waiting = partial(acquire, patience=PATIENCE)
confirming = partial(acquire, confirm=True)
slot, any_slot = partial(acquire, slots=1), partial(acquire, slots=3)
shorter = partial(extend, ttl=TTL / 5)
longer = partial(extend, ttl=2 * TTL)

# What is done, in which scene, and which broken variants must be seen there.
TABLE: dict[str, tuple[Callable[..., None], Callable[[Stage], None], str]] = {
    "acquire": (acquire, all_well, WINS),
    "acquire, held": (waiting, held, FAILS),
    "acquire, held and given back": (waiting, given_back, FAILS + WINS),
    "acquire, second round": (acquire, greater_fence, WINS),
    "acquire, second round unanswered": (acquire, second_round_unanswered, FAILS),
    "acquire, second round breaks": (acquire, second_round_breaks, FAILS + "release-not-owed"),
    "acquire, minority down": (acquire, down(MINORITY), WINS),
    "acquire, minority dying": (acquire, down(MINORITY, wait=0.0), WINS),
    "acquire, minority frozen": (acquire, frozen(MINORITY), WINS + "rollback-only-where-granted"),
    "acquire, minority deaf": (acquire, cut_links(REQUESTS, masters=MINORITY), WINS + "rollback-only-where-granted"),
    "acquire, minority dumb": (acquire, cut_links(ANSWERS, masters=MINORITY), WINS + "rollback-only-where-granted"),
    "acquire, minority slow": (acquire, slow(0.1, MINORITY), WINS + "rollback-only-where-granted"),
    "acquire, all slower than they may be": (acquire, slow(0.3, ALL), FAILS + "rollback-only-where-granted"),
    "acquire, majority down": (waiting, down(MAJORITY), FAILS),
    "acquire, majority dying": (waiting, down(MAJORITY, wait=0.0), FAILS),
    "acquire, majority frozen": (waiting, frozen(MAJORITY), FAILS + "rollback-only-where-granted"),
    "acquire, majority dumb": (waiting, cut_links(ANSWERS, masters=MAJORITY), FAILS + "rollback-only-where-granted"),
    "acquire, one breaks": (acquire, breaks((0,)), WINS + "release-not-owed"),
    "acquire, majority breaks": (waiting, breaks(MAJORITY), FAILS + WINS + "release-not-owed"),
    "acquire, breaks after it has arrived": (waiting, breaks(MAJORITY, after=0.0018), WINS + "release-not-owed"),
    "acquire, minority quarantined": (acquire, quarantined(MINORITY), WINS),
    "acquire, majority quarantined": (waiting, quarantined(MAJORITY), FAILS),
    "acquire, scripts forgotten": (acquire, forgotten, WINS),
    "acquire, scripts forgotten but one": (acquire, forgotten_but_release, WINS),
    "acquire, busy behind it": (
        waiting,
        then(slow(0.003, ALL), busy_then(MAJORITY, "BUSY")),
        TAKES + "release-not-owed",
    ),
    "acquire, full disk behind it": (
        waiting,
        then(slow(0.003, ALL), busy_then(MAJORITY, "MISCONF")),
        TAKES + "release-not-owed",
    ),
    "acquire, full memory": (waiting, at_once(MAJORITY, "OOM"), FAILS),
    "acquire, over for certain": (confirming, on_record("11111"), WINS),
    "acquire, in doubt": (confirming, on_record("00112"), "swallowed cleanup-waits"),
    "acquire, over for certain, one breaks": (confirming, then(on_record("11111"), breaks((0,))), WINS),
    "extend, on record": (partial(extend, confirm=True), all_well, EXTENDS),
    "release, on record": (partial(release, confirm=True), all_well, GIVES),
    "extend": (extend, all_well, EXTENDS),
    "extend, shorter": (shorter, all_well, "shortening-forgotten never-under-way-no-more"),
    "extend, longer": (longer, all_well, EXTENDS),
    "extend, key missing": (extend, missing((0,)), EXTENDS),
    "extend, keys missing": (extend, missing(MINORITY), EXTENDS),
    "extend, keys missing that are not asked for": (
        extend,
        missing_and_not_asked(MINORITY),
        EXTENDS + "repair-forgotten",
    ),
    "extend, minority frozen": (extend, frozen(MINORITY), EXTENDS),
    "extend, minority down": (extend, down(MINORITY), EXTENDS),
    "extend, majority dumb": (longer, cut_links(ANSWERS, masters=MAJORITY), EXTENDS),
    "extend, shorter, majority dumb": (
        shorter,
        cut_links(ANSWERS, masters=MAJORITY),
        "shortening-forgotten never-under-way-no-more",
    ),
    "extend, majority deaf": (longer, cut_links(REQUESTS, masters=MAJORITY), EXTENDS),
    "extend, majority breaks": (longer, breaks(MAJORITY), EXTENDS + "release-not-owed"),
    "extend, taken": (partial(extend, robbed=True), taken, "never-under-way-no-more"),
    "release": (release, all_well, GIVES),
    "release, awaited": (release, awaited, GIVES),
    "release, minority frozen": (release, frozen(MINORITY), GIVES),
    "release, majority frozen": (release, frozen(MAJORITY), GIVES),
    "release, minority deaf": (release, cut_links(REQUESTS, masters=MINORITY), GIVES),
    "release, majority dumb": (release, cut_links(ANSWERS, masters=MAJORITY), GIVES),
    "release, one breaks": (release, breaks((0,)), GIVES + "release-not-owed"),
    "release, all break": (release, breaks(ALL), GIVES + "release-not-owed"),
    "release, minority down": (release, down(MINORITY), GIVES + "release-not-owed"),
    "release, majority down": (release, down(MAJORITY), GIVES + "release-not-owed"),
    "release, majority dying": (release, down(MAJORITY, wait=0.0), GIVES + "release-not-owed"),
    "release, busy": (release, at_once(MAJORITY, "BUSY"), GIVES + "release-not-owed"),
    "release, scripts forgotten": (release, forgotten, GIVES),
    "release, taken": (release, taken, GIVES),
    "slot": (slot, all_well, WINS),
    "slot, held": (partial(slot, patience=PATIENCE), held, "swallowed cleanup-waits"),
    "slot, held and given back": (partial(slot, patience=PATIENCE), given_back, FAILS + WINS),
    "slot, minority deaf": (slot, cut_links(REQUESTS, masters=MINORITY), WINS + "rollback-only-where-granted"),
    "slot, one breaks": (slot, breaks((0,)), WINS + "release-not-owed"),
    "slot, scripts forgotten": (slot, forgotten, WINS),
    "slot, any of two": (any_slot, any_of_two, WINS + "other-slots-kept"),
    "slot, any of two, second round": (any_slot, then(any_of_two, greater_fences), WINS + "other-slots-kept"),
    "slot, any of two, scripts forgotten": (any_slot, then(any_of_two, forgotten), WINS + "other-slots-kept"),
    "slot, any of two, too late": (any_slot, any_of_two_too_late, FAILS),
    "slot, released": (partial(release, slots=1), all_well, GIVES),
    "slot, released and awaited": (partial(release, slots=1), awaited, GIVES),
    "slot, released, one breaks": (partial(release, slots=1), breaks((0,)), GIVES + "release-not-owed"),
}


@pytest.mark.parametrize("scene", TABLE)
def test_interrupted_at_every_suspension(scene):
    what, trouble, _ = TABLE[scene]
    played = every(partial(what, trouble))
    assert played.points > MASTERS, "a request to all, and a wait"


@pytest.mark.parametrize("scene", TABLE)
def test_is_caught(scene):
    """Each scene can go red, for each variant that it is there to see."""
    what, trouble, names = TABLE[scene]
    missed = []
    for name in sorted(set(names.split())):
        try:
            with BROKEN[name]():
                every(partial(what, trouble))
        except AssertionError:
            continue
        missed.append(name)
    assert not missed


def test_every_variant_is_there_to_be_caught():
    assert set(BROKEN) == {name for _, _, names in TABLE.values() for name in names.split()}
