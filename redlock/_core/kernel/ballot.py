"""The votes of an attempt to take a lock, and what comes of them: a grant or a refusal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from redlock._core import wire
from redlock._core.kernel.rounds import GRANTED, Round
from redlock._core.outcomes import NEVER
from redlock._core.tokens import READERS, TICKETS, by_whom, released_token

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.effects import Op
    from redlock._core.kernel.quorum import Tally
    from redlock._core.local_queue import Place
    from redlock._core.settings import LockSpec
    from redlock.errors import Outcome, Vote


class Grant(NamedTuple):
    """A majority granted the lock, in time."""

    token: str
    fence: int | None
    valid_until: float
    decided_at: float
    asked: frozenset[int]  # masters that may have our keys
    votes: Callable[[], tuple[Vote, ...]]  # computed only when somebody reads them
    attempts: int = 1
    place: Place | None = None  # our place in line: the first
    tally: Tally | None = None  # of its last round: which masters have granted it by now (R37)
    listened: bool = False  # it waited for releases to be announced, and not all masters have granted it


class Refusal(NamedTuple):
    """The last attempt failed, and was rolled back.

    ``held``: somebody else has the lock.  ``unreachable``: too few masters took part (C2).  ``slow``: enough
    masters granted it, but too late: less than ``min_validity`` would have been left (R7).
    """

    kind: Literal["held", "unreachable", "slow"]
    tally: Tally
    at: float
    attempts: int = 1
    holder: str = ""  # if `held`: the token seen on most masters
    remaining: float | None = None  # seconds until a majority is free, unless a key is extended
    kept: float = 0.0  # if `held`: seconds for which nobody gets it: it was released, and is kept from all (R28)
    split: bool = False  # if `held`: no token was seen on a majority
    contended: bool = False  # ... and masters have granted it to several, one of whom may be us: nobody has it (C3)
    by_readers: bool = False  # if `held`: a master has readers (R33)
    lined: bool = False  # if `held`: a master says that others may wait in order (R42)
    again: bool = False  # a key that is in the way ends soon: it is tried again then, whatever the deadline (R35)
    crowd: int = 0  # if `held`: how many of this process wait in line, if no more are to (R40)
    validity: float | None = None  # if `slow`: the validity that would have been left
    slots: tuple[tuple[float, ...], ...] = ()  # of a group of slots: what each master that refused said of them
    since: float = NEVER  # when a majority took part last, as far as is known (R38)
    before: tuple[Refusal, ...] = ()  # the latest attempts before this one, if there is an observer


class Ballot(Round):
    """The votes of an attempt: grants with their fences, refusals with their holders."""

    in_line = False  # of a waiter that stands in line (R42)
    highest = 0  # the greatest fence that was proposed or shown
    elsewhere: tuple[int, ...] = ()  # masters that granted, but did not store our proposal
    _holders: tuple[tuple[str, float], ...] = ()
    _slots: tuple[tuple[float, ...], ...] = ()

    def read(self, master: int, value: Any) -> tuple[Outcome, str]:
        answer = wire.read_acquire(value)
        if isinstance(answer, wire.Taken):
            wire.check_ours(answer.fence, int(self.call.args[3]), answer.stored)
        self.learn(answer.fence)
        if isinstance(answer, wire.Taken):
            if answer.stored:
                return GRANTED
            if self.tally.outcome(master) is None:  # only its first answer is its vote
                self.elsewhere += (master,)
            return "granted", f"has the fence {answer.fence}, ours is not greater"
        self._holders += ((answer.holder, answer.remaining),)
        if answer.slots:
            self._slots += (answer.slots,)
        return "held", f"{by_whom(answer.holder)} {wire.how_long(answer.remaining)}"

    def learn(self, fence: int) -> None:
        self.highest = max(self.highest, fence)
        self._settings.fences.learn(fence)

    @property
    def stored(self) -> bool:
        """Whether a majority stored our proposal (R17).  Only votes that were counted matter here.

        An answer may have been read and not counted: a Ctrl-C came in between.
        """
        elsewhere = sum(self.tally.outcome(master) == "granted" for master in self.elsewhere)
        return self.tally.yes - elsewhere >= self.tally.need

    @property
    def confirmed(self) -> bool:
        """Whether a second round may take it, as its last lease is over for certain (R35)."""
        return False

    def settling(self, spec: LockSpec, token: str, proposal: int) -> tuple[wire.Call, frozenset[int]]:
        """The second round, and to which masters: those that granted or may yet grant (R17)."""
        granted = frozenset(master for master in self.reached() if self.tally.outcome(master) in ("granted", None))
        return wire.fence(spec.keys, token, proposal, self._settings.fence_ttl), granted

    def place_phantom(self, spec: LockSpec, token: str, at: float) -> Op[None]:  # noqa: ARG002 - see `confirm`
        """The attempt has failed: leave the name to nobody, if nobody can tell who has it (R35)."""
        yield from ()

    def _kept(self) -> float:
        """Seconds until a majority may be free, if all keys go now but those that a release has left (R28)."""
        tally = self.tally
        if self._slots:  # another one may be released
            return 0.0
        kept = sorted(left for holder, left in self._holders if released_token(holder) and left < math.inf)
        free = tally.size - len(kept)
        return kept[tally.need - free - 1] if free < tally.need else 0.0

    def refusal(self, tally: Tally, at: float, valid_until: float) -> Refusal:
        """Why the attempt failed.  ``tally``: the votes of its last round."""
        if tally.won:
            return Refusal("slow", self.tally, at, validity=valid_until - at)
        if tally.unreachable:
            return Refusal("unreachable", tally, at)
        if tally is not self.tally:
            return Refusal("held", tally, at, slots=self._slots, split=True, contended=True)  # by another one's fence
        tokens = [holder for holder, _ in self._holders]
        holder = max(tokens, key=tokens.count, default="")
        split = tokens.count(holder) < tally.need
        left = sorted(remaining for _, remaining in self._holders)
        missing = tally.need - tally.yes  # that many of these keys have to expire before we can win
        return Refusal(
            "held",
            tally,
            at,
            holder=holder,
            kept=self._kept(),
            split=split,
            contended=split and (tally.yes > 0 or len(set(tokens)) > 1),
            remaining=left[missing - 1] if missing <= len(left) else None,
            by_readers=READERS in tokens,
            lined=TICKETS in tokens,
            slots=self._slots,
        )


class SecondBallot(Round):
    """The votes of the second round: which masters stored the greater fence (R17)."""

    def read(self, master: int, value: Any) -> tuple[Outcome, str]:  # noqa: ARG002 - part of the interface
        verdict, fence = wire.read_fence(value)
        if verdict != -1:
            wire.check_ours(fence, int(self.call.args[2]), verdict == 1)
        self._settings.fences.learn(fence)
        if verdict == 1:
            return GRANTED
        return "held", f"has the fence {fence}, ours is not greater" if verdict == 0 else "not ours"
