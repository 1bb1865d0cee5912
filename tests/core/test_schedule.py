"""Who is due when, and that leases which are released long before anybody looks cost next to nothing (P6, C9)."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings, strategies as st

from redlock._core.kernel.extension import extend
from redlock._core.kernel.release import release
from redlock._core.schedule import MANY
from tests.core.renewer import VALIDITY, Held, Scene
from tests.properties.profile import PROPERTY


def size(scene: Scene) -> int:
    """Of all that its renewer keeps."""
    return sum(map(len, scene._schedule._moments.values())) + len(scene._schedule.queue)


def let_go(scene: Scene, held: Held) -> bool:
    return scene.world.run(release(scene.world.settings, held.spec, held.lease))


def extended(scene: Scene, held: Held, ttl: float) -> None:
    scene.world.run(extend(scene.world.settings, held.spec, held.lease, ttl, scene.world.now))


def test_a_million_pairs_between_two_looks_do_not_pile_up() -> None:
    scene = Scene()
    stays = scene.hold(-1)
    for number in range(5_000):
        lease = scene.hold(number).lease
        lease.end()
        lease.changed()
        assert len(scene._schedule.queue) == 1, "a release takes it out"
    assert stays.lease.valid
    scene.put_back(*scene._schedule.newcomers())
    assert size(scene) == 1
    for number in range(300):  # nor do those at whom somebody looked, and that are released before they are due
        scene.world.now += 1.0
        held = scene.hold(number)
        scene.put_back(*scene._schedule.newcomers())
        assert let_go(scene, held)
        assert size(scene) == 1
        assert len(scene._schedule._heap) < 100
    for number in range(2 * MANY):  # the thread that adds one empties a queue of held leases
        scene.hold(number)
        assert len(scene._schedule.queue) <= MANY
    assert size(scene) == 1 + 2 * MANY


LEASES = st.fixed_dictionaries({
    "spread": st.floats(0.0, 1.0), "max_hold": st.none() | st.floats(0.1, 20.0), "renew": st.booleans(),
    "lease": st.floats(0.1, VALIDITY) | st.just(VALIDITY),
})  # fmt: skip
STEPS = st.tuples(st.sampled_from(("keep", "release", "lose", "shorten", "passes", "crowd")), st.integers(0, 9), LEASES)


@given(st.lists(STEPS, max_size=40), st.floats(0.0, 1.0))
@settings(PROPERTY, max_examples=200)
def test_whatever_happens_everybody_is_looked_at_in_time(steps: list[tuple[str, int, Any]], phase: float) -> None:
    """No renewal is due and nobody knows; nobody who has lost is not told; nobody who has released is.

    And nothing is kept of leases that are gone, except for newcomers that were not looked at yet.
    """
    scene = Scene()
    scene.world.settings = scene.world.settings._replace(phase=phase)
    released: list[Held] = []
    for number, (what, which, options) in enumerate(steps):
        if what == "keep" or not scene.held:
            lease = {"valid_until": scene.world.now + options["lease"]}
            scene.held.append(scene.hold(number, **options | {"lease": lease}))
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
            assert size(scene) == sum(not held.renewal.over for held in scene.held)
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


def test_at_exit_only_leases_that_were_abandoned_are_given_back(monkeypatch):
    """P7: the thread that was to do so may not run any more."""
    scene = Scene(leases=2)
    monkeypatch.setattr(scene.held[0].renewal.held_by, "presence", lambda: "abandoned")
    for task in scene.to_give_back():
        scene.world.run(task)
    assert [sent.token for sent in scene.world.all("release")] == ["token-0"]
