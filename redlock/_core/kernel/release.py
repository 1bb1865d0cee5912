"""Releases a lock.

A release in doubt.  A release may have to go over other connections than its acquire.  A lease may be handed over by
its token, or acquired on one event loop and released on another.  Then a master without the key proves nothing: the
acquire may still be on its way.  Such a release is in doubt.  A master that does not say that the key was ours is asked
again: after a quarter of `node_timeout`, then after pauses that double, up to eight times `node_timeout`.  That ends
when the key must have expired.  If an extension gave the key back over such a connection (R14), two answers that it was
ours are needed.  Nearly always every master has the key, and then nothing is asked twice.

`hold_at_least` (R28).  A release before its end does not delete the keys, but puts ``released:`` in front of the token
and lets them live for the rest, as long as a fast clock of a master may need.  It never lengthens their life: until
then the key of a holder that died would have gone.  A grant leaves enough validity for this.  Only a lease
that was granted is kept so; a rollback deletes.

`guard` (R36).  A lease that was lost is not released while its guard lasts: its renewer does that when it is over.

Besides, the loop that acquired the lease is told.  As long as it runs, it sends a release of its own behind the
acquire (P7).  It is told only after the first release was judged.  Otherwise the second release might be faster,
and the lease would seem to be lost.

Also considered:

- Send everything over the loop that acquired.  A release would wait for a blocked loop, and for ever for a closed
  one.  It would not help another process.
- Let that loop wait for its late answers.  That takes as long, and adds a state.
- Leave a mark on the masters, for an acquire to see.  That is one more key in the hottest script, and other
  libraries would not look at it.
"""

from __future__ import annotations

from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from redlock._core import wire
from redlock._core.effects import Leave, Op, ReleaseHeard, Send
from redlock._core.kernel import quorum
from redlock._core.kernel.rollback import carry_out, despite_interrupts
from redlock._core.kernel.rounds import GRANTED, Round
from redlock._core.outcomes import NEVER
from redlock._core.tokens import by_whom, released_token

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redlock._core.kernel.rounds import RoundEnd
    from redlock._core.lease import LeaseState
    from redlock._core.settings import LockSpec, MastersSettings
    from redlock.errors import Outcome, Reason


AnySend = TypeVar("AnySend", bound=Send)


class Claim(Round):
    """A round that asks as the owner, an extension or a release, and what its denials prove (R13)."""

    _until: ClassVar[RoundEnd] = "settled"
    taken = False
    others: tuple[wire.OtherMode, ...] = ()  # of masters that know the token, as one of the other mode (R33)
    missing: tuple[int, ...] = ()  # masters on which nobody holds the lock
    heard: Mapping[int, int] = MappingProxyType({})  # by master: how many connections were told of the release

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
                return "held", "it is on record (R35)"
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


class ReleaseDoubt:
    """The doubt of a release when other connections carry the requests that set its keys (R10).

    A master without the key may not have seen the acquire yet.  If a repair may have given a master the key, its
    first answer that the key was ours may be about the repair alone.  Then a second such answer is needed: by then
    the acquire has come as well.
    """

    __slots__ = ("_once", "_repaired", "_token")

    def __init__(self, lease: LeaseState) -> None:
        self._token = lease.token
        self._repaired = lease.repaired
        self._once: set[int] = set()  # repaired masters that have said so once

    def remains(self, master: int, value: Any) -> bool:
        with suppress(ValueError):
            answer = wire.read_owned(value)
            if isinstance(answer, wire.NotOwned):  # "released" by an earlier request, whose answer was lost (R28)
                return released_token(answer.other) != self._token or master in self._repaired
        if master not in self._repaired or master in self._once:
            return False
        self._once.add(master)
        return True


def _doubted(request: AnySend, lease: LeaseState) -> AnySend:
    """Put ``request`` in doubt, unless it stands behind all requests that set the keys.

    A request in doubt is sent again until every master has seen what it takes back.
    """
    if not lease.in_order:
        request.doubt = ReleaseDoubt(lease).remains
        request.usual = ()  # so that every answer is parsed, and shown to the doubt
    return request


def _call(settings: MastersSettings, spec: LockSpec, lease: LeaseState) -> wire.Call:
    keep = 0.0
    if lease.hold_at_least and (left := lease.kept) > 0:
        keep = left + quorum.drift(left, settings.drift_factor)
    return lease.mode.release(spec.keys, lease.token, keep, lease.fence)


