"""The errors that say why a lock was not taken, or not extended."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from redlock._core import readings
from redlock._core.fair.tickets import in_order
from redlock._core.tokens import is_phantom, owner_of, readers_of, released_token, shown, turn_of
from redlock.errors import ConfigurationError, Kind, NotAcquired, NotExtended, QuorumUnreachable, RedlockError

if TYPE_CHECKING:
    from redlock._core.inspect import LockStatus
    from redlock._core.kernel.ballot import Refusal
    from redlock._core.kernel.extension import Extension
    from redlock._core.kernel.quorum import Tally
    from redlock._core.lease import LeaseState
    from redlock._core.settings import LockSpec, MastersSettings


def not_acquired(spec: LockSpec, refusal: Refusal) -> NotAcquired:
    holder = refusal.holder or refusal.doubt.holder
    released, turn = released_token(holder), turn_of(holder)
    whose = readers_of(holder) or owner_of(holder) or shown(released or turn or holder)
    who = f"released by {whose}, and kept from others" if released else f"held by {whose or 'another client'}"  # R28
    if turn:
        who = f"{whose} is next in the queue"
    elif is_phantom(holder):  # R35
        who = "its last lease may still be valid, so no client gets it"
    more = "" if turn or in_order(refusal.held) else " for up to {:.1f} s"
    return _error(spec, refusal, who, more, "wait for it", "hold it or wait for it")


def none_free(spec: LockSpec, refusal: Refusal, limit: int) -> NotAcquired:
    who = "the only slot is taken" if limit == 1 else f"all {limit} slots are taken"
    return _error(spec, refusal, who, ", the first one for up to {:.1f} s", "wait for a slot", "wait for a slot")


def _error(spec: LockSpec, refusal: Refusal, who: str, more: str, crowd: str, others: str) -> NotAcquired:
    """``who`` has the lock and for how long (``more``), unless this process itself is in the way."""
    if refusal.waited.crowd:
        who = f"{refusal.waited.crowd} of this process {crowd} already, max_waiters is {spec.max_waiters}"
    elif not refusal.waited.attempts:
        who = f"other threads or tasks of this process {others}"
    elif refusal.contended:
        who = "no client has it: several asked at the same time, and none got a majority"
    elif refusal.remaining is not None and math.isfinite(refusal.remaining):
        who += more.format(refusal.remaining)
    text = f"{spec.shown} not acquired in {_attempts(refusal)}: {who}"
    kind: Kind = "crowded" if refusal.waited.crowd else "nobody" if refusal.contended else "held"
    return NotAcquired(text, name=spec.name, votes=refusal.tally.votes(), kind=kind)


def unreachable(spec: LockSpec, refusal: Refusal, settings: MastersSettings) -> QuorumUnreachable:
    if refusal.validity is not None and refusal.validity >= spec.min_validity:
        why = (
            "this client was stopped or cut off, and others may have forgotten its max_ttl (R21) and which masters it "
            "uses (R34); it announces them again now"
        )
    elif refusal.kind == "slow":
        why = (
            f"the masters answered too late: {refusal.validity:.3f} s of the lease would be left, "
            f"min_validity is {spec.min_validity:g} s"
        )
    else:
        why = readings.explain(refusal.tally)
    if settings.outage_timeout <= (lasted := refusal.at - refusal.waited.since) < math.inf:
        why += f"; this outage has lasted for {lasted:.1f} s, and outage_timeout is {settings.outage_timeout:g} s"
    return QuorumUnreachable(
        f"{spec.shown} not acquired in {_attempts(refusal)}: {why}", name=spec.name, votes=refusal.tally.votes()
    )


def not_extended(spec: LockSpec, state: LeaseState, extension: Extension) -> NotExtended:
    left, votes = state.remaining(), () if extension.tally is None else extension.tally.votes()
    why = f"was not extended: too few masters answered; the lease is valid for another {left:.3f} s"
    return NotExtended(f"{spec.shown} {why}", name=spec.name, votes=votes)


def not_resumed(state: LeaseState, extension: Extension) -> RedlockError:
    tally, others = extension.tally, extension.others
    if tally is not None and len(others) >= tally.need:
        if others[0].recorded:
            why = "is on record: resume it on masters with confirm_expiry=True, as those that granted it"
        elif others[0].reads:
            why = "belongs to a reader: resume it with shared=True"
        else:
            why = "holds it exclusively: resume it without shared, and downgrade the lease to let readers in"
        return ConfigurationError(f"the token of {state.shown} {why}")
    if state.lost:
        return state.loss()
    why, votes = ("nothing was sent", ()) if tally is None else (readings.explain(tally), tally.votes())
    text = f"cannot tell whether {state.shown} is still held: {why}; try again before its TTL has passed"
    return QuorumUnreachable(text, name=state.name, votes=votes)


def is_locked(status: LockStatus, tally: Tally) -> bool:
    """Whether a majority has a holder.  Raises QuorumUnreachable: too few masters answered to know."""
    if tally.denied:
        return True
    if tally.unreachable or readings.perhaps_denied(tally):
        text = f"cannot tell whether {status.name!r} is locked: {readings.explain(tally)}"
        raise QuorumUnreachable(text, name=status.name, votes=status.votes)
    return False


def _attempts(refusal: Refusal) -> str:
    if not refusal.waited.attempts:
        return "time"
    return f"{refusal.waited.attempts} attempt{'s' if refusal.waited.attempts > 1 else ''}"
