"""One operation, interrupted once at each of its suspensions (R11).

An operation is suspended wherever it has yielded: before and after each master of a `Send`, before and
after what concerns no master (`Listen`, `Leave`, ...), at the beginning of a `Wait`, and when the event has
come but was not delivered.  One more place is the way
back: it is over, its caller does not know yet.  `every` plays a scene once to count them, and once more
for each, and for each request of the cleanup that follows, which is then interrupted as well.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tenacity.wait import wait_fixed

from redlock import scripts
from redlock._core import (
    acquire as acquiring,
    extend as extending,
    quorum,
    release as releasing,
    slots as slotting,
    wire,
)
from redlock._core.confirm import ConfirmingTarget
from redlock._core.effects import Op, Send, Wait
from redlock._core.lease import LeaseState
from tests.simulation.actor import Actor, spec_for
from tests.simulation.client import Cancelled, Client
from tests.simulation.invariants import PREFIX
from tests.simulation.parameters import Parameters
from tests.simulation.run import Run
from tests.simulation.slot_user import SlotUser

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from redlock._core.ballots import Grant
    from redlock._core.effects import Event
    from redlock._core.settings import LockSpec
    from tests.simulation.client import Task
    from tests.simulation.invariants import Hold
    from tests.simulation.network import Link

MASTERS = 5
MINORITY, MAJORITY = (0, 1), (0, 1, 2)
NAME, KEY = "lock-0", "redlock:lock-0"
TTL = 30.0
NODE_TIMEOUT = 0.25
DELAY = 0.001
PATIENCE = 0.4  # of an acquire that finds the name held: a few attempts
TINY = 1e-9


class Strike:
    """Interrupts at the ``at``-th suspension, and once more ``again`` requests into the cleanup."""

    def __init__(self, at: int | None = None, again: int | None = None) -> None:
        self.at = at
        self.again = again
        self.points = 0  # suspensions so far
        self.struck = False
        self.over = False  # the operation had ended when it struck
        self.cleanup = 0  # masters that the first request of the cleanup goes to
        self.waited = False  # the cleanup waited for something
        self._in_cleanup = False
        self._after = False  # strike once the request is out

    def _here(self, points: int = 1) -> int | None:
        """The next ``points`` suspensions: which of them it strikes at, if any."""
        first, self.points = self.points, self.points + points
        if self.at is None or self.struck or not first <= self.at < self.points:
            return None
        return self.at - first

    def sends(self, request: Send, task: Task) -> None:
        """Is told of every request before it goes to the first master."""
        masters = MASTERS if request.to is None else len(request.to)
        if self.struck:
            if not self._in_cleanup:
                self._in_cleanup, self.cleanup = True, masters
                if self.again is not None:
                    self._interrupt(task, self.again, masters)
            return
        which = self._here(masters + 1)
        if which is not None:
            self.struck = True
            self._interrupt(task, which, masters)

    def _interrupt(self, task: Task, which: int, masters: int) -> None:
        if which < masters:
            task.interrupt_in = which
        else:
            self._after = True

    def around(self, op: Op[Any]) -> Generator[Any, Event | None, Any]:
        step: Callable[[Any], Any] = op.send
        argument: Any = None
        while True:
            try:
                effect = step(argument)
            except StopIteration as stop:
                if self._here() is not None:
                    self.struck = self.over = True
                    raise Cancelled from None
                return stop.value
            step = op.send
            if not isinstance(effect, Send):
                self.waited = self.waited or (self.struck and type(effect) is Wait)
                if self._here() is not None:
                    self.struck = True
                    step, argument = op.throw, Cancelled()
                    continue
            try:
                argument = yield effect
            except Cancelled as cancelled:
                step, argument = op.throw, cancelled
                continue
            if self._after or (not isinstance(effect, Send) and self._here() is not None):
                self.struck, self._after = True, False
                step, argument = op.throw, Cancelled()


class Caller(Actor):
    """Does what it is told, once, and remembers how that ended."""

    strike: Strike | None = None
    ended = False
    outcome: Any = None
    interrupted: BaseException | None = None
    told: Callable[[Send], None] | None = None  # of everything that is sent

    def think(self) -> None:
        pass

    def _plan_hold(self, hold: Hold, spec: LockSpec) -> None:
        pass

    def take(self, timeout: float = 0.0) -> None:
        self._spec = spec = self.spec()
        self._invoked_at = self.world.now
        self._won: list[Grant] = []
        now = self.client.clock()
        target = (ConfirmingTarget if self.client.parameters.confirm else acquiring.Target)(spec)
        op = acquiring.acquire(self.client.settings, target, now + timeout, now, self._won)
        self._go(op, self._taken, None, self._sends_acquire)

    def spec(self) -> LockSpec:
        return spec_for(self.client, [NAME], TTL)._replace(retry=wait_fixed(0.1))

    def _taken(self, task: Task, outcome: Any, interrupted: BaseException | None) -> None:
        self._acquired(task, outcome, interrupted)
        for grant in self._won if interrupted else ():  # as the shells do, and wait for nothing
            lease = LeaseState(self._spec.names, self._spec.ttl, grant, clock=self.client.clock, mine=lambda: True)
            op = releasing.release(self.client.settings, self._spec, lease)
            self.client.run(op, lambda *_: None, task.attempt, self._sends).strike()

    def extend(self, ttl: float) -> None:
        hold = self.hold
        assert hold is not None
        hold.attempt.longest = max(hold.attempt.longest, ttl)
        sent: list[Send] = []

        def sends(request: Send, task: Task) -> None:
            if request.call.script in (scripts.EXTEND, scripts.EXTEND_RECORDED):
                sent.append(request)
                self.judge.shortened(hold)

        def done(task: Task, outcome: Any, interrupted: BaseException | None) -> None:
            # What was interrupted after it had been won, while it repaired, has been won.
            if hold.lease.valid_until > hold.until + TINY or (outcome and outcome.kind == "kept"):
                origins = task.origins.get(sent[0], {}) if sent else {}
                assert len(origins) > MASTERS // 2, "longer than before, and no majority has answered"
                self.judge.extended(hold, hold.lease.votes, origins, sent[0].call)
            self.judge.looked(hold)

        op = extending.extend(self.client.settings, self.spec(), hold.lease, ttl, self.client.clock())
        self._go(op, done, hold.attempt, sends)

    def give(self) -> None:
        hold, self.hold = self.hold, None
        assert hold is not None
        self.judge.ended(hold)
        op = releasing.release(self.client.settings, self.spec(), hold.lease)
        self._go(op, lambda *_: None, hold.attempt, self._sends)

    def _go(
        self,
        op: Op[Any],
        done: Callable[[Task, Any, BaseException | None], None],
        attempt: Any,
        sends: Callable[[Send, Task], None],
    ) -> None:
        self.ended = False
        strike = self.strike or Strike()

        def ends(task: Task, outcome: Any, interrupted: BaseException | None) -> None:
            self.ended, self.outcome, self.interrupted = True, outcome, interrupted
            done(task, outcome, interrupted)

        def leaves(request: Send, task: Task) -> None:
            sends(request, task)
            strike.sends(request, task)
            if self.told is not None:
                self.told(request)

        self.client.run(strike.around(op), ends, attempt, leaves)


class SlotCaller(Caller, SlotUser):
    """The same with a slot of a group: first it asks for the first one (R32)."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._board.latest = 0

    def take(self, timeout: float = 0.0) -> None:
        client, limit = self.client, self.client.parameters.slots
        keys = [wire.keys_for(PREFIX, [slotting.slot_name(NAME, slot)]) for slot in range(limit)]
        group = slotting.group_of(super().spec(), keys, PREFIX, self._board)
        self._asking = slotting.SlotTarget(group, len(client.links), client.settings.random)
        self._invoked_at = self.world.now
        self._won = []
        now = client.clock()
        op = acquiring.acquire(client.settings, self._asking, now + timeout, now, self._won)
        self._go(op, self._taken, None, self._sends_acquire)

    def spec(self) -> LockSpec:
        return self._asking.group.slots[self._asking.slot]

    def _taken(self, task: Task, outcome: Any, interrupted: BaseException | None) -> None:
        self._spec = self.spec()
        super()._taken(task, outcome, interrupted)


