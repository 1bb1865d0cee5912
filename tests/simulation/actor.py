"""What users do with locks: acquire, hold too long, extend, release, be interrupted."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from redlock import scripts
from redlock._core import acquire as acquiring, ballots, extend as extending, quorum, release as releasing, wire
from redlock._core.confirm import ConfirmingTarget
from redlock._core.extend import downgrade
from redlock._core.fair import FairConfirmingTarget, FairTarget
from redlock._core.listing import Listing
from redlock._core.mode import EXCLUSIVE, RECORDED, shared_by
from redlock._core.retry import FullJitter
from redlock._core.settings import LockSpec
from redlock._core.watch import Watch, wait_until_free
from redlock.errors import QuorumUnreachable
from tests.simulation.client import Cancelled
from tests.simulation.invariants import ACQUIRES, PREFIX
from tests.simulation.renewer import Extending, Lease

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redlock._core.effects import Send
    from redlock._core.fair import Ticket
    from redlock._core.inspect import LockStatus
    from tests.simulation.client import Client, Task
    from tests.simulation.invariants import Hold


def spec_for(
    client: Client, names: Sequence[str], ttl: float, at_least: float = 0.0, *, shared: bool = False
) -> LockSpec:
    parameters = client.parameters
    enough = quorum.enough_to_hold(at_least, ttl, parameters.drift_factor, parameters.node_timeout)
    return LockSpec(
        names=tuple(names),
        keys=wire.keys_for(PREFIX, names, records=parameters.confirm),
        ttl=ttl,
        min_validity=max(parameters.min_validity * ttl, enough),
        # In proportion to the TTL, so that a run has about as many attempts whatever its TTL is.
        retry=FullJitter(multiplier=ttl / 20, max=parameters.eager * ttl, min=ttl / 500),
        hold_at_least=at_least,
        guard=parameters.after,
        mode=shared_by() if shared else RECORDED if parameters.confirm else EXCLUSIVE,
    )


def _until_unreachable(listing: Listing) -> Any:
    """Too few masters answer: the list ends, and says nothing of what is missing."""
    try:
        return (yield from listing.more())
    except QuorumUnreachable as error:
        raise Cancelled from error


class Actor:
    """One thread of a client.  Does one thing after the other until the client closes or dies."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.world = client.world
        self.judge = client.judge
        self.hold: Hold | None = None
        self._acquiring: Task | None = None
        self._spec: LockSpec
        self._request: Send  # of the present attempt
        self._invoked_at = 0.0
        self._ticket: Ticket | None = None
        self.acquired = 0
        self.writes = False  # the only one that writes, where there is only one
        self._idle = False  # between two things
        self._begins = False  # ... and about to begin the next one

    def think(self) -> None:
        self._idle = self._begins = True
        pause = self.world.random.expovariate(1 / (0.15 * self.client.parameters.ttl))
        self.world.after(pause, self.client.gate, self.begin)

    def begin(self) -> None:
        chance, parameters = self.world.random, self.client.parameters
        self._begins = False
        if self.client.closing:
            return
        self._idle = False
        names = [f"lock-{number}" for number in range(parameters.names)]
        if chance.random() < parameters.several:
            chance.shuffle(names)
        else:
            names = [chance.choice(names)]
        timeout = chance.choice((0.0, 0.5, 2.0))
        if parameters.patient and chance.random() < parameters.patient:
            timeout = 10.0
        if parameters.watches and chance.random() < parameters.watches:
            self._watch(names[0], chance.randint(1, 6))
            return
        if parameters.looks and chance.random() < parameters.looks:
            self._look(names, timeout * parameters.ttl)
            return
        self.acquire(names, parameters.ttl, timeout * parameters.ttl)

    # -- looking: without taking anything ------------------------------------------------------------

    def _look(self, names: Sequence[str], timeout: float) -> None:
        """Wait until the names are free, or list all locks."""
        if self.world.random.random() < 0.3:
            self._list(Listing(self.client.settings, PREFIX, "*"), self.judge.held(), [])
            return
        client, before = self.client, self.judge.held()
        pauses = spec_for(client, names, client.parameters.ttl).retry
        now = client.clock()
        op = wait_until_free(client.settings, tuple(names), PREFIX, now + timeout, now, pauses)

        def done(task: Task, outcome: Any, interrupted: BaseException | None) -> None:
            self._acquiring = None
            if interrupted is None and outcome[0] is None:
                self.judge.was_free(names, before)
            self.think()

        self._acquiring = client.run(op, done, on_send=lambda _, task: self.judge.waits.attempts(task))

    def _watch(self, name: str, changes: int) -> None:
        """Watch for so many changes, one step after the other, as the iterators of the shells do it."""
        client = self.client
        pauses = spec_for(client, [name], client.parameters.ttl).retry
        watch = Watch(client.settings, name, PREFIX + name, pauses)
        told: list[LockStatus] = []
        before: set[Hold] = set()

        def looks(_: Send, task: Task) -> None:
            self.judge.waits.attempts(task)
            before.clear()
            before.update(self.judge.held())

        def done(_: Task, status: LockStatus | None, interrupted: BaseException | None) -> None:
            if status is None or interrupted is not None:
                self.think()
                return
            self.judge.watched(name, told, status, before)
            told.append(status)
            if client.closing or len(told) == changes:
                self.think()
            else:
                self.world.after(0.0, client.gate, step)

        def step() -> None:
            self._acquiring = client.run(watch.more(), done, on_send=looks)

        step()

    def _list(self, listing: Listing, before: set[Hold], found: list[str]) -> None:
        """One piece after the other, as the iterators of the shells do it."""

        def done(task: Task, outcome: Any, interrupted: BaseException | None) -> None:
            if outcome is None:  # the end, or it was interrupted
                if interrupted is None:
                    self.judge.listed(found, before)
                self.think()
                return
            found.extend(status.name for status in outcome)
            if self.client.closing:
                self.think()
            else:
                self.world.after(0.0, self.client.gate, self._list, listing, before, found)

        self.client.run(_until_unreachable(listing), done)

    def acquire(self, names: Sequence[str], ttl: float, timeout: float) -> None:
        client = self.client
        at_least = 0.0
        if client.parameters.at_least and self.world.random.random() < client.parameters.at_least:
            at_least = ttl * self.world.random.choice((0.3, 0.6, 0.9, 1.0))
        shared = bool(client.parameters.readers) and self._reads()
        self._spec = spec_for(client, names, ttl, at_least, shared=shared)._replace(refused=self._refused)
        confirm, self._ticket = client.parameters.confirm, None
        target = (ConfirmingTarget if confirm else acquiring.Target)(client.settings, self._spec)
        if client.parameters.fair and not shared and self.world.random.random() < client.parameters.fair:
            target = in_line = (FairConfirmingTarget if confirm else FairTarget)(client.settings, self._spec)
            self._ticket = in_line.ticket
        self._acquire(target, timeout)

    def _acquire(self, target: acquiring.Target, timeout: float, granted: acquiring.Granted | None = None) -> None:
        """The judge hears until when it waits: nobody is woken after that (C3)."""
        client = self.client
        self._invoked_at, began = self.world.now, client.clock()
        op = acquiring.acquire(target, began + timeout, began, granted)
        self._acquiring = task = client.run(op, self._acquired, on_send=self._sends_acquire)
        self.judge.tries.waits_until(task, began + timeout)

    def _refused(self, refusal: ballots.Refusal) -> None:
        """What a release keeps from everybody is not asked for before that is over: by what the masters said of it."""
        task, longest = self.client.driven, self.client.parameters.max_ttl
        assert task is not None
        jumped = max(master.jumped for master in self.judge.masters)
        assert refusal.kept <= longest * (1 + self.client.parameters.drift_factor) + jumped + 0.01
        task.kept_until = refusal.at + refusal.kept

    def _reads(self) -> bool:
        """Whether the next lock is shared with readers (R33)."""
        if self.client.parameters.one_writer:
            return not self.writes
        return self.world.random.random() < self.client.parameters.readers

    def _sends_acquire(self, request: Send, task: Task) -> None:
        """Every acquire that is sent is an attempt of its own; every release ends one."""
        if self._ticket is not None and not task.in_order:
            task.in_order = True
            self.judge.line.begins(task, self._ticket, self._spec.names)
        if request.call.script in ACQUIRES:
            self._attempts(request, task)
        elif request.call.script is scripts.TICKET:
            self.judge.line.sends(request.call)
        self._sends(request, task)

    def _attempts(self, request: Send, task: Task) -> None:
        if task.attempt is not None:
            task.attempt.over = True
        token = request.call.args[1]
        self._request = request
        self.judge.waits.attempts(task)
        task.attempt = self.judge.attempt(self.client, self._spec.names, token, self._spec.lasts)

    def _sends(self, request: Send, task: Task) -> None:
        if request.owed_until is not None and task.attempt is not None:
            task.attempt.over = True
            task.attempt.owed_until = self.client.true_time(request.owed_until)

    def _acquired(self, task: Task, outcome: Any, interrupted: BaseException | None) -> None:
        self._acquiring = None
        if task.in_order and self._ticket is not None:
            self.judge.line.ended(self._ticket)
        if self.client.parameters.one_writer and not self._spec.mode.shared and interrupted is None:
            self.judge.wrote(self.client, self._invoked_at, granted=isinstance(outcome, ballots.Grant))
        if isinstance(outcome, ballots.Grant):
            self.hold = self._hold_of(task, outcome)
            self._plan_hold(self.hold, self._spec)
        else:
            self._fail_attempt(task, "interrupted" if interrupted else outcome.kind)
            self.think()

    def _fail_attempt(self, task: Task, why: str) -> None:
        if task.attempt is not None:
            task.attempt.over = True
        self.world.log("not granted", task.attempt, why)

    def _hold_of(self, task: Task, outcome: ballots.Grant) -> Hold:
        client, attempt, spec = self.client, task.attempt, self._spec
        assert attempt is not None
        assert attempt.token == outcome.token
        lease = Lease(spec, outcome, clock=client.clock, mine=lambda: True)
        lease.client, lease.lost_by = client, None
        lease.hold_at_least = spec.hold_at_least
        self.acquired += 1
        origins: dict[int, tuple[int, float, bool]] = {}
        for request, answered in task.origins.items():  # its last round may have asked masters that had said nothing
            if attempt.token in request.call.args:
                origins |= answered
        return self.judge.granted(client, attempt, lease, outcome, self._invoked_at, spec.ttl, origins)

    # -- holding -------------------------------------------------------------------------------------

    def _plan_hold(self, hold: Hold, spec: LockSpec) -> None:
        """How long it will be held, by a user who does not look at the lease."""
        chance, ttl = self.world.random, spec.ttl
        if self.client.closing:
            self._release(hold, spec)
            return
        ends: Callable[[Hold, LockSpec], None] = self._release
        renewed = False
        parameters = self.client.parameters
        if chance.random() < parameters.keep:
            renewed = chance.random() < 0.8
            limit = chance.uniform(0.2, 2.0) * ttl if chance.random() < parameters.limited else None
            self.client.renewer.keep(hold, spec, renew=renewed, max_hold=limit)
            if chance.random() < parameters.deserted:
                ends = self._desert
        elif spec.guard:  # whoever lets go of what is lost while its guard lasts leaves it to a renewer (R36)
            self.client.renewer.keep(hold, spec, renew=False, max_hold=None)
        if parameters.readers and not spec.mode.shared and chance.random() < 0.5:
            self.world.after(chance.uniform(0.0, 0.6) * ttl, self.client.gate, self._downgrade, hold, spec)
        match chance.choice(("short", "short", "short", "long", "keep", "keep")):
            case "short":
                lasts = chance.uniform(0.0, 0.3) * ttl
            case "long":  # beyond its end: somebody waits for that moment
                lasts = chance.uniform(1.0, 1.6) * ttl
            case _:
                lasts = chance.uniform(0.5, 3.0) * ttl
                if (not renewed or chance.random() < 0.3) and not parameters.one_writer:  # besides the renewer
                    self._extend_later(hold, spec)
        self.world.after(lasts, self.client.gate, ends, hold, spec)

    def _extend_later(self, hold: Hold, spec: LockSpec) -> None:
        pause = self.world.random.uniform(0.15, 0.6) * spec.ttl
        self.world.after(pause, self.client.gate, self._extend, hold, spec)

    def _extend(self, hold: Hold, spec: LockSpec, *others: bool) -> None:
        """``others``: the holder extends while another thread does, and not in its turn."""
        if hold is not self.hold:
            return
        client, chance = self.client, self.world.random
        self.judge.looked(hold)
        ttl = chance.choice((spec.ttl, spec.ttl, 0.5 * spec.ttl, client.parameters.max_ttl - spec.guard))
        ttl = max(ttl, 3 * client.parameters.node_timeout, spec.hold_at_least)
        extending_ = Extending(hold, ttl)

        def done(task: Task, outcome: Any, interrupted: BaseException | None) -> None:
            extending_.done(task, outcome, interrupted)
            if hold is self.hold and not others:
                self._extend_later(hold, spec)

        if chance.random() < 0.2 and not others:
            soon = chance.random() * client.parameters.node_timeout
            self.world.after(soon, client.gate, self._extend, hold, spec, True)
        op = extending.extend(client.settings, spec, hold.lease, ttl, client.clock())
        client.run(op, done, hold.attempt, extending_.sends)

    def _downgrade(self, hold: Hold, spec: LockSpec) -> None:
        """From now on it reads, and others may (R33)."""
        if hold is not self.hold:
            return
        self.judge.looked(hold)
        if hold.lease.valid:
            extending_ = Extending(hold, hold.lease.ttl)
            op = downgrade(self.client.settings, spec, hold.lease, self.client.clock())
            self.client.run(op, extending_.done, hold.attempt, extending_.sends)

    def _release(self, hold: Hold, spec: LockSpec) -> None:
        """Also while an extension is under way, as a thread may release what another one keeps."""
        if hold is not self.hold:
            return
        self.hold = None
        self.judge.looked(hold)
        self.judge.ended(hold)

        def done(task: Task, outcome: Any, interrupted: BaseException | None) -> None:
            self.world.log("released", hold.attempt, "interrupted" if interrupted else outcome)
            self.judge.released(hold, ours=outcome)
            self.think()

        op = releasing.release(self.client.settings, spec, hold.lease)
        self.client.run(op, done, hold.attempt, self._sends)

    def _desert(self, hold: Hold, spec: LockSpec) -> None:
        """This thread ends without releasing, or the `with` in it is torn down; another one takes its place."""
        if hold is self.hold:
            self.hold = None
            hold.abandoned = random.Random(hold.attempt.token).random() < self.client.parameters.abandoned
            self.judge.deserted(hold)
            if hold.abandoned:
                self.judge.ended(hold)
                self.client.renewer.left_behind(hold)
                self.judge.abandoned(hold)
            self.think()

    # -- the end -------------------------------------------------------------------------------------

    def open(self) -> None:
        """Go on after `close`."""
        if self._idle and not self._begins:
            self.think()

    def close(self) -> None:
        """Give back what is held, and stop trying."""
        if self.client.crashed:
            return
        if self.hold is not None:
            self._release(self.hold, spec_for(self.client, self.hold.lease.names, self.client.parameters.ttl))
        elif self._acquiring is not None:
            self._acquiring.strike()
