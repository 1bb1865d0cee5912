"""This library, for threads."""

from __future__ import annotations

import time

from benchmarks.workers import serve, threads
from redlock import Masters, MultiLock


class Handle:
    def __init__(self, lock: MultiLock) -> None:
        self._lock = lock
        self.acquire = lock.acquire
        self.release = lock.release

    def attempt(self) -> bool:
        return self._lock.acquire(timeout=0) is not None

    def wait(self, until: float) -> bool:
        return self._lock.acquire(timeout=max(0.0, until - time.monotonic())) is not None

    def lost(self) -> bool:
        lease = self._lock.lease
        return lease is None or lease.lost


def main() -> None:
    # Nothing was locked on these masters before they were started for this.
    masters = Masters(serve.urls(), restart_guard=False)
    load = threads.Load(
        lambda name: Handle(masters.lock(name, ttl=serve.ttl())),
        lambda name: Handle(masters.lock(name, ttl=serve.ttl(), bound=False)),
    )
    serve.serve(load)


if __name__ == "__main__":
    main()