class Stage:
    """Five masters, the caller whose operation is interrupted, and a rival.  What a scene changes it
    undoes in ``heal``.  ``slots``: they want one of so many; 0: a lock.  ``confirm``: masters keep records (R35).
    """

    def __init__(self, slots: int = 0, *, confirm: bool = False) -> None:
        random.seed(1)  # what is random outside of the world: the pauses before a reconnection
        self.run = Run(
            Parameters(
                seed=1,
                masters=MASTERS,
                clients=0,
                ttl=TTL,
                max_ttl=2 * TTL,
                node_timeout=NODE_TIMEOUT,
                patience=NODE_TIMEOUT,  # as in the real links
                delay=DELAY,
                slots=slots,
                confirm=confirm,
            )
        )
        self.kind = SlotCaller if slots else Caller
        self.world, self.judge, self.masters = self.run.world, self.run.judge, self.run.masters
        self.caller, self.rival = self._caller("caller"), self._caller("rival")
        self.heals: list[Callable[[], None]] = []
        self.wait(0.05)

    def _caller(self, name: str) -> Caller:
        client = Client(
            self.world, self.judge, self.run.parameters, self.masters, name, rate=self.run._rate(), skew=0.0
        )
        client.closing = True
        self.run.clients.append(client)
        for link in client.links:
            client.connect(link)
        return self.kind(client)

    def links(self, masters: tuple[int, ...]) -> list[Link]:
        return [self.caller.client.links[master] for master in masters]

    def wait(self, seconds: float) -> None:
        self.world.run(self.world.now + seconds)

    def finish(self, caller: Caller) -> None:
        """Until its operation has ended."""
        for _ in range(1000):
            if caller.ended:
                return
            self.wait(0.005)
        raise AssertionError("it hangs")

    def heal(self) -> None:
        for heal in self.heals:
            heal()
        self.heals.clear()
        self.wait(1.0 + 8 * NODE_TIMEOUT)  # connected again, and what was owed is sent

    def keys(self, token: str | None = None) -> list[int]:
        """Masters on which the name, or a slot of it, is held, by ``token`` or by anybody."""
        found = []
        for master in self.masters:
            master.tick()
            for name in list(master.keys):
                key = master.find(name) if name == KEY or name.startswith(f"{KEY}#") else None
                if key is not None and token in (None, key.value):
                    found.append(master.index)
        return found


