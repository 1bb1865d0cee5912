"""An attempt where masters have on record who had the name before (R35).  `expiry` judges what they say.

One round, as ever, if a majority has nothing on record: nearly always.  If f + 1 masters show that the same extension
has run out, a second round takes the name, where still the same is on record (`settle.lua`).

Otherwise nobody can tell, and the attempt has failed.  Then it leaves a *phantom* on the masters that did not refuse:
nobody's lease, for the longest TTL that is on record.  When that is over, f + 1 clocks say so.  It is sent after all
answers have come: so what it hides was sent before it, and ends before it.  It goes to one master first, in an order
that is the same for all clients, and to the others only if that one took it: waiters would split their phantoms.

If a key that is in the way ends soon, the attempt is repeated at that moment, once, before anything is left.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from redlock._core import records
from redlock._core.acquire import Target
from redlock._core.ballots import Ballot
from redlock._core.effects import Send
from redlock._core.expiry import judge
from redlock._core.rounds import GRANTED, Round
from redlock._core.tokens import by_whom, is_phantom
from redlock._core.wire import read_fence

if TYPE_CHECKING:
    from redlock._core.ballots import Refusal
    from redlock._core.effects import Op
    from redlock._core.expiry import Judgement, Records
    from redlock._core.quorum import Tally
    from redlock._core.settings import LockSpec, MastersSettings
    from redlock._core.wire import Call
    from redlock.errors import Outcome


class ConfirmingBallot(Ballot):
    """The votes of an attempt, and what masters have on record."""

    _placed = 0.0  # the TTL of the phantom, if one was left

    def __init__(self, settings: MastersSettings, call: Call, proposal: int, *, again: bool = False) -> None:
        """``again``: the attempt before has waited for a key that was to end."""
        super().__init__(settings, call, proposal)
        self._again = again
        self._shown: dict[int, Records] = {}  # by master
        self._soon = 0.0  # seconds until a key ends for which this attempt is repeated

    def read(self, master: int, value: Any) -> tuple[Outcome, str]:
        flagged = records.read_flagged(value)
        if flagged is None:
            return super().read(master, value)
        fence, shown, slots = flagged
        self.highest = max(self.highest, fence)
        self._settings.fences.learn(fence)
        if slots:
            self._slots += (slots,)
        if self.tally.outcome(master) is None:  # only its first answer is its vote
            self._shown[master] = shown
        return (
            "held",
            f"{by_whom(next(iter(shown.values())).token)}, perhaps: nobody has released it, and its key is gone",
        )

    @property
    def shown(self) -> dict[int, Records]:
        """By master.  Of one that may not vote nothing counts, and this neither (R21)."""
        return {master: shown for master, shown in self._shown.items() if self.tally.outcome(master) == "held"}

    @property
    def judgement(self) -> Judgement:
        tally = self.tally
        return judge(tally.size, tally.yes, self.shown, tally.size - tally.yes - tally.no)

    def ends(self, at: float) -> bool:
        if not self.open:
            return self.ended_at is not None
        if self.judgement.verdict == "open":
            return False
        self.ended_at, self.open = at, False
        return True

    @property
    def confirmed(self) -> bool:
        return self.judgement.verdict == "confirmed"

    # -- the second round ----------------------------------------------------------------------------

    def settling(self, spec: LockSpec, token: str, proposal: int) -> tuple[Call, frozenset[int]]:
        """To all but those that refused."""
        over, shown = self.judgement.over, self.shown
        may: list[set[str]] = [
            {f"{mark} {whose}" for which, mark, whose in over if which == name} for name in _names(spec)
        ]
        for records_ in shown.values():
            for name in set(_names(spec)) - set(records_):
                may[name].add(records.NONE)  # it has shown none of that one
        keys, shared = spec.keys, spec.mode.shared
        call = records.settle(keys, token, spec.ttl, proposal, self._settings.fence_ttl, may, shared=shared)
        asked = (
            master for master in self.reached() if self.tally.outcome(master) in ("granted", None) or master in shown
        )
        return call, frozenset(asked)

    # -- nobody can tell -----------------------------------------------------------------------------

    def leave_phantom(self, spec: LockSpec, token: str, at: float) -> Op[None]:
        """Leave the name to nobody for one TTL, if nobody can tell whether its last lease is over.

        Not if this process stood still meanwhile: by now others know more.
        """
        settings, tally = self._settings, self.tally
        if self.judgement.verdict != "doubt" or at - self.sent_at > 2 * settings.node_timeout:
            return
        self._soon = max((left for _, left in self._holders if left <= settings.node_timeout), default=0.0)
        if self._soon and not self._again:
            return
        shown = self.shown
        doubted = sorted({name for records_ in shown.values() for name in records_})
        may: list[set[str]] = [set() for _ in doubted]
        for records_ in shown.values():
            for place, name in enumerate(doubted):
                one = records_.get(name)
                may[place].add(records.NONE if one is None else f"{one.mark} {one.token}")
        ttl = max(one.ttl for records_ in shown.values() for one in records_.values())
        self.highest += 1
        settings.fences.learn(self.highest)
        keys = spec.keys._replace(
            locks=tuple(spec.keys.locks[name] for name in doubted),
            fences=tuple(spec.keys.fences[name] for name in doubted),
            grants=tuple(spec.keys.grants[name] for name in doubted),
        )
        proposal, shared = self.highest, spec.mode.shared
        call = records.settle(keys, token, ttl, proposal, settings.fence_ttl, may, phantom=True, shared=shared)
        there = (master for master in range(tally.size) if tally.outcome(master) == "granted" or master in shown)
        first, *others = sorted(there, key=lambda master: tally.masters[master])
        placed = PhantomRound(settings, call, frozenset((first,)))
        yield from placed.ask()
        if placed.tally.outcome(first) == "granted":
            self._placed = ttl
            yield Send(call, to=frozenset(others))

    def refusal(self, tally: Tally, at: float, valid_until: float) -> Refusal:
        refusal = super().refusal(tally, at, valid_until)
        if tally is not self.tally or refusal.kind != "held":
            return refusal
        shown = self.shown
        tokens = Counter(one.token for records_ in shown.values() for one in records_.values())
        if not refusal.holder and tokens:
            refusal = refusal._replace(holder=tokens.most_common(1)[0][0])
        if self._soon and not self._again:
            return refusal._replace(kept=self._soon, again=True)
        left = sorted(remaining for _, remaining in self._holders)
        missing = tally.need - tally.yes - len(shown)  # that many keys have to end before anybody can tell
        remaining = self._placed or (left[missing - 1] if 0 < missing <= len(left) else None)
        if remaining is not None and (self._placed or any(is_phantom(holder) for holder, _ in self._holders)):
            # All who wait for it wake then: not in the same moment.
            remaining += self._settings.random() * self._settings.node_timeout
        return refusal._replace(remaining=remaining, contended=refusal.contended and not self._placed)


class PhantomRound(Round):
    """Whether the first master took the phantom."""

    def read(self, master: int, value: Any) -> tuple[Outcome, str]:  # noqa: ARG002 - part of the interface
        return GRANTED if read_fence(value)[0] == 1 else ("held", "something else is there by now")

    def ends(self, at: float) -> bool:
        """Its one vote decides."""
        if self.open and self.tally.complete:
            self.ended_at, self.open = at, False
        return self.ended_at is not None


class ConfirmingTarget(Target):
    """A lock where an expiry is confirmed by more than one clock."""

    __slots__ = ("_again",)

    def __init__(self, spec: LockSpec) -> None:
        super().__init__(spec)
        self._again = False

    def ballot(self, settings: MastersSettings, call: Call, proposal: int) -> Ballot:  # type: ignore[override]
        return ConfirmingBallot(settings, call, proposal, again=self._again)

    def refused(self, refusal: Refusal) -> Refusal:
        self._again = refusal.again
        return refusal


def _names(spec: LockSpec) -> range:
    return range(len(spec.keys.locks))
