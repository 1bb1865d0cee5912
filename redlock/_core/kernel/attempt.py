"""One attempt to take a lock: a token, a round, the fence, and a rollback on every way out but a grant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from redlock._core.kernel import validity
from redlock._core.kernel.ballot import Ballot, Grant, Refusal
from redlock._core.kernel.rollback import despite_interrupts, raise_graver, rollback
from redlock._core.outcomes import NEVER

if TYPE_CHECKING:
    from redlock._core.effects import Op
    from redlock._core.local_queue import Place
    from redlock._core.settings import LockSpec, MastersSettings


class Request(Protocol):
    """What an attempt is for."""

    settings: MastersSettings
    spec: LockSpec  # what it asks for
    place: Place  # in the line of this process
    latest: Refusal | None  # why the attempt before it failed

    def asked(self) -> None:
        """The request was sent, or waits in line.  While masters answer, make what a grant needs."""

    def granted(self, grant: Grant) -> None:
        """Take ``grant``, at once: a Ctrl-C on the way to the caller cannot hide what it has to release (R11)."""


def attempt(  # noqa: C901, PLR0915 - flat, to be read from top to bottom; and each call costs
    request: Request, number: int = 1, *, enter: bool = False
) -> Op[Grant | Refusal | None]:
    """Try once.  ``enter``: wait in line first.  None: nothing was sent, because others go first."""
    settings = request.settings
    spec = asked = request.spec
    token = settings.token()  # a fresh token: a late release of this attempt must not hit the next one (R8)
    fencing = bool(spec.keys.fences)
    proposal = settings.fences.propose() if fencing else 0  # (R16)
    mode = spec.mode
    call = mode.acquire(spec.keys, token, spec.ttl + spec.guard, proposal, settings.fence_ttl)
    ballot: Ballot = mode.ballot(settings, call)
    ballot.highest = proposal
    ballot.wait_for, ballot.meanwhile = settings.node_timeout, request.asked
    ballot.enters = request.place if enter else None
    try:
        at = yield from ballot.ask()  # all masters at once, until the votes decide (R2)
        if at == NEVER:
            return None
        tally, fence = ballot.tally, proposal or None
        if ballot.granted_spec is not None:
            spec = ballot.granted_spec
        if fencing and (ballot.unstored or tally.yes < tally.need):
            second = ballot.next_round(spec, token)
            if second is not None:  # it ends when the time of the attempt has passed, too
                at = yield from second.ask(ballot.sent_at + settings.node_timeout)
                fence, tally = second.proposal, second.tally
        valid_until = validity.valid_until(ballot.sent_at, spec.ttl, settings.drift_factor)
        # Other clients forget the `max_ttl` (R21) and the list of masters of a stopped client.  So a lease ends
        # before they forget either, and an attempt that was sent before they knew both (again) is not granted.
        known = ballot.sent_at >= settings.voters.known_from and valid_until <= settings.voters.known_until
        if tally.yes >= tally.need and valid_until - at >= spec.min_validity and known:  # a majority, and in time (R7)
            reached = ballot.reached()
            grant = Grant(token, fence, valid_until, at, reached, ballot.tally, number, request.place, tally, spec)
            request.granted(grant)
            outcome: Grant | Refusal = grant
            interruption = None
            if spec is not asked:
                interruption = yield from despite_interrupts(*ballot.after_grant(token))
        else:
            yield from ballot.after_refusal(asked, token, at, request.latest)
            outcome = ballot.refusal(tally, at, valid_until)
            interruption = yield from rollback(asked, token, ballot)  # on all masters, before the next attempt (R9)
        if interruption is not None:
            raise interruption  # noqa: TRY301 - `except` below rolls back all of it, again if need be: that does no harm
    except GeneratorExit:  # the generator was dropped: no driver would carry out what it yields
        raise
    except BaseException as first:  # a cancellation or Ctrl-C: the keys must not outlive this operation (R11)
        try:
            struck = yield from rollback(asked, token, ballot)
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - before that was sent
            yield from rollback(asked, token, ballot)
            struck = error
        raise_graver(first, struck)
        raise
    return outcome
