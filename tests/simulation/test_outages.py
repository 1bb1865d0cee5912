"""Threads that wait for ever while a majority of masters is frozen: how long they do so, and what they are told (R38)."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from redlock._core.local_queue import LocalQueue
from redlock._core.patience import Patience
from tests.simulation.actor import Actor
from tests.simulation.scene import client_of, quiet
from tests.simulation.slot_user import SlotUser

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.quorum import Tally
    from tests.simulation.client import Client, Task
    from tests.simulation.run import Run

OUTAGE = 60.0  # the outage_timeout, as it is by default
SLACK = 3.6  # the pause between two attempts, and two rounds at `node_timeout`

KINDS: dict[str, dict[str, Any]] = {
    "one-name": {}, "shared": {"readers": 1.0}, "slots": {"slots": 2}, "several-names": {"names": 2},
}  # fmt: skip


class Scene:
    """Five masters, one process, and threads in it that come at given times and wait for ever."""

    def __init__(self, kind: str, outage_timeout: float = OUTAGE) -> None:
        self.run: Run = quiet(masters=5, several=0.0, eager=0.1, **KINDS[kind])
        self.told: dict[int, tuple[str, float]] = {}
        self.took_part: list[tuple[float, Task | None]] = []  # when a majority did, in an attempt of this process
        self.tasks: dict[int, Task] = {}
        self._names = ["lock-0", "lock-1"] if kind == "several-names" else ["lock-0"]
        self.client = self._client(outage_timeout)
        self.began = self.run.world.now

    def _client(self, outage_timeout: float) -> Client:
        client: Client = client_of(self.run)
        hears = client.attempted

        def attempted(tally: Tally, at: float) -> None:
            hears(tally, at)
            if not tally.unreachable:
                self.took_part.append((self.run.world.now - self.began, client.driven))

        client.attempted = attempted  # type: ignore[assignment, method-assign]
        client.settings = client.settings._replace(outage_timeout=outage_timeout)
        return client

    def comes(self, at: float) -> int:
        """A thread asks for the lock ``at`` so many seconds, and gives it back at once.  Returns its number."""
        number, scene = len(self.told), self
        self.told[number] = ("waits", math.nan)

        class Thread(SlotUser if self.run.parameters.slots else Actor):  # type: ignore[misc]
            def _acquired(self, task: Task, outcome: Any, interrupted: BaseException | None) -> None:
                now = scene.run.world.now - scene.began
                scene.tasks[number] = task
                scene.told[number] = (getattr(outcome, "kind", "granted"), now)
                super()._acquired(task, outcome, interrupted)

        self.run.world.after(at, Thread(self.client).acquire, self._names, 30.0, math.inf)
        return number

    def somebody_has_it(self, ttl: float) -> None:
        """Another process has all there is, for so many seconds."""

        class Holder(SlotUser if self.run.parameters.slots else Actor):  # type: ignore[misc]
            def _plan_hold(self, *_: Any) -> None:
                """Does not give it back."""

            def _reads(self) -> bool:
                return False

        elsewhere = client_of(self.run)
        for _ in range(self.run.parameters.slots or 1):
            Holder(elsewhere).acquire(self._names, ttl, 1.0)
        self.run.world.run(self.run.world.now + 0.5)
        self.began = self.run.world.now

    def last_took_part(self, number: int) -> float:
        """... for this thread, before it was told: in its own attempts, or in those of a thread in front of it.

        Readers that stand in front ask together, and each of them goes by its own.
        """
        alone = bool(self.run.parameters.readers)
        _, when = self.told[number]
        task = self.tasks[number]
        return max((at for at, by in self.took_part if at < when and (by is task or not alone)), default=-math.inf)

    def quorum(self, at: float, *, there: bool) -> None:
        for master in self.run.masters[:3]:
            self.run.world.after(at, master.thaw if there else master.freeze)

    def ends(self, after: float) -> dict[int, tuple[str, float]]:
        self.run.world.run(self.began + after)
        return self.told


def near(kind: str, at: float) -> Any:
    return kind, pytest.approx(at + SLACK / 2, abs=SLACK / 2 + 0.01)


@pytest.mark.parametrize("kind", KINDS)
def test_an_outage_of_two_minutes(kind: str) -> None:
    """Each waits for a minute of its own, in line or in front of it; who came late is there when it is over."""
    scene = Scene(kind)
    scene.quorum(0.0, there=False)
    for at in (1.0, 1.0, 20.0, 40.0, 100.0):
        scene.comes(at)
    scene.quorum(120.0, there=True)
    told = scene.ends(200.0)
    assert [told[number] for number in range(4)] == [near("unreachable", at + OUTAGE) for at in (1.0, 1.0, 20.0, 40.0)]
    assert told[4] == near("granted", 120.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("back", [None, 50.0], ids=["for-good", "there-for-a-moment"])
def test_the_time_counts_from_the_last_attempt_in_which_a_majority_took_part(kind: str, back: float | None) -> None:
    """Whoever of the line has made it: it is refused until then, by somebody who has the lock."""
    scene = Scene(kind)
    scene.somebody_has_it(58.0)
    waiters = [scene.comes(at) for at in (1.0, 2.0, 3.0)]
    scene.quorum(10.0, there=False)
    if back is not None:
        scene.quorum(back, there=True)
        scene.quorum(back + 5.0, there=False)
    told = scene.ends(200.0)
    for number in waiters:
        since = scene.last_took_part(number)
        assert since == pytest.approx(10.0 if back is None else back + 5.0, abs=SLACK)
        assert told[number] == near("unreachable", since + OUTAGE)


@pytest.mark.parametrize("kind", KINDS)
def test_whoever_asks_for_that_waits_through_it(kind: str) -> None:
    scene = Scene(kind, outage_timeout=math.inf)
    scene.quorum(0.0, there=False)
    for at in (1.0, 2.0):
        scene.comes(at)
    scene.quorum(1000.0, there=True)
    assert list(scene.ends(1010.0).values()) == [near("granted", 1000.0)] * 2


def drawn(seed: int) -> None:
    """A majority comes and goes, and then is gone for good.

    Nobody gives up in less than its time, counted from its call, or from the last attempt of its process in which a
    majority took part; nor much later.  Whoever is granted the lock gives it back.
    """
    chance = random.Random(f"outages of {seed}")
    scene = Scene(chance.choice(list(KINDS)))
    if chance.random() < 0.5:
        scene.somebody_has_it(58.0)
    at, there = 0.0, True
    while at < 200.0:
        there = not there
        scene.quorum(at, there=there)
        at += chance.choice((chance.uniform(0.3, 6.0), chance.uniform(20.0, 100.0)))
    scene.quorum(at, there=False)
    came = [chance.uniform(0.0, at + 20.0) for _ in range(6)]
    for moment in came:
        scene.comes(moment)
    for number, (what, when) in scene.ends(at + 20.0 + OUTAGE + 2 * SLACK).items():
        assert what in ("unreachable", "granted"), (seed, number, what)
        if what == "unreachable":
            since = max(came[number], scene.last_took_part(number))
            assert when >= since + OUTAGE - 1e-3, (seed, number, when, since)
            latest = max([came[number], *(one for one, _ in scene.took_part if one < when)])
            assert when <= latest + OUTAGE + SLACK, (seed, number, when, latest)


def test_nobody_gives_up_too_early_or_never() -> None:
    for seed in range(20):
        drawn(seed)


@pytest.mark.parametrize("broken", [
    pytest.param(lambda: mock.patch.object(Patience, "after", lambda patience, _, **__: patience.ends), id="never-anew"),
    pytest.param(lambda: mock.patch.object(Patience, "ends", math.inf), id="for-ever"),
    pytest.param(lambda: mock.patch.object(LocalQueue, "look_ahead", return_value=[]), id="only-the-one-in-front"),
])  # fmt: skip
def test_it_would_be_seen(broken: Callable[[], Any]) -> None:
    with broken(), pytest.raises(AssertionError):
        test_nobody_gives_up_too_early_or_never()
