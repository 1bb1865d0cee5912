"""One round: ask masters, and count votes until they decide (R2).

A round counts its own votes, where an answer is read.  With threads, another thread may read it, under the mutex
of the connections.  A vote that decides the round also closes it, in the same step.  A `Timeout` is handed out only
after the round was closed under that mutex.

A master that grants nearly always answers the same bytes (`Call.usual`): `_core/exchange.py` counts these in place.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from redlock._core.effects import Op, Send, Timeout, Wait
from redlock._core.kernel.quorum import Tally
from redlock._core.outcomes import NEVER, Failure

if TYPE_CHECKING:
    from redlock._core.settings import MastersSettings
    from redlock._core.wire import Call
    from redlock.errors import Outcome

RoundEnd: TypeAlias = Literal["decided", "conclusive", "complete"]

GRANTED: tuple[Outcome, str] = ("granted", "")


class Round(Send, ABC):
    """A `Send` that counts its answers as votes, as they come.  A vote for it is ``granted``.

    Each subclass says what an answer means, and in `_until` what ends the round:

    - ``decided``: a majority granted, or none can grant any more.
    - ``conclusive``: a majority granted or denied, or none can do either any more.
    - ``complete``: every master has answered.  That is for looking, not for locking.
    """

    _until: ClassVar[RoundEnd] = "decided"
    decided_at: float | None = None  # the time of the answer that ended it
    _unsent: tuple[int, ...] = ()

    def __init__(
        self,
        settings: MastersSettings,
        call: Call,
        to: frozenset[int] | None = None,
        owed_until: float | None = None,
        before: Tally | None = None,
    ) -> None:
        """``before``: the votes of the round before, for masters that are not asked again."""
        # Not by a call of `Send`: each round that is made costs every user.
        self.call, self.usual, self.to, self.owed_until = call, call.usual, to, owed_until
        self.open = True
        self.tally = self.counts = tally = Tally(settings.masters)
        self._settings = settings
        if to is not None and len(to) < tally.size:
            for master in range(tally.size):
                if master not in to and not tally.inherit(before, master):
                    tally.count(master, "error", None, "not asked: it has no key of this lease")

    @abstractmethod
    def read(self, master: int, value: Any) -> tuple[Outcome, str]:
        """The vote that ``value`` is, and the reason for it.

        Raises ValueError if it makes no sense, ConnectionAbortedError if it cannot be the answer to this request.
        """

    def ask(self, until: float = math.inf) -> Op[float]:
        """Send, and wait until the votes end the round, or until ``until`` or `node_timeout` has passed.

        Returns the time at which the round ended; `NEVER` if it was not sent (`Send.enters`).
        """
        try:
            event = yield self
            while self.decided_at is None:
                if type(event) is Timeout:
                    self.tally.time_out(event.at - self.sent_at)
                    return event.at
                if self.enters is not None and self.sent_at == NEVER:
                    return NEVER
                # A `Turn`, a `Notified` or an earlier round means nothing here.
                event = yield Wait(min(until, self.sent_at + self._settings.node_timeout), False, self)
            return self.decided_at
        finally:
            self.open = False

    # -- called by the connections -------------------------------------------------------------------

    def voted(self, master: int, at: float, outcome: Outcome = "granted", reason: str = "") -> bool:
        tally = self.tally
        if at > self._settings.voters.votes_from[master]:
            tally.count(master, outcome, at - self.sent_at, reason)
        else:
            self._overrule(master, outcome, reason, at)
        # Without a "no" and without a majority, nothing can be decided.
        return (tally.no > 0 or tally.yes >= tally.need) and self.decides(at)

    def answered(self, master: int, value: Any, at: float) -> bool:
        try:
            outcome, reason = self.read(master, value)
        except ValueError as error:
            self.tally.count(master, "error", at - self.sent_at, str(error))
            return self.decides(at)
        return self.voted(master, at, outcome, reason)

    def _overrule(self, master: int, outcome: Outcome, reason: str, at: float) -> None:
        """Count the vote of a master that may not vote, with the reason (R21, C16)."""
        not_counted = self._settings.voters.why_not_counted(master, at)
        if not_counted is None:
            self.tally.count(master, outcome, at - self.sent_at, reason)
        else:
            self.tally.fail(master, not_counted, at - self.sent_at)

    def late(self, master: int, value: Any, at: float) -> None:  # noqa: ARG002 - part of the interface
        """Note it if ``value``, which came after the votes were counted, says that ``master`` has granted it.

        `read` is not asked: an operation may be looking at what it has noted.
        """
        if isinstance(value, list) and value[:1] in ([1], [2]):
            self.tally.late |= 1 << master

    def failed(self, master: int, failure: Failure, at: float) -> bool:
        if not failure.sent:
            self._unsent += (master,)
        self.tally.fail(master, failure)
        return self.decides(at)

    def decides(self, at: float) -> bool:
        if self.open and getattr(self.tally, self._until):
            self.decided_at, self.open = at, False
        return self.decided_at is not None

    # ------------------------------------------------------------------------------------------------

    def reached(self) -> frozenset[int]:
        """The masters that have the request, or may have it."""
        asked = everybody(self.tally.size) if self.to is None else self.to
        return asked.difference(self._unsent) if self._unsent else asked


@lru_cache
def everybody(masters: int) -> frozenset[int]:
    """All masters, as one set that all leases share."""
    return frozenset(range(masters))
