"""An attempt where masters have a record of the last holder of the name (R35).  `expiry` judges what they say.

One round, as always, if a majority has nothing on record: nearly always.  If f + 1 masters show that the same extension
has run out, a second round takes the name, where still the same is on record (`confirm.lua`).

Otherwise the attempt leaves a *phantom* on the masters that did not refuse: a lease without a holder, for the longest
TTL that is on record.  It is sent after all answers, so it outlasts all leases that it may hide.  One master gets it
first, the same for all clients, and the others only if that one took it: else waiters would split phantoms.

An attempt for one slot does the same (R32).  One for any of several asks for a recorded slot after the next pause.
"""

from __future__ import annotations

import math
from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from redlock._core.confirm import records
from redlock._core.confirm.expiry import Judgement, Records, judge
from redlock._core.effects import Op, Send
from redlock._core.kernel.ballot import Ballot, Refusal
from redlock._core.kernel.rounds import GRANTED, Round
from redlock._core.notes import Doubt
from redlock._core.settings import LockSpec, Mode
from redlock._core.tokens import by_whom, is_phantom
from redlock._core.wire import Call, Held, Keys, read_fence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redlock._core.kernel.quorum import Tally
    from redlock.errors import Outcome


class ConfirmingBallot(Ballot):
    """The votes of an attempt, and what masters have on record."""

    _placed = 0.0  # the TTL of the phantom, if one was left
    _shown: Mapping[int, Records] = MappingProxyType({})  # by master
    _soon = 0.0  # this attempt is repeated after so many seconds, when a key has expired

    def read(self, master: int, value: Any) -> tuple[Outcome, str]:
        flagged = records.read_flagged(value)
        if flagged is None:
            return super().read(master, value)
        fence, shown, slots = flagged
        self.learn(fence)
        self.held += (Held(fence, "", math.inf, slots),)  # no holder there
        if self.tally.outcome(master) is None:  # only its first answer is its vote
            self._shown = {**self._shown, master: shown}
        whose = by_whom(next(iter(shown.values())).token)
        return "held", f"{whose}, perhaps: it was not released, and its key is gone"

    @property
    def shown(self) -> dict[int, Records]:
        """By master.  A master that may not vote has no say here either (R21)."""
        return {master: shown for master, shown in self._shown.items() if self.tally.outcome(master) == "held"}

    @property
    def judgement(self) -> Judgement:
        tally = self.tally
        return judge(tally.size, tally.yes, self.shown, tally.size - tally.yes - tally.no)

    def decides(self, at: float) -> bool:
        tally = self.tally
        if self.open and (tally.yes >= tally.need or (tally.no and self.judgement.verdict != "open")):
            self.decided_at, self.open = at, False
        return self.decided_at is not None

    def _needs_another_round(self) -> bool:
        """Whether the votes need one: also if the last lease has certainly ended."""
        return super()._needs_another_round() if self.tally.won else self.judgement.verdict == "confirmed"

    def _next_call(self, spec: LockSpec, token: str, proposal: str) -> tuple[Call, frozenset[int]]:
        """The second round goes to all but the masters that refused."""
        over, shown, keys, shared = self.judgement.over, self.shown, spec.keys, spec.mode.shared
        may: list[set[str]] = [
            {f"{stamp} {whose}" for which, stamp, whose in over if which == name}
            | {records.NONE for said in shown.values() if name not in said}  # it has shown no record of that name
            for name in range(len(keys.locks))
        ]
        call = records.confirm(keys, token, spec.lasts, proposal, self._settings.fence_ttl, may, shared=shared)
        asked = (one for one in self.reached() if self.tally.outcome(one) in ("granted", None) or one in shown)
        return call, frozenset(asked)

    def after_refusal(self, spec: LockSpec, token: str, at: float, before: Refusal | None) -> Op[None]:
        """Keep the name from all for one TTL, if its last lease may still be valid.

        Not if this process was stopped until now: others know more.  Nor while most masters report another slot free.
        If a key that is in the way ends soon, the attempt is repeated at that moment, once, before anything is left.
        """
        free = zip(*(one.slots for one in self.held if one.slots), strict=True)
        if any(2 * left.count(0.0) > len(left) for left in free):
            return
        settings, tally = self._settings, self.tally
        if self.judgement.verdict != "doubt" or at - self.sent_at > 2 * settings.node_timeout:
            return
        soon = max((left for _, left in self._holders() if left <= settings.node_timeout), default=0.0)
        if soon and not (before and before.doubt.soon):
            self._soon = soon
            return
        shown = self.shown
        doubted = sorted({name for records_ in shown.values() for name in records_})
        may = [
            {f"{one.stamp} {one.token}" if (one := said.get(name)) else records.NONE for said in shown.values()}
            for name in doubted
        ]
        ttl = max(one.ttl for records_ in shown.values() for one in records_.values())
        self.learn(self.highest + 1)
        keys, shared = Keys(*(tuple(of_names[name] for name in doubted) for of_names in spec.keys)), spec.mode.shared
        call = records.confirm(keys, token, ttl, self.highest, settings.fence_ttl, may, phantom=True, shared=shared)
        there = (master for master in range(tally.size) if tally.outcome(master) == "granted" or master in shown)
        first, *others = sorted(there, key=lambda master: tally.masters[master])
        placed = PhantomRound(settings, call, frozenset((first,)))
        yield from placed.ask()
        if placed.tally.outcome(first) == "granted":
            self._placed = ttl
            yield Send(call, to=frozenset(others))

    def _holders(self) -> list[tuple[str, float]]:
        return [(one.holder, one.remaining) for one in self.held if one.holder]

    def refusal(self, tally: Tally, at: float, valid_until: float) -> Refusal:
        refusal = super().refusal(tally, at, valid_until)
        if tally is not self.tally or refusal.kind != "held":
            return refusal
        shown = self.shown
        tokens = Counter(one.token for records_ in shown.values() for one in records_.values())
        if tokens:
            refusal = refusal._replace(doubt=Doubt(tokens.most_common(1)[0][0], self._soon))
        if self._soon:
            return refusal
        left = sorted(remaining for _, remaining in self._holders())
        missing = tally.need - tally.yes - len(shown)  # that many keys have to expire before masters can tell
        remaining = self._placed or (left[missing - 1] if 0 < missing <= len(left) else None)
        if remaining is not None and (self._placed or any(is_phantom(holder) for holder, _ in self._holders())):
            # All waiters for it wake then: not at the same moment.
            remaining += self._settings.random() * self._settings.node_timeout
        return refusal._replace(remaining=remaining, contended=refusal.contended and not self._placed)


class PhantomRound(Round):
    """Whether the first master took the phantom: its one vote decides."""

    _until = "complete"

    def read(self, master: int, value: Any) -> tuple[Outcome, str]:  # noqa: ARG002 - part of the interface
        return GRANTED if read_fence(value)[0] == 1 else ("held", "its record has changed since")


RECORDED = Mode(False, ConfirmingBallot, records.acquire, records.extend, records.repair, records.release)
