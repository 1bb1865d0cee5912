"""One round: ask masters, count until it is decided (R2)."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from redlock._core.effects import Op, Reply, Send, Timeout, Wait
from redlock._core.quorum import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from redlock._core.effects import Effect, Failure
    from redlock._core.terms import Terms
    from redlock.errors import Outcome

# From a master and its answer to an outcome and the reason for it; raises ValueError for nonsense.
Read: TypeAlias = "Callable[[int, Any], tuple[Outcome, str]]"
GRANTED: tuple[Outcome, str] = ("granted", "")


class Round:
    """One `Send` and the votes on it.  A vote for is one whose outcome is ``granted``."""

    __slots__ = ("_objection", "_read", "_terms", "_unsent", "request", "tally")

    def __init__(self, terms: Terms, request: Send, read: Read, before: Tally | None = None) -> None:
        """``before``: the round that this one goes on from, for masters that are not asked again."""
        self.request = request
        self.tally = Tally(terms.masters)
        if request.to is not None and len(request.to) < self.tally.size:
            for master in range(self.tally.size):
                if master not in request.to and not self.tally.inherit(before, master):
                    self.tally.count(master, "error", None, "not asked: it has no key of this lease")
        self._terms = terms
        self._objection = terms.electorate.objection
        self._read = read
        self._unsent: list[int] = []

    def ask(
        self,
        until: float = math.inf,
        *,
        end: Literal["decided", "settled", "complete"] = "decided",
        then: Iterable[Effect] = (),
    ) -> Op[float]:
        """Send, then count until the ``end`` or until ``until`` or `node_timeout` has passed.

        ``decided``: a majority granted or cannot any more.  ``settled``: nor can one deny.
        ``complete``: everybody has answered, which is for looking, not for locking.  ``then``: what is to be
        done as soon as the request is on its way.
        Returns the time of the event that ended it.
        """
        request, tally = self.request, self.tally
        try:
            yield request
            yield from then
            wait = Wait(min(until, request.sent_at + self._terms.node_timeout), few=tally.undecided_below)
            while True:
                event = yield wait
                wait.few = 1
                if type(event) is Reply:
                    if event.request is request:    # a straggler of an earlier round is not a vote
                        self._count(event)
                        if getattr(tally, end):
                            return event.at
                elif type(event) is Timeout:    # else a `Turn`, or what an `Ear` remembers
                    tally.time_out(event.at - request.sent_at)
                    return event.at
        finally:
            request.open = False

    def _count(self, reply: Reply) -> None:
        master, at = reply.master, reply.at
        if reply.failure is not None:
            self._count_failure(master, reply.failure)
            return
        latency = at - self.request.sent_at
        try:
            outcome, reason = self._read(master, reply.value)
        except ValueError as error:
            self.tally.count(master, "error", latency, str(error))
            return
        objection = self._objection(master, at)
        if objection is None:
            self.tally.count(master, outcome, latency, reason)
        else:   # R21, C16: it was asked, its vote is not counted
            configuration = objection.configuration
            self.tally.count(master, objection.outcome, latency, objection.reason, configuration=configuration)

    def _count_failure(self, master: int, failure: Failure) -> None:
        if not failure.sent:
            self._unsent.append(master)
        self.tally.count(master, failure.outcome, None, failure.reason, configuration=failure.configuration)

    def reached(self) -> frozenset[int]:
        """Masters that have the request, or may have it."""
        asked = everybody(self.tally.size) if self.request.to is None else self.request.to
        return asked.difference(self._unsent) if self._unsent else asked


@lru_cache
def everybody(masters: int) -> frozenset[int]:
    """One set for all leases."""
    return frozenset(range(masters))
