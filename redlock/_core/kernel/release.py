"""Releases a lock: the lease ends before the first byte is sent, and every master that may have a key is asked.

The release follows the acquire on its connection (R10).  Where it cannot, it is in doubt: see `doubt.py`.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from redlock._core import wire
from redlock._core.doubt import doubted
from redlock._core.effects import Leave, Op, ReleaseHeard, Send
from redlock._core.kernel.rollback import carry_out, despite_interrupts, raise_graver
from redlock._core.kernel.rounds import GRANTED, Round, RoundEnd
from redlock._core.outcomes import NEVER
from redlock._core.tokens import by_whom, released_token

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redlock._core.lease import LeaseState
    from redlock._core.settings import LockSpec, MastersSettings
    from redlock.errors import Outcome, Reason


class Claim(Round):
    """A round that asks as the owner, an extension or a release, and what its denials prove (R13)."""

    _until: ClassVar[RoundEnd] = "conclusive"
    taken = False
    others: tuple[wire.OtherMode, ...] = ()  # of masters that know the token, as one of the other mode
    missing: tuple[int, ...] = ()  # masters on which the lock is free
    heard: Mapping[int, int] = MappingProxyType({})  # by master: how many connections got the announcement

    def read(self, master: int, value: Any) -> tuple[Outcome, str]:
        answer = wire.read_owned(value)
        if isinstance(answer, wire.Owned):
            if answer.listeners:
                self.heard = {**self.heard, master: answer.listeners}
            return GRANTED
        if isinstance(answer, wire.OtherMode):
            self.others += (answer,)
            self.taken = True
            if answer.recorded:
                return "held", "it is on record"
            return "held", "it is one of the readers now" if answer.reads else "it has the lock alone"
        released = released_token(answer.other)
        if released and released in self.call.args:  # of our own token
            return "held", "not ours any more: it was released"
        if answer.other:
            self.taken = True
            return "held", by_whom(answer.other)
        self.missing += (master,)
        return "held", "not ours any more: the key is gone"

    @property
    def reason(self) -> Reason:
        return "taken" if self.taken else "expired"


def leave_line(lease: LeaseState, others_until: float = NEVER) -> list[Leave]:
    """The effect that gives the next waiter in line its turn, if the lease has a place."""
    return [] if lease.place is None else [Leave(lease.place, others_until=others_until)]


def release_lost(settings: MastersSettings, spec: LockSpec, lease: LeaseState) -> Send:
    """The release of a lease that is lost already.  No caller waits for the answers, for they change nothing."""
    return doubted(Send(_call(settings, spec, lease), to=lease.asked, owed_until=lease.keys_until), lease)


def _call(settings: MastersSettings, spec: LockSpec, lease: LeaseState) -> wire.Call:
    keep = lease.keys_stay(settings.drift_factor) if lease.hold_at_least else 0.0
    return lease.mode.release(spec.keys, lease.token, keep, lease.fence)


def unless_they_stay(settings: MastersSettings, spec: LockSpec, lease: LeaseState) -> list[Send]:
    """`release_lost`; nothing while the keys of a lost lease are left alone: its renewer releases them later."""
    return [] if lease.guards else [release_lost(settings, spec, lease)]


def _interrupted(settings: MastersSettings, spec: LockSpec, lease: LeaseState, claim: Claim | None) -> Op[Any]:
    """The rest of a release, for whose answers no caller waits.  Returns an interruption, or None."""
    if claim is not None:
        claim.wait_for = None
    released = unless_they_stay(settings, spec, lease) if claim is None else [claim]
    struck = yield from despite_interrupts(*released, *leave_line(lease))
    lease.changed()  # behind that: a second Ctrl-C may strike here
    return struck


def release(settings: MastersSettings, spec: LockSpec, lease: LeaseState) -> Op[bool]:
    """Release on every master that may have the key.  Returns True if the lease was still ours until then.

    Masters that do not answer are owed the release (R10).  If too few answer to tell, the lease was ours: it was valid,
    and not denied.  So it was if an interrupted call or another thread released it: missing keys prove nothing then.
    """
    again = lease.released
    claim: Claim | None = None
    try:
        lost = not lease.end()
        if lost and not lease.keeps_keys(spec):
            others_until = lease.others_until(spec, settings.node_timeout)
            yield from carry_out(*unless_they_stay(settings, spec, lease), *leave_line(lease, others_until))
            return False
        # The release goes to every master that may have a key of this lease, and is owed to each.  `asked` is read
        # after the lease has ended: no repair is written from now on, so no master is added.
        claim = doubted(Claim(settings, _call(settings, spec, lease), lease.asked, lease.keys_until), lease)
        lease.last_votes = claim.tally
        # The next waiter need not wait for the answers: on each connection its acquire follows this release (R10).
        claim.leaves, claim.wait_for = lease.place, settings.node_timeout
        # If another loop acquired the lease, that loop learns of it later.  It sends a release as well, which could
        # overtake this one, and the lease would seem to have been lost (C8).
        here = lease.is_here()
        if here:
            lease.changed()
        at = yield from claim.ask()
        if not here:
            lease.changed()
    except GeneratorExit:
        raise
    except BaseException as first:
        try:
            struck = yield from _interrupted(settings, spec, lease, claim)
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - before that was sent
            yield from _interrupted(settings, spec, lease, claim)
            struck = error
        raise_graver(first, struck)
        raise
    ours = again or lease.abandoned or not claim.tally.denied
    if not (ours or lost):
        lease.found_gone(claim.reason)
    place = lease.place
    if place is not None and (claim.heard or place.yield_until > NEVER):
        took = min(at - claim.sent_at, settings.node_timeout)  # if it took longer, our own process was stopped
        yield ReleaseHeard(place.keys, claim.heard, took)
    return ours and not lost
