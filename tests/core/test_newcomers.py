"""Leases that are kept, and released long before anybody looks: they cost next to nothing, and none is missed (P6, C9)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies as st

from redlock._core.extend import extend
from redlock._core.release import release
from redlock._core.renewals import _MANY_NEWCOMERS, _STEP, Renewal, Schedule, tasks
from tests.core.world import PROPERTY, START, Master, World

if TYPE_CHECKING:
    from redlock._core.lease import LeaseState
    from redlock._core.settings import LockSpec

TTL = 12.0
VALIDITY = TTL * 0.99 - 0.002


class Scene:
    """A client whose renewer does what those of the shells do: it is told of changes, and wakes when somebody is due."""

    def __init__(self, *masters: Master) -> None:
        self.world = World(*(masters or [Master()] * 3))
        self.schedule = Schedule()
        self.wakes_at = math.inf
        self.told: list[Renewal] = []

    def keep(self, number: int = 0, spread: float = 0.5, **options: Any) -> tuple[LockSpec, LeaseState, Renewal]:
        world = self.world
        spec = world.spec(f"name-{number}", ttl=TTL)
        lease = world.lease(spec, token=f"token-{number}", **options.pop("lease", {}))
        renewal = Renewal(
            world.settings, spec, lease, world.now,
            **({"renew": True, "max_hold": None, "owner": lambda: "here"} | options),
            random=lambda: spread, tell=lambda: self.told.append(renewal),
        )  # fmt: skip
        lease.on_change = lambda _: self.changed(renewal)
        if self.schedule.add(renewal):
            self.see_off(self.schedule.take_in()[1])
        self.wakes_at = min(self.wakes_at, renewal.soonest)
        return spec, lease, renewal

    def changed(self, renewal: Renewal) -> None:
        if renewal.changed():
            first, over = self.schedule.put([renewal])
            self.wakes_at = min(self.wakes_at, first)
            self.see_off(over)

    def see_off(self, over: list[Renewal]) -> None:
        for renewal in over:
            if renewal.lease.lost:
                renewal.tell()

    def release(self, spec: LockSpec, lease: LeaseState) -> bool:
        return self.world.run(release(self.world.settings, spec, lease))

    def wake(self) -> list[Renewal]:
        """At its time."""
        self.world.now = max(self.world.now, self.wakes_at)
        self.see_off(self.schedule.take_in()[1])
        due = self.schedule.take(self.world.now)
        self.wakes_at = self.schedule.next()
        return due


def test_one_that_is_released_costs_nothing_and_tells_nobody() -> None:
    scene = Scene()
    spec, lease, renewal = scene.keep()
    assert scene.release(spec, lease)
    assert renewal.new
    assert renewal._renew_at is None  # nobody has asked when it is due
    assert scene.wake() == []
    assert (len(scene.schedule), scene.schedule.next(), scene.schedule.newcomers) == (0, math.inf, False)
    assert not scene.told


def test_one_that_is_held_is_due_like_any_other() -> None:
    scene = Scene()
    _, _, renewal = scene.keep()
    assert scene.wake() == []
    assert not renewal.new
    assert scene.wakes_at == renewal.due
    assert scene.wake() == [renewal]


@given(
    spread=st.floats(0.0, 1.0),
    validity=st.floats(0.1, VALIDITY),
    max_hold=st.none() | st.floats(0.1, 20.0),
    renew=st.booleans(),
    phase=st.floats(0.0, 1.0),
)
@PROPERTY
def test_nobody_is_due_sooner_than_it_said(
    spread: float, validity: float, max_hold: float | None, renew: bool, phase: float
) -> None:
    """Or the renewer would oversleep: it knows no more of a newcomer than that."""
    scene = Scene()
    scene.world.settings = scene.world.settings._replace(phase=phase)
    _, _, renewal = scene.keep(spread=spread, max_hold=max_hold, renew=renew, lease={"valid_until": START + validity})
    assert renewal.soonest <= renewal.due + 1e-9
    if (
        validity == VALIDITY and max_hold is None and renew
    ):  # and not so much sooner that it would wake in vain all the time
        assert renewal.soonest > START + TTL / 5


@pytest.mark.parametrize("max_hold", [None, 1.0])
def test_the_soonest_of_a_lease_as_they_mostly_are(max_hold: float | None) -> None:
    scene = Scene()
    _, _, renewal = scene.keep(max_hold=max_hold)
    assert renewal.soonest - START == pytest.approx(1.0 if max_hold else TTL / 3 * 0.8 - TTL * _STEP, abs=0.2)


def test_one_that_is_made_shorter_before_anybody_looked() -> None:
    """C6."""
    scene = Scene()
    spec, lease, renewal = scene.keep()
    scene.world.run(extend(scene.world.settings, spec, lease, 1.0, scene.world.now))
    assert scene.wakes_at < START + 0.5
    assert scene.wake() == [renewal]


def test_one_that_is_lost_before_anybody_looked() -> None:
    """C9: told at once, and once."""
    scene = Scene()
    _, lease, renewal = scene.keep()
    lease.lose("taken")
    assert scene.told == [renewal]
    assert scene.wake() == []
    assert scene.told == [renewal]


def test_one_that_its_release_finds_gone() -> None:
    """C8, C9; whether the renewer has looked in the middle of it or not."""
    gone = Master(0.0, {"release": [0, b""]})
    for looks in (False, True):
        scene = Scene(*[gone] * 3)
        spec, lease, renewal = scene.keep()
        operation = release(scene.world.settings, spec, lease)
        scene.world._write(operation.send(None))  # type: ignore[arg-type]
        operation.send(None)  # it goes on; see `release`: whoever waits is told that it is over
        if looks:
            scene.see_off(scene.schedule.take_in()[1])
        assert not scene.told
        lease.found_gone("expired")
        assert scene.told == [renewal]
        scene.see_off(scene.schedule.take_in()[1])
        assert scene.told == [renewal]
        operation.close()


def test_one_whose_time_is_over_when_somebody_looks_at_last() -> None:
    """P6: a process that stood still."""
    scene = Scene()
    _, _, renewal = scene.keep()
    scene.world.now = START + 100.0
    assert scene.wake() == []
    assert scene.told == [renewal]


def test_a_million_pairs_between_two_looks_do_not_pile_up() -> None:
    scene = Scene()
    world = scene.world
    _, held, renewal = scene.keep(-1)
    spec = world.spec("name", ttl=TTL)
    for _ in range(20_000):
        lease = world.lease(spec)
        one = Renewal(
            world.settings, spec, lease, world.now, renew=True, max_hold=None, owner=lambda: "here", random=lambda: 0.5
        )
        if scene.schedule.add(one):
            scene.schedule.take_in()
        lease.end()
        if one.changed():  # it was taken in just before
            scene.schedule.put([one])
        assert len(scene.schedule._newcomers) <= _MANY_NEWCOMERS
    assert len(scene.schedule) == 1
    assert held.valid
    assert not renewal.new
    assert len(scene.schedule._heap) < 100


@given(
    st.lists(
        st.tuples(st.sampled_from(("keep", "release", "lose", "shorten", "passes", "crowd")), st.integers(0, 9)),
        max_size=40,
    )
)
@settings(PROPERTY, max_examples=300)
def test_whatever_happens_everybody_is_looked_at_in_time(steps: list[tuple[str, int]]) -> None:
    """No renewal is due and nobody knows; nobody who has lost is not told; nobody who has released is."""
    scene = Scene()
    held: list[tuple[LockSpec, LeaseState, Renewal]] = []
    released: list[Renewal] = []
    for number, (what, which) in enumerate(steps):
        if what == "keep" or not held:
            held.append(scene.keep(number))
            continue
        spec, lease, renewal = held[which % len(held)]
        if what == "release":
            held.remove((spec, lease, renewal))
            if scene.release(spec, lease):
                released.append(renewal)
        elif what == "lose":
            lease.lose("taken")
        elif what == "shorten":
            scene.world.run(extend(scene.world.settings, spec, lease, 1.0, scene.world.now))
        elif what == "crowd":
            scene.see_off(scene.schedule.take_in()[1])
        else:
            until = scene.world.now + which / 2
            while scene.wakes_at <= until:
                due = scene.wake()
                for task, _ in tasks(due, scene.world.now)[0]:
                    scene.world.run(task)
                scene.see_off(scene.schedule.put(due)[1])
                scene.wakes_at = scene.schedule.next()
            scene.world.now = max(scene.world.now, until)
        for _, _, renewal in held:
            if renewal.over:
                assert scene.told.count(renewal) == 1
            else:
                assert scene.wakes_at <= renewal.due + 1e-9
        assert not any(renewal in scene.told for renewal in released)
