"""Who waits in line for a name inside this process: first come, first served (R23).

Only the first one goes to the masters, so fifty waiters of one process are one to everybody else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redlock._core.outcomes import NEVER

if TYPE_CHECKING:
    from collections.abc import Iterable


class Place:
    """A place in the lines for ``keys``, from `Enter` to `Leave`: while waiting, and while holding."""

    __slots__ = ("after", "inbox", "keys", "mark", "turn", "yield_until")

    def __init__(self, keys: Iterable[str]) -> None:
        self.keys = tuple(keys)
        self.turn = False  # first in all of its lines
        self.mark = object()  # not the place itself: one would keep the next alive, and that the next
        self.after: object = None  # the mark of the one that made it first by leaving
        self.yield_until = NEVER  # until when others, of other processes, should go first (R24)
        self.inbox: Any = None  # of the driver: where a `Turn` goes


class LocalQueue:
    """The lines of one process (or event loop).  Whoever calls sees to it that it is one at a time."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        # A dict keeps the order, and lets go of whoever gives up in the middle.
        self._lines: dict[str, dict[Place, None]] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def enter(self, place: Place) -> None:
        """At the end of every line at once: so two that want several names cannot wait for each other."""
        first = True
        for key in place.keys:
            line = self._lines.setdefault(key, {})
            line[place] = None
            first = first and next(iter(line)) is place
        place.turn = first

    def leave(self, place: Place) -> list[Place]:
        """Out of all lines, wherever it stood.  Returns those whose turn it is now.  Twice does no harm."""
        for key in place.keys:
            line = self._lines.get(key)
            if line is not None:
                line.pop(place, None)
                if not line:
                    del self._lines[key]
        if not self._lines:  # as mostly
            return []
        # Also those whom we made first before, if this is called again after an interruption (R11): they may
        # not have been told.
        heads = {next(iter(self._lines[key])): None for key in place.keys if key in self._lines}
        turns = [other for other in heads if (not other.turn or other.after is place.mark) and self._is_first(other)]
        for other in turns:
            other.after = place.mark
            other.turn = True
        return turns

    def waiting(self) -> list[Place]:
        """Who waits for a turn."""
        return [place for line in self._lines.values() for place in line if not place.turn]

    def _is_first(self, place: Place) -> bool:
        return all(next(iter(self._lines[key])) is place for key in place.keys)
