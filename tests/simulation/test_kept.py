"""Leases that are kept, told directly: what breaks for a moment loses none (P6, R13-R15, C7)."""

from __future__ import annotations

from collections import Counter

import pytest

from redlock._core import pipeline
from redlock._core.extend import extend
from redlock._core.quorum import Tally
from tests.simulation.actor import Actor, spec_for
from tests.simulation.client import Client
from tests.simulation.invariants import P6, R13, Violation
from tests.simulation.network import ANSWERS, REQUESTS
from tests.simulation.parameters import Parameters, draw, household
from tests.simulation.renewer import Extending
from tests.simulation.run import Run, simulate
from tests.simulation.scene import client_of
from tests.simulation.variants import VARIANTS
from tests.simulation.waits import PROMPT

TTL = 6.0
LASTS = 10 * TTL
HOUSEHOLDS, CHUNK = 60, 20


class Scene:
    """One client holds one lock, on five masters, and its renewer keeps it."""

    def __init__(self, *, max_hold: float | None = None, renew: bool = True) -> None:
        parameters = Parameters(
            seed=1, masters=5, clients=0, ttl=TTL, max_ttl=60.0, node_timeout=0.25, delay=0.001, keep=1.0
        )
        self.run = run = Run(parameters)
        self.world = run.world
        self.client = Client(run.world, run.judge, parameters, run.masters, "c0", rate=1.0, skew=0.0)
        run.clients.append(self.client)
        for link in self.client.links:
            self.client.connect(link)
        self.passes(0.05)
        self.actor = Actor(self.client)
        self.spec = spec_for(self.client, ["lock-0"], TTL)
        self.actor._plan_hold = lambda hold, spec: None  # type: ignore[method-assign]  # it does what it is told
        self.actor.acquire(["lock-0"], TTL, 0.0)
        self.passes(0.05)
        assert self.actor.hold is not None
        self.hold = self.actor.hold
        self.client.renewer.keep(self.hold, self.spec, renew=renew, max_hold=max_hold)

    def passes(self, seconds: float) -> None:
        self.world.run(self.world.now + seconds)

    @property
    def told(self) -> int:
        return self.hold.told

    def keys(self) -> int:
        for master in self.run.masters:
            master.tick()
        return sum(master.find("redlock:lock-0") is not None for master in self.run.masters)

    def one_transient_error_on_each_master_in_turn(self) -> None:
        for index, master in enumerate(self.run.masters):
            master.refuses = "MISCONF"
            self.passes(TTL / 2)
            master.refuses = ""
            self.client.links[index].snap()
            self.passes(TTL / 2)

    def one_renewal_that_nobody_answers(self) -> None:
        for link in self.client.links:
            link.cut(REQUESTS, ANSWERS)
        self.passes(TTL / 2)
        for link in self.client.links:
            link.heal(REQUESTS, ANSWERS)
        self.passes(2 * TTL)


def test_without_faults() -> None:
    scene = Scene()
    scene.passes(LASTS)
    assert scene.hold.lease.valid
    assert 3 * LASTS / TTL <= len(scene.hold.renewals) <= 4 * LASTS / TTL  # at a third of the TTL (R15)
    scene.client.closing = True  # it does not take it again
    scene.actor._release(scene.hold, scene.spec)
    scene.passes(1.0)
    assert scene.keys() == 0
    assert scene.hold.normal
    scene.passes(2 * TTL)
    assert not scene.told


def test_one_transient_error_on_each_master_in_turn_loses_no_lease() -> None:
    scene = Scene()
    scene.one_transient_error_on_each_master_in_turn()
    assert scene.hold.lease.valid
    assert not scene.told


def test_one_renewal_that_nobody_answers_loses_no_lease() -> None:
    scene = Scene()
    scene.one_renewal_that_nobody_answers()
    assert scene.hold.lease.valid
    assert scene.keys() == 5


@pytest.mark.parametrize("name", ["renewal-gives-up", "renewal-not-tried-again"])
def test_given_up(name: str) -> None:
    """The scene above can go red."""
    with VARIANTS[name].applied(), pytest.raises(Violation) as caught:
        Scene().one_renewal_that_nobody_answers()
    assert caught.value.invariant == R13


def test_every_master_hangs_right_after_the_acquire() -> None:
    """P6."""
    scene = Scene()
    for master in scene.run.masters:
        master.freeze()
    scene.passes(2 * TTL)
    assert scene.told == 1
    assert 0 <= scene.hold.told_at - scene.hold.lease.valid_until < PROMPT
    assert scene.hold.lease.loss().reason == "unreachable"


def test_told_right_after_a_pause() -> None:
    scene = Scene()
    scene.client.pause(3 * TTL)
    scene.world.after(3 * TTL, scene.client.resume)
    scene.passes(3 * TTL - 0.1)
    assert not scene.told
    assert scene.keys() == 0
    scene.passes(0.101)
    assert 0 <= scene.hold.told_at - scene.client.resumed_at < PROMPT


def test_max_hold() -> None:
    """C7: lost at that time, and its keys are gone."""
    scene = Scene(max_hold=2.5 * TTL)
    scene.passes(2.4 * TTL)
    assert scene.hold.lease.valid
    scene.passes(0.2 * TTL)
    assert scene.told == 1
    assert scene.hold.lease.loss().reason == "max_hold"
    assert scene.keys() == 0
    scene.actor._release(scene.hold, scene.spec)
    scene.passes(TTL)
    assert (scene.told, scene.hold.normal) == (1, False)


