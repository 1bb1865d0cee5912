"""When an outage is reported (C1, R38)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from redlock._core import readings

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.kernel.quorum import Tally

EVERY = 60.0  # seconds between two reports of one outage

# What to report, for how many seconds the quorum has been gone, and the latest votes.
Report: TypeAlias = "Callable[[Literal['gone', 'still gone', 'back'], float, Tally], object]"


class Outages:
    """Called for every attempt without a quorum and, during an outage, for every attempt.  Any thread may do so.

    One for all locks of a `Masters`: a thousand waiters are no thousand records.  It has no clock: without waiters
    there is nothing to say.  ``since``: when it was found.
    """

    __slots__ = ("_due", "_report", "since")

    def __init__(self, report: Report) -> None:
        self._report = report
        self.since: float | None = None  # never 0: this clock has been running for a while
        self._due = [0.0]  # when the next report is due; of several threads the one that takes it out decides

    def attempted(self, tally: Tally, at: float) -> None:
        if not readings.outage(tally) and self.since is None:
            return
        try:
            due = self._due.pop()
        except IndexError:
            return
        since, gone = self.since, readings.outage(tally)
        self.since = since or at if gone else None
        reports = gone != (since is not None) or (gone and at >= due)
        self._due.append(at + EVERY if reports else due)
        if reports:
            self._report("back" if not gone else "still gone" if since else "gone", at - (since or at), tally)
