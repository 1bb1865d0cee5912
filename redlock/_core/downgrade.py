"""From the lock for oneself to the shared one, without a moment in between (R33).

A downgrade is an extension: where a master has the key of the lease for itself, the script of readers makes it one of
them.  From the moment in which that is sent, the lease claims only the shared lock, whatever the masters answer: some
of them may let readers in already.  So nothing is claimed that is not so.  A master that it did not reach gives the
name to nobody else meanwhile, and follows with the next renewal.

There is no way back but a release: two readers that both wait to be alone would wait for each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redlock._core.acquire import despite_interrupts
from redlock._core.effects import Leave
from redlock._core.extend import extend
from redlock._core.mode import shared_by

if TYPE_CHECKING:
    from redlock._core.effects import Op
    from redlock._core.extend import Extension
    from redlock._core.lease import LeaseState
    from redlock._core.settings import LockSpec, MastersSettings


def downgrade(settings: MastersSettings, spec: LockSpec, lease: LeaseState, now: float) -> Op[Extension]:
    """Share the lease with readers.  Readers that wait in this process enter."""
    lease.mode = shared_by(records_=bool(spec.keys.grants))
    try:
        extension = yield from extend(settings, spec, lease, lease.ttl, now)
    except GeneratorExit:
        raise
    except BaseException:
        yield from despite_interrupts(*_let_readers_in(lease))
        raise
    interruption = yield from despite_interrupts(*_let_readers_in(lease))
    if interruption is not None:
        raise interruption
    return extension


def _let_readers_in(lease: LeaseState) -> list[Leave]:
    return [] if lease.place is None or lease.over else [Leave(lease.place, stays=True)]
