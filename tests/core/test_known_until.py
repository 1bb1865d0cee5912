"""No lease lasts longer than others know the `max_ttl` of its holder (R21), and which masters it uses (R34)."""

from __future__ import annotations

from typing import Any

import pytest

from redlock._core import wire
from redlock._core.fleet import Fleet
from redlock._core.kernel.ballot import Grant, Refusal
from redlock._core.kernel.extension import extend
from tests.core.renewer import Scene
from tests.core.world import START, Master, World

TTL = 10.0
UNTIL = START + 0.99 * TTL - 0.002  # of a lease that is asked for at START


def world() -> World:
    return World(*[Master(0.01)] * 3)


@pytest.mark.parametrize(("known", "granted"), [(0.001, True), (0.0, True), (-0.001, False), (-100.0, False)])
def test_nothing_is_granted_for_longer(known: float, granted: bool) -> None:
    """And what the masters have set is taken back."""
    here = world()
    here.settings.voters.known_until = UNTIL + known
    outcome = here.run(here.acquire(here.spec(ttl=TTL), deadline=here.now))
    assert isinstance(outcome, Grant if granted else Refusal)
    assert ("release" in {sent.verb for sent in here.sent}) is not granted


@pytest.mark.parametrize("known", [1.0, -1.0])
def test_nothing_is_extended_for_longer(known: float) -> None:
    here = world()
    spec = here.spec(ttl=TTL)
    lease = here.lease(spec)
    here.now += 5.0
    here.settings.voters.known_until = UNTIL + 5.0 + known
    assert here.run(extend(here.settings, spec, lease, TTL, here.now)).kind == "extended"
    assert lease.valid_until == pytest.approx(UNTIL + 5.0 + min(known, 0.0))


def test_nor_where_many_are_renewed_together() -> None:
    scene = Scene(*[Master(0.01)] * 3, leases=3)
    scene.begin()
    known_until = scene.world.settings.voters.known_until = scene.world.now + 9.0
    scene.go()
    assert [lease.valid_until for lease in scene.leases] == [known_until] * 3


@pytest.mark.parametrize("options", [{}, {"renew": False}], ids=["renewed", "not-renewed"])
def test_who_gives_way_ends_its_leases_and_gives_them_back(options: dict[str, Any]) -> None:
    """And says why: R34."""
    scene = Scene(*[Master(0.01)] * 3, leases=3, **options)
    voters = scene.world.settings.voters
    voters.fleet = Fleet(scene.world.settings.masters, 60.0, 0.01, 0.25, refuses=True, way="trusted")
    other = wire.OtherList("2", 120.0, frozenset({"other", scene.world.settings.masters[0]}))
    voters.lists_answered(0, wire.Lists(0, (other,)), START, START)
    scene.give_way(START)
    scene.wake()
    assert [lease.loss().reason for lease in scene.leases] == ["unreachable"] * 3
    assert voters.quarantined_for(0, START) == float("inf")
    assert all("masters that are incompatible with ours" in lease.loss().votes[0].reason for lease in scene.leases)
    scene.finish()
    assert [held.told for held in scene.held] == [[START]] * 3
    assert sorted(sent.token for sent in scene.world.sent if sent.verb == "release") == [
        "token-0",
        "token-1",
        "token-2",
    ]
    scene.give_way(START)
    assert scene.wakes_at == float("inf"), "nothing is left to be done"
