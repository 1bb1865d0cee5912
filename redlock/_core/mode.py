"""The requests about a lock, and the meaning of the answers: the mode of a lock, of a lease, and of a slot.

Modes differ in the scripts that masters run, and in how an attempt reads their answers.  All else is the same for all:
the majority, the fence, the validity, the rollback, the repair and the restart guard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.wire import Call, Keys


class Mode(NamedTuple):
    """The functions that make the requests: see those of `wire` with these names.

    ``ballot``: makes the `Ballot` of an attempt, from the settings and the call.  ``written``: how a fence is written.
    """

    shared: bool
    ballot: Callable[[Any, Call], Any]
    acquire: Callable[[Keys, str, float, int, float], Call]
    extend: Callable[..., Call]  # where that is on record (R35), it gets the stamp and the fence as well
    repair: Callable[[Keys, str, float, int | None, float], Call]
    release: Callable[[Keys, str, float, int | None], Call]
    written: Callable[[int], str] = str
