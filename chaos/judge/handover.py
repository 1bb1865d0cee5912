"""R31, where all clients are candidates: another one leads soon after a leader has stopped, or was killed."""

from __future__ import annotations

import bisect
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from .busy import Busy
from .faults import STOPPED_OR_KILLED, faults
from .violation import Violation, short, stamp, violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..history import History
    from .faults import Fault
    from .holds import Hold

SOON: Final = 1.0  # seconds after a release; and after a kill as many more than a TTL
_JUST: Final = 0.1  # seconds: who is struck so soon before a release may have been granted the lock by it


def ends(history: History, held: Sequence[Hold]) -> Iterator[tuple[Hold, float, str]]:
    """Every hold that ended early, with the time by which another one has to begin, and what ended it.

    A client that was granted the lock meanwhile may have been stopped or killed before it could say so.  A release beside
    which somebody was, says nothing.  After a kill the time begins anew with each other one.  The machine may have taken
    some of that time from a client: it is given back.
    """
    busy = Busy(history)
    struck = [fault for fault in faults(history) if fault.op in STOPPED_OR_KILLED and not fault.failed]
    killed = {(fault.target, fault.begin) for fault in struck if fault.op == "kill"}
    for hold in held:
        release = hold.release
        if release is not None and hold.lost is None and release.t < hold.valid_until:
            due = busy.runs_for(SOON, since=release.t)
            if not any(release.t - _JUST <= fault.begin <= due for fault in struck):
                yield hold, due, f"released it at {stamp(release.t)}"
        elif release is None:
            for t in (begin for target, begin in killed if target == hold.process and hold.alive(begin)):
                yield hold, _after(t, history.header.ttl + SOON, struck, busy), f"was killed at {stamp(t)}"


def _after(t: float, seconds: float, struck: Sequence[Fault], busy: Busy) -> float:
    due = busy.runs_for(seconds, since=t)
    for fault in struck:  # in the order in which they began
        if t < fault.begin <= due:
            due = busy.runs_for(seconds, since=fault.begin)
    return due


def handover(history: History, held: Sequence[Hold]) -> Iterator[Violation]:
    began: dict[str, list[float]] = defaultdict(list)
    for hold in held:  # in the order in which they began
        began[hold.lock].append(hold.start)
    stands = (event.t for event in reversed(history.events) if (event.op, event.phase) == ("acquire", "invoke"))
    until = next(stands, history.begin)
    for hold, due, why in ends(history, held):
        if due > until:
            continue  # nobody stands any more
        others = began[hold.lock]
        after = bisect.bisect_right(others, hold.start)
        if after == len(others) or others[after] > due:
            yield violation(
                f"{hold.process} led with {hold.lock!r} ({short(hold.token)}) and {why}, "
                f"and no successor led until {stamp(due)}",
                due,
                hold.began,
                hold.release,
                lock=hold.lock,
            )
