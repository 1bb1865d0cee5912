"""What masters said to this client, as an observer of it hears (R3): kept until the line is written that it belongs to."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from redlock import LeaseExtended, LockAcquired, LockRefused, LockReleased

from ..history import now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from redlock import Event, Vote

Told: TypeAlias = "list[list[Any]]"  # as a history has them
Key = TypeVar("Key")
Value = TypeVar("Value")

MOST: Final = 1000  # of each kind are kept: more than one client has under way

# Writes as the worker that asks: an attempt that failed is told where it was made, and has no token.
WRITES: Final[ContextVar[Callable[..., None]]] = ContextVar("writes")


class Votes:
    """``settled``: by token, the votes of the second round of a grant.  ``granted``: when it was heard of, and until when.

    Nobody asks for those of an acquire that was cancelled after its grant, so the oldest ones are dropped.
    """

    def __init__(self) -> None:
        self._keeping = threading.Lock()
        self.settled: dict[str, Told] = {}
        self.granted: dict[str, tuple[float, float]] = {}
        self._of: dict[tuple[type[Event], str], Told] = {}

    def hear(self, event: Event) -> None:
        t = now()
        if isinstance(event, LockAcquired | LockRefused):
            write = WRITES.get()
            for one in event.failed:
                when = {"t": round(t - event.seconds + one.seconds, 9), "after": round(one.seconds, 6)}
                write("attempt", "fail", lock=event.name, votes=told(one.votes), **when)
            if isinstance(event, LockRefused) and event.attempts:  # else these are the votes for another one (C2)
                # It has been taken back by now: when it was decided nobody tells.
                write("attempt", "fail", t=t, lock=event.name, votes=told(event.votes))
        if isinstance(event, LockAcquired):
            self._keep(self.granted, event.token, (t, t + event.remaining))
            if event.settled:
                self._keep(self.settled, event.token, told(event.settled))
        if isinstance(event, LockAcquired | LeaseExtended | LockReleased):
            self._keep(self._of, (type(event), event.token), told(event.votes))

    def _keep(self, kept: dict[Key, Value], key: Key, value: Value) -> None:
        with self._keeping:
            kept[key] = value
            while len(kept) > MOST:
                kept.pop(next(iter(tuple(kept))), None)  # a copy: workers take theirs out meanwhile

    def of(self, kind: type[Event], token: str) -> Told | None:
        """Of the latest event of this kind; once."""
        return self._of.pop((kind, token), None)


def told(votes: Iterable[Vote]) -> Told:
    """Of a master that was not waited for there is no more to tell."""
    return [_told(vote) for vote in votes]


def _told(vote: Vote) -> list[Any]:
    after = None if vote.latency is None else round(vote.latency, 6)
    if vote.reason and vote.outcome != "pending":
        return [vote.master, vote.outcome, after, vote.reason]
    return [vote.master, vote.outcome] if after is None else [vote.master, vote.outcome, after]
