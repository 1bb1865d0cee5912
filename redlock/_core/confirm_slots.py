"""Slots where an expiry is confirmed by more than one clock (R32, R35).

An attempt for one slot does what one for a lock does.  An attempt for any of several counts a slot that is on record as
taken: it comes after one that was refused, and what it finds on record is asked for by itself after the next pause.
While most masters call another slot free, nothing is left to nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redlock._core import records
from redlock._core.confirm import ConfirmingBallot
from redlock._core.slots import SlotBallot, SlotTarget
from redlock._core.tokens import by_whom

if TYPE_CHECKING:
    from redlock._core.ballots import Ballot, Refusal
    from redlock._core.effects import Op
    from redlock._core.settings import LockSpec, MastersSettings
    from redlock._core.wire import Call
    from redlock.errors import Outcome


class ConfirmingSlotBallot(ConfirmingBallot):
    """The votes of an attempt for one slot."""

    def leave_phantom(self, spec: LockSpec, token: str, at: float) -> Op[None]:
        if not any(2 * left.count(0.0) > len(left) for left in zip(*self._slots, strict=True)):
            yield from super().leave_phantom(spec, token, at)


class ConfirmingAnyBallot(SlotBallot):
    """The votes of an attempt for any of several slots."""

    def read(self, master: int, value: Any) -> tuple[Outcome, str]:
        flagged = records.read_flagged(value)
        if flagged is None:
            return super().read(master, value)
        fence, shown, slots = flagged
        self.highest = max(self.highest, fence)
        self._settings.fences.learn(fence)
        self._slots += (slots,)
        return "held", f"{by_whom(next(iter(shown.values())).token)}, perhaps: a slot is on record, and its key is gone"

    def settling(self, spec: LockSpec, token: str, proposal: int) -> tuple[Call, frozenset[int]]:
        _, to = super().settling(spec, token, proposal)
        return records.settle(spec.keys, token, spec.ttl, proposal, self._settings.fence_ttl, [()]), to


class ConfirmingSlotTarget(SlotTarget):
    """One slot, or any of several, where an expiry is confirmed by more than one clock."""

    __slots__ = ("_again",)

    def first(self) -> None:
        self._again = False
        super().first()

    def ballot(self, settings: MastersSettings, call: Call, proposal: int) -> Ballot:  # type: ignore[override]
        if len(self.wanted) == 1:
            return ConfirmingSlotBallot(settings, call, proposal, again=self._again)
        return ConfirmingAnyBallot(settings, call, proposal, self.wanted)

    def refused(self, refusal: Refusal) -> Refusal | None:
        self._again = refusal.again
        if refusal.again:
            return refusal
        told = super().refused(refusal)
        # What was left to nobody is known: when it ends, it is asked for again.
        return told if told is None or told.remaining is not None else told._replace(remaining=refusal.remaining)
