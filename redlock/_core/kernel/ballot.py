"""The votes of an attempt to take a lock, and what comes of them: a grant or a refusal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from redlock._core import wire
from redlock._core.kernel.rounds import GRANTED, Round
from redlock._core.notes import Doubt, Waited
from redlock._core.tokens import by_whom

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.effects import Op, Send
    from redlock._core.kernel.quorum import Tally
    from redlock._core.local_queue import Place
    from redlock._core.settings import LockSpec
    from redlock.errors import Outcome, Vote


@dataclass(slots=True, eq=False)
class Grant:
    """A majority granted the lock, in time."""

    token: str
    fence: int | None
    valid_until: float
    decided_at: float
    asked: frozenset[int]  # masters that may have our keys
    votes: Callable[[], tuple[Vote, ...]]  # computed only when they are read
    attempts: int = 1
    place: Place | None = None  # our place in the line of this process
    tally: Tally | None = None  # of its last round: which masters have granted it by now
    lock: LockSpec | None = None  # what was granted

    _replace = replace


class Refusal(NamedTuple):
    """The last attempt failed, and was rolled back.

    ``held``: others have the lock.  ``unreachable``: too few masters took part (C2).  ``slow``: enough masters granted
    it, but too late: less than ``min_validity`` would have been left (R7).
    """

    kind: Literal["held", "unreachable", "slow"]
    tally: Tally
    at: float
    held: tuple[wire.Held, ...] = ()  # if `held`: the answers of the masters that refused it
    remaining: float | None = None  # seconds until a majority is free, unless a key is extended
    contended: bool = False  # if `held`: several asked at once, perhaps this client too, and none has it (C3)
    validity: float | None = None  # if `slow`: the validity that would have been left
    # -- records of policies --
    waited: Waited = Waited()
    doubt: Doubt = Doubt()

    @property
    def holder(self) -> str:
        """If `held`: the token seen on most masters."""
        tokens = self._tokens()
        return max(tokens, key=tokens.count, default="")

    @property
    def split(self) -> bool:
        """If `held`: no token was seen on a majority."""
        return self.kind == "held" and self._tokens().count(self.holder) < self.tally.need

    def _tokens(self) -> list[str]:
        return [one.holder for one in self.held if one.holder]


class Ballot(Round):
    """The round of an attempt.  A policy that reads answers in another way is a subclass (`Mode.ballot`)."""

    highest = 0  # the greatest fence that was proposed or shown
    unstored: tuple[int, ...] = ()  # masters that granted, but did not store our proposal
    held: tuple[wire.Held, ...] = ()
    granted_spec: LockSpec | None = None  # what was granted, if that is a part of the request

    def read(self, master: int, value: Any) -> tuple[Outcome, str]:
        answer = wire.read_acquire(value)
        if isinstance(answer, wire.Taken):
            wire.check_ours(answer.fence, int(self.call.args[3]), answer.stored)
        self.learn(answer.fence)
        if isinstance(answer, wire.Taken):
            if answer.stored:
                return GRANTED
            if self.tally.outcome(master) is None:  # only its first answer is its vote
                self.unstored += (master,)
            return "granted", f"has the fence {answer.fence}, ours is not greater"
        self.held += (answer,)
        return "held", f"{by_whom(answer.holder)} {wire.how_long(answer.remaining)}"

    def learn(self, fence: int) -> None:
        """Every answer shows a fence, and the next proposal exceeds all of them (R16)."""
        self.highest = max(self.highest, fence)
        self._settings.fences.learn(fence)

    def next_round(self, spec: LockSpec, token: str) -> FenceRound | None:
        """The second round, if the votes need one (R17)."""
        if not self._needs_another_round():
            return None
        self.learn(self.highest + 1)
        call, to = self._next_call(spec, token, spec.mode.written(self.highest))
        return FenceRound(self._settings, call, to, before=self.tally)

    def _needs_another_round(self) -> bool:
        """A majority granted, and no majority stored our proposal.

        Only votes that were counted matter: an answer may have been read and not counted, if a Ctrl-C came between.
        """
        unstored = sum(self.tally.outcome(master) == "granted" for master in self.unstored)
        return self.tally.won and self.tally.yes - unstored < self.tally.need

    def _next_call(self, spec: LockSpec, token: str, proposal: str) -> tuple[wire.Call, frozenset[int]]:
        """To those that granted or may yet grant."""
        granted = frozenset(master for master in self.reached() if self.tally.outcome(master) in ("granted", None))
        return wire.fence(spec.keys, token, proposal, self._settings.fence_ttl), granted

    def after_grant(self, token: str) -> tuple[Send, ...]:  # noqa: ARG002 - see `slots`
        """Gives back what masters have granted besides, if ``granted_spec`` is not all of the request."""
        return ()

    def after_refusal(self, spec: LockSpec, token: str, at: float, before: Refusal | None) -> Op[None]:  # noqa: ARG002
        """What to leave on masters after a failed attempt. ``before``: the refusal before that, None at first."""
        yield from ()

    def refusal(self, tally: Tally, at: float, valid_until: float) -> Refusal:
        """Why the attempt failed.  ``tally``: the votes of its last round."""
        if tally.won:
            return Refusal("slow", self.tally, at, validity=valid_until - at)
        if tally.unreachable:
            return Refusal("unreachable", tally, at)
        if tally is not self.tally:  # the second round: the fence of another client is greater
            return Refusal("held", tally, at, contended=True)
        left = sorted(one.remaining for one in self.held)
        missing = tally.need - tally.yes  # that many of these keys have to expire before we can win
        refusal = Refusal("held", tally, at, self.held, left[missing - 1] if missing <= len(left) else None)
        several = tally.yes > 0 or len({one.holder for one in self.held if one.holder}) > 1
        return refusal._replace(contended=True) if several and refusal.split else refusal


class FenceRound(Round):
    """The second round: which masters stored the greater fence (R17); an equal one is none (R18)."""

    def read(self, master: int, value: Any) -> tuple[Outcome, str]:  # noqa: ARG002 - part of the interface
        verdict, fence = wire.read_fence(value)
        if verdict != -1:
            wire.check_ours(fence, self.proposal, verdict == 1)
        self._settings.fences.learn(fence)
        if verdict == 1:
            return GRANTED
        return "held", f"has the fence {fence}, ours is not greater" if verdict == 0 else "not ours"

    @property
    def proposal(self) -> int:
        return int(self.call.args[2])
