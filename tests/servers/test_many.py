"""What many leases in one process weigh."""

import gc
import logging
import tracemalloc

from tests.servers.look import eventually, take


def test_a_lease_weighs_less_than_three_kilobytes(redlock_servers, masters, caplog):
    """Also after a burst; and it keeps nothing of the operation that acquired it."""
    caplog.set_level(logging.ERROR, "asyncio")  # how slow the machine is would be kept, and weigh something
    burst = [masters.lock(f"first-{i}") for i in range(100)]
    for lock in burst:
        take(lock)
    for lock in burst:
        lock.release()
    locks = [masters.lock(f"job-{i}") for i in range(400)]
    gc.collect()
    tracemalloc.start()
    try:
        for lock in locks:
            take(lock)
        # What a late master has not answered yet is no part of a lease.
        eventually(lambda: gc.collect() >= 0 and tracemalloc.get_traced_memory()[0] < 3000 * len(locks))
    finally:
        tracemalloc.stop()
    for lock in locks:
        lock.release()
