"""Takes a lock.  Each attempt wins a majority, or leaves nothing behind.

One attempt is one round to all masters, with a token of its own.  In the common case that round also settles
the fencing token.  If a master had a greater fence, a second, short round follows (R17).
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from redlock._core import quorum
from redlock._core.ballots import Ballot, Grant, Refusal, SecondBallot
from redlock._core.collisions import Collisions
from redlock._core.effects import Leave, Listen, LookAhead, Notified, Op, Send, Tell, Timeout, Turn, wait
from redlock._core.local_queue import Place
from redlock._core.outages import Patience
from redlock._core.outcomes import NEVER
from redlock._core.quorum import Tally
from redlock._core.retry import delay
from redlock._core.subscriptions import Subscription
from redlock._core.writer_mark import keep_new_readers_away

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redlock._core.rounds import Round
    from redlock._core.settings import LockSpec, MastersSettings


_WAITS = itertools.count(1)  # numbers for an observer


def acquire(
    settings: MastersSettings, target: Target, deadline: float, began: float, won: list[Grant] | None = None
) -> Op[Grant | Refusal]:
    """Try until ``target`` is granted or ``deadline`` has passed: at least once, and once more at the deadline.

    ``began``: now.  Without a deadline an outage ends it (`Patience`).

    The operation first stands in line in this process (R23).  ``won`` gets the grant as soon as there is one.  A Ctrl-C
    on the way back to the caller then cannot hide from it what it has to release (R11).
    """
    place = target.place
    marks: list[Send] = []  # takes our marks back, if there are any (R33)
    try:
        outcome = yield from attempt(settings, target, won, enter=True)
        if outcome is None and place.crowd:
            outcome = yield from _crowded(settings, place, began)
        elif not isinstance(outcome, Grant):
            patience = Patience(deadline, began, settings.outage_timeout)
            contend = _waiting if outcome is None or outcome.at < deadline else _contend
            outcome = yield from contend(settings, target, patience, won, marks, outcome)
        place.holds = target.stays and isinstance(outcome, Grant)
        if marks or not place.holds:
            interruption = yield from despite_interrupts(*marks, *(() if place.holds else (Leave(place),)))
            if interruption is not None:
                raise interruption  # noqa: TRY301 - `except` below sends `Leave` again, which does no harm
        if place.awaited and target.stays:
            yield Tell(place)
    except GeneratorExit:  # the generator was dropped: no driver would carry out what it yields
        raise
    except BaseException:
        yield from despite_interrupts(*marks, Leave(place))
        raise
    return outcome if target.stays or isinstance(outcome, Refusal) else outcome._replace(place=None)


def _crowded(settings: MastersSettings, place: Place, at: float) -> Op[Refusal]:
    """Too many wait already.  If they wait in an outage, it is one for this one as well (C2)."""
    look = LookAhead(place)
    yield look
    outage = _outage(look.learned)
    if outage is not None:
        return outage._replace(at=at, attempts=0, before=())
    return Refusal("held", Tally(settings.masters), at, attempts=0, crowd=place.crowd)


def _waiting(
    settings: MastersSettings,
    target: Target,
    patience: Patience,
    won: list[Grant] | None,
    marks: list[Send],
    outcome: Grant | Refusal | None,
) -> Op[Grant | Refusal]:
    """See `_contend`.  An observer hears when that begins and ends, so that nobody waits unseen (R40)."""
    observer, name = settings.observer, target.spec.name
    if observer is None:
        return (yield from _contend(settings, target, patience, won, marks, outcome))
    waiter = next(_WAITS)
    try:
        observer.waits(name, waiter)
        return (yield from _contend(settings, target, patience, won, marks, outcome))
    finally:
        observer.waited(name, waiter)


def _contend(
    settings: MastersSettings,
    target: Target,
    patience: Patience,
    won: list[Grant] | None,
    marks: list[Send],
    outcome: Grant | Refusal | None,
) -> Op[Grant | Refusal]:
    """Wait for our turn in line, and then compete with other processes.  ``outcome``: of the first attempt."""
    place = target.place
    subscription: Subscription | None = None
    collisions = Collisions(settings)
    attempts = 1
    failed = 1  # attempts since a release was announced: after a release all waiters begin anew
    if outcome is None:  # it was not our turn
        attempts = failed = 0
        refusal = yield from in_line(settings, place, patience)
        if refusal is not None:
            return refusal
        subscription = yield from _let_others_go_first(settings, target, patience.deadline)
        target.first()
    while not isinstance(outcome, Grant):
        deadline = patience.deadline
        if outcome is not None:
            deadline = patience.after(outcome.at, took_part=outcome.kind == "held")
            outcome = target.refused(outcome._replace(since=patience.since))
        if (refusal := outcome) is not None:
            yield from tell(target, refusal)
            if (yield from is_answer(refusal, deadline, collisions)):
                return refusal._replace(attempts=attempts, before=place.attempts)
            if settings.observer is not None:
                place.failed(refusal)
            heard = False
            if refusal.at < deadline:
                if subscription is None and refusal.kind == "held" and not refusal.kept:
                    subscription = target.subscription(settings)
                    yield Listen(subscription)
                heard = yield from _pause_between(settings, target, subscription, refusal, failed, deadline, marks)
                failed = 0 if heard else failed
            target.after_pause(subscription if heard else None)
        attempts += 1
        failed += 1
        outcome = yield from _attempt_again(settings, target, won, attempts, subscription)
    return outcome


def is_answer(refusal: Refusal, deadline: float, collisions: Collisions) -> Op[bool]:
    """Whether ``refusal`` is what the caller gets.  Else, if its time is up, it is worth another attempt now (C3).

    An outage may pass.  A wrong password stays wrong, however long we wait (C1).
    """
    if refusal.tally.misconfigured or refusal.at < deadline:
        return refusal.tally.misconfigured
    if refusal.again:
        while not isinstance((yield from wait(refusal.at + refusal.kept + quorum.ROUNDING, quiet=True)), Timeout):
            pass
        return False
    return not (refusal.contended and (yield from collisions.try_again(refusal.at, refusal.tally.took)))


def _pause_between(
    settings: MastersSettings,
    target: Target,
    subscription: Subscription | None,
    refusal: Refusal,
    failed: int,
    deadline: float,
    marks: list[Send],
) -> Op[bool]:
    """See `pause`.  A writer that waits keeps new readers away meanwhile, but not from a slot."""
    until = next_try(target.spec, refusal, failed, deadline)
    by_readers = refusal.by_readers and target.stays
    yield from keep_new_readers_away(settings, target.spec, marks, by_readers=by_readers, pause=until - refusal.at)
    return (yield from pause(settings, subscription, refusal, until))


def tell(target: Target, refusal: Refusal) -> Op[None]:
    """The masters have refused an attempt.  Tell the waiters behind this one, and an election."""
    target.place.answered(refusal)
    if target.place.awaited:
        yield Tell(target.place)
    if target.spec.refused is not None and refusal.kind == "held":
        target.spec.refused(refusal)


def in_line(settings: MastersSettings, place: Place, patience: Patience) -> Op[Refusal | None]:
    """Wait until ``place`` is first in line.  Returns a `Refusal` if the deadline comes first.

    If the one in front has met an outage, or masters that answer too late, that is the answer to all behind it (C2).
    If its first answer is still on its way, that is waited for as well, as that to an attempt of our own would be.
    That takes `node_timeout` from when it is sent, so for twice that time at most.
    """
    if patience.deadline == math.inf:
        return (yield from _in_line_without_a_deadline(place, patience))
    until = deadline = patience.deadline
    while not place.turn:
        event = yield from wait(until, quiet=True)
        if isinstance(event, Timeout | Turn) and event.at >= deadline and not place.turn:
            look = LookAhead(place)
            yield look
            outage = _outage(look.learned)
            if outage is not None:
                return outage._replace(at=event.at, attempts=0, before=())
            if any(look.learned) or event.at >= until > deadline:
                return Refusal("held", Tally(settings.masters), event.at, attempts=0)
            if until == deadline:
                until = event.at + 2 * settings.node_timeout
    place.inbox = None  # no `Turn` will come any more; a lease that referred to the inbox would be a cycle
    return None


def _in_line_without_a_deadline(place: Place, patience: Patience) -> Op[Refusal | None]:
    """As `in_line`.  An outage that the one in front has met lasts for all behind it, each since it came itself (R38).

    If the one in front has the lock, or is refused by others, a majority takes part, and the time begins anew.
    """
    while not place.turn:
        event = yield from wait(patience.ends, quiet=True)
        if isinstance(event, Timeout) or (isinstance(event, Turn) and place.turn):
            look = LookAhead(place)
            yield look
            outage = _outage(look.learned)
            patience.since = event.at if outage is None else max(patience.since, outage.since)
            if outage is not None and event.at >= patience.ends:
                return outage._replace(at=event.at, attempts=0, before=(), since=patience.since)
    place.inbox = None
    return None


def _outage(learned: Sequence[Any]) -> Refusal | None:
    """The outage that one of those in front has met, or masters that answer too late."""
    return next((one for one in learned if isinstance(one, Refusal) and one.kind != "held"), None)


def _let_others_go_first(settings: MastersSettings, target: Target, deadline: float) -> Op[Subscription | None]:
    """Wait until waiters of another process had the lock, if our process has just had it (R24).

    They listen.  The first release that we hear of is that of our own process, the second is theirs.
    """
    until = target.place.yield_until
    if not NEVER < until < deadline:
        return None
    subscription = target.subscription(settings)
    yield Listen(subscription)
    while subscription.released < 2:  # noqa: PLR2004 - see above
        if isinstance((yield from wait(until)), Timeout):
            break
    return subscription


def next_try(spec: LockSpec, refusal: Refusal, failed: int, deadline: float) -> float:
    """When to try again, if nothing happens before that."""
    if refusal.kept:  # once, when it can be free
        return min(refusal.at + refusal.kept + quorum.ROUNDING, deadline)
    until = min(refusal.at + delay(spec.retry, failed), deadline)
    if refusal.remaining is not None:  # by then the keys have expired, also if no release is announced
        until = min(until, refusal.at + refusal.remaining + quorum.ROUNDING)
    return until


def _attempt_again(
    settings: MastersSettings,
    target: Target,
    won: list[Grant] | None,
    number: int,
    subscription: Subscription | None,
) -> Op[Grant | Refusal | None]:
    if subscription is not None:
        subscription.attempting()
    outcome = yield from attempt(settings, target, won, number)
    if subscription is not None:
        if isinstance(outcome, Refusal):
            subscription.tried(collided=outcome.split, took=outcome.tally.took)
            subscription.refused(outcome.tally.in_the_way())
        else:
            subscription.tried(collided=False)
    return outcome


def pause(settings: MastersSettings, subscription: Subscription | None, refusal: Refusal, until: float) -> Op[bool]:
    """Wait until there is reason to try again.  Returns True if the reason is an announced release (R24)."""
    at = refusal.at
    if subscription is not None:
        subscription.refused(refusal.tally.in_the_way())
    if refusal.kind != "held" or refusal.kept:
        # No release ends an outage, or what a release has left; and rollbacks of failed attempts are announced as well.
        subscription = None
    while subscription is None or not (subscription.look or subscription.released):
        event = yield from wait(until)
        if isinstance(event, Timeout):
            return False
        if isinstance(event, Notified):  # anything else is a late event of the failed attempt
            at = event.at
    if not subscription.released:
        return False
    spread = subscription.spread
    if spread:
        until = min(at + spread * settings.random(), until)
        while not isinstance((yield from wait(until, quiet=True)), Timeout):
            pass
    return True


def attempt(
    settings: MastersSettings,
    target: Target,
    won: list[Grant] | None = None,
    number: int = 1,
    *,
    enter: bool = False,
) -> Op[Grant | Refusal | None]:
    """Try once: one token, one round, and a rollback on every way out but a grant (R8, R9, R11).

    ``enter``: stand in line first.  None: nothing was sent, because others go first.
    """
    spec = own = target.spec
    token = settings.token()
    fencing = bool(spec.keys.fences)
    proposal = settings.fences.propose() if fencing else 0
    call = spec.mode.acquire(spec.keys, token, spec.ttl, proposal, settings.fence_ttl)
    ballot = target.ballot(settings, call, proposal)
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
        if fencing and (tally.yes >= tally.need or ballot.confirmed) and not ballot.stored:
            fence, at, tally = yield from second_round(settings, own, token, ballot)
        valid_until = quorum.valid_until(ballot.sent_at, spec.ttl, settings.drift_factor)
        if is_grant(settings, spec, tally, ballot.sent_at, at, valid_until):
            grant = Grant(token, fence, valid_until, at, ballot.reached(), ballot.tally.votes, number, target.place)
            if won is not None:
                won.append(grant)
            outcome: Grant | Refusal = grant
            interruption = None if target.stays else (yield from despite_interrupts(*target.besides(ballot, token)))
        else:
            yield from ballot.leave_phantom(spec, token, at)
            outcome = ballot.refusal(tally, at, valid_until)
            interruption = yield from rollback(spec, token, ballot)
        if interruption is not None:
            raise interruption  # noqa: TRY301 - `except` below rolls back all of it, again if need be: that does no harm
    except GeneratorExit:  # the generator was dropped: no driver would carry out what it yields
        raise
    except BaseException:  # a cancellation or Ctrl-C: the keys must not outlive this operation (R11)
        yield from rollback(spec, token, ballot)
        raise
    return outcome


def is_grant(
    settings: MastersSettings, spec: LockSpec, tally: Tally, sent_at: float, at: float, valid_until: float
) -> bool:
    """Whether an attempt that was decided at ``at`` is a grant: a majority, and enough validity (R7).

    Others may forget our `max_ttl` and our list of masters, if we were stopped.  No lease lasts longer than they know
    both (R21), and none was asked for before they knew the list, or knew it again (R34): votes may have been counted
    before we noticed that.
    """
    voters = settings.voters
    known = sent_at >= voters.known_from and valid_until <= voters.known_until
    return tally.yes >= tally.need and valid_until - at >= spec.min_validity and known


def second_round(settings: MastersSettings, spec: LockSpec, token: str, first: Ballot) -> Op[tuple[int, float, Tally]]:
    """Send a fence greater than all seen to the masters that may have stored it by then (R17, R35).

    This round ends with the time of the attempt: a master does not get more time because it is asked twice.
    """
    proposal = first.highest + 1
    settings.fences.learn(proposal)
    call, to = first.settling(spec, token, proposal)
    second = SecondBallot(settings, call, to=to, before=first.tally)
    at = yield from second.ask(first.sent_at + settings.node_timeout)
    return proposal, at, second.tally


def rollback(spec: LockSpec, token: str, round_: Round) -> Op[BaseException | None]:
    """Release on all masters that may have the key, above all on the silent ones (R9).

    Nobody waits for the answers.  On each connection the release stands behind the acquire (R10).  If the
    connection breaks before the answer, the release is owed for as long as the key can live.
    Returns the interruption, if there was one.
    """
    sent_at = round_.sent_at
    if sent_at == NEVER:  # interrupted before the round was sent
        return None
    release = Send(
        spec.mode.release(spec.keys, token, 0.0, None), to=round_.reached(), owed_until=sent_at + 2 * spec.ttl
    )
    return (yield from despite_interrupts(release))


def despite_interrupts(*effects: Send | Leave) -> Op[BaseException | None]:
    """Carry out each of ``effects`` although somebody keeps pressing Ctrl-C: a second time does no harm.

    Returns the first interruption.  The caller raises it, unless it is raising one already.
    """
    first: BaseException | None = None
    for effect in effects:
        for _ in range(3):
            try:
                yield effect
            except GeneratorExit:
                raise
            except BaseException as interruption:  # noqa: BLE001 - handed to the caller
                first = first or interruption
            else:
                break
    return first


class Target:
    """What an operation asks for, first and after each refusal, and where it stands in line.

    This one is a lock: it asks for the same all the time, and its holder stays first in line until the release.
    """

    __slots__ = ("place", "spec")

    stays = True  # a holder stays first in line, and the votes are about `spec`
    ballot = Ballot  # counts the votes of an attempt

    def __init__(self, spec: LockSpec) -> None:
        self.spec = spec  # what the next attempt asks for
        self.place = Place(spec.keys.locks, spec.mode.shared, spec.max_waiters)

    def first(self) -> None:
        """It is our turn: choose what to ask for first."""

    def refused(self, refusal: Refusal) -> Refusal | None:
        """What ``refusal`` means.  None: ask for something else, at once."""
        return refusal

    def after_pause(self, heard: Subscription | None) -> None:
        """A pause is over: choose what to ask for.  ``heard``: a release was announced there."""

    def subscription(self, settings: MastersSettings) -> Subscription:
        return Subscription(self.spec.keys.locks, len(settings.masters))

    def settle(self, ballot: Any) -> LockSpec:  # noqa: ARG002 - all votes are about that
        """What the votes are about, if that is not `spec`."""
        return self.spec

    def besides(self, ballot: Any, token: str) -> tuple[Send, ...]:  # noqa: ARG002 - they grant nothing else
        """Gives back what masters have granted beside that."""
        return ()
