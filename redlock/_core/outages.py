"""When the log tells of an outage (C1, R38), and of a long wait (R45): one of each for a `Masters`, without a clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from redlock._core import readings
from redlock._core.outcomes import NEVER

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.kernel.quorum import Tally

FIRST, EVERY = 10.0, 60.0  # seconds of a wait until its first record; between two of one outage, or of one name
_LATER = 0.5  # seconds after a due record: until then the waiter that reported last, if it still waits, goes first

# What to report, for how many seconds the quorum has been gone, and the latest votes.
Report: TypeAlias = "Callable[[Literal['gone', 'still gone', 'back'], float, Tally], object]"


class Outages:
    """Called for every attempt without a quorum and, during an outage, for every attempt.  Any thread may do so."""

    __slots__ = ("_due", "_report", "since")

    def __init__(self, report: Report) -> None:
        self._report = report
        self.since: float | None = None  # when it was found; never 0: this clock has been running for a while
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


class LongWaits:
    """Says of each name who holds it, once a minute, however many wait: of those that ask at once one reports."""

    __slots__ = ("_due", "_report")

    def __init__(self, report: Callable[[str], object]) -> None:
        self._report = report
        self._due: dict[tuple[str, ...], list[float]] = {}  # by keys; of several threads, as in `Outages`

    def waited(self, keys: tuple[str, ...], at: float, text: str) -> float:
        """A waiter for ``keys`` has waited for long.  Returns when to come again."""
        entry = self._due.setdefault(keys, [NEVER])
        try:
            due = entry.pop()
        except IndexError:
            return at + EVERY
        if at < due:
            entry.append(due)
            return due + _LATER
        entry.append(at + EVERY)
        self._due = {name: times for name, times in list(self._due.items()) if times > [at]}
        self._report(text)
        return at + EVERY
