"""Keeping a lock: set the TTL of keys that are still ours, and never bring back one that is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from redlock._core import quorum, wire
from redlock._core.effects import Op, Send
from redlock._core.release import Claim

if TYPE_CHECKING:
    from redlock._core.lease import LeaseState
    from redlock._core.quorum import Tally
    from redlock._core.terms import Plan, Terms


@dataclass(frozen=True, slots=True)
class Extension:
    """How it ended: ``kept`` with a new validity, ``lost``, or ``unanswered`` with the one it had (R13)."""

    kind: Literal["kept", "lost", "unanswered"]
    at: float
    tally: Tally | None = None


def extend(terms: Terms, plan: Plan, lease: LeaseState, ttl: float, now: float) -> Op[Extension]:
    """Set the TTL to ``ttl`` on a majority that still holds the token (R12)."""
    if not lease._extendable:  # noqa: SLF001 - the operations are its other half
        return Extension("lost", now)
    # C6: the keys may have the new, shorter TTL from the moment at which this is sent.
    number: int | None = None
    before = lease.valid_until
    try:
        number = lease._extension_begins(quorum.valid_until(now, ttl, terms.drift_factor), ttl)  # noqa: SLF001
        if lease.valid_until < before:
            lease._changed()  # noqa: SLF001
        return (yield from _ask(terms, plan, lease, ttl, number))
    finally:
        if number is not None:
            lease._extension_ends()  # noqa: SLF001
        lease._changed()  # noqa: SLF001 - it lasts longer; or too few have answered, and its keeper has no time to lose


def _ask(terms: Terms, plan: Plan, lease: LeaseState, ttl: float, number: int) -> Op[Extension]:
    claim = Claim(terms, wire.extend(plan.keys, lease.token, ttl, terms.fence_ttl))
    # Not beyond its end: then it is lost, and whoever waits for this has to be told.
    at = yield from claim.ask(lease._ends_at)  # noqa: SLF001
    tally, sent_at = claim.tally, claim.sent_at
    lease._heard(tally.votes)  # noqa: SLF001
    if not lease._extendable:  # noqa: SLF001 - it ended while we asked: too late is too late, whatever they answered
        return Extension("lost", at, tally)
    if tally.won:
        valid_until = quorum.valid_until(sent_at, ttl, terms.drift_factor)
        lease._extended(valid_until, ttl, tally.votes, number)  # noqa: SLF001
        yield from repair(terms, plan, lease, claim.missing, ttl - (at - sent_at))
        return Extension("kept", at, tally)
    if tally.denied:
        lease._lose(claim.reason)  # noqa: SLF001
        return Extension("lost", at, tally)
    lease._unanswered()  # noqa: SLF001
    return Extension("unanswered", at, tally)


def repair(terms: Terms, plan: Plan, lease: LeaseState, missing: list[int], ttl: float) -> Op[None]:
    """Give the key back to masters that have none (R14).  Nobody counts the answers.

    The release of this lease will stand behind it on the same connection, so it cannot be outlived.
    """
    if not missing or ttl <= 0:
        return
    call = wire.repair(plan.keys, lease.token, ttl, lease.fence, terms.fence_ttl)
    request = Send(call, to=frozenset(missing), only_if=lambda: lease.valid)
    lease._may_be_on(missing)  # noqa: SLF001
    yield request
