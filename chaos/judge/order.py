"""R42, where all wait in order: who stood first is served first, and one that has died costs its successor a second, once."""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .busy import Busy
from .faults import STOPPED_OR_KILLED, Hindered, faults
from .operations import operations
from .violation import Violation, later, short, stamp, violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..history import Event, History
    from .holds import Hold

SETTLED: Final = 0.5  # seconds after which a client that asks has its ticket on a majority
LIFE: Final = 1.0  # seconds for which the ticket of one that has died stays
SOON: Final = 0.75  # seconds after a release until the next one has it
_JUST: Final = 0.1  # seconds: answers may be written down so much later than masters gave them


@dataclass(frozen=True, slots=True)
class Waiter:
    """One acquire: from when until when its process asked.  ``until`` is infinite if it never ended."""

    asked: Event
    ended: Event | None

    @property
    def settled(self) -> float:
        return later(self.asked.t, SETTLED)

    @property
    def until(self) -> float:
        return math.inf if self.ended is None else self.ended.t


def waiters(history: History) -> list[Waiter]:
    """Those who stood in line: they asked for longer than a ticket takes, and reached a majority.

    Not the first acquire of a process: it connects, and that may take longer.
    """
    found = [one for one in operations(history, "acquire") if one.invoke is not None]
    known: dict[str, float] = {}
    for one in found:
        if one.end is not None:
            known[one.end.process] = min(one.end.t, known.get(one.end.process, math.inf))
    reached = (one for one in found if one.end is None or one.end.detail != "unreachable")
    asked = (Waiter(one.invoke, one.end) for one in reached if one.invoke is not None)
    return [one for one in asked if one.until > one.settled and known.get(one.asked.process, math.inf) <= one.asked.t]


def judged(history: History) -> bool:
    """Whether anybody stood in line while the machine was not busy."""
    busy = Busy(history)
    return not all(busy.within(one.asked.process, one.asked.t, one.settled) for one in waiters(history))


def order(history: History, held: Sequence[Hold]) -> Iterator[Violation]:
    stood: dict[str | None, list[Waiter]] = defaultdict(list)
    for waiter in sorted(waiters(history), key=lambda one: one.asked.t):
        stood[waiter.asked.lock].append(waiter)
    yield from _overtaken(history, stood)
    yield from _left_waiting(history, held, stood)


def _overtaken(history: History, stood: dict[str | None, list[Waiter]]) -> Iterator[Violation]:
    """Nobody who was stopped or killed while it stood has been overtaken: its ticket may have ended."""
    hindered, busy = Hindered(faults(history), STOPPED_OR_KILLED), Busy(history)
    for served in operations(history, "acquire"):
        asked, got = served.invoke, served.end
        if asked is None or got is None or got.phase != "ok":
            continue
        for first in stood[asked.lock]:
            behind = first.settled <= asked.t and first.asked.process != asked.process
            if not behind or first.until <= later(got.t, _JUST):
                continue
            who, since = first.asked.process, first.asked.t
            if not (busy.within(who, since, got.t) or hindered.within(who, since, got.t)):
                yield violation(
                    f"{got.process} asked for {asked.lock!r} at {stamp(asked.t)} and had it at {stamp(got.t)}, "
                    f"and {first.asked.process} still waited, since {stamp(first.asked.t)}",
                    got.t,
                    first.asked,
                    asked,
                    got,
                    lock=asked.lock,
                )


def _left_waiting(history: History, held: Sequence[Hold], stood: dict[str | None, list[Waiter]]) -> Iterator[Violation]:
    """A release beside which somebody was struck says nothing: it may have had the lock, and could not say so."""
    struck = sorted(one.begin for one in faults(history) if one.op in STOPPED_OR_KILLED and not one.failed)
    hindered, busy = Hindered(faults(history), STOPPED_OR_KILLED), Busy(history)
    began: dict[str, list[float]] = defaultdict(list)
    for hold in held:  # in the order in which they began
        began[hold.lock].append(hold.start)
    for hold in held:
        release = hold.release
        if release is None or hold.lost is not None or release.t >= hold.valid_until:
            continue
        before = release.t - _JUST
        dead = max((t for t in struck if t < before), default=-math.inf)
        due = later(max(release.t, dead + LIFE), SOON)
        if any(before <= t <= due for t in struck):
            continue
        others = began[hold.lock]
        after = bisect.bisect_right(others, hold.start)
        if after < len(others) and others[after] <= due:
            continue
        for waiter in stood[hold.lock]:
            who, since = waiter.asked.process, waiter.asked.t
            waits = waiter.settled <= release.t and due < waiter.until and due <= history.end
            if waits and not (busy.within(who, since, due) or hindered.within(who, since, due)):
                yield violation(
                    f"{hold.process} released {hold.lock!r} ({short(hold.token)}) at {stamp(release.t)}, and "
                    f"{waiter.asked.process} still waited at {stamp(due)}, since {stamp(waiter.asked.t)}",
                    due,
                    waiter.asked,
                    release,
                    lock=hold.lock,
                )
                break