def release_lost(settings: MastersSettings, spec: LockSpec, lease: LeaseState) -> Send:
    """The release of a lease that is lost already.  Nobody waits for the answers, for they change nothing."""
    return _doubted(Send(_call(settings, spec, lease), to=lease.asked, owed_until=lease.keys_until), lease)


def _unless_it_guards(settings: MastersSettings, spec: LockSpec, lease: LeaseState) -> list[Send]:
    """`release_lost`; nothing while the guard of a lost lease lasts: its renewer does that then (R36)."""
    return [] if lease.guards else [release_lost(settings, spec, lease)]


def abandon(settings: MastersSettings, spec: LockSpec, lease: LeaseState) -> Op[None]:
    """Release a lease that nobody can give back any more, and do not wait for the answers (R15).

    In a forked child nothing is sent: it is the parent's.
    """
    try:
        yield from _abandoned(settings, spec, lease)
    except GeneratorExit:
        raise
    except BaseException:  # it may have struck before anything was sent (R11)
        yield from _abandoned(settings, spec, lease)
        raise


def _abandoned(settings: MastersSettings, spec: LockSpec, lease: LeaseState) -> Op[None]:
    for hold in list(lease.holds):
        hold.exit()
    lease.end_without_answers()
    if lease.mine():
        yield from carry_out(*_unless_it_guards(settings, spec, lease), *leave_line(lease))
    lease.changed()  # behind that: a Ctrl-C may strike here


def _interrupted(settings: MastersSettings, spec: LockSpec, lease: LeaseState, claim: Claim | None) -> Op[None]:
    """The rest of a release: nobody waits for the answers."""
    if claim is not None:
        claim.wait_for = None
    released = _unless_it_guards(settings, spec, lease) if claim is None else [claim]
    yield from despite_interrupts(*released, *leave_line(lease))
    lease.changed()  # behind that: a second Ctrl-C may strike here


def release(settings: MastersSettings, spec: LockSpec, lease: LeaseState) -> Op[bool]:
    """Release on every master that may have the key.  Returns True if the lease was still ours until then.

    The lease is over before the first byte is sent, whatever the masters answer.  Masters that do not answer are
    owed the release (R10).

    If too few answer to tell, the lease counts as ours: it was valid, and no majority has denied it.  It also counts
    as ours if it was released before, by an interrupted call or by another thread: missing keys prove nothing then.
    """
    again = lease.released
    claim: Claim | None = None
    try:
        lost = not lease.end()
        # A candidate has the keys of a term that ended by `max_hold` until its body has ended: others go first then.
        if lost and (not spec.kept or lease.guards or lease.clock() >= lease.valid_until):
            # The renewer gives back the keys of a term when its guard is over: others go first then, too.
            others_until = lease.guarded_until + settings.node_timeout if spec.kept and lease.guards else NEVER
            yield from carry_out(*_unless_it_guards(settings, spec, lease), *leave_line(lease, others_until))
            return False
        # The release goes to every master that may have a key of this lease, and is owed to each.  `asked` is read
        # after the lease has ended: no repair is written from now on, so no master is added.
        claim = _doubted(Claim(settings, _call(settings, spec, lease), lease.asked, lease.keys_until), lease)
        lease.last_votes = claim.tally.votes
        # The next waiter in line need not wait for the answers: on every connection its acquire stands behind our
        # release (R10).
        claim.leaves, claim.wait_for = lease.place, settings.node_timeout
        # If another loop acquired the lease, that loop is told later.  It sends a release as well, which could overtake
        # this one, and the lease would seem to have been lost (C8).
        here = lease.is_here()
        if here:
            lease.changed()
        at = yield from claim.ask()
        if not here:
            lease.changed()
    except GeneratorExit:
        raise
    except BaseException:
        try:
            yield from _interrupted(settings, spec, lease, claim)
        except GeneratorExit:
            raise
        except BaseException:  # noqa: BLE001 - a second one, before that was sent: the first one is raised
            yield from _interrupted(settings, spec, lease, claim)
        raise
    ours = again or lease.abandoned or not claim.tally.denied
    if not (ours or lost):
        lease.found_gone(claim.reason)
    place = lease.place
    if place is not None and (claim.heard or place.yield_until > NEVER):
        took = min(at - claim.sent_at, settings.node_timeout)  # if it took longer, our own process was stopped
        yield ReleaseHeard(place.keys, claim.heard, took)
    return ours and not lost
