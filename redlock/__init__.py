"""A distributed lock on a majority of independent Redis masters.

In short::

    from redlock import Masters

    masters = Masters(["redis://10.0.0.1:6379", "redis://10.0.0.2:6379", "redis://10.0.0.3:6379"])
    with masters.lock("invoice:42") as lease:
        pay(invoice, fence=lease.fence)
"""

import importlib
import typing

from redlock.errors import (
    ConfigurationError,
    LockLost,
    LockUnavailable,
    NotAcquired,
    NotExtended,
    NotHeld,
    QuorumUnreachable,
    RedlockError,
    Vote,
    WouldDeadlock,
)

__version__ = "0.2.0.dev0"  # the only place: the build, the documentation and the test of the changelog read it here

if typing.TYPE_CHECKING:
    from redlock._core.inspect import LockStatus, SlotsStatus
    from redlock._events import (
        Event,
        FailedAttempt,
        LeaseExtended,
        LeaseLost,
        LockAcquired,
        LockRefused,
        LockReleased,
        MasterClock,
        MasterDown,
        MastersAgree,
        MastersDisagree,
        MasterUp,
        QuorumBack,
        QuorumLost,
        WaitBegan,
        WaitEnded,
    )
    from redlock._health.result import Finding, Health, MasterHealth, MastersList, Probe, QuorumHealth
    from redlock._lock.election_async import AsyncElection, AsyncTerm
    from redlock._lock.election_threads import Election, Term
    from redlock._lock.lease_async import AsyncLease
    from redlock._lock.lease_threads import Lease
    from redlock._lock.lock_async import AsyncMultiLock
    from redlock._lock.lock_threads import MultiLock
    from redlock._lock.masters_async import AsyncMasters
    from redlock._lock.masters_threads import Masters
    from redlock._lock.slots_async import AsyncSlots
    from redlock._lock.slots_threads import Slots

__all__ = [
    "AsyncElection",
    "AsyncLease",
    "AsyncMasters",
    "AsyncMultiLock",
    "AsyncSlots",
    "AsyncTerm",
    "ConfigurationError",
    "Election",
    "Event",
    "FailedAttempt",
    "Finding",
    "Health",
    "Lease",
    "LeaseExtended",
    "LeaseLost",
    "LockAcquired",
    "LockLost",
    "LockRefused",
    "LockReleased",
    "LockStatus",
    "LockUnavailable",
    "MasterClock",
    "MasterDown",
    "MasterHealth",
    "MasterUp",
    "Masters",
    "MastersAgree",
    "MastersDisagree",
    "MastersList",
    "MultiLock",
    "NotAcquired",
    "NotExtended",
    "NotHeld",
    "Probe",
    "QuorumBack",
    "QuorumHealth",
    "QuorumLost",
    "QuorumUnreachable",
    "RedlockError",
    "Slots",
    "SlotsStatus",
    "Term",
    "Vote",
    "WaitBegan",
    "WaitEnded",
    "WouldDeadlock",
]

# Imported at first use: most programs use either threads or asyncio, and few use checks or events.  And a command that
# imports us can be ended by Ctrl-C without a traceback (`_cli`).
_LATER = {
    "AsyncElection": "redlock._lock.election_async",
    "AsyncTerm": "redlock._lock.election_async",
    "Election": "redlock._lock.election_threads",
    "Lease": "redlock._lock.lease_threads",
    "LockStatus": "redlock._core.inspect",
    "Masters": "redlock._lock.masters_threads",
    "MultiLock": "redlock._lock.lock_threads",
    "SlotsStatus": "redlock._core.inspect",
    "Term": "redlock._lock.election_threads",
    "AsyncLease": "redlock._lock.lease_async",
    "AsyncMasters": "redlock._lock.masters_async",
    "AsyncMultiLock": "redlock._lock.lock_async",
    "AsyncSlots": "redlock._lock.slots_async",
    "Slots": "redlock._lock.slots_threads",
    **dict.fromkeys(
        (
            "Event",
            "FailedAttempt",
            "LeaseExtended",
            "LeaseLost",
            "LockAcquired",
            "LockRefused",
            "LockReleased",
            "MasterClock",
            "MasterDown",
            "MasterUp",
            "MastersAgree",
            "MastersDisagree",
            "QuorumBack",
            "QuorumLost",
            "WaitBegan",
            "WaitEnded",
        ),
        "redlock._events",
    ),
    **dict.fromkeys(
        ("Finding", "Health", "MasterHealth", "MastersList", "Probe", "QuorumHealth"), "redlock._health.result"
    ),
}

if not typing.TYPE_CHECKING:  # else type checkers would accept any name

    def __getattr__(name: str) -> object:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(_LATER[name]), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
