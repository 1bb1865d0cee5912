"""What the log says of a wait that takes long, and how often (R45)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redlock._core.outcomes import NEVER

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST, EVERY = 10.0, 60.0  # seconds of a wait until its first record, and between two records of one name
_LATER = 0.5  # seconds after a due record: until then the waiter that reported last, if it still waits, goes first


class LongWaits:
    """Says of each name who holds it, once a minute, however many wait for it, for all locks of a `Masters`.

    It has no clock.  Each waiter asks when its next record is due, and of those that ask at once one reports.
    """

    __slots__ = ("_due", "_report")

    def __init__(self, report: Callable[[str], object]) -> None:
        self._report = report
        # By keys: when the next record is due.  Of several threads the one that takes it out decides.
        self._due: dict[tuple[str, ...], list[float]] = {}

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
