"""Takes a lock.  Each attempt wins a majority, or leaves nothing behind (`attempt`)."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from redlock._core import readings
from redlock._core.effects import Leave, Listen, LookAhead, Notified, Op, Send, Timeout, Turn, WakeBehind, sleep, wait
from redlock._core.fair import tickets
from redlock._core.kernel.attempt import attempt
from redlock._core.kernel.ballot import Grant, Refusal
from redlock._core.kernel.quorum import Tally
from redlock._core.kernel.rollback import carry_out, despite_interrupts, raise_graver
from redlock._core.kernel.validity import ROUNDING
from redlock._core.local_queue import Place
from redlock._core.modes import keep_new_readers_away
from redlock._core.notes import Waited
from redlock._core.outages import FIRST
from redlock._core.outcomes import NEVER
from redlock._core.patience import Patience, short_pause
from redlock._core.retry import delay
from redlock._core.subscriptions import Subscription
from redlock._core.tokens import READERS, FenceClock, by_whom, is_phantom, readers_of, released_token, turn_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redlock._core.effects import Event
    from redlock._core.lease import LeaseState
    from redlock._core.protocols import Observing
    from redlock._core.settings import LockSpec, MastersSettings

_WAITS = itertools.count(1)  # numbers for an observer


def acquire(target: Target, deadline: float, began: float) -> Op[Grant | Refusal]:  # noqa: C901 - flat: each call costs
    """Try until ``target`` is granted or ``deadline`` has passed: at least once, and once more at the deadline.

    ``began``: now.  Without a deadline an outage ends it (`Patience`).
    """
    settings, place, marks = target.settings, target.place, target.marks
    try:
        outcome = yield from attempt(target, enter=True)
        if not isinstance(outcome, Grant) or settings.outages.since:
            _note(settings, outcome)
        if outcome is None and place.crowd:
            outage, _ = yield from _met_in_front(place, began)  # an outage for them is one for this waiter as well (C2)
            outcome = outage or _not_tried(settings, began, place.crowd)
        elif not isinstance(outcome, Grant):
            target.patience = Patience(settings, deadline, began)
            contend = _contend(target, outcome)
            if outcome is None or outcome.at < deadline:
                contend = _observed(settings.observer, target.spec.name, contend)
            outcome = yield from contend
        place.holds = outcome.decided_at if target.stays and isinstance(outcome, Grant) else 0.0
        if marks or not place.holds:
            # If this raises, `except` below sends `Leave` again, which does no harm.
            yield from carry_out(*marks, *(() if place.holds else (Leave(place),)))
        if place.awaited and target.stays:
            yield WakeBehind(place)
    except GeneratorExit:  # the generator was dropped: no driver would carry out what it yields
        raise
    except BaseException as first:
        try:
            struck = yield from despite_interrupts(*marks, Leave(place))
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - before that was sent
            yield from despite_interrupts(*marks, Leave(place))
            struck = error
        raise_graver(first, struck)
        raise
    return outcome


def _note(settings: MastersSettings, outcome: Grant | Refusal | None) -> None:
    """An outage begins, goes on and ends with attempts (R38)."""
    if outcome is not None and outcome.tally is not None:
        settings.outages.attempted(outcome.tally, outcome.decided_at if isinstance(outcome, Grant) else outcome.at)


def _not_tried(settings: MastersSettings, at: float, crowd: int = 0) -> Refusal:
    return Refusal("held", Tally(settings.masters), at, waited=Waited(0, crowd=crowd))


def _observed(observer: Observing | None, name: str, wait_: Op[Grant | Refusal]) -> Op[Grant | Refusal]:
    """``wait_``.  An observer gets its begin and its end, so that each wait is seen (R40)."""
    if observer is None:
        return (yield from wait_)
    waiter = next(_WAITS)
    try:
        observer.tell("WaitBegan", name, waiter)
        return (yield from wait_)
    finally:
        observer.tell("WaitEnded", name, waiter)


def _contend(target: Target, outcome: Grant | Refusal | None) -> Op[Grant | Refusal]:
    """Wait for our turn in line, then compete with other processes.  ``outcome``: of the first attempt."""
    settings, place, patience = target.settings, target.place, target.patience
    attempts = 1
    tidied = False
    failed = 1  # attempts since a release was announced: after a release all waiters begin anew
    if outcome is None:  # it was not our turn
        attempts = failed = 0
        refusal = yield from in_line(target)
        if refusal is not None:
            return refusal
        yield from target.our_turn()
        target.first()
    while not isinstance(outcome, Grant):
        deadline = patience.deadline
        if outcome is not None:
            deadline = patience.after(outcome.at, took_part=outcome.kind == "held")
            target.latest = outcome = outcome._replace(waited=Waited(since=patience.since))
            lined = tickets.in_order(outcome.held)
            outcome = outcome if outcome.doubt.soon else target.refused(outcome)
            if lined:  # masters check whether waiters are still in order; the next attempt comes behind that (R42)
                yield Send(tickets.leave(target.spec.keys, "", settings.fence_ttl))
                tidied, outcome = True, outcome if tidied else None
        if (refusal := outcome) is not None:
            yield from _share(target, refusal)
            if (yield from is_answer(refusal, deadline, patience)):
                return refusal._replace(waited=refusal.waited._replace(attempts=attempts, before=place.attempts))
            _keep(target, refusal)
            heard = False
            if refusal.at < deadline:
                if target.subscription is None and refusal.kind == "held" and not reserved(refusal):
                    yield from target.listen()
                heard = yield from target.pause(refusal, failed)
                tidied = False
                failed = 0 if heard else failed
            target.after_pause(heard=heard)
        attempts += 1
        failed += 1
        outcome = yield from _attempt_again(target, attempts)
    return outcome


def reserved(refusal: Refusal) -> float:
    """Seconds until another attempt makes sense, as the name is kept from all (R28, R35); 0: it is not."""
    if refusal.doubt.soon:
        return refusal.doubt.soon
    if any(one.slots for one in refusal.held):  # a release of another slot helps as well
        return 0.0
    left = sorted(one.remaining for one in refusal.held if released_token(one.holder) and one.remaining < math.inf)
    need, free = refusal.tally.need, refusal.tally.size - len(left)
    return left[need - free - 1] if free < need else 0.0


def is_answer(refusal: Refusal, deadline: float, patience: Patience) -> Op[bool]:
    """Whether ``refusal`` is what the caller gets (C1).  Else, if its time is up, another attempt is worth it (C3)."""
    if readings.misconfigured(refusal.tally) or refusal.at < deadline:
        return readings.misconfigured(refusal.tally)
    if refusal.doubt.soon:  # a key that is in the way ends then, whatever the deadline is (R35)
        yield from sleep(refusal.at + refusal.doubt.soon + ROUNDING)
        return False
    return not (refusal.contended and (yield from patience.try_again(refusal.at, readings.took(refusal.tally))))


def _keep(target: Target, refusal: Refusal) -> None:
    if target.settings.observer is not None:
        target.place.failed(refusal)


def _share(target: Target, refusal: Refusal) -> Op[None]:
    """Inform the waiters behind this one, and an election."""
    target.place.answered(refusal)
    if target.place.awaited:
        yield WakeBehind(target.place)
    if target.spec.refused is not None and refusal.kind == "held":
        target.spec.refused(refusal)


def in_line(target: Target) -> Op[Refusal | None]:
    """Wait until ``target`` is first in line; a `Refusal` if the deadline, and one answer in front, come first (C2)."""
    settings, place = target.settings, target.place
    until = deadline = target.patience.deadline
    if deadline == math.inf:
        return (yield from _in_line_without_a_deadline(target))
    while not place.turn:
        event = yield from target.wait(until, quiet=True)
        if isinstance(event, Timeout | Turn) and event.at >= deadline and not place.turn:
            outage, answered = yield from _met_in_front(place, event.at)
            if outage is not None:
                return outage
            if answered or event.at >= until > deadline:
                return _not_tried(settings, event.at)
            if until == deadline:
                until = event.at + 2 * settings.node_timeout
    place.inbox = None  # no `Turn` will come any more; a lease that referred to the inbox would be a cycle
    return None


def _in_line_without_a_deadline(target: Target) -> Op[Refusal | None]:
    """As `in_line`.  An outage that the first in line has met is one for all, each from its own call on (R38)."""
    place, patience = target.place, target.patience
    while not place.turn:
        event = yield from target.wait(patience.until(math.inf), quiet=True)
        if isinstance(event, Timeout) or (isinstance(event, Turn) and place.turn):
            outage, _ = yield from _met_in_front(place, event.at)
            patience.since = event.at if outage is None else max(patience.since, outage.waited.since)
            if outage is not None and event.at >= patience.ends and not patience.stood_still(event.at):
                return outage._replace(waited=outage.waited._replace(since=patience.since))
    place.inbox = None
    return None


def _met_in_front(place: Place, at: float) -> Op[tuple[Refusal | None, bool]]:
    """The outage, or the late masters, that a waiter in front has met; and whether any of them has an answer."""
    look = LookAhead(place)
    yield look
    outage = next((one for one in look.learned if isinstance(one, Refusal) and one.kind != "held"), None)
    outage = outage and outage._replace(at=at, waited=outage.waited._replace(attempts=0, before=()))
    return outage, any(look.learned)


def _who_holds(learned: Sequence[Refusal | float | None], at: float, fences: FenceClock) -> str:
    """Who holds it and for how long, by what those in front have learned; "" if it is not known to be held."""
    for one in learned:
        if isinstance(one, float):
            return f"by another thread or task of this process for {at - one:.0f} s"
        who = one.holder if one is not None and one.kind == "held" else ""
        if one is None or not who or is_phantom(who) or released_token(who) or turn_of(who):
            continue
        if at - one.at > FIRST:  # it waits in order, and has not asked again (R42)
            return f"{by_whom(who)} {at - one.at:.0f} s ago"
        fence = max(held.fence for held in one.held if held.holder == who)
        return by_whom(who) + (f" for {fences.age(fence):.0f} s" if fence and not readers_of(who) else "")
    return ""


def _attempt_again(target: Target, number: int) -> Op[Grant | Refusal | None]:
    subscription = target.subscription
    if subscription is not None:
        subscription.attempting()
    outcome = yield from attempt(target, number)
    _note(target.settings, outcome)
    if subscription is not None:
        if isinstance(outcome, Refusal):
            subscription.tried(collided=outcome.split, took=readings.took(outcome.tally))
            subscription.refused(readings.in_the_way(outcome.tally))
        else:
            subscription.tried(collided=False)
    return outcome


def pause(target: Target, refusal: Refusal, until: float) -> Op[bool]:
    """Wait until there is reason to try again.  Returns True if the reason is an announced release (R24)."""
    at, subscription = refusal.at, target.subscription
    if subscription is not None:
        subscription.refused(readings.in_the_way(refusal.tally))
    if refusal.kind != "held" or reserved(refusal):
        # No release ends an outage, or keys that a release has left; and rollbacks are announced, too.
        subscription = None
    while subscription is None or not (subscription.look or subscription.released):
        event = yield from target.wait(until)
        if isinstance(event, Timeout):
            return False
        if isinstance(event, Notified):  # anything else is a late event of the failed attempt
            at = event.at
    if not subscription.released:
        return False
    spread = subscription.spread
    if spread:
        yield from sleep(min(at + spread * target.settings.random(), until))
    return True


class Target:
    """The strategy of one acquire.  This one is a lock: it asks for the same all the time, and stays first in line."""

    __slots__ = ("_new_lease", "latest", "lease", "marks", "patience", "place", "settings", "spec", "subscription")

    stays = True  # a holder stays first in line
    patience: Patience  # of one that waits

    def __init__(self, settings: MastersSettings, spec: LockSpec, new_lease: Callable[[], LeaseState]) -> None:
        self.settings = settings
        self._new_lease = new_lease
        self.lease: LeaseState | None = None  # from `asked` on; a grant begins it
        self.spec = spec  # what the next attempt asks for
        self.place = Place(spec.keys.locks, spec.mode.shared, spec.max_waiters)
        self.subscription: Subscription | None = None  # to releases
        self.latest: Refusal | None = None  # why the latest attempt failed
        self.marks: list[Send] = []  # requests that take back a mark or a ticket (R33, R42)

    def first(self) -> None:
        """It is our turn: choose what to ask for first."""

    def asked(self) -> None:
        if self.lease is None:
            self.lease = self._new_lease()

    def granted(self, grant: Grant) -> None:
        lease = self.lease
        assert lease is not None  # noqa: S101 - `asked` came first
        lease.granted(grant)
        # It gets announcements, so masters that have refused it get its key as soon as they are free (R37).
        lease.listened = self.subscription is not None and (tally := grant.tally) is not None and tally.yes < tally.size

    def our_turn(self) -> Op[None]:
        """It is our turn.  If this process has just had the lock, another one that listens goes first (R24)."""
        until = self.place.yield_until
        if NEVER < until < self.patience.deadline:
            subscription = yield from self.listen()
            while subscription.released < 2:  # noqa: PLR2004 - see above
                if isinstance((yield from wait(until)), Timeout):
                    break

    def listen(self) -> Op[Subscription]:
        self.subscription = subscription = self._new_subscription()
        yield Listen(subscription)
        return subscription

    def _new_subscription(self) -> Subscription:
        return Subscription(self.spec.keys.locks, len(self.settings.masters))

    def wait(self, until: float, *, quiet: bool = False) -> Op[Event]:
        """The next event while others are in the way.  Of a long wait the log says who they are (R45)."""
        patience = self.patience
        if until <= patience.reports_at or self.settings.waits is None:
            return (yield from wait(until, quiet=quiet))
        event = yield from wait(patience.reports_at, quiet=quiet)
        if isinstance(event, Timeout):
            look = LookAhead(self.place)
            yield look
            patience.reports_at = event.at + FIRST
            if who := _who_holds(look.learned, event.at, self.settings.fences):
                text = f"{self.spec.shown} not acquired after {event.at - patience.began:.0f} s of waiting: held {who}"
                patience.reports_at = self.settings.waits.waited(self.place.keys, event.at, text)
            event = Turn(event.at)  # it looks again, as something may have happened since
        return event

    def refused(self, refusal: Refusal) -> Refusal | None:
        """What ``refusal`` means.  None: ask for something else, at once."""
        return refusal

    def pause(self, refusal: Refusal, failed: int) -> Op[bool]:
        """See `pause`.  A waiting writer keeps new readers away until then, but not from a slot."""
        until = self.next_try(refusal, failed)
        if self.stays:
            by_readers = any(one.holder == READERS for one in refusal.held)
            wait_ = until - refusal.at
            yield from keep_new_readers_away(self.settings, self.spec, self.marks, by_readers=by_readers, pause=wait_)
        return (yield from pause(self, refusal, until))

    def next_try(self, refusal: Refusal, failed: int) -> float:
        """When to try again, if nothing happens before that."""
        if left := reserved(refusal):  # one look, when the name can be free
            return self.patience.until(refusal.at + left + ROUNDING)
        if refusal.contended and not refusal.holder:  # it lost the race of fences, so the name is free (C3, C4)
            until = refusal.at + short_pause(self.settings, readings.took(refusal.tally), failed)
        else:
            until = refusal.at + delay(self.spec.retry, failed)
        if refusal.remaining is not None:  # by then the keys have expired, also if no release is announced
            until = min(until, refusal.at + refusal.remaining + ROUNDING)
        return self.patience.until(until)

    def after_pause(self, *, heard: bool) -> None:
        """After a pause: choose what to ask for.  ``heard``: a release was announced."""
