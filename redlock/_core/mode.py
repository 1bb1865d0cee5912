"""For oneself, or shared with readers (R33): the mode of a lock, and of a lease.  A slot has one of its own (R32).

Modes differ in the scripts that masters run, and in nothing else: the votes, the fence, the validity, the rollback, the
repair and the restart guard are the same.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

from redlock._core import wire
from redlock._core.confirm import records

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.wire import Call, Keys

MOST_READERS = 10_000  # of one name: a master needs O(log n) for each of their requests


class Mode(NamedTuple):
    """What masters are told: see the functions of `wire` with these names."""

    shared: bool
    acquire: Callable[[Keys, str, float, int, float], Call]
    extend: Callable[..., Call]  # where that is on record (R35), it is told the mark and the fence as well
    repair: Callable[[Keys, str, float, int | None, float], Call]
    release: Callable[[Keys, str, float, int | None], Call]


EXCLUSIVE = Mode(False, wire.acquire, wire.extend, wire.repair, wire.release)
RECORDED = Mode(False, records.acquire, records.extend, records.repair, records.release)  # R35


def resumed(mode: Mode) -> Mode:
    """``mode`` until masters have said that the token is one of that mode.

    It makes no reader of a writer, and extends nothing without a record that is on record (R35).
    """
    if mode is EXCLUSIVE:
        return mode._replace(extend=wire.extend_resumed)
    return mode._replace(extend=partial(mode.extend, reads=True)) if mode.shared else mode


@lru_cache(maxsize=16)
def shared_by(max_readers: int = MOST_READERS) -> Mode:
    acquire = partial(wire.acquire_shared, most=max_readers)
    return Mode(True, acquire, wire.extend_shared, wire.repair_shared, wire.release_shared)
