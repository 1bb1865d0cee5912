"""Waits in order: waiters of all processes are served as their tickets settled (R42).

A settled ticket is known to a majority, so no client with a greater one, or with none, gets a majority.  A renewal also
tells after how many releases it is the waiter's turn, and when the name may be had; a master that has forgotten the
ticket gets it back.  The first in the queue attempts when the release is announced.  The others move up by one, and the
new first one looks again: so fifty waiters make one attempt for each hand-over.  Where a waiter would let other
processes go first (R24), it draws its ticket at once: an attempt would be refused.

Also considered: a ticket for each attempt, in the script of the acquire (each renewal would be an attempt with a
rollback: twice the messages, and announcements of what was taken back); one more key in acquire.lua (40 bytes and a
command for every client, and a right that users lack; the zero in front of the fence costs nothing); masters that hand
the lock over to the next one (it may have died, and would hold the lock then); an order by arrival at each master
(orders differ, so no client would get a majority).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from redlock._core import readings
from redlock._core.acquire import Target
from redlock._core.effects import Notified, Op, Send, Timeout, sleep
from redlock._core.fair import tickets
from redlock._core.kernel.ballot import Refusal
from redlock._core.kernel.quorum import Tally
from redlock._core.kernel.rounds import GRANTED, Round
from redlock._core.kernel.validity import ROUNDING
from redlock._core.outcomes import NEVER

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.lease import LeaseState
    from redlock._core.settings import LockSpec, MastersSettings
    from redlock._core.wire import Call, Keys
    from redlock.errors import Outcome

_RENEW = 0.3 * tickets.LIFE  # so that two renewals may be lost
_PROPOSALS = 3  # proposals in a row, while others overtake them
_GRACE = 0.01  # seconds after a release until the next in line looks: by then it knows whether it has counted too many


class Ticket:
    """The ticket of one operation."""

    __slots__ = ("_keys", "_settled", "number", "refused", "token", "turns")

    def __init__(self, keys: Keys, token: str) -> None:
        self.token = token
        self.number = 0
        self.turns = 0  # releases until it is its turn, as far as is known
        self.refused: Tally | None = None  # of a look whose errors waiting cannot cure (C1)
        self._keys = keys
        self._settled = False

    def look(self, settings: MastersSettings) -> Op[tuple[Standing, float]]:
        """Renew the ticket, or draw one.  Returns where it stands, if a majority has it, and the time."""
        proposals = 0
        while True:
            new = not self._settled
            if new:
                self.number = settings.fences.propose()
                proposals += 1
            call = tickets.stand(self._keys, self.token, self.number, settings.fence_ttl, new=new)
            standing = Standing(settings, call)
            at = yield from standing.ask()
            tally = standing.tally
            self.refused = tally if readings.misconfigured(tally) else None
            self._settled = self._settled or tally.won
            if self._settled or tally.unreachable or proposals == _PROPOSALS:
                return standing, at

    def leave(self, settings: MastersSettings) -> Send:
        return Send(tickets.leave(self._keys, self.token, settings.fence_ttl), owed_until=NEVER)


class Standing(Round):
    """The round that draws or renews a ticket."""

    def __init__(self, settings: MastersSettings, call: Call) -> None:
        super().__init__(settings, call)
        self._said: dict[int, tickets.Stands] = {}

    def read(self, master: int, value: Any) -> tuple[Outcome, str]:
        fence, stands = tickets.read_ticket(value)
        self._settings.fences.learn(fence)
        if stands is None:
            return "held", f"has the fence {fence}, the ticket is not greater"
        self._said[master] = stands
        return GRANTED

    def stands(self) -> tickets.Stands:
        """When a majority may grant it."""
        counted = [said for master, said in self._said.items() if self.tally.outcome(master) == "granted"]
        turns, wait = (sorted(said)[self.tally.need - 1] for said in zip(*counted, strict=True))
        return tickets.Stands(int(turns), wait)

    def in_the_way(self) -> list[int]:
        """One of these masters has to change its answer before an attempt can be granted (`Subscription.refused`)."""
        return [master for master in range(self.tally.size) if master not in self._said or self._said[master].wait]


class FairTarget(Target):
    """The strategy of a lock in order; its ticket is its place in the queue of all processes."""

    def __init__(self, settings: MastersSettings, spec: LockSpec, new_lease: Callable[[], LeaseState]) -> None:
        super().__init__(settings, spec, new_lease)
        self.ticket = ticket = Ticket(spec.keys, settings.token())
        acquire = partial(tickets.acquire, waiter=ticket.token)
        self.spec = spec._replace(mode=spec.mode._replace(acquire=acquire, written=tickets.written))

    def refused(self, refusal: Refusal) -> Refusal:
        super().refused(refusal)
        tally = self.ticket.refused
        return refusal if tally is None else refusal._replace(kind="unreachable", tally=tally)

    def our_turn(self) -> Op[None]:
        if self.place.yield_until > NEVER:
            yield from self.listen()
            yield from self.pause(Refusal("held", Tally(self.settings.masters), NEVER), 1)

    def pause(self, refusal: Refusal, failed: int) -> Op[bool]:
        """Wait in the queue until it may be our turn, or the time is up.  True: because a release was announced."""
        settings, ticket, patience, subscription = self.settings, self.ticket, self.patience, self.subscription
        self.marks[:] = [ticket.leave(settings)]
        until = self.next_try(refusal, failed)
        if subscription is not None:
            subscription.refused(readings.in_the_way(refusal.tally))
        held = False  # a look since the refusal has found a holder
        while True:
            if subscription is not None:
                subscription.attempting()  # masters know by now what was announced before this look
            standing, at = yield from ticket.look(settings)
            if standing.tally.unreachable:  # the next attempt meets the outage as well
                yield from sleep(patience.until(max(until, at)), quiet=False)
                return False
            wake = at + settings.random() * _RENEW  # it has not settled: others have overtaken it
            if standing.tally.won:
                patience.after(at, took_part=True)
                ticket.turns, left = standing.stands()
                if left == 0 and (held or at >= until):  # else it would be refused for the same reason again
                    return False
                held = held or left > 0
                if subscription is not None:
                    subscription.refused(standing.in_the_way())
                wake = min(at + _RENEW, at + left + ROUNDING if left else until)
            if at >= patience.ends:
                return False
            if (yield from self._doze(at, min(wake, patience.ends))):
                return True

    def _doze(self, at: float, until: float) -> Op[bool]:
        """Wait until there is reason to look.  True: a release was announced, and we are next."""
        ticket, subscription, served = self.ticket, self.subscription, 0
        while subscription is None or not subscription.look:
            if subscription is not None and subscription.released > served:
                served += 1
                ticket.turns -= 1
                if ticket.turns <= 0:
                    # As every client after an announcement: others that do not queue may be in the way (R24).
                    if subscription.spread:
                        yield from sleep(at + min(subscription.spread * self.settings.random(), _RENEW))
                    return True
                if ticket.turns == 1:
                    until = min(until, at + _GRACE)
                continue
            event = yield from self.wait(until)
            if isinstance(event, Timeout):
                return False
            if isinstance(event, Notified):  # anything else is a late event of a round
                at = event.at
        return False
