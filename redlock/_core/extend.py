"""Keeping a lock: set the TTL of keys that are still ours, and never bring back one that is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from redlock._core import quorum, wire
from redlock._core.effects import Op, Send
from redlock._core.release import Denials
from redlock._core.rounds import Round

if TYPE_CHECKING:
    from redlock._core.lease import LeaseState
    from redlock._core.quorum import Tally
    from redlock._core.terms import Plan, Terms


@dataclass(frozen=True, slots=True)
class Extension:
    """How it ended: ``kept`` with a new validity, ``lost``, or ``unanswered`` with the one it had (R13)."""

    kind: Literal["kept", "lost", "unanswered"]
    tally: Tally | None = None


def extend(terms: Terms, plan: Plan, lease: LeaseState, ttl: float, now: float) -> Op[Extension]:
    """Set the TTL to ``ttl`` on a majority that still holds the token (R12)."""
    if not lease.valid:
        return Extension("lost")
    # C6: the keys may have the new, shorter TTL from the moment at which this is sent.
    number = lease._extension_begins(quorum.valid_until(now, ttl, terms.drift_factor), ttl)  # noqa: SLF001
    try:
        return (yield from _ask(terms, plan, lease, ttl, number))
    finally:
        lease._extension_ends()  # noqa: SLF001


def _ask(terms: Terms, plan: Plan, lease: LeaseState, ttl: float, number: int) -> Op[Extension]:
    denials = Denials()
    call = wire.extend(plan.keys, lease.token, ttl, terms.fence_ttl)
    round_ = Round(terms, Send(call), denials.read)
    at = yield from round_.ask(end="settled")
    tally, sent_at = round_.tally, round_.request.sent_at
    if not lease.valid:     # it ended while we asked: too late is too late, whatever they answered
        return Extension("lost", tally)
    if tally.won:
        valid_until = quorum.valid_until(sent_at, ttl, terms.drift_factor)
        lease._extended(valid_until, ttl, tally.votes, number)  # noqa: SLF001
        yield from repair(terms, plan, lease, denials, ttl - (at - sent_at))
        return Extension("kept", tally)
    if tally.denied:
        lease._lose(denials.reason)  # noqa: SLF001
        return Extension("lost", tally)
    return Extension("unanswered", tally)


def repair(terms: Terms, plan: Plan, lease: LeaseState, denials: Denials, ttl: float) -> Op[None]:
    """Give the key back to masters that have none (R14).  Nobody counts the answers.

    The release of this lease will stand behind it on the same connection, so it cannot be outlived.
    """
    if not denials.missing or ttl <= 0:
        return
    call = wire.repair(plan.keys, lease.token, ttl, lease.fence, terms.fence_ttl)
    request = Send(call, to=frozenset(denials.missing))
    request.open = False
    lease._may_be_on(denials.missing)  # noqa: SLF001
    yield request
