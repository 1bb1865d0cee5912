"""P4 after the faults: once everything is healed, every lock can be taken again."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Final

from ..history import NEMESIS
from .busy import Busy
from .violation import Violation, stamp, violation

if TYPE_CHECKING:
    from ..history import Event, History

WITHIN: Final = 2  # times the TTL: whatever was left behind has expired, and one attempt has failed


def last_heal(history: History) -> Event | None:
    """Heals are the ``ok`` of nemesis events.  Without one `live` holds trivially (C30)."""
    heals = (event for event in reversed(history.events) if event.process == NEMESIS and event.phase == "ok")
    return next(heals, None)


def live(history: History) -> list[Violation]:
    """What the machine takes of that time from a client is given back, and what it takes of that as well."""
    heal = last_heal(history)
    if heal is None:
        return []
    deadline = Busy(history).runs_for(WITHIN * history.header.ttl, since=heal.t)
    # Events of the same time as the heal are not before it.
    first = bisect.bisect_left(history.events, heal.t, key=lambda event: event.t)
    taken: dict[str | None, Event] = {}
    for event in history.events[first:]:
        if (event.op, event.phase) == ("acquire", "ok") and event.by_client:
            taken.setdefault(event.lock, event)
    found = []
    for lock in history.header.locks:
        acquired = taken.get(lock)
        if acquired is None or acquired.t > deadline:
            when = "never again" if acquired is None else f"{acquired.t - heal.t:.6f} s later"
            found.append(
                violation(
                    f"the last fault was healed at {stamp(heal.t)}, and {lock!r} was acquired {when}; "
                    f"{deadline - heal.t:g} s are allowed",
                    min(deadline, history.end),
                    heal,
                    acquired,
                    lock=lock,
                )
            )
    return found
