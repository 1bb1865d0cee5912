"""This library, for threads."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.workers import serve, threads
from redlock import LockAcquired, Masters, MultiLock


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


class Load(threads.Load):
    _attempts = 0  # of the latest acquire in `settle`
    _watched: Masters | None = None

    def _told(self, event: object) -> None:
        if isinstance(event, LockAcquired):
            self._attempts = event.attempts

    def settle(self, name: str, pause: float) -> dict[str, int]:
        """Take it once, by masters of its own: an observer costs time.  The first time only connects."""
        if self._watched is None:
            self._watched = Masters(serve.urls(), restart_guard=False, observer=self._told)
            self._watched.status(name)
        time.sleep(pause)
        lock(self._watched, name, ttl=serve.ttl()).acquire()
        return {"attempts": self._attempts}


def lock(masters: Masters, name: str, **options: Any) -> MultiLock:
    """``3-slots-of-NAME`` and ``in-order-NAME`` are what they say."""
    limit, of, group = name.partition("-slots-of-")
    if name.startswith("in-order-"):
        options["fair"] = True
    return masters.slots(group, limit=int(limit), **options) if of else masters.lock(name, **options)


def main() -> None:
    # Nothing was locked on these masters before they were started for this.
    masters = Masters(serve.urls(), restart_guard=False)
    load = Load(
        lambda name: Handle(lock(masters, name, ttl=serve.ttl())),
        lambda name: Handle(masters.lock(name, ttl=serve.ttl(), bound=False)),
    )
    serve.serve(load)


if __name__ == "__main__":
    main()
