"""Announces `max_ttl` (R21) and the list of masters (R34), and reports what masters say of other clients.

It asks as well whose data they have: `REPLICAOF` breaks no connection (R21).  It also asks for their time: so it
knows at which rates their clocks run (R43).

The first announcements go with the handshake of each connection.  The background sends the later ones to each master
every half `max_ttl`, and reports the answers.  The last one, when connections are closed for good, takes the list back.
"""

from __future__ import annotations

import contextlib
import logging
import math
import secrets
from typing import TYPE_CHECKING, Any

from redlock._core import wire
from redlock._core.effects import Send
from redlock._core.fleet import SOON, Disagreement, difference
from redlock._core.rates import APART
from redlock._core.retry import chance

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.outcomes import Failure
    from redlock._core.voters import Voters
    from redlock._core.wire import Call, Says, Way
    from redlock._io.report import Reports

_ANSWERS = 1.0  # seconds in which masters answer an announcement, as a rule
_SOON = 0.005  # ... and at the earliest; an answer that is read late says less about a clock (R43)
_NOTHING = Disagreement((), refused=False)
_DIFFERS: dict[Way, str] = {
    "confirmed": "clients of these masters do without confirm_expiry, and this one has it",
    "trusted": "clients of these masters have confirm_expiry=True, and this one does without",
}


class Announcement(Send):
    """An announcement under way.  No caller waits for it."""

    open = True

    def __init__(
        self, call: Call, heard: Callable[[int, Any, float, float], object], to: frozenset[int] | None = None
    ) -> None:
        super().__init__(call, to)
        self._heard = heard

    def answered(self, master: int, value: Any, at: float) -> bool:
        with contextlib.suppress(wire.BadReply):  # it costs no vote
            self._heard(master, value, self.sent_at, at)
        return False

    def failed(self, master: int, failure: Failure, at: float) -> bool:
        if failure.refused:
            self._heard(master, None, self.sent_at, at)
        return False


class Announcer:
    """The announcements of one driver.  Only one thread at a time may be in here, as in the connections."""

    def __init__(self, voters: Voters, prefix: str, tick_soon: Callable[[], object]) -> None:
        """``tick_soon`` has `due` and `news` called soon."""
        self._voters = voters
        self._tick_soon = tick_soon
        self._fleet = fleet = voters.fleet
        self._prefix = prefix
        self._client = ("~" if fleet is None or not fleet.refuses else "") + secrets.token_hex(4)
        self._due = self._next_reading = math.inf
        self._asked_at = self._answers_until = -math.inf
        self._reported = _NOTHING
        self._said_differs = False
        self._notices: Reports = []

    def call(self, says: Says | None = None) -> Call | None:
        """An announcement of our list, if we make any.  ``says=None``: of the current state, as a part of a handshake.

        It withdraws no list: if the handshake is given up, a master may carry it out behind later announcements.
        """
        if (fleet := self._fleet) is None:
            return None
        says = says or ("refused" if fleet.in_the_way else fleet.says)
        return wire.fleet(self._prefix, fleet.names, self._client, says, fleet.life, fleet.way)

    def connected(self, now: float) -> None:
        """Both went with a handshake."""
        pause = wire.REFRESH * self._voters.max_ttl if self._fleet is None else self._fleet.first_pause
        self._due = min(self._due, now + pause, self._voters.longest(now)[1])
        self._answers_until = now
        self._next_reading = now + APART
        self._hurry(now)

    def reading(self, master: int | None = None) -> Announcement:
        """A look at the clock of ``master``; None: of all."""
        return Announcement(wire.TIME, self._heard_time, None if master is None else frozenset((master,)))

    def _heard_time(self, master: int, value: Any, sent_at: float, at: float) -> None:
        if value is not None and (pause := self._voters.time_answered(master, wire.read_time(value), sent_at, at)):
            self._next_reading = min(self._next_reading, at + pause)
            self._tick_soon()

    def _heard_longest(self, master: int, value: Any, sent_at: float, at: float) -> None:
        announced = None if value is None else wire.read_announce(value)
        if notice := self._voters.max_ttl_answered(master, announced, sent_at, at):
            self._notices.append((logging.WARNING, notice, ()))

    def _heard_known(self, master: int, value: Any, sent_at: float, at: float) -> None:  # noqa: ARG002 - see `Announcement`
        self._voters.known_answered(master, None if value is None else wire.read_known(value), at)

    def heard(self, master: int, value: Any, sent_at: float, at: float) -> None:
        self._voters.lists_answered(master, None if value is None else wire.read_fleet(value), sent_at, at)
        self._hurry(at)
        if self._fleet is not None and self._fleet.disagreement != self._reported:
            self._tick_soon()  # a lease that is to end must not wait for the next tick

    def _hurry(self, at: float) -> None:
        in_the_way = self._fleet is not None and self._fleet.in_the_way
        self._due = min(self._due, at if in_the_way else at + self._pause(at))

    def due(self, now: float) -> list[Announcement]:
        due = []
        if now >= min(self._due, self._next_reading):
            due.append(self.reading())
            self._next_reading, self._asked_at, self._answers_until = math.inf, now, now + _ANSWERS
        if now < self._due:
            return due
        due += [
            Announcement(wire.announce(self._prefix, self._voters.announces), self._heard_longest),
            Announcement(wire.known(self._prefix), self._heard_known),
        ]
        if self._fleet is not None and (call := self.call(self._fleet.next_announcement(now))) is not None:
            due.append(Announcement(call, self.heard))
        # Where a longer max_ttl has just ended, announce ours at once.
        self._due = min(now + self._pause(now), self._voters.longest(now)[1])
        return due

    def _pause(self, now: float) -> float:
        # A majority that answers gets this within half a max_ttl, and knows us for more than one. A majority that
        # does not answer forgets us, and then its grants are void: so announce until it has answered.
        if self._voters.known_until - now < self._voters.max_ttl:
            return SOON * self._voters.max_ttl
        if self._fleet is None:
            return wire.REFRESH * self._voters.max_ttl
        # Two clients that come at once and give way to each other must not repeat that in step.
        return self._fleet.pause * (chance.uniform(0.5, 1.0) if self._fleet.rejected else 1.0)

    def next(self, now: float, tick: float) -> float:
        """Seconds until the next tick."""
        look = min(tick, max(_SOON, now - self._asked_at)) if now < self._answers_until else math.inf
        return min(self._due - now, self._next_reading - now, look)

    def news(self) -> Reports:
        """What to report, once."""
        notices, self._notices = self._notices, []
        if self._fleet is not None and self._fleet.differs and not self._said_differs:
            self._said_differs = True
            text = f"{_DIFFERS[self._fleet.way]}: with a wrong clock, two may hold one lock. Give all clients the same"
            notices.append((logging.WARNING, text, ()))
        if self._fleet is None or (found := self._fleet.disagreement) == self._reported:
            return notices
        self._reported = found
        own, others, refused = self._fleet.names, found.others, found.refused
        if not others:
            text = "all clients use compatible masters again"
            return [*notices, (logging.INFO, text, ("MastersAgree",))]
        what = "no lock can be taken here" if refused else "two clients may hold one lock unless one of them is refused"
        text = f"clients use masters that are incompatible, so {what}: " + "; and ".join(
            difference(own, other) for other in others
        )
        level = logging.ERROR if refused else logging.WARNING
        lists = tuple(tuple(sorted(names)) for names in others)  # the same lists look the same in every log
        return [*notices, (level, text, ("MastersDisagree", own, lists, refused))]
