"""The modes of ordinary locks and of readers (R33)."""

from __future__ import annotations

from functools import lru_cache, partial

from redlock._core import wire
from redlock._core.kernel.ballot import Ballot
from redlock._core.settings import Mode

MOST_READERS = 10_000  # of one name: a master needs O(log n) for each of their requests

EXCLUSIVE = Mode(False, Ballot, wire.acquire, wire.extend, wire.repair, wire.release)


def resumed(mode: Mode) -> Mode:
    """``mode`` until masters have confirmed it: it makes no reader of a writer, nor extends what is on record (R35)."""
    if mode is EXCLUSIVE:
        return mode._replace(extend=wire.extend_resumed)
    return mode._replace(extend=partial(mode.extend, reads=True)) if mode.shared else mode


@lru_cache(maxsize=16)
def shared_by(max_readers: int = MOST_READERS, beside: Mode = EXCLUSIVE) -> Mode:
    """``beside``: the mode of writers. Readers use its ballot, which also reads records of writers."""
    acquire = partial(wire.acquire_shared, most=max_readers)
    return Mode(True, beside.ballot, acquire, wire.extend_shared, wire.repair_shared, wire.release_shared)
