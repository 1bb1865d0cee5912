"""What a candidate of an election does: the third one that carries out the steps of ``redlock/_core/election.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redlock._core import acquire as acquiring, election as electing, release as releasing
from redlock._core.election import Campaign, Lead, Pause, Progress, Resign, SayStopped
from redlock._core.retry import BETWEEN_TERMS
from redlock._core.stop import Stop, Stopped
from tests.simulation.actor import Actor, spec_for

if TYPE_CHECKING:
    from redlock._core.effects import Op
    from redlock._core.settings import LockSpec
    from tests.simulation.client import Client, Task
    from tests.simulation.invariants import Hold

REACTION = 0.05  # of the TTL: so long a body goes on that was told to end


class Candidate(Actor):
    """Stands for election, is stopped, and stands again later."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._stop = Stop()
        self._steps: Any = None
        self._progress = Progress()
        self._elected: Hold | None = None  # and its thread has not noticed
        self._body = 0  # the number of the one that runs; what is planned for another one is void
        self._leads: Hold | None = None
        self._pausing = 0

    def __repr__(self) -> str:
        return f"a candidate of {self.client}"

    def begin(self) -> None:
        chance, parameters = self.world.random, self.client.parameters
        self._begins = False
        if self.client.closing:
            return
        self._idle = False
        self._interruptions = 1
        self._retries = chance.random() < 0.5
        self._stop = stop = Stop()
        self._progress = Progress()
        self._steps = electing.election(stop, BETWEEN_TERMS if self._retries else None)
        self.judge.terms.begins(self)
        stop.subscribe(self, self._woken)
        if chance.random() < 0.7:
            self.world.after(chance.expovariate(1 / (3 * parameters.ttl)), self.client.gate, self.stop, stop)
        self._go_on(None)

    def stop(self, which: Stop) -> None:
        """The user stops an election that may be over by now."""
        if which is self._stop and self._steps is not None:
            self.world.log("stops", self)
            self.judge.terms.stopped(self)
        which.request()

    def _woken(self) -> None:
        """Something has happened that the body may want to know, or the pause."""
        if self._leads is not None:
            self._end_soon(self._body)
        elif self._pausing:
            self._paused(self._pausing)

    # -- the steps -----------------------------------------------------------------------------------

    def _go_on(self, result: object) -> None:
        try:
            step = self._steps.send(result)
        except StopIteration:
            self._steps = None
            self.judge.terms.ends(self)
            self.think()
            return
        self.world.log("step", self, type(step).__name__)
        self._begin_step(step)

    def _begin_step(self, step: Any) -> None:
        progress, chance = self._progress, self.world.random
        if self._interruptions and not isinstance(step, Campaign | Pause) and chance.random() < 0.03:
            # A signal handler raises right before the step begins.
            self._interruptions -= 1
            self.world.log("is interrupted", self)
            self.judge.terms.fails(self)
            self._steps = electing.unfinished(progress, KeyboardInterrupt())
            self._go_on(None)
            return
        if isinstance(step, Campaign):
            self._campaign()
        elif isinstance(step, Lead):
            self._lead(step.term)
        elif isinstance(step, SayStopped):
            if progress.begun is None:
                self._go_on(None)
                return
            progress.begun = None
            self.judge.terms.said_stopped(self, step.term)
            self._go_on(ValueError("on_stopped") if chance.random() < 0.1 else None)
        elif isinstance(step, Resign):
            self._resign(progress.stands)
        else:
            assert isinstance(step, Pause)
            self._pausing += 1
            self.world.after(
                min(step.seconds, self.client.parameters.ttl), self.client.gate, self._paused, self._pausing
            )

    def _paused(self, number: int) -> None:
        if number == self._pausing:
            self._pausing = 0
            self._go_on(None)

    def _campaign(self) -> None:
        self.judge.terms.campaigns(self)
        client = self.client
        self._spec = spec_for(client, ["lock-0"], client.parameters.ttl)
        self._invoked_at = self.world.now
        op = _campaign(
            acquiring.acquire(acquiring.Target(client.settings, self._spec), float("inf"), client.clock()), self._stop
        )
        self._acquiring = client.run(op, self._acquired, on_send=self._sends_acquire)

    def _acquired(self, task: Task, outcome: Any, interrupted: BaseException | None) -> None:
        self._acquiring = None
        if interrupted is not None:
            self._fail_attempt(task, "interrupted")
            self._steps = None
            self.judge.terms.interrupted(self)
            self.think()
        elif outcome is None:
            self._fail_attempt(task, "stopped")
            self._go_on(None)
        else:
            hold = self._hold_of(task, outcome)
            self.client.renewer.keep(hold, self._spec, renew=True, max_hold=None)
            hold.on_told = self._stop.wake
            self._progress.stands = hold
            chance = self.world.random
            if chance.random() < 0.05 and not self.client.paused:  # it is frozen before the body begins
                self._elected = hold
                self.judge.terms.late(self, True)
                seconds = 2.0 * chance.random() * self.client.parameters.ttl
                self.client.pause(seconds)
                self.world.after(seconds, self.client.resume)
                self.world.after(0.0, self.client.gate, self._goes_on_late, hold)
            else:
                self._go_on(hold)

    def _goes_on_late(self, hold: Hold | None) -> None:
        if hold is not None and hold is self._elected:
            self._elected = None
            self.judge.terms.late(self, False)
            self._go_on(hold)

    def _lead(self, term: Hold) -> None:
        """A body: it ends by itself, when it is told, or late; and raises or not."""
        chance, ttl = self.world.random, self.client.parameters.ttl
        self._progress.begun = term
        self.judge.terms.leads(self, term)
        self._body += 1
        self._leads = term
        self._deaf = chance.random() < 0.2
        self._raises = chance.random() < 0.2
        self.world.after(
            chance.choice((0.0, 1.0, 4.0)) * chance.random() * ttl, self.client.gate, self._end, self._body
        )
        if term.told or self._stop.requested():
            self._end_soon(self._body)

    def _end_soon(self, body: int) -> None:
        if not self._deaf:
            pause = REACTION * self.world.random.random() * self.client.parameters.ttl
            self.world.after(pause, self.client.gate, self._end, body)

    def _end(self, body: int) -> None:
        if body == self._body and self._leads is not None:
            self._leads = None
            self.judge.terms.body_ended(self, raised=self._raises and not self._retries)
            self._go_on(ValueError("lead") if self._raises else None)

    def _resign(self, term: Hold) -> None:
        self.judge.terms.resigns(self, term)
        self.judge.looked(term)
        self.judge.ended(term)

        def done(task: Task, outcome: Any, interrupted: BaseException | None) -> None:
            self.world.log("resigned", term.attempt, "interrupted" if interrupted else outcome)
            self.judge.released(term, ours=outcome)
            self._progress.stands = None
            self._go_on(None)

        op = releasing.release(self.client.settings, self._spec_of(term), term.lease)
        self.client.run(op, done, term.attempt, self._sends)

    def _spec_of(self, term: Hold) -> LockSpec:
        return spec_for(self.client, term.lease.names, self.client.parameters.ttl)

    # -- the end -------------------------------------------------------------------------------------

    def close(self) -> None:
        """Everything must come to its end now: the body ends as well."""
        if not self.client.crashed and self._steps is not None:
            self.stop(self._stop)
            self._goes_on_late(self._elected)
            self._end(self._body)


def _campaign(op: Op[Any], stop: Stop) -> Op[Any]:
    try:
        return (yield from electing.until_stopped(op, stop))
    except Stopped:
        return None
