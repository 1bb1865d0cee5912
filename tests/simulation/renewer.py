"""Keeps the leases of one client, as the renewers of the shells do it: here is only who waits, on a clock that
somebody else moves.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from redlock._core.lease import LeaseState
from redlock._io.renewer import Renewer as Shipped
from tests.simulation.invariants import EXTENDS, RELEASES, RENEWS

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core import renewals as renewing
    from redlock._core.effects import Send
    from redlock._core.local_queue import Place
    from redlock._core.quorum import Tally
    from redlock._core.renewals import Presence, Renewal
    from redlock._core.settings import LockSpec
    from redlock.errors import Reason
    from tests.simulation.client import Client, Task
    from tests.simulation.invariants import Hold


class Lease(LeaseState):
    """Lets the judge know at once when an extension of it is won, which may be long before its operation is over, and
    which operation found out that it is lost.
    """

    __slots__ = ("client", "lost_by")
    client: Client
    lost_by: Task | None

    def extended(self, *won: Any) -> None:
        super().extended(*won)
        task = self.client.driven
        if task is not None and self in task.kept:
            task.kept[self]()

    def lose(self, reason: Reason) -> None:
        if self._lost is None:
            self.lost_by = self.client.driven
        super().lose(reason)


class Extending:
    """Tells the judge of one extension: when it is sent, and how it ended."""

    def __init__(self, hold: Hold, ttl: float) -> None:
        self.hold = hold
        self._judge = hold.client.judge
        self._sent: Send | None = None
        self._won = False
        hold.attempt.longest = max(hold.attempt.longest, ttl + hold.lease.guarded)

    def sends(self, request: Send, task: Task) -> None:
        if request.call.script in (*EXTENDS, *RENEWS):
            self._sent = request
            self._judge.shortened(self.hold)
            task.kept[self.hold.lease] = partial(self._kept, task)

    def done(self, task: Task, outcome: Any, interrupted: BaseException | None) -> None:
        hold = self.hold
        hold.client.world.log("extension", hold.attempt, "interrupted" if interrupted else outcome.kind)
        # What was interrupted after it had been won, while it repaired, has been won.
        if hold.lease.valid_until > hold.until or (outcome is not None and outcome.kind == "kept"):
            self._kept(task, outcome and outcome.tally)
        lost = outcome is not None and outcome.kind == "lost" and not hold.let_go
        # Of several under way at once one proves the loss, and to the others it is lost as well.
        lost = lost and hold.lease.lost_by in (None, task)
        if lost and self._sent is not None and hold.client.clock() < min(hold.until, hold.ends):
            self._judge.denied(hold, self._sent.call)
        self._judge.looked(hold)

    def _kept(self, task: Task, tally: Tally | None = None) -> None:
        if not self._won and self._sent is not None:
            self._won = True
            # If a later one was won before, the lease has the votes of that one.
            votes = self.hold.lease.votes if tally is None else tally.votes()
            self._judge.extended(self.hold, votes, task.origins.get(self._sent, {}), self._sent.call)


class HeldBy:
    """The holder of a lease, for its renewal."""

    def __init__(self, hold: Hold) -> None:
        self.hold = hold

    def presence(self) -> Presence:
        hold = self.hold
        return "here" if hold.deserted_at is None else "abandoned" if hold.abandoned else "gone"

    def notify_lost(self, on_lost: object) -> None:
        assert on_lost is None
        self.hold.client.judge.told(self.hold)
        if self.hold.on_told is not None:
            self.hold.on_told()


class Renewer(Shipped):
    """Renews, and tells of losses.  Stands still while its process does.  It is its own `Port`, and its connections."""

    here, closed, stopped = True, False, ()

    def __init__(self, client: Client) -> None:
        port: Any = self
        super().__init__(port, port)
        self._client = client
        self._holds: dict[Renewal, Hold] = {}
        self._alarm = 0  # the number of the one that is not void

    def keep(self, hold: Hold, spec: LockSpec, *, renew: bool, max_hold: float | None) -> None:
        client = self._client
        spec = spec._replace(auto_extend=renew, max_hold=max_hold)
        client.judge.watch(hold, renew=renew, max_hold=max_hold)
        renewal = self.add(client.settings, spec, hold.lease, HeldBy(hold), client.clock())
        self._holds[renewal] = hold

    def now(self) -> float:
        return self._client.clock()

    def tick_at(self, at: float) -> None:
        self._alarm += 1
        world = self._client.world
        # Not now: converting between two clocks is inexact, and the alarm must not be early for ever.
        due = max(self._client.true_time(at), world.now + 1e-7)
        world.at(due, self._client.gate, self._on_alarm, self._alarm)

    def _on_alarm(self, number: int) -> None:
        if number == self._alarm:
            at = self.work(self.now())
            if at < math.inf:
                self.tick_at(at)

    def leave(self, place: Place) -> None:
        self._client.let_pass(place)

    def call_soon(self, call: Callable[[], object]) -> None:
        self._client.world.after(0.0, self._client.gate, call)

    def left_behind(self, hold: Hold) -> None:
        """A holder of its lease has gone, as the collector tells the renewers of the shells."""
        [renewal] = [one for one, kept in self._holds.items() if kept is hold]
        self._check_now(renewal)  # at once: the judge sees what comes of it

    def start(self, op: renewing.Task, renewals: list[Renewal]) -> None:
        judge = self._client.judge
        extendings = {renewal: Extending(self._holds[renewal], renewal.lease.ttl) for renewal in renewals}

        def sends(request: Send, task: Task) -> None:
            for extending in extendings.values():
                hold = extending.hold
                if hold.attempt.token in request.call.args:
                    if (
                        request.call.script in RELEASES
                    ):  # it was held for as long as it may be (C7), or is nobody's (R15)
                        judge.gave_up(hold, request)
                    elif request.call.script in (*EXTENDS, *RENEWS):
                        judge.renews(hold)
                    extending.sends(request, task)
                    # Of a round for many the judge knows whose key is whose; all else is on behalf of one.
                    task.attempt = None if request.call.script in RENEWS else hold.attempt

        def done(task: Task, outcome: Any, interrupted: BaseException | None) -> None:
            assert interrupted is None
            for renewal, extension in outcome.items():
                extendings[renewal].done(task, extension, interrupted)
            self.ended(renewals)

        start: Callable[..., Any] = self._client.run
        start(op, done, None, sends, background=True)