@dataclass
class Played:
    """What one scene was tried with."""

    points: int = 0
    twice: int = 0


def every(play: Callable[[Strike], None]) -> Played:
    """Interrupted nowhere, at every suspension, and there and once more at every step of its cleanup."""
    played = Played()
    whole = Strike()
    play(whole)
    for at in range(whole.points):
        once = Strike(at)
        _told(play, once)
        assert once.struck, f"the {at}-th of {whole.points} suspensions did not come"
        for again in range(once.cleanup + 1 if once.cleanup else 0):
            _told(play, Strike(at, again))
            played.twice += 1
    played.points = whole.points
    return played


def _told(play: Callable[[Strike], None], strike: Strike) -> None:
    try:
        play(strike)
    except BaseException as error:
        error.add_note(f"interrupted at suspension {strike.at}, and at request {strike.again} of the cleanup")
        raise


# -- the three operations ------------------------------------------------------------------------------


def acquire(
    scene: Callable[[Stage], None], strike: Strike, *, patience: float = 0.0, slots: int = 0, confirm: bool = False
) -> None:
    """Interrupted while it acquires: nothing stays, and whoever comes next has it at once."""
    stage = Stage(slots, confirm=confirm)
    caller = stage.caller
    scene(stage)
    caller.strike = strike
    caller.take(patience)
    stage.finish(caller)
    came_out(caller, strike)
    if strike.at is None and caller.hold is not None:
        caller.strike = None
        caller.give()
    stage.heal()
    clean(stage)


