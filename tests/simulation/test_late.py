"""Answers are counted by whoever reads, and the operation comes to it later: what may happen in between."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from redlock import scripts
from redlock._core.ballots import Grant, Refusal
from tests.simulation.client import Cancelled
from tests.simulation.interruption import DELAY, MASTERS, NODE_TIMEOUT, TTL, Stage, clean
from tests.simulation.network import ANSWERS
from tests.simulation.test_interrupted import greater_fence
from tests.simulation.variants import VARIANTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.client import Task

TRIP = 4 * DELAY  # there and back, at most
ALL = tuple(range(MASTERS))


class Late(Stage):
    """The caller's thread goes on only when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on: deque[Callable[[], None]] = deque()
        client = self.caller.client
        client.late = 1.0
        client.later = self._later  # type: ignore[method-assign]

    def _later(self, action: Callable[..., None], *args: Any) -> None:
        self.goes_on.append(partial(action, *args))

    @property
    def task(self) -> Task:
        (task,) = self.caller.client.tasks
        return task

    def go_on(self) -> None:
        self.goes_on.popleft()()

    def to_the_end(self) -> None:
        while not self.caller.ended:
            self.go_on() if self.goes_on else self.wait(DELAY / 10)

    def give(self) -> None:
        self.caller.give()
        self.to_the_end()


def take(scene: Late) -> None:
    """It has asked for the lock, and waits."""
    scene.caller.take()
    assert not scene.caller.ended


def test_all_have_answered_before_it_looks() -> None:
    """Its rounds are decided when it looks."""
    scene = Late()
    greater_fence(scene)
    take(scene)
    scene.wait(TRIP)
    scene.go_on()  # the first round; now it asks for a greater fence
    scene.wait(TRIP)
    scene.go_on()
    grant = scene.caller.outcome
    assert isinstance(grant, Grant)
    assert grant.fence is not None
    assert grant.fence > scene.caller.client.wall_us()
    scene.give()
    scene.heal()
    clean(scene)


def test_its_time_passes_after_it_was_decided() -> None:
    """It is granted, as of the moment of the deciding answer."""
    scene = Late()
    take(scene)
    asked_at = scene.caller.client.clock()
    scene.wait(TTL / 4)
    scene.go_on()
    grant = scene.caller.outcome
    assert isinstance(grant, Grant)
    assert grant.decided_at < asked_at + TRIP
    assert sum(vote.outcome == "granted" for vote in grant.votes()) == MASTERS // 2 + 1
    scene.give()
    scene.heal()
    clean(scene)


def test_answers_after_its_time_and_before_it_looks_are_counted() -> None:
    """The client that reads counts them.  The validity counts from when it asked (R6)."""
    scene = Late()
    for link in scene.links(ALL):
        link.cut(ANSWERS)
    asked_at = scene.caller.client.clock()
    take(scene)
    scene.wait(1.01 * NODE_TIMEOUT)
    assert scene.goes_on, "its time is up"
    for link in scene.links(ALL):
        link.heal(ANSWERS)
    scene.wait(TRIP)
    scene.go_on()
    grant = scene.caller.outcome
    assert isinstance(grant, Grant)
    assert grant.valid_until < asked_at + TTL
    scene.give()
    scene.heal()
    clean(scene)


def test_answers_after_it_looked_are_not_counted() -> None:
    scene = Late()
    for link in scene.links(ALL):
        link.cut(ANSWERS)
    take(scene)
    scene.wait(1.01 * NODE_TIMEOUT)
    scene.go_on()
    for link in scene.links(ALL):
        link.heal(ANSWERS)
    scene.wait(TRIP)
    refusal = scene.caller.outcome
    assert isinstance(refusal, Refusal)
    assert {vote.outcome for vote in refusal.tally.votes()} == {"timeout"}
    scene.heal()
    clean(scene)


def test_interrupted_when_it_was_granted_and_does_not_know() -> None:
    """R11."""
    scene = Late()
    take(scene)
    scene.wait(TRIP)
    assert len(scene.keys()) == MASTERS
    scene.task.strike()
    assert isinstance(scene.caller.interrupted, Cancelled)
    assert scene.caller.hold is None
    scene.go_on()  # its thread comes to what was void long before
    scene.heal()
    clean(scene)


def end_of_a_lease() -> Late:
    """An extension is answered in time; its operation comes to it when the lease has ended."""
    scene = Late()
    take(scene)
    scene.to_the_end()
    hold = scene.caller.hold
    assert hold is not None
    client = scene.caller.client
    scene.wait(client.true_time(hold.lease.valid_until) - scene.world.now - 2 * TRIP)
    scene.caller.extend(TTL)
    scene.wait(TRIP)
    assert client.clock() < hold.lease.valid_until
    scene.wait(2 * TRIP)
    assert client.clock() > hold.lease.valid_until
    scene.to_the_end()
    return scene


def test_an_extension_whose_lease_ends_before_it_looks() -> None:
    """R12: it was won, and it is too late.  What it has set is released."""
    scene = end_of_a_lease()
    assert scene.caller.outcome.kind == "lost"
    hold = scene.caller.hold
    assert hold is not None
    assert hold.lease.lost
    assert len(scene.keys(hold.lease.token)) == MASTERS
    scene.give()
    scene.heal()
    clean(scene)


def test_that_extension_is_caught() -> None:
    variant = VARIANTS["late-is-in-time"]
    with variant.applied(), pytest.raises(AssertionError) as caught:
        end_of_a_lease()
    assert getattr(caught.value, "invariant", None) in variant.expected


def test_scripts_that_are_forgotten_are_sent_while_it_does_not_look() -> None:
    """As text, by whoever reads."""
    scene = Late()
    for master in scene.masters:
        master.flush_scripts()
    take(scene)
    scene.wait(2 * TRIP)
    assert len(scene.keys()) == MASTERS
    assert all(scripts.ACQUIRE.sha in master._cached for master in scene.masters)
    scene.go_on()
    assert isinstance(scene.caller.outcome, Grant)
    scene.give()
    scene.heal()
    clean(scene)
