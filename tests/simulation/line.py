"""The judge of those who wait in order (R42).

It sees which ticket is on which master, and since when without a gap.  Of the order it knows only this: who proposes a
ticket, or attempts without one, while the ticket of another is on a majority and stays there, comes behind that other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redlock import scripts
from redlock._core.fair.tickets import LIFE
from tests.bench.parameters import WRONG_FAULTS

if TYPE_CHECKING:
    from redlock._core.wire import Call
    from tests.bench.judge import Attempt, Hold, Judge
    from tests.simulation.master import Master

IN_ORDER = "R42 in order"
LEFT = "R42 leaves"

KEY = ":tickets"


class Waiter:
    """One operation that waits in order."""

    def __init__(self, client: Any, token: str, names: tuple[str, ...]) -> None:
        self.client, self.token, self.names = client, token, names
        self.number = 0  # of its ticket
        self.over = False
        # Its first number.  It may propose another one, and the first is on a majority all the same: the answers were late.
        self.proposed_at: float | None = None
        self.since: dict[int, float] = {}  # by master: its ticket has been there without a gap

    def __repr__(self) -> str:
        return f"{self.client}, who has the ticket {self.token}"

    @property
    def waits(self) -> bool:
        return not (self.over or self.client.dead)


class Line:
    """Part of the `Judge`."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.world = judge.world
        self.waiters: dict[str, Waiter] = {}  # by their tokens
        parameters = judge.parameters
        steps = any(map(parameters.rate, WRONG_FAULTS))
        self._judges_order = not steps and parameters.fence_ttl > parameters.max_ttl * 2

    def before(self, master: Master, call: Call) -> None:
        """A script is about to run."""
        waiter = self.waiters.get(call.args[1]) if call.script is scripts.TICKET else None
        if waiter is not None and not self._is_on(master, waiter, call.args[2]):
            waiter.since.pop(master.index, None)

    def after(self, master: Master, call: Call) -> None:
        if call.script is scripts.TICKET and (waiter := self.waiters.get(call.args[1])) is not None:
            if self._is_on(master, waiter, call.args[2]):
                waiter.since.setdefault(master.index, self.world.now)
            else:
                waiter.since.pop(master.index, None)

    def _is_on(self, master: Master, waiter: Waiter, number: str) -> bool:
        """Whether its ticket with this number is there for each name, and counts."""
        for name in waiter.names:
            key = master.find(f"{{redlock:{name}}}{KEY}")
            members = {} if key is None else key.members or {}
            ticket, end = members.get(f"t{waiter.token}"), members.get(f"e{waiter.token}")
            if ticket is None or end is None or str(ticket.expires) != number:
                return False
            if not master.now_ms < -(end.expires or 0) <= master.now_ms + 1000 * LIFE:
                return False
        return True

    # -- what has to be true -------------------------------------------------------------------------

    def granted(self, hold: Hold, attempt: Attempt, sent_at: float, own: Waiter | None) -> None:
        """``sent_at``: when its attempt began."""
        if own is not None and own.proposed_at is not None:
            sent_at = own.proposed_at
        if not self._judges_order:
            return
        need = len(self.judge.masters) // 2 + 1
        for waiter in self.waiters.values():
            if waiter is own or not waiter.waits or set(attempt.names).isdisjoint(waiter.names):
                continue
            known = [
                master.index
                for master in self.judge.masters
                if waiter.since.get(master.index, sent_at) < sent_at
                and master.tick()
                and self._is_on(master, waiter, str(waiter.number))
            ]
            if len(known) >= need:
                self.judge.fail(
                    IN_ORDER,
                    f"{attempt} was granted {attempt.names}, and {waiter} stands before it: "
                    f"masters {known} knew its ticket {waiter.number} before {sent_at:.4f}",
                )

    def clean(self) -> None:
        """Everything has had time to settle: no ticket is left."""
        for master in self.judge.masters:
            master.tick()
            left = [name for name in list(master.keys) if name.endswith(KEY) and master.find(name) is not None]
            if left and not master.jumped:
                self.judge.fail(LEFT, f"m{master.index} still has {left}")
