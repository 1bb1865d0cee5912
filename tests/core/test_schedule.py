"""Who is due when, and that leases which are released long before anybody looks cost next to nothing (P6, C9)."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from redlock._core.extend import extend
from redlock._core.release import release
from redlock._core.renewals import _STEP, OVER
from redlock._core.schedule import _MANY, Schedule
from tests.core.renewer import TTL, VALIDITY, Held, Scene
from tests.core.world import PROPERTY, START, Master


class Kept:
    """Stands in for a `Renewal`."""

    def __init__(self, due: float) -> None:
        self.due = due
        self.moment: float | None = None


def size(schedule: Schedule) -> int:
    """Of all that it keeps."""
    return sum(map(len, schedule._moments.values())) + len(schedule._queue)


@given(
    st.lists(st.tuples(st.sampled_from(("put", "remove", "take")), st.integers(0, 4), st.integers(0, 9)), max_size=60)
)
@PROPERTY
def test_a_schedule_does_what_a_plain_list_would(steps: list[tuple[str, int, int]]) -> None:
    schedule = Schedule()
    kept: list[Any] = [Kept(0.0) for _ in range(5)]
    plain: dict[Any, float] = {}
    for what, who, when in steps:
        each = kept[who]
        if what == "put":
            each.due = float(when)
            assert schedule.put([each]) == []
            plain[each] = each.due
        elif what == "remove":
            each.due = OVER
            assert schedule.put([each, each]) == [each, each]
            plain.pop(each, None)
        else:
            expected = {one for one, due in plain.items() if due <= when}
            taken = schedule.take(float(when))
            assert set(taken) == expected
            assert [one.due for one in taken] == sorted(one.due for one in taken)
            for one in expected:
                del plain[one]
        assert size(schedule) == len(plain)
        assert schedule.next() == min(plain.values(), default=math.inf)


# -- new leases --------------------------------------------------------------------------------------


def let_go(scene: Scene, held: Held) -> bool:
    return scene.world.run(release(scene.world.settings, held.spec, held.lease))


def extended(scene: Scene, held: Held, ttl: float) -> None:
    scene.world.run(extend(scene.world.settings, held.spec, held.lease, ttl, scene.world.now))


def test_one_that_is_released_costs_nothing_and_tells_nobody() -> None:
    scene = Scene()
    held = scene.hold()
    assert let_go(scene, held)
    assert held.renewal._pause is None  # nobody has asked when it is due
    assert scene.wake() == []
    assert (size(scene._schedule), scene.wakes_at) == (0, math.inf)
    assert not held.told


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
    renewal = scene.hold(spread=spread, max_hold=max_hold, renew=renew, lease={"valid_until": START + validity}).renewal
    assert renewal.soonest <= renewal.due + 1e-9
    mostly = scene.hold(1).renewal  # not so much sooner that it would wake in vain all the time
    assert mostly.soonest - START == pytest.approx(TTL / 3 * 0.8 - TTL * _STEP, abs=0.2)


@pytest.mark.parametrize("looks", [False, True])
def test_one_that_its_release_finds_gone(looks: bool) -> None:
    """C8, C9; whether the renewer has looked in the middle of it or not."""
    scene = Scene(*[Master(0.0, {"release": [0, b""]})] * 3)
    held = scene.hold()
    operation = release(scene.world.settings, held.spec, held.lease)
    scene.world._write(operation.send(None))  # type: ignore[arg-type]
    operation.send(None)  # it goes on; see `release`: whoever waits is told that it is over
    if looks:
        scene.wake()
    assert not held.told
    held.lease.found_gone("expired")
    assert len(held.told) == 1
    scene.wake()
    assert len(held.told) == 1
    operation.close()


def test_one_whose_time_is_over_when_somebody_looks_at_last() -> None:
    """P6: a process that stood still."""
    scene = Scene()
    held = scene.hold()
    scene.world.now = START + 100.0
    assert scene.wake() == []
    assert len(held.told) == 1


def test_a_million_pairs_between_two_looks_do_not_pile_up() -> None:
    scene = Scene()
    stays = scene.hold(-1)
    for number in range(5_000):
        lease = scene.hold(number).lease
        lease.end()
        lease.changed()
        assert len(scene._schedule._queue) <= _MANY
    assert stays.lease.valid
    scene.put_back(*scene._schedule.newcomers())
    assert size(scene._schedule) == 1
    for _ in range(1000):  # nor does one that is extended again and again
        stays.lease.valid_until += 7.0
        scene.put_back(stays.renewal)
        assert size(scene._schedule) == 1
        assert len(scene._schedule._heap) < 100


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
    released: list[Held] = []
    for number, (what, which) in enumerate(steps):
        if what == "keep" or not scene.held:
            scene.held.append(scene.hold(number))
            continue
        held = scene.held[which % len(scene.held)]
        if what == "release":
            scene.held.remove(held)
            if let_go(scene, held):
                released.append(held)
        elif what == "lose":
            held.lease.lose("taken")
        elif what == "shorten":
            extended(scene, held, 1.0)
        elif what == "crowd":
            scene.put_back(*scene._schedule.newcomers())
        else:
            until = scene.world.now + which / 2
            while scene.wakes_at <= until:
                scene.wake()
                scene.finish()
            scene.world.now = max(scene.world.now, until)
        for held in scene.held:
            if held.renewal.over:
                assert len(held.told) == 1
            else:
                assert scene.wakes_at <= held.renewal.due + 1e-9
        assert not any(held.told for held in released)
