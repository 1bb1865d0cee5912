"""A name stays taken for a while after a loss: what the keys last for, and who releases them when (R36)."""

from __future__ import annotations

import pytest

from redlock._core.renewals import tasks
from tests.core.renewer import renewal_of
from tests.core.world import GONE, START, Master, Single, World, held

TTL, GUARD = 12.0, 3.0
VALIDITY = TTL * 0.99 - 0.002
MS = "15000"  # of both together


def lease(*masters: Master) -> Single:
    return Single(*masters, ttl=TTL, guard=GUARD, how=World.acquired)


def test_keys_last_for_both_and_the_lease_for_the_ttl() -> None:
    scene = lease(Master(), Master(), held())
    assert scene.lease.valid_until == pytest.approx(START + VALIDITY)
    renewal, _ = renewal_of(scene.world, scene.spec, scene.lease, renew=False)
    scene.world.now = renewal.due
    ((task, _),) = tasks([renewal], scene.world.now)  # it is made whole (R37)
    scene.world.run(task)
    scene.world.now = START + 1.0
    assert scene.extend() == "extended"
    assert [sent.args[2] for verb in ("acquire", "extend") for sent in scene.world.all(verb)] == [MS] * 2
    (repair,) = scene.world.all("repair")
    left = (TTL + GUARD - repair.at + START) * 1000
    assert left <= int(repair.args[2]) <= left + 1, "what is left of it"
    assert scene.lease.valid_until == pytest.approx(START + 1.0 + VALIDITY)


def test_a_release_is_owed_until_the_keys_end_also_after_an_extension() -> None:
    """R10: the last request that may have set a key has set it for the TTL and the guard."""
    scene = lease(Master(), Master(), Master())
    scene.world.now = START + 5.0
    assert scene.extend() == "extended"
    assert scene.lease.keys_until == pytest.approx(scene.lease.valid_until + TTL + GUARD)
    assert scene.lease.in_order


@pytest.mark.parametrize(("runs_on", "then"), [(True, "nothing"), (False, "give up")])
def test_after_the_guard_the_keys_of_a_term_go_unless_its_body_runs_on(runs_on: bool, then: str) -> None:
    """R31: its end gives them back."""
    scene = lease()
    renewal, _ = renewal_of(scene.world, scene.spec._replace(keeps_keys=True), scene.lease)
    scene.lease.holds = [object()] if runs_on else []
    scene.world.now = scene.lease.valid_until
    assert renewal.begin_guard()
    assert renewal.next_action(scene.world.now) == "nothing"
    scene.world.now = scene.lease.guarded_until
    assert renewal.next_action(scene.world.now) == then


def test_who_asks_for_no_guard_extends_with_that_of_the_lease() -> None:
    """R26: a lease is entered again through a lock without a guard; its first holder counts on the guard all the same."""
    scene = lease(Master(0.0, {"extend": GONE}), Master(), Master())
    scene.spec = scene.spec._replace(guard=0.0)
    assert scene.extend() == "extended"
    (extended,), (repaired,) = scene.world.all("extend"), scene.world.all("repair")
    assert extended.args[2] == MS
    assert TTL * 1000 < int(repaired.args[2]) <= int(MS)
