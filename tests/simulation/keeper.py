"""Keeps the leases of one client: a roster and one alarm, as the keepers of the shells do it.

What is decided is decided in ``redlock/_core/keep.py``; here is only who waits, on a clock that
somebody else moves.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from redlock import scripts
from redlock._core import keep as keeping_
from redlock._core.release import aside

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.effects import Send
    from redlock._core.keep import Keeping
    from redlock._core.terms import Plan
    from tests.simulation.client import Client, Task
    from tests.simulation.invariants import Hold


class Extending:
    """Tells the judge of one extension: when it is sent, and how it ended."""

    def __init__(self, hold: Hold, ttl: float) -> None:
        self.hold = hold
        self._judge = hold.client.judge
        self._sent: Send | None = None
        self._won = False
        hold.attempt.longest = max(hold.attempt.longest, ttl)

    def sends(self, request: Send, task: Task) -> None:
        if request.call.script is scripts.EXTEND:
            self._sent = request
            self._judge.shortened(self.hold)
        elif request.call.script is scripts.REPAIR:  # only after it was won, and perhaps written later
            self._kept(task)

    def done(self, task: Task, outcome: Any, interrupted: BaseException | None) -> None:
        hold = self.hold
        hold.client.world.log("extension", hold.attempt, "interrupted" if interrupted else outcome.kind)
        # What was interrupted after it had been won, while it repaired, has been won.
        if hold.lease.valid_until > hold.until or (outcome is not None and outcome.kind == "kept"):
            self._kept(task)
        self._judge.looked(hold)

    def _kept(self, task: Task) -> None:
        if not self._won and self._sent is not None:
            self._won = True
            self._judge.extended(self.hold, self.hold.lease.votes, task.origins[self._sent])


class Keeper:
    """Renews, and tells when a lease is lost.  Stands still while its process does."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._roster = keeping_.Roster()
        self._holds: dict[Keeping, Hold] = {}
        self._alarm = 0  # the number of the one that is not void
        self._alarm_at = math.inf

    def keep(self, hold: Hold, plan: Plan, *, renew: bool, max_hold: float | None) -> None:
        client = self._client
        keeping = keeping_.Keeping(
            client.terms,
            plan,
            hold.lease,
            client.clock(),
            renew=renew,
            max_hold=max_hold,
            alive=lambda: hold.deserted_at is None,
            random=client.world.random.random,
            tell=partial(client.judge.told, hold),
        )
        client.judge.watch(hold, renew=renew, max_hold=max_hold)
        self._holds[keeping] = hold
        hold.lease._on_change = partial(self._put_back, keeping)
        self._put_back(keeping)

    def _put_back(self, keeping: Keeping) -> None:
        """Its lease has ended, or its time has moved."""
        if self._roster.put(keeping) != keeping_.OVER:
            self._set_alarm()
        elif keeping.lease.lost:
            for leave in aside(keeping.lease):  # others need not wait for who has lost it (R23)
                self._client.let_pass(leave)
            # Not in the middle of what found it out.
            self._client.world.after(0.0, self._client.gate, keeping.tell)

    def _set_alarm(self) -> None:
        due = self._roster.next()
        if due < self._alarm_at:
            self._alarm_at = due
            self._alarm += 1
            world = self._client.world
            # Not now: converting between two clocks is inexact, and the alarm must not be early for ever.
            at = max(self._client.true_time(due), world.now + 1e-7)
            world.at(at, self._client.gate, self._ring, self._alarm)

    def _ring(self, number: int) -> None:
        if number != self._alarm:
            return
        self._alarm_at = math.inf
        now = self._client.clock()
        for keeping in self._roster.take(now):
            task = keeping.look(now)
            if task is not None:
                self._run(task, keeping)
            self._put_back(keeping)
        self._set_alarm()

    def _run(self, op: keeping_.Task, keeping: Keeping) -> None:
        hold, judge = self._holds[keeping], self._client.judge
        extending = Extending(hold, hold.lease.ttl)

        def sends(request: Send, task: Task) -> None:
            if request.call.script is scripts.RELEASE:  # it was held for as long as it may be (C7)
                judge.gave_up(hold, request)
            elif request.call.script is scripts.EXTEND:
                judge.renews(hold)
            extending.sends(request, task)

        def done(task: Task, outcome: Any, interrupted: BaseException | None) -> None:
            if outcome is not None:
                extending.done(task, outcome, interrupted)
            self._put_back(keeping)

        start: Callable[..., Any] = self._client.run
        start(op, done, hold.attempt, sends, background=True)
