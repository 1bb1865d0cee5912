"""R14, where every holder renews: no lease is lost, whatever is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .busy import Busy
from .faults import STOPPED_OR_KILLED, Hindered, faults
from .violation import Violation, short, stamp, violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..history import History
    from .holds import Hold


def renewed(held: Sequence[Hold]) -> bool:
    """Without a lease that was renewed `kept` holds trivially."""
    return any(hold.renewed is not hold.began for hold in held)


def kept(history: History, held: Sequence[Hold]) -> Iterator[Violation]:
    """One for every hold that ended before its holder released it or handed it over.

    A process that is stopped or killed after the last renewal renews nothing.  On a machine that since then has run the
    clients for less than the pause between two renewals (R15) nobody can.
    """
    hindered, busy = Hindered(faults(history), STOPPED_OR_KILLED), Busy(history)
    pause = history.header.ttl / 3
    for hold in held:
        done, lost = hold.stopped_by, hold.lost
        ended = hold.valid_until if lost is None else min(lost.t, hold.valid_until)
        # What lies beyond the last event has not been recorded.
        as_wanted = done.t <= ended if done is not None else lost is None and ended >= history.end
        over_at_once = hold.valid_until <= hold.start
        hardly_ran = hold.renewed.t + pause < ended < busy.runs_for(pause, since=hold.renewed.t)
        if as_wanted or over_at_once or hardly_ran or hindered.within(hold.process, hold.renewed.t, ended):
            continue
        why = "it was never notified" if lost is None else lost.reason or "no reason was given"
        yield violation(
            f"{hold.process} lost {hold.lock!r} ({short(hold.token)}) at {stamp(ended)}: {why}",
            ended,
            hold.renewed,
            lost,
            done,
            lock=hold.lock,
        )