def extend(
    scene: Callable[[Stage], None], strike: Strike, *, ttl: float = TTL, robbed: bool = False, confirm: bool = False
) -> None:
    """Interrupted while it extends: the lease says no more than is true, and its release leaves nothing.

    ``robbed``: it has lost its majority behind its back, and cannot say what is true.
    """
    if not robbed:  # and once more, for the end of a lease is the end of its keys
        _extend(scene, Strike(strike.at, strike.again), ttl, to_its_end=True, confirm=confirm)
    _extend(scene, strike, ttl, to_its_end=False, confirm=confirm)


def _extend(scene: Callable[[Stage], None], strike: Strike, ttl: float, *, to_its_end: bool, confirm: bool) -> None:
    stage = Stage(confirm=confirm)
    caller = stage.caller
    caller.take()
    stage.finish(caller)
    stage.wait(5.0)
    scene(stage)
    hold = caller.hold
    assert hold is not None
    lease = hold.lease
    before, now = lease.valid_until, caller.client.clock()
    least = min(before, quorum.valid_until(now, ttl, 0.01))
    caller.strike = strike
    caller.extend(ttl)
    stage.finish(caller)
    came_out(caller, strike)
    assert not lease.all_pending, "an extension that is over must not limit the next one (C6)"
    if strike.at is not None and not lease.lost:
        # R13: an interruption is no proof of anything; nor does it shorten what nobody shortened.
        assert lease.valid_until >= least - TINY
    if to_its_end:
        truthful(stage, lease)
    caller.strike = None
    caller.give()
    stage.finish(caller)
    stage.heal()
    clean(stage)


def truthful(stage: Stage, lease: LeaseState) -> None:
    """As long as the lease is valid a majority of masters has its key: nobody else can get one (P1)."""
    now = stage.world.now
    ends = stage.caller.client.true_time(lease.valid_until)
    for look in (now + 0.01, now + 0.5, (now + ends) / 2, ends - 0.001):
        if look < ends:
            stage.world.run(look)
            have = stage.keys(lease.token)
            assert len(have) > MASTERS // 2 or not lease.valid, (
                f"valid until {ends:.3f}, and at {look:.3f} only {have} have its key"
            )


def release(scene: Callable[[Stage], None], strike: Strike, *, slots: int = 0, confirm: bool = False) -> None:
    """Interrupted while it releases: it is released."""
    stage = Stage(slots, confirm=confirm)
    caller = stage.caller
    caller.take()
    stage.finish(caller)
    scene(stage)
    hold = caller.hold
    assert hold is not None
    caller.strike = strike
    caller.give()
    stage.finish(caller)
    came_out(caller, strike)
    assert not hold.lease.valid
    stage.heal()
    clean(stage)


# -- what holds after each of them ---------------------------------------------------------------------


def came_out(caller: Caller, strike: Strike) -> None:
    """The interruption ended the operation, then and there, and was not swallowed."""
    if strike.at is None:
        assert caller.interrupted is None
        return
    assert strike.struck
    assert isinstance(caller.interrupted, Cancelled), f"swallowed: it ended with {caller.outcome}"
    assert not strike.waited, "the cleanup waits"
    assert all(task.over for task in caller.client.tasks), "something of it is still under way"


def clean(stage: Stage) -> None:
    stage.judge.clean()
    stage.judge.waits.silent(stage.run.clients)
    tokens = {attempt.token for attempt in stage.judge._attempts if attempt.client is stage.caller.client}
    for token in tokens:
        have = stage.keys(token)
        assert not have, f"left behind on {have}"
    pipelines = stage.caller.client.pipelines
    assert all(pipeline.idle for pipeline in pipelines), "something is still owed, or has no answer"
    rival = stage.rival
    rival.take()
    stage.finish(rival)
    assert rival.hold is not None, f"nobody holds it, and yet it was not granted: {rival.outcome.kind}"
