"""The lines of waiters inside one process: first come, first served (R23, R33).

Waiters behind the first know only what the first one's attempts returned.  A waiter whose time is up asks for that
(`LocalQueue.look_ahead`, C2).  It does not expire: time does not turn an outage into a holder.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any

from redlock._core.outcomes import NEVER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redlock._core.protocols import LineInbox

_GRACE, _TRIPS = 0.003, 3  # a process stays away after its release for seconds, and times its duration (R24)
_MANY = 64  # keys that other processes wait for; with more, those whose time has passed are dropped
_OVER = 0.5  # seconds for which such keys are kept after that time

MOST_ATTEMPTS = 16  # that were refused are kept for an observer: with five votes each, a span may have them as events


class Place:
    """A place in the lines for ``keys``: while an operation waits, and while a lease lasts."""

    __slots__ = (
        "_answer", "_failed", "after", "awaited", "crowd", "holds", "identity", "inbox", "keys", "most", "shared",
        "turn", "yield_until",
    )  # fmt: skip

    # Most places never have these.
    _failed: tuple[Any, ...]  # set by `failed`
    _answer: Any  # set by `answered`
    holds: float  # since when its operation has the lock; 0: it has left the line

    def __init__(self, keys: tuple[str, ...], shared: bool = False, most: int | None = None) -> None:
        self.keys = keys
        self.shared = shared  # a reader
        self.most = most  # it does not wait behind so many waiters (R40)
        self.crowd = 0  # how many waiters there are, if those are too many
        self.turn = False  # no waiter is before it in its lines, or only readers
        # `after` refers to this, not to the place: else each place would keep the one before alive.
        self.identity = object()
        self.after: object = None  # the identity of the place that made this one first by leaving
        self.awaited = False  # a waiter behind it waits for its answers
        self.yield_until = NEVER  # until then waiters of other processes should go first (R24)
        self.inbox: LineInbox | None = None  # the driver's: a `Turn` is put there

    def failed(self, attempt: Any) -> None:
        self._failed = (*self.attempts[1 - MOST_ATTEMPTS :], attempt)

    def answered(self, refusal: Any) -> None:
        self._answer = refusal

    @property
    def learned(self) -> Any:
        """The latest `Refusal` of its operation, or of the one before it; or since when it holds the lock."""
        return getattr(self, "holds", None) or getattr(self, "_answer", None)

    @property
    def attempts(self) -> tuple[Any, ...]:
        return getattr(self, "_failed", ())


class LocalQueue:
    """The lines of one process (or event loop).  Callers must see to it that only one of them calls at a time."""

    __slots__ = ("_lines", "contended")

    def __init__(self) -> None:
        self._lines: dict[str, dict[Place, None]] = {}  # a dict keeps the order, and lets go of a place in the middle
        # By key: until when a new operation lets other processes go first; for how long the next one in line does.
        self.contended: dict[str, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def enter(self, place: Place, inbox: LineInbox | None, now: float) -> bool:
        """Go to the end of all lines at once: so no two can wait for each other.  True: it may ask masters now."""
        first = True
        for key in place.keys:
            line = self._lines.setdefault(key, {})
            line[place] = None
            first = first and next(iter(line)) is place
        place.turn = first or self._joins_readers(place)
        if not place.turn:
            if place.most is not None:
                waiting = max(sum(not other.turn for other in self._lines[key]) for key in place.keys) - 1  # but for us
                place.crowd = waiting if waiting >= place.most else 0
            place.inbox = inbox  # a lease keeps its place, and must not keep all of the operation that acquired it
            return False
        if self.contended:
            self.set_yield_until(place, now, turn=False)
        return place.yield_until == NEVER

    def _joins_readers(self, place: Place) -> bool:
        for key in place.keys:
            line = reversed(self._lines[key])
            next(line)
            before = next(line, None)
            if not (before is None or (before.shared and before.turn) or self._stands_first(place, key)):
                return False
        return True

    def leave(self, place: Place, stays: bool = False) -> list[Place]:
        """Take ``place`` out of all lines, or ``stays`` as a reader.  Returns the places whose turn it is now."""
        if stays:
            place.shared = True
            return self._next(place, readers=True)
        for key in place.keys:
            line = self._lines.get(key)
            if line is not None:
                line.pop(place, None)
                if not line:
                    del self._lines[key]
        if not self._lines:  # the usual case
            return []
        return self._next(place, readers=not place.shared)

    def _next(self, gone: Place, *, readers: bool) -> list[Place]:
        """The places that are first now, because ``gone`` has left, or has become a reader.

        ``readers``: several of them may be.  After an interruption this is called a second time (R11).  Then it also
        returns the places that the first call made first: perhaps their waiters do not know it.
        """
        turns: dict[Place, None] = {}
        for key in gone.keys:
            for place in self._in_front(key, readers=readers):
                if (not place.turn or place.after is gone.identity) and all(
                    other == key or self._stands_first(place, other) for other in place.keys
                ):
                    turns[place] = None
        learned = gone.learned
        for place in turns:
            place.after = gone.identity
            place.turn = True
            if learned is not None and not isinstance(learned, float):
                place.answered(learned)
        return list(turns)

    def _in_front(self, key: str, *, readers: bool) -> Iterator[Place]:
        """The first place of a line; if that is a reader, all ``readers`` behind it, and one writer."""
        for place in self._lines.get(key, ()):
            yield place
            if not (readers and place.shared):
                return

    def look_ahead(self, place: Place) -> list[Any]:
        """What those in front of ``place`` have learned of the masters, see `Place.learned`."""
        found = []
        for key in place.keys:
            for other in takewhile(lambda other: other.turn, self._lines.get(key, ())):
                other.awaited = True  # first: its answer may come right now
                found.append(other.learned)
        return found

    def behind(self, place: Place) -> list[Place]:
        """All places that wait for their turn in a line of ``place``, which has learned something."""
        place.awaited = False
        return list(dict.fromkeys(other for key in place.keys for other in self._lines.get(key, ()) if not other.turn))

    def waiting(self) -> list[Place]:
        return [place for line in self._lines.values() for place in line if not place.turn]

    def _stands_first(self, place: Place, key: str) -> bool:
        """Whether only readers are before it in this line, if any."""
        return all(other.shared for other in takewhile(lambda other: other is not place, self._lines[key]))

    def released(self, keys: tuple[str, ...], took: float, now: float, *, others: bool) -> None:
        """A release of ours took ``took`` seconds.  ``others``: other processes wait for it."""
        if len(self.contended) >= _MANY:
            self.contended = {key: window for key, window in self.contended.items() if window[0] > now - _OVER}
        grace = _GRACE + _TRIPS * took
        for key in keys:
            if others:
                self.contended[key] = (now + grace, grace)
            else:
                self.contended.pop(key, None)

    def set_yield_until(self, place: Place, now: float, *, turn: bool) -> None:
        """Set in ``place`` until when others should go first.  ``turn``: an operation of ours has just had the lock."""
        for key in place.keys:
            until, grace = self.contended.get(key, (NEVER, 0.0))
            if turn and grace:
                until = now + grace
            if until > now:
                place.yield_until = max(place.yield_until, until)
