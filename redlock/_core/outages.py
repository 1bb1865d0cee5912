"""How long an operation waits through an outage, and who is told of one (C1, R38)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.quorum import Tally

EVERY = 60.0  # seconds between two reports of one outage

# What is to be told, for how many seconds the quorum has been gone, and the latest votes.
Told: TypeAlias = "Callable[[Literal['gone', 'still gone', 'back'], float, Tally], object]"


class Patience:
    """It goes on until its deadline; without one, until an outage has lasted for ``outage_timeout`` seconds.

    ``since``: when a majority took part last, in an attempt of it or of one in front of it; at first, when it began.
    """

    __slots__ = ("_outage_timeout", "deadline", "since")

    def __init__(self, deadline: float, began: float, outage_timeout: float) -> None:
        self.deadline, self.since = deadline, began
        self._outage_timeout = outage_timeout if deadline == math.inf else math.inf

    @property
    def ends(self) -> float:
        """When it gives up, if no majority takes part any more."""
        return min(self.deadline, self.since + self._outage_timeout)

    def after(self, at: float, *, took_part: bool) -> float:
        """When it gives up, after an attempt that was decided at ``at``.  ``took_part``: a majority did."""
        if took_part:
            self.since = at
            return self.deadline
        return self.ends


class Outages:
    """Hears, from any thread, of attempts in which too few took part, and during an outage of all others as well.

    There is one for all locks of a `Masters`: a thousand waiters are no thousand records.  It has no clock: who waits
    in an outage attempts again and again, and where nobody does there is nothing to say.  ``since``: when it was found.
    """

    __slots__ = ("_due", "_told", "since")

    def __init__(self, told: Told) -> None:
        self._told = told
        self.since: float | None = None  # never 0: this clock has been running for a while
        self._due = [0.0]  # when the next report is due; of several threads the one that takes it out decides

    def attempted(self, tally: Tally, at: float) -> None:
        if not tally.outage and self.since is None:
            return
        try:
            due = self._due.pop()
        except IndexError:
            return
        since, gone = self.since, tally.outage
        self.since = since or at if gone else None
        tells = gone != (since is not None) or (gone and at >= due)
        self._due.append(at + EVERY if tells else due)
        if tells:
            self._told("back" if not gone else "still gone" if since else "gone", at - (since or at), tally)
