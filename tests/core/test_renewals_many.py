"""Keeping many leases: who is renewed together with whom, and that nobody pays for it (R13, R15, C7, C9)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from redlock._core.extend import MOST, Extension
from redlock._core.outcomes import Failure
from redlock._core.release import release
from redlock._core.renewals import _STEP, Renewal, Schedule, failed_to_keep, tasks
from tests.core.world import NEVER, OTHER, PROPERTY, Master, World, down

if TYPE_CHECKING:
    from redlock._core.lease import LeaseState
    from redlock._core.settings import LockSpec

TTL = 12.0
GONE = b""
CLUSTER = Failure("error", "CROSSSLOT Keys in request don't hash to the same slot", refused=True)


@dataclass
class Held:
    spec: LockSpec
    lease: LeaseState
    renewal: Renewal
    told: list[float] = field(default_factory=list)
    kept: list[float] = field(default_factory=list)


class Scene:
    """Leases of one client that were granted at one moment."""

    def __init__(self, *masters: Master, leases: int = 3, names: int = 1, **options: Any) -> None:
        self.world = World(*(masters or [Master()] * 3))
        self.held = [self._hold(number, names, **options) for number in range(leases)]

    def _hold(self, number: int, names: int, **options: Any) -> Held:
        world = self.world
        spec = world.spec(*(f"{number}-{name}" for name in range(names)), ttl=TTL)
        lease = world.lease(spec, token=f"token-{number}")
        told: list[float] = []
        kept: list[float] = []
        renewal = Renewal(
            world.settings, spec, lease, world.now,
            **({"renew": True, "max_hold": None, "owner": lambda: "here"} | options),
            random=lambda: 0.5, tell=lambda: told.append(world.now), kept=lambda: kept.append(world.now),
        )  # fmt: skip
        return Held(spec, lease, renewal, told, kept)

    @property
    def renewals(self) -> list[Renewal]:
        return [held.renewal for held in self.held]

    def go(self) -> list[list[str]]:
        """What is due first is done; returns how it ended for each of those who were together."""
        self.world.now = max(self.world.now, min(renewal.due for renewal in self.renewals if not renewal.over))
        due = [renewal for renewal in self.renewals if not renewal.over and renewal.due <= self.world.now]
        ended: list[list[str]] = []
        for task, renewals in tasks(due, self.world.now)[0]:
            outcome = self.world.run(task)
            assert len(outcome) in (0, len(renewals))
            ended.append([extension.kind for extension in outcome])
        return ended


def test_those_that_are_due_at_once_are_renewed_at_once() -> None:
    scene = Scene()
    assert scene.go() == [["kept"] * 3]
    assert scene.world.verbs() == ["renew"]
    assert all(len(held.kept) == 1 for held in scene.held)  # an observer is told of each
    assert [renewal.due - scene.world.now for renewal in scene.renewals] == pytest.approx(
        [TTL / 3 * 0.9] * 3, abs=TTL * _STEP
    )


def test_those_that_were_renewed_together_meet_again() -> None:
    """Whatever chance says of each of them; and what chance says of all of them is not always the same."""
    scene = Scene(leases=20)
    assert len({renewal.due for renewal in scene.renewals}) == 1
    pauses = set()
    for chance in (0.0, 0.5, 1.0):
        chances = [chance, *(number / 20 for number in range(1, 20))]
        for renewal, its_own in zip(scene.renewals, chances, strict=True):
            renewal.random = partial(float, its_own)
        assert scene.go() == [["kept"] * 20]
        [due] = {renewal.due for renewal in scene.renewals}
        pauses.add(round(due - scene.world.now, 6))
    assert len(pauses) == 3


def test_one_that_ends_leaves_the_others_together() -> None:
    scene = Scene(leases=3)
    scene.go()
    scene.world.run(release(scene.world.settings, scene.held[1].spec, scene.held[1].lease))
    assert scene.go() == [["kept"] * 2]


def test_one_that_is_due_alone() -> None:
    scene = Scene(leases=1)
    assert scene.go() == [["kept"]]
    assert scene.world.verbs() == ["extend"]


@pytest.mark.parametrize(
    ("leases", "names", "rounds"),
    [
        (MOST, 1, [MOST]),
        (MOST + 1, 1, [MOST, 1]),
        (1000, 1, [MOST] * 15 + [40]),
        (30, 20, [3] * 10),
        (3, 100, [1, 1, 1]),
    ],
)
def test_no_more_names_than_a_master_does_in_no_time(leases: int, names: int, rounds: list[int]) -> None:
    scene = Scene(leases=leases, names=names)
    assert [len(ended) for ended in scene.go()] == rounds
    assert all(held.lease.valid_until > scene.world.now + TTL * 0.9 for held in scene.held)


def test_what_becomes_of_one_is_nothing_to_the_others() -> None:
    said = [1, GONE, 1, OTHER.encode()]
    scene = Scene(*[Master(0.0, {"renew": said})] * 2, Master(NEVER), leases=4)
    assert scene.go() == [["kept", "lost", "kept", "lost"]]
    assert [renewal.over for renewal in scene.renewals] == [False, True, False, True]
    assert [scene.held[number].lease.loss().reason for number in (1, 3)] == ["expired", "taken"]
    assert [len(held.kept) for held in scene.held] == [1, 0, 1, 0]


def test_who_is_not_answered_is_tried_again_and_who_is_kept_rests() -> None:
    """R13: each has its own next time."""
    scene = Scene(Master(0.0, {"renew": [1, GONE]}), Master(0.0, {"renew": [1, 1]}), down(), leases=2)
    assert scene.go() == [["kept", "unanswered"]]
    rests, tries = (renewal.due - scene.world.now for renewal in scene.renewals)
    assert rests == pytest.approx(TTL / 3 * 0.9, abs=TTL * _STEP)
    assert tries == pytest.approx(TTL / 20, abs=TTL * _STEP)


def test_released_and_lost_ones_are_not_asked_for() -> None:
    scene = Scene(leases=4)
    scene.world.run(release(scene.world.settings, scene.held[1].spec, scene.held[1].lease))
    scene.held[2].lease.lose("taken")
    assert scene.go() == [["kept", "kept"]]
    [sent] = scene.world.all("renew")
    assert sent.args[3::4] == ("token-0", "token-3")


def test_each_has_its_end() -> None:
    """C7, R15: together with those that go on."""
    scene = Scene(leases=1, max_hold=1.0)
    scene.held += [scene._hold(1, 1), scene._hold(2, 1, owner=lambda: "gone"), scene._hold(3, 1)]
    scene.world.now = max(renewal.due for renewal in scene.renewals)
    assert sorted(scene.go(), key=len) == [[], ["kept", "kept"]]
    assert [held.lease.valid for held in scene.held] == [False, True, True, True]
    assert scene.held[0].lease.loss().reason == "max_hold"
    assert scene.world.verbs() == ["release", "renew"]


def test_a_master_that_does_not_do_several() -> None:
    """A cluster, where their names are in different slots: each is renewed by itself from then on, and none is lost."""
    scene = Scene(*[Master(0.0, {"renew": CLUSTER})] * 3)
    assert scene.go() == [["unanswered"] * 3]
    for _ in range(20):
        assert scene.go() == [["kept"]] * 3
    assert scene.world.verbs() == ["renew"] + ["extend"] * 60
    assert all(held.lease.valid for held in scene.held)


def test_one_master_of_several_that_does_not() -> None:
    """It votes; what was won without it is not thrown away, but its keys are to live on as well."""
    scene = Scene(Master(0.0, {"renew": CLUSTER}), *[Master(0.01)] * 2)
    assert scene.go() == [["kept"] * 3]
    assert scene.go() == [["kept"]] * 3


def test_masters_that_are_down_part_nobody() -> None:
    scene = Scene(*[down()] * 3)
    for _ in range(3):
        assert scene.go() == [["unanswered"] * 3]
    scene.world.masters = (Master(),) * 3
    assert scene.go() == [["kept"] * 3]


def test_an_observer_that_raises_keeps_no_other_from_being_told() -> None:
    scene = Scene()

    def raises() -> None:
        raise ZeroDivisionError

    scene.renewals[0].kept = raises
    with pytest.raises(ZeroDivisionError):
        scene.go()
    assert [len(held.kept) for held in scene.held] == [0, 1, 1]
    scene.renewals[0].kept = None
    assert scene.go() == [["kept"] * 3]


@pytest.mark.parametrize("leases", [1, 3])
def test_interrupted_they_are_tried_again(leases: int) -> None:
    scene = Scene(*[Master(NEVER)] * 3, leases=leases)
    scene.world.now = scene.renewals[0].due
    [(task, renewals)], _ = tasks(scene.renewals, scene.world.now)
    task.send(None)
    assert tasks(renewals, scene.world.now) == ([], renewals)  # there is one at a time
    task.close()
    for renewal in renewals:
        assert renewal.due - scene.world.now == pytest.approx(TTL / 20, abs=TTL * _STEP)
        assert not renewal.lease.all_pending


def lent(leases: int = 3) -> tuple[Scene, Schedule, list[Renewal], object]:
    """Leases whose renewal is under way, and nobody answers it."""
    scene = Scene(*[Master(NEVER)] * 3, leases=leases)
    schedule = Schedule()
    schedule.put(scene.renewals)
    scene.world.now = scene.renewals[0].due
    [(task, renewals)], _ = tasks(schedule.take(scene.world.now), scene.world.now)
    task.send(None)
    schedule.lend(renewals)
    return scene, schedule, renewals, task


def test_who_is_in_hand_is_looked_at_when_it_may_be_lost() -> None:
    """P6: whatever its operation waits for, and also if that never comes to its end."""
    scene, schedule, renewals, _task = lent()
    one, other, third = scene.held
    assert all(renewal._busy for renewal in renewals)
    assert schedule.next() == one.lease.valid_until
    other.lease.valid_until = scene.world.now + 30.0
    other.lease.all_pending.clear()
    assert schedule.take(one.lease.valid_until - 0.001) == []
    scene.world.now = one.lease.valid_until
    assert schedule.take(scene.world.now) == [one.renewal, third.renewal]
    assert (one.renewal.over, other.renewal.over) == (True, False)
    assert tasks([one.renewal, third.renewal], scene.world.now) == (
        [],
        [one.renewal, third.renewal],
    )  # to be put, and told
    assert schedule.next() == other.lease.valid_until
    scene.world.now = schedule.next()
    assert schedule.take(scene.world.now) == [other.renewal]


def test_who_may_not_be_held_that_long() -> None:
    """C7."""
    scene, schedule, _, _task = lent(1)
    scene.held[0].renewal._ends = scene.world.now + 1.0
    schedule.lend([scene.held[0].renewal])
    assert schedule.next() == scene.world.now + 1.0


def test_who_is_put_back_is_in_hand_no_more() -> None:
    scene, schedule, renewals, _task = lent()
    for renewal in renewals:
        renewal.renewed(Extension("unanswered", scene.world.now), 0.5)
    due, over = schedule.put(renewals)
    renewals.clear()
    assert (schedule.next(), over) == (due, [])
    assert schedule.take(due) == scene.renewals
    assert schedule.next() == math.inf
    assert not schedule._in_hand
    schedule.lend([])
    assert schedule.next() == math.inf


def test_what_is_said_when_it_fails() -> None:
    scene = Scene(leases=3)
    assert failed_to_keep(scene.renewals[:1]).startswith("keeping <Lease '0-0'")
    assert failed_to_keep(scene.renewals[:1]).endswith("> failed")
    assert failed_to_keep(scene.renewals).endswith("> and 2 more failed")


@given(st.lists(st.sampled_from((1, 2, 20, 63, 64, 65, 200)), min_size=1, max_size=30))
@PROPERTY
def test_everybody_is_asked_for_once_and_in_order(names: list[int]) -> None:
    scene = Scene(leases=0)
    scene.held = [scene._hold(number, many) for number, many in enumerate(names)]
    scene.go()
    tokens = [
        token for sent in scene.world.sent for token in (sent.args[3::4] if sent.verb == "renew" else sent.args[1:2])
    ]
    assert tokens == [held.lease.token for held in scene.held]
    for sent in scene.world.sent:
        assert sent.verb == "extend" or sum(int(number) for number in sent.args[1::4]) <= MOST
