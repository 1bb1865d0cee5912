"""A distributed lock on a majority of independent Redis masters.

from redlock import Masters

masters = Masters(["redis://10.0.0.1:6379", "redis://10.0.0.2:6379", "redis://10.0.0.3:6379"])
with masters.lock("invoice:42") as lease:
pay(invoice, fence=lease.fence)
"""

from redlock._core.inspect import LockStatus
from redlock._threads.lease import Lease
from redlock._threads.lock import MultiLock
from redlock._threads.masters import Masters
from redlock.errors import (
    ConfigurationError,
    LockLost,
    NotAcquired,
    NotExtended,
    NotHeld,
    QuorumUnreachable,
    RedlockError,
    Vote,
    WouldDeadlock,
)

__all__ = [
    "ConfigurationError",
    "Lease",
    "LockLost",
    "LockStatus",
    "Masters",
    "MultiLock",
    "NotAcquired",
    "NotExtended",
    "NotHeld",
    "QuorumUnreachable",
    "RedlockError",
    "Vote",
    "WouldDeadlock",
]
