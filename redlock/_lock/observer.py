"""Tells the observer of some `Masters`.  Imported only if there is one: most programs have none."""

from __future__ import annotations

from asyncio import CancelledError
from typing import TYPE_CHECKING, Any, Literal

from redlock import _events as events
from redlock._core import readings
from redlock._io.report import report_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from redlock._core.kernel.ballot import Grant, Refusal
    from redlock._core.lease import LeaseState


class Observer:
    """Makes the events for ``function``, and refers to nothing else: it must not keep a `Masters` alive."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[events.Event], object]) -> None:
        self._function = function

    def _emit(self, event: events.Event) -> None:
        try:
            self._function(event)
        # The user's function must not break what it observes.  It never waits, so a CancelledError is none of ours, but
        # the outcome of a future that it asked.  All else that is no `Exception` is to end the program, and goes on.
        except (Exception, CancelledError):  # noqa: BLE001
            report_failure("the observer failed")

    def acquired(self, name: str, grant: Grant, began: float, seconds: float) -> None:
        failed = _failed_attempts(grant.place.attempts, began) if grant.place is not None else ()
        votes, left, last = grant.votes, grant.valid_until - began - seconds, grant.tally
        fields = name, grant.token, grant.fence, grant.attempts, seconds, votes(), failed, left
        self._emit(events.LockAcquired(*fields, () if last is None or last is votes else last.votes()))

    def refused(self, name: str, refusal: Refusal, began: float, seconds: float) -> None:
        failed = _failed_attempts(refusal.waited.before, began)
        votes = refusal.tally.votes()
        self._emit(events.LockRefused(name, _kind(refusal), refusal.waited.attempts, seconds, votes, failed))

    def extended(self, lease: LeaseState, *, renewed: bool = False) -> None:
        """``renewed``: by the renewer, not by the holder."""
        left, bare = lease.remaining(), lease.pop_bare()
        self._emit(events.LeaseExtended(lease.name, lease.token, lease.fence, left, lease.votes, renewed, bare))

    def released(self, name: str, lease: LeaseState) -> None:
        lease.count_bare()
        held, votes, bare = lease.held_for, lease.last_votes(), lease.pop_bare()
        self._emit(events.LockReleased(name, lease.token, lease.fence, held, votes, bare))

    def lost(self, lease: LeaseState) -> None:
        lease.count_bare()
        reason, held, bare = lease.loss().reason, lease.held_for, lease.pop_bare()
        self._emit(events.LeaseLost(lease.name, lease.token, lease.fence, reason, held, bare, lease.guarded))

    def tell(self, kind: str, *fields: Any) -> None:
        self._emit(getattr(events, kind)(*fields))


def _kind(refusal: Refusal) -> Literal["held", "crowded", "unreachable", "slow", "unusable"]:
    if refusal.waited.crowd:
        return "crowded"
    return "unusable" if refusal.kind == "unreachable" and not readings.outage(refusal.tally) else refusal.kind


def _failed_attempts(refusals: Iterable[Refusal], began: float) -> tuple[events.FailedAttempt, ...]:
    return tuple(events.FailedAttempt(_kind(one), one.at - began, one.tally.votes()) for one in refusals)
