"""Releases a lease that no holder can give back any more (R15)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redlock._core.kernel.release import leave_line, unless_they_stay
from redlock._core.kernel.rollback import carry_out

if TYPE_CHECKING:
    from redlock._core.effects import Op
    from redlock._core.lease import LeaseState
    from redlock._core.settings import LockSpec, MastersSettings


def abandon(settings: MastersSettings, spec: LockSpec, lease: LeaseState) -> Op[None]:
    """Release a lease that no holder can give back any more, and wait for nothing (R15); in a fork send nothing."""
    try:
        yield from _abandoned(settings, spec, lease)
    except GeneratorExit:
        raise
    except BaseException:  # it may have struck before anything was sent (R11)
        yield from _abandoned(settings, spec, lease)
        raise


def _abandoned(settings: MastersSettings, spec: LockSpec, lease: LeaseState) -> Op[None]:
    for hold in list(lease.holds):
        hold.exit()
    lease.abandoned = True
    lease.end()
    lease.last_votes = tuple  # no caller waits for the answers
    if lease.mine():
        yield from carry_out(*unless_they_stay(settings, spec, lease), *leave_line(lease))
    lease.changed()  # behind that: a Ctrl-C may strike here
