"""Those who wait are woken by what they hear, and do not depend on it (R24).

Many runs with a crowd, and scenes told directly.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
from tenacity.wait import wait_fixed

from redlock import scripts
from redlock._core.acquire import Target, acquire
from redlock._core.release import release
from redlock._core.subscriptions import LINGER, Subscription
from tests.simulation.actor import Actor, spec_for
from tests.simulation.client import Client
from tests.simulation.invariants import Violation
from tests.simulation.network import ANSWERS, REQUESTS
from tests.simulation.parameters import Parameters, crowd
from tests.simulation.run import Run, simulate
from tests.simulation.scene import client_of, quiet

if TYPE_CHECKING:
    from redlock._core.ballots import Grant
    from redlock._core.settings import LockSpec
    from tests.simulation.client import Task
    from tests.simulation.invariants import Hold

CROWDS = 100
CHUNK = 20

TTL = 30.0
PAUSE = 10.0  # between two attempts, where nothing is heard
SOON = 0.05


@pytest.mark.parametrize("start", range(0, CROWDS, CHUNK))
def test_crowds_are_woken(start):
    woken = prompt = 0
    for seed in range(start, start + CHUNK):
        waits = simulate(crowd(seed)).judge.waits
        woken += waits.woken
        prompt += waits.prompt
    assert woken > CHUNK, "so little is announced that nobody can be late"
    assert prompt > CHUNK, "so little is released where all is well that nobody can be late"


class Waiter(Actor):
    """Does what it is told; the pause between its attempts is long."""

    def think(self) -> None:
        pass

    def _plan_hold(self, hold: Hold, spec: LockSpec) -> None:
        pass

    def take(self, timeout: float = 0.0) -> None:
        self._spec = spec_for(self.client, ["lock-0"], TTL)._replace(retry=wait_fixed(PAUSE))
        self._invoked_at = self.world.now
        self._won: list[Grant] = []
        now, target = self.client.clock(), Target(self.client.settings, self._spec)
        op = acquire(target, now + timeout, now, self._won.append)
        self.client.run(op, self._taken, None, self._sends_acquire)

    def _taken(self, task: Task, outcome: Any, interrupted: BaseException | None) -> None:
        self._acquired(task, outcome, interrupted)

    def give(self) -> None:
        hold, self.hold = self.hold, None
        assert hold is not None
        self.judge.ended(hold)
        op = release(self.client.settings, self._spec, hold.lease)
        self.client.run(op, lambda *_: None, hold.attempt, self._sends)


class Scene:
    """Five masters; one client holds the lock, others wait for it."""

    def __init__(self, others: int = 1, **values: Any) -> None:
        parameters = Parameters(
            seed=1, masters=5, clients=0, ttl=TTL, max_ttl=2 * TTL, delay=0.001, eager=0.5, **values
        )
        self.run = Run(parameters)
        self.world, self.masters = self.run.world, self.run.masters
        self.holder, *self.others = (self._waiter(number) for number in range(others + 1))
        self.passes(0.05)
        self.holder.take()
        self.passes(0.05)
        assert self.holder.hold is not None
        for other in self.others:
            other.take(4 * TTL)

    def _waiter(self, number: int) -> Waiter:
        run = self.run
        client = Client(self.world, run.judge, run.parameters, run.masters, f"c{number}", rate=1.0, skew=0.0)
        client.closing = True  # its actors do what they are told, and nothing else
        run.clients.append(client)
        for link in client.links:
            client.connect(link)
        return Waiter(client)

    def passes(self, seconds: float) -> None:
        self.world.run(self.world.now + seconds)

    def granted(self) -> list[Waiter]:
        return [other for other in self.others if other.hold is not None]

    def attempts(self) -> int:
        return sum(
            what == "runs" and details[0] == "m0" and details[1] == scripts.ACQUIRE.name
            for _, what, details in self.world.trace
        )

    def all_in_turn(self) -> None:
        """Each gives it back as soon as somebody looks."""
        for _ in range(len(self.others)):
            self.passes(20 * SOON)
            (waiter,) = self.granted()
            waiter.give()

    def silence(self) -> None:
        self.passes(2 * LINGER)
        self.run.judge.waits.silent(self.run.clients)


def test_woken_by_a_release() -> None:
    scene = Scene()
    scene.passes(1.0)
    assert scene.attempts() == 3  # the holder's; refused, and once more when it had subscribed
    scene.passes(0.8 * PAUSE)
    scene.holder.give()
    scene.passes(SOON)
    assert scene.granted()
    scene.others[0].give()
    scene.silence()


def test_a_crowd_is_served_one_after_the_other() -> None:
    scene = Scene(others=12)
    scene.passes(1.0)
    scene.holder.give()
    scene.all_in_turn()
    assert all(other.acquired == 1 for other in scene.others)
    scene.silence()


@pytest.mark.parametrize("trouble", [{"announces": False}, {"lost": 1.0}], ids=["forbidden", "lost"])
def test_nobody_depends_on_what_is_announced(trouble: dict[str, Any]) -> None:
    """Where nothing is heard it costs a pause, not a TTL."""
    scene = Scene(**trouble)
    scene.passes(1.0)
    scene.holder.give()
    scene.passes(1.0)
    assert not scene.granted()
    scene.passes(PAUSE)
    assert scene.granted()
    scene.others[0].give()
    scene.silence()


def test_a_majority_that_announces_is_enough() -> None:
    scene = Scene(faults=(("hush", 1.0),))
    subscribers = scene.others[0].client.hearing.subscribers
    for subscriber in subscribers[:2]:
        subscriber.cut(REQUESTS)
    scene.passes(1.0)
    scene.holder.give()
    scene.passes(SOON)
    assert scene.granted()
    for subscriber in subscribers[:2]:
        subscriber.heal(REQUESTS)


def test_released_before_it_had_subscribed() -> None:
    """Subscribe, look again, then wait: what was announced meanwhile was heard by nobody."""
    scene = Scene(faults=(("hush", 1.0),))
    subscribers = scene.others[0].client.hearing.subscribers
    for subscriber in subscribers:
        subscriber.cut(REQUESTS)
    scene.passes(0.1)
    scene.holder.give()
    scene.passes(0.3)
    assert not scene.granted()
    for subscriber in subscribers:
        subscriber.heal(REQUESTS)
    scene.passes(SOON)
    assert scene.granted()


def test_released_while_the_connections_were_broken() -> None:
    scene = Scene(faults=(("hush", 1.0),))
    scene.passes(2.0)
    subscribers = scene.others[0].client.hearing.subscribers
    for subscriber in subscribers:
        subscriber.cut(REQUESTS, ANSWERS)
        subscriber.snap()
    scene.holder.give()
    scene.passes(0.3)
    assert not scene.granted()
    for subscriber in subscribers:
        subscriber.heal(REQUESTS, ANSWERS)
    scene.passes(0.3)
    assert scene.granted()


def test_nothing_is_left_of_one_who_gave_up() -> None:
    scene = Scene()
    scene.passes(1.0)
    (task,) = scene.others[0].client.tasks
    task.strike()
    assert task.over
    scene.silence()
    listening = [connection for master in scene.masters for each in master.listening.values() for connection in each]
    assert all(connection.dead for connection in listening)


# Which masters had refused it when they announced a release, and which after the attempt that followed; then one more announces it.
@pytest.mark.parametrize(("before", "announced", "after", "last", "due"), [
    ({2, 3, 4}, [], {2, 3, 4}, [0, 1, 2], True),
    ({3, 4}, [], {3, 4}, [0, 1, 2], False),  # they had not refused it
    ({3, 4}, [], {3, 4}, [0, 1, 2, 3], True),
    ({2, 3, 4}, [0, 1], {2, 3, 4}, [2], True),  # it adds up across an attempt
    ({3, 4}, [0, 1, 2], {1, 2, 3}, [4], False),  # there was a majority before the attempt already (seed 1023712)
    (None, [0, 1, 2], {3, 4}, [3], False),
    (set(), [], set(), [0, 1, 2], False),  # its first round was won, its second one lost (seed 2022798)
])  # fmt: skip
def test_who_has_to_try_again_when_a_release_is_announced(before, announced, after, last, due) -> None:
    """The judge: of one that is told and does not try again."""
    scene = Scene()
    scene.passes(1.0)
    (client,) = {other.client for other in scene.others}
    (task,) = client.tasks
    waits, channel = scene.run.judge.waits, "redlock:lock-0:released"
    task.refused_by = before
    for master in announced:
        waits.told(client, master, channel, "t")
    task.attempted_at = scene.world.now
    scene.passes(0.01)
    task.refused_by = after
    for master in last:
        waits.told(client, master, channel, "t")
    with pytest.raises(Violation) if due else nullcontext():
        scene.passes(1.0)


def test_those_who_wait_do_not_hurry_while_masters_are_quarantined():
    """Nobody is granted anything then, and every failed attempt takes its keys back: the masters announce
    that, everybody is woken by it, tries, and takes it back again (R24, R25).
    """
    run = quiet(masters=5, eager=0.5, faults=(("amnesia", 1.0),))
    holder, *others = (Actor(client_of(run)) for _ in range(4))
    holder.client.closing = False
    holder.acquire(["lock-0"], 30.0, 0.0)
    run.world.run(run.world.now + 0.1)
    for other in others:
        other.acquire(["lock-0"], 30.0, 60.0)
    run.world.run(run.world.now + 1.0)
    for master in run.masters[:3]:
        master.stop()
        for link in run.links_to(master):
            link.hang_up()
        master.start(remember=False)
    before = run.judge.calls
    run.world.run(run.world.now + 10.0)
    calls = run.judge.calls - before
    assert calls < 3 * 2 * 5 * 25, "an attempt asks each master twice, and there are about ten of them"


@pytest.mark.parametrize("waiters", [1, 3])
def test_those_who_wait_do_not_hurry_while_one_master_refuses_and_one_does_not_vote(waiters):
    """A key is left on one of three masters, one restarted without its keys, one is free.  It counts as held, and what
    every failed attempt takes back is announced by two masters: a majority (R24, R25; seed 27730).
    """
    run = quiet(masters=3, eager=0.5, faults=(("amnesia", 1.0),))
    holder, *others = (Actor(client_of(run)) for _ in range(1 + waiters))
    holder.client.closing = False
    run.masters[2].refuses = "MISCONF"  # the holder has no key there
    holder.acquire(["lock-0"], 30.0, 0.0)
    run.world.run(run.world.now + 0.1)
    assert holder.hold is not None
    run.masters[2].refuses = ""
    run.masters[1].stop()
    for link in run.links_to(run.masters[1]):
        link.hang_up()
    run.masters[1].start(remember=False)
    run.world.run(run.world.now + 2.0)
    for other in others:
        other.acquire(["lock-0"], 30.0, 20.0)
    before = run.judge.calls
    run.world.run(run.world.now + 10.0)
    calls = run.judge.calls - before
    assert calls < waiters * 2 * 3 * 25, "an attempt asks each master twice, and there are about ten of them"


def test_a_pause_in_a_release_does_not_keep_its_client_away():
    """A client that has others listen to its releases lets them go first, for about three times what its
    release took.  Not if that was because it was stopped meanwhile.
    """
    run = quiet(masters=5, eager=0.5)
    first, second = client_of(run), client_of(run)
    holder, other, next_one = Actor(first), Actor(second), Actor(first)
    first.closing = second.closing = False
    holder.acquire(["lock-0"], 30.0, 0.0)
    run.world.run(run.world.now + 0.1)
    assert holder.hold is not None
    other.acquire(["lock-0"], 30.0, 60.0)
    run.world.run(run.world.now + 1.0)
    first.closing = second.closing = True
    other.think = holder.think = lambda: None  # type: ignore[method-assign]
    holder.close()
    first.pause(20.0)
    run.world.run(run.world.now + 20.0)
    run.world.random.seed(2)  # the answers are looked at before the alarm
    first.resume()
    run.world.run(run.world.now + 0.5)
    assert other.acquired
    next_one.acquire(["lock-0"], 30.0, 60.0)
    run.world.run(run.world.now + 1.0)
    assert next_one.acquired


def test_an_announcement_is_not_forgotten_among_many_others():
    """One master announces a release; many more come that only one announces; then the rest of the first."""
    subscription = Subscription(["redlock:lock-0"], 5)
    for number in range(100):
        if number == 50:
            assert not subscription.hear(0, b"ours")
            assert not subscription.hear(1, b"ours")
        assert not subscription.hear(0, b"%d" % number)
    subscription.attempting()
    assert subscription.hear(2, b"ours")
