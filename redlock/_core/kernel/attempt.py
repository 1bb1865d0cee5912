"""One attempt to take a lock: a token, a round, the fence, and a rollback on every way out but a grant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from redlock._core.fair import tickets
from redlock._core.kernel import quorum
from redlock._core.kernel.ballot import Ballot, Grant, Refusal, SecondBallot
from redlock._core.kernel.rollback import despite_interrupts, rollback
from redlock._core.outcomes import NEVER

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.effects import Op, Send
    from redlock._core.kernel.quorum import Tally
    from redlock._core.local_queue import Place
    from redlock._core.settings import LockSpec, MastersSettings
    from redlock._core.wire import Call

Granted: TypeAlias = "Callable[[Grant], object]"


class Request(Protocol):
    """What an attempt is for."""

    settings: MastersSettings
    spec: LockSpec
    place: Place
    stays: bool

    def ballot(self, settings: MastersSettings, call: Call) -> Ballot: ...

    def settle(self, ballot: Any) -> LockSpec: ...

    def besides(self, ballot: Any, token: str) -> tuple[Send, ...]: ...


def attempt(  # noqa: C901 - flat: each call costs
    target: Request, granted: Granted | None = None, number: int = 1, *, enter: bool = False, listens: bool = False
) -> Op[Grant | Refusal | None]:
    """Try once: one token, one round, and a rollback on every way out but a grant (R8, R9, R11).

    ``enter``: stand in line first.  None: nothing was sent, because others go first.
    """
    settings, spec = target.settings, target.spec
    own = spec
    token = settings.token()
    fencing = bool(spec.keys.fences)
    proposal = settings.fences.propose() if fencing else 0
    call = spec.mode.acquire(spec.keys, token, spec.ttl + spec.guard, proposal, settings.fence_ttl)
    ballot = target.ballot(settings, call)
    ballot.highest = proposal
    ballot.wait_for = settings.node_timeout
    ballot.enters = target.place if enter else None
    try:
        at = yield from ballot.ask()
        if at == NEVER:
            return None
        tally = ballot.tally
        if tally.yes < tally.need or settings.outages.since:
            settings.outages.attempted(tally, at)
        if not target.stays:
            own, tally = target.settle(ballot), ballot.tally
        fence = proposal or None
        if fencing and (ballot.elsewhere and not ballot.stored if tally.yes >= tally.need else ballot.confirmed):
            fence, at, tally = yield from second_round(settings, own, token, ballot)
        valid_until = quorum.valid_until(ballot.sent_at, spec.ttl, settings.drift_factor)
        # Others may forget our `max_ttl` and our list of masters, if we were stopped.  No lease lasts longer than they
        # know both (R21), and none was asked for before they knew the list, or knew it again (R34): votes may have been
        # counted before we noticed that.
        known = ballot.sent_at >= settings.voters.known_from and valid_until <= settings.voters.known_until
        if tally.yes >= tally.need and valid_until - at >= spec.min_validity and known:  # a majority, and in time (R7)
            votes, place = ballot.tally.votes, target.place if target.stays else None
            listened = listens and target.stays and tally.yes < tally.size
            grant = Grant(token, fence, valid_until, at, ballot.reached(), votes, number, place, tally, listened)
            if granted is not None:
                granted(grant)
            outcome: Grant | Refusal = grant
            interruption = None if target.stays else (yield from despite_interrupts(*target.besides(ballot, token)))
        else:
            yield from ballot.place_phantom(spec, token, at)
            outcome = ballot.refusal(tally, at, valid_until)
            interruption = yield from rollback(spec, token, ballot)
        if interruption is not None:
            raise interruption  # noqa: TRY301 - `except` below rolls back all of it, again if need be: that does no harm
    except GeneratorExit:  # the generator was dropped: no driver would carry out what it yields
        raise
    except BaseException:  # a cancellation or Ctrl-C: the keys must not outlive this operation (R11)
        try:
            yield from rollback(spec, token, ballot)
        except GeneratorExit:
            raise
        except BaseException:  # noqa: BLE001 - a second one, before that was sent: the first one is raised
            yield from rollback(spec, token, ballot)
        raise
    return outcome


def second_round(settings: MastersSettings, spec: LockSpec, token: str, first: Ballot) -> Op[tuple[int, float, Tally]]:
    """Send a fence greater than all seen to the masters that may have stored it by then (R17, R35).

    This round ends with the time of the attempt: a master does not get more time because it is asked twice.
    """
    proposal = first.highest + 1
    settings.fences.learn(proposal)
    call, to = first.settling(spec, token, proposal)
    call = tickets.settling(call) if first.in_line else call
    second = SecondBallot(settings, call, to=to, before=first.tally)
    at = yield from second.ask(first.sent_at + settings.node_timeout)
    return proposal, at, second.tally
