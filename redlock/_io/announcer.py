"""Tells the masters of one `Masters` which list it uses, and reports what they say of others (R34).

The first announcement goes with the handshake of each connection.  The background sends the later ones, one request
to each master every half `max_ttl`, and tells what has come of them.  The last one is sent when the connections are
closed for good: it takes the list back.
"""

from __future__ import annotations

import contextlib
import logging
import math
import random
import secrets
from typing import TYPE_CHECKING, Any

from redlock._core import wire
from redlock._core.effects import Send
from redlock._core.fleet import Disagreement, difference

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.fleet import Fleet
    from redlock._core.outcomes import Failure
    from redlock._core.voters import Voters
    from redlock._core.wire import Call, Says
    from redlock._io.report import Reports

_ANSWERS = 1.0  # seconds in which masters answer an announcement, as a rule
_NOTHING = Disagreement((), refused=False)


class Announcement(Send):
    """An announcement under way.  Nobody waits for it."""

    open = True

    def __init__(self, call: Call, announcer: Announcer) -> None:
        super().__init__(call)
        self._announcer = announcer

    def answered(self, master: int, value: Any, at: float) -> bool:
        with contextlib.suppress(wire.BadReply):  # it costs nobody a vote
            self._announcer.heard(master, wire.read_fleet(value), self.sent_at, at)
        return False

    def failed(self, master: int, failure: Failure, at: float) -> bool:
        if failure.refused:
            self._announcer.heard(master, None, self.sent_at, at)
        return False


class Announcer:
    """The announcements of one driver.  Only one thread at a time may be in here, as in the connections."""

    def __init__(self, voters: Voters, fleet: Fleet, prefix: str, wake: Callable[[], object]) -> None:
        """``wake`` has `due` and `news` called soon."""
        self._voters = voters
        self._wake = wake
        self._fleet = fleet
        self._prefix = prefix
        self._client = ("" if fleet.refuses else "~") + secrets.token_hex(4)
        self._due = math.inf
        self._answers_until = -math.inf
        self._reported = _NOTHING

    def call(self, says: Says | None = None) -> Call:
        """An announcement.  ``says=None``: of the current state, as a part of a handshake.

        That takes nothing back: it may be carried out after it was given up, behind what was said later.
        """
        fleet = self._fleet
        says = says or ("refused" if fleet.in_the_way else fleet.says)
        return wire.fleet(self._prefix, fleet.names, self._client, says, fleet.life)

    def connected(self, now: float) -> None:
        """The list went with a handshake."""
        self._due = min(self._due, now + self._fleet.first_pause)
        self._answers_until = now
        self._hurry(now)

    def heard(self, master: int, lists: wire.Lists | None, sent_at: float, at: float) -> None:
        self._voters.told(master, lists, sent_at, at)
        self._hurry(at)
        if self._fleet.disagreement != self._reported:  # a lease that is to end must not wait for the next look
            self._wake()

    def _hurry(self, at: float) -> None:
        self._due = min(self._due, at if self._fleet.in_the_way else at + self._pause())

    def due(self, now: float) -> Announcement | None:
        """The announcement that is due at ``now``."""
        if now < self._due:
            return None
        says = self._fleet.announcing(now)
        self._due = now + self._pause()
        self._answers_until = now + _ANSWERS
        return Announcement(self.call(says), self)

    def _pause(self) -> float:
        # Two that come at once and give way to each other must not go on in step.
        return self._fleet.pause * (random.uniform(0.5, 1.0) if self._fleet.rejected else 1.0)  # noqa: S311 - no secret

    def next(self, now: float, tick: float) -> float:
        """Seconds until the next look."""
        return min(self._due - now, tick if now < self._answers_until else math.inf)

    def news(self) -> Reports:
        """What is to be told, once."""
        found, before = self._fleet.disagreement, self._reported
        if found == before:
            return []
        self._reported = found
        own, others, refused = self._fleet.names, found.others, found.refused
        if not others:
            text = "all clients use compatible masters again"
            return [(logging.INFO, text, lambda observer: observer.masters_agree())]
        what = "no lock can be taken here" if refused else "two may hold one lock unless one of them is refused"
        text = f"clients use masters that are incompatible, so {what}: " + "; and ".join(
            difference(own, other) for other in others
        )
        level = logging.ERROR if refused else logging.WARNING
        return [(level, text, lambda observer: observer.masters_disagree(own, others, refused))]
