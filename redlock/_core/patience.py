"""How long an operation goes on: through an outage (C1, R38), and where several ask at once (C3).

Several ask at once, and none gets a majority: a single try, or a waiter whose time is up, would report a holder, and a
job that was to run once would run nowhere.  So it tries again, nearly always once.  Pauses that are shorter than an
attempt separate no clients.  Over links of 1 ms to one master and 15 ms to the others 3 to 8 clients that try at once
all fail without this; with two more attempts 6 of 1,500 rounds have no winner, with three none; `MOST` is one more.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from redlock._core.effects import Op, sleep
from redlock._core.outages import FIRST

if TYPE_CHECKING:
    from redlock._core.settings import MastersSettings

MOST = 4
LONGEST = 4  # the longest pause, in `node_timeout`


class Patience:
    """It goes on until its deadline; without one, until an outage has lasted for ``outage_timeout`` seconds."""

    __slots__ = (
        "_attempt", "_collisions", "_due", "_outage_timeout", "_settings", "began", "deadline", "reports_at", "since",
    )  # fmt: skip

    def __init__(self, settings: MastersSettings, deadline: float, began: float) -> None:
        # `since`: a majority took part last, or the process stood still: in that time no attempt has seen an outage.
        self.deadline, self.since, self.began = deadline, began, began
        # When the log names the holder (R45).
        self.reports_at = math.inf if settings.waits is None else began + FIRST
        self._settings = settings
        self._outage_timeout = settings.outage_timeout if deadline == math.inf else math.inf
        self._collisions = 0  # collisions after its deadline
        self._attempt = 2 * settings.node_timeout  # seconds that an attempt takes, and by which its wait is late
        self._due = began + self._attempt  # when the next attempt has been decided, unless the process is stopped

    @property
    def ends(self) -> float:
        """When it gives up, if no majority takes part any more."""
        return min(self.deadline, self.since + self._outage_timeout)

    def after(self, at: float, *, took_part: bool) -> float:
        """When it gives up, after an attempt that was decided at ``at``.  ``took_part``: a majority did."""
        late, self._due = max(0.0, at - self._due), at + self._attempt
        self.since = at if took_part else min(self.since + late, at)
        return self.deadline if took_part else self.ends

    def until(self, at: float) -> float:
        """The end of a wait for the next attempt: ``at``, or when it gives up."""
        until = min(at, self.ends)
        self._due = until + self._attempt
        return until

    def stood_still(self, at: float) -> bool:
        """Whether a wait that ended at ``at`` came too late.  Then it waits for the next attempt in front of it."""
        late = at > self._due
        if late:
            self.since = at + self._attempt - self._outage_timeout
        return late

    def try_again(self, at: float, took: float) -> Op[bool]:
        """Wait until it is worth another attempt; one has collided at ``at``, after ``took`` seconds.  False: never."""
        if self._collisions == MOST:
            return False
        self._collisions += 1
        yield from sleep(at + short_pause(self._settings, took, self._collisions))
        return True


def short_pause(settings: MastersSettings, took: float, collisions: int) -> float:
    """Seconds until another attempt, after so many collisions; the last attempt took ``took`` seconds."""
    return min(took * 2.0 ** min(collisions, 32), LONGEST * settings.node_timeout) * settings.random()
