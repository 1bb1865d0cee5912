"""P6: nobody acts on a lease that has ended, and its holder is told in time."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Final

from .faults import STOPPED, STOPPED_OR_KILLED, Hindered, faults
from .operations import operations
from .violation import Violation, later, short, stamp, violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..history import Event, History
    from .holds import Hold

GRACE: Final = 0.050  # seconds, for the thread or task that tells the holder to get its turn

# What keeps the lease writes these, wherever the process is: they do not show that the process looked at the lease.
_OF_THE_KEEPER: Final = ("lost", "extend")


def prompt(history: History, held: Sequence[Hold]) -> Iterator[Violation]:
    struck = faults(history)
    yield from _used_too_late(history, held, Hindered(struck, STOPPED))
    yield from _told_too_late(history, held, Hindered(struck, STOPPED_OR_KILLED))


def _told_too_late(history: History, held: Sequence[Hold], hindered: Hindered) -> Iterator[Violation]:
    for hold in held:
        deadline = later(hold.valid_until, GRACE)
        done = hold.stopped_by
        if done is not None and done.t <= hold.valid_until:
            continue
        if hold.lost is not None and hold.lost.t <= deadline:
            continue
        if done is None and deadline > history.end:
            continue  # the rest has not been recorded (C28)
        if hindered.within(hold.process, hold.valid_until, deadline):
            continue  # (C27)
        ended = f"{hold.process}'s hold of {hold.lock!r} ({short(hold.token)}) ended at {stamp(hold.valid_until)}"
        if hold.lost is not None:
            told = f"it learned of that {(hold.lost.t - hold.valid_until) * 1000:.1f} ms later, {GRACE * 1000:g} ms are allowed"
        elif done is not None:
            told = f"it went on to {done.op} at {stamp(done.t)} and was never notified"
        else:
            told = "it was never notified"
        at = deadline if done is None else min(deadline, done.t)
        yield violation(f"{ended}, and {told}", at, hold.renewed, hold.lost, done, lock=hold.lock)


def _used_too_late(history: History, held: Sequence[Hold], hindered: Hindered) -> Iterator[Violation]:
    """A use counts by its invocation, and not if its process was stopped since it last looked (C29)."""
    of = _Holders(held)
    looked = _last_looks(history)
    for operation in operations(history, "use"):
        first = operation.invoke or operation.end
        token = next((one.token for one in (operation.invoke, operation.end) if one and one.token), None)
        hold = None if first is None or token is None else of.find(first, token)
        if first is None or hold is None or first.t <= hold.valid_until:
            continue
        if hindered.within(first.process, looked[first.line], first.t):
            continue
        yield violation(
            f"{first.process} used {hold.lock!r} at {stamp(first.t)}, "
            f"{(first.t - hold.valid_until) * 1000:.1f} ms after its hold ({short(hold.token)}) had ended",
            first.t,
            hold.renewed,
            first,
            operation.end,
            lock=hold.lock,
        )


def _last_looks(history: History) -> dict[int, float]:
    """For every `use`, by its line: when its worker was last seen to do something before.

    It cannot have looked at its lease earlier than that.  A client that records its looks (any ``op``, `look`
    for instance) makes this exact.
    """
    found: dict[int, float] = {}
    last: dict[tuple[str, str | None], float] = {}
    for event in history.events:
        if event.op == "use":
            found[event.line] = last.get((event.process, event.worker), event.t)
        if event.op not in _OF_THE_KEEPER:
            last[event.process, event.worker] = event.t
    return found


class _Holders:
    """Finds the hold that a use is about."""

    def __init__(self, held: Sequence[Hold]) -> None:
        self._of: dict[tuple[str | None, str, str | None], list[Hold]] = {}
        for hold in held:
            # A process that uses a token without holding it was handed it by a holder.
            for process in (hold.process, None):
                for lock in (hold.lock, None):
                    self._of.setdefault((process, hold.token, lock), []).append(hold)

    def find(self, use: Event, token: str) -> Hold | None:
        """The last one that began before ``use``; the first one if none did."""
        own = self._of.get((use.process, token, use.lock)) or self._of.get((None, token, use.lock))
        if not own:
            return None
        return own[max(0, bisect.bisect_right(own, use.t, key=lambda hold: hold.start) - 1)]