def test_an_owner_that_has_ended() -> None:
    """R15: no renewal from then on; gone a TTL later."""
    scene = Scene()
    scene.passes(2.5 * TTL)
    scene.actor._desert(scene.hold, scene.spec)
    scene.client.closing = True  # nobody takes its place
    renewals = len(scene.hold.renewals)
    scene.passes(TTL)
    assert scene.keys() == 0
    assert len(scene.hold.renewals) == renewals
    assert scene.told == 1


def extension(scene: Scene, ttl: float = TTL) -> Extending:
    """The holder extends it, in a thread of its own."""
    extending_ = Extending(scene.hold, ttl)
    op = extend(scene.client.settings, scene.spec, scene.hold.lease, ttl, scene.client.clock())
    scene.client.run(op, extending_.done, scene.hold.attempt, extending_.sends)
    return extending_


def left_after_an_extension_that_was_over() -> float:
    """Seconds that the key lives at least, where three masters forget a script, say so late, and have learned it by then."""
    scene = Scene(renew=False)
    for master, link in zip(scene.run.masters[:3], scene.client.links, strict=False):
        master.flush_scripts()
        link.cut(ANSWERS)
    extension(scene, TTL / 6)
    scene.passes(0.3)  # nobody waits for that any more
    client_of(scene.run)  # teaches them the script
    extension(scene)
    scene.passes(0.01)
    for link in scene.client.links[:3]:
        link.heal(ANSWERS)
    scene.passes(0.1)
    assert scene.hold.lease.valid_until > scene.client.clock() + 0.9 * TTL
    keys = [(master.find("redlock:lock-0"), master.tick()) for master in scene.run.masters]
    return min((key.expires or 0) - now for key, now in keys if key) / 1000


def test_an_extension_that_is_over_does_not_come_behind_a_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asked for less time, and the lease was valid without its keys: another one could be granted (P1, R12)."""
    assert left_after_an_extension_that_was_over() > 0.9 * TTL
    monkeypatch.setattr(pipeline, "IN_ORDER", frozenset())
    assert left_after_an_extension_that_was_over() < TTL / 6


def test_an_extension_under_way_while_another_one_is_denied_proves_nothing_itself() -> None:
    """The keys are gone; one extension learns that and the lease is lost.  The other one hears from nobody, and is told that
    it is lost: that is proven already (R13; seed 12614).
    """
    scene = Scene()
    for master in scene.run.masters:
        master.keys.clear()
    extension(scene)
    for link in scene.client.links:
        link.cut(REQUESTS)
    extension(scene)
    scene.passes(1.0)
    assert scene.told == 1
    assert scene.hold.lease.loss().reason == "expired"
    assert sum(what == "extension" for _, what, _ in scene.world.trace) == 2
    assert len(scene.hold.attempt.denied) == 5


def test_an_extension_that_calls_it_lost_without_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """... and the judge still sees one that calls it lost though nobody has denied it."""
    monkeypatch.setattr(Tally, "denied", True)
    scene = Scene()
    for link in scene.client.links:
        link.cut(REQUESTS)
    extension(scene)
    with pytest.raises(Violation) as caught:
        scene.passes(1.0)
    assert caught.value.invariant == R13


@pytest.mark.parametrize("start", range(0, HOUSEHOLDS, CHUNK))
def test_households_keep_every_promise(start: int) -> None:
    """Several leases of one client are renewed in one round, while masters restart, forget, deny, freeze and are not reached."""
    together: Counter[int] = Counter()
    for seed in range(start, start + CHUNK):
        together += simulate(household(seed)).judge.together
    assert together[2] > CHUNK
    assert sum(rounds for leases, rounds in together.items() if leases > 2) > CHUNK / 4


def test_lost_for_lack_of_an_alarm() -> None:
    with VARIANTS["lost-told-late"].applied(), pytest.raises(Violation) as caught:
        scene = Scene()
        for link in scene.client.links:
            link.snap()
            link.cut(REQUESTS)
        scene.passes(2 * TTL)
    assert caught.value.invariant == P6


def test_what_nobody_can_release_any_more_is_released_at_once() -> None:
    """R15: not when its time is over."""
    scene = Scene()
    scene.hold.abandoned = True
    scene.run.judge.deserted(scene.hold)
    scene.run.judge.ended(scene.hold)
    scene.client.renewer.left_behind(scene.hold)
    scene.run.judge.abandoned(scene.hold)
    scene.passes(0.05)
    assert scene.keys() == 0
    assert scene.told == 0
    scene.passes(2 * TTL)


def test_so_are_the_keys_of_a_lease_that_was_lost_before() -> None:
    """R15: its `with` is torn down when the lease is lost already, and some masters still have its key."""
    scene = Scene()
    for link in scene.client.links:
        link.cut(ANSWERS)
    scene.passes(1.05 * TTL)
    assert scene.told == 1
    assert scene.keys() == 5, "the extensions arrive, and nobody is told"
    scene.run.judge.deserted(scene.hold)
    scene.hold.abandoned = True
    scene.run.judge.ended(scene.hold)
    scene.client.renewer.left_behind(scene.hold)
    scene.passes(0.05)
    assert scene.keys() == 0
    assert scene.told == 1


@pytest.mark.parametrize("first", range(0, 60, CHUNK))
def test_withs_that_are_torn_down(first: int) -> None:
    for seed in range(first, first + CHUNK):
        simulate(draw(seed, deserted=0.5, abandoned=0.7, keep=0.8))
