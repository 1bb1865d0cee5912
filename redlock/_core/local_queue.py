"""The lines of waiters inside one process: first come, first served (R23).

Only the first waiter in line asks the masters.  So fifty waiters of one process are one waiter to everybody else.
"""

from __future__ import annotations

from typing import Any

from redlock._core.outcomes import NEVER

MOST_ATTEMPTS = 16  # that were refused are kept for an observer: with five votes each, a span may have them as events


class Place:
    """A place in the lines for ``keys``: while an operation waits, and while a lease lasts."""

    __slots__ = ("_failed", "after", "inbox", "keys", "mark", "turn", "yield_until")

    _failed: tuple[Any, ...]  # set by `failed`: most places never have one

    def __init__(self, keys: tuple[str, ...]) -> None:
        self.keys = keys
        self.turn = False  # first in all of its lines
        # `after` refers to this, not to the place: else each place would keep the one before alive.
        self.mark = object()
        self.after: object = None  # the mark of the place that made this one first by leaving
        self.yield_until = NEVER  # until then waiters of other processes should go first (R24)
        self.inbox: Any = None  # the driver's: a `Turn` is put there

    def failed(self, attempt: Any) -> None:
        """An attempt of its operation was refused.  The latest are kept, for an observer."""
        self._failed = (*self.attempts[1 - MOST_ATTEMPTS :], attempt)

    @property
    def attempts(self) -> tuple[Any, ...]:
        """The latest attempts that were refused."""
        return getattr(self, "_failed", ())

    @property
    def may_ask(self) -> bool:
        """Whether it may ask the masters at once."""
        return self.turn and self.yield_until == NEVER


class LocalQueue:
    """The lines of one process (or event loop).  Callers must see to it that only one of them calls at a time."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        # A dict keeps the order, and a place in the middle can be removed from it.
        self._lines: dict[str, dict[Place, None]] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def enter(self, place: Place) -> None:
        """Go to the end of every line at once.  So two waiters that want several names cannot wait for each other."""
        first = True
        for key in place.keys:
            line = self._lines.setdefault(key, {})
            line[place] = None
            first = first and next(iter(line)) is place
        place.turn = first

    def leave(self, place: Place) -> list[Place]:
        """Take ``place`` out of all lines, wherever it stood.  A second time does no harm.

        Returns the places whose turn it is now.
        """
        for key in place.keys:
            line = self._lines.get(key)
            if line is not None:
                line.pop(place, None)
                if not line:
                    del self._lines[key]
        if not self._lines:  # the usual case
            return []
        # After an interruption this is called a second time (R11).  Then it also returns the places that the first
        # call made first: nobody may have told them.
        heads = {next(iter(self._lines[key])): None for key in place.keys if key in self._lines}
        turns = [other for other in heads if (not other.turn or other.after is place.mark) and self._is_first(other)]
        for other in turns:
            other.after = place.mark
            other.turn = True
        return turns

    def waiting(self) -> list[Place]:
        """All places that wait for their turn."""
        return [place for line in self._lines.values() for place in line if not place.turn]

    def _is_first(self, place: Place) -> bool:
        return all(next(iter(self._lines[key])) is place for key in place.keys)
