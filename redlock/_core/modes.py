"""The modes of ordinary locks and of readers, and what readers and a writer do about each other (R33)."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING

from redlock._core import wire
from redlock._core.effects import Leave, Op, Send
from redlock._core.kernel.ballot import Ballot
from redlock._core.kernel.extension import Extension, extend
from redlock._core.kernel.rollback import carry_out, despite_interrupts, raise_graver
from redlock._core.outcomes import NEVER
from redlock._core.settings import LockSpec, MastersSettings, Mode

if TYPE_CHECKING:
    from redlock._core.lease import LeaseState

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


def keep_new_readers_away(
    settings: MastersSettings, spec: LockSpec, marks: list[Send], *, by_readers: bool, pause: float
) -> Op[None]:
    """A writer that waits keeps new readers away, or it might wait for ever (R33).

    Its mark goes to masters without readers as well: an attempt that takes the name there ends the mark, and its
    rollback would let new readers in.  ``marks`` take it back at the end.  Votes do not count: a lost mark costs time.
    """
    if spec.mode.shared or not (by_readers or marks):
        return
    token = marks[0].call.args[0] if marks else settings.token()
    marks[:] = [Send(wire.mark(spec.keys, token, 0.0), owed_until=NEVER)]
    yield Send(wire.mark(spec.keys, token, 2 * max(pause, settings.node_timeout)))


def downgrade(settings: MastersSettings, spec: LockSpec, lease: LeaseState, now: float) -> Op[Extension]:
    """Share the lease with readers, without a moment in between (R33).  Readers that wait in this process enter.

    It is an extension: where a master has the key of the lease for itself, the script of readers makes it one of them.
    From the sending on the lease claims only the shared lock, whatever the masters answer: some may let readers in
    already.  There is no way back: two readers that both wait to be alone would wait for each other.
    """
    lease.mode = shared_by()
    try:
        extension = yield from extend(settings, spec, lease, lease.ttl, now)
    except GeneratorExit:
        raise
    except BaseException as first:
        raise_graver(first, (yield from despite_interrupts(*_let_readers_in(lease))))
        raise
    yield from carry_out(*_let_readers_in(lease))
    return extension


def _let_readers_in(lease: LeaseState) -> list[Leave]:
    return [] if lease.place is None or lease.over else [Leave(lease.place, stays=True)]
