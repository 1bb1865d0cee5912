"""A check of the masters, for threads: the probe runs in a thread of the check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redlock._health.checkup import probe

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._health.checkup import Checkup
    from redlock._health.records import Health, Probe
    from redlock._lock.lock_threads import MultiLock


def check(
    make: Callable[[Callable[[float], Probe] | None], Checkup],
    lock: Callable[[], MultiLock] | None,
    timeout: float,  # noqa: ARG001 - it bounds the tasks of asyncio
) -> Health:
    """Run the check that ``make`` makes.  ``lock``: makes a lock to acquire and release; None: none is tried."""
    return make(None if lock is None else lambda _: probe(lock())).run()
