"""pottery (PyPI), for threads."""

from __future__ import annotations

import logging
import time
from typing import Any

from pottery import Redlock
from redis import Redis

from benchmarks.workers import serve, threads


class Handle:
    def __init__(self, masters: set[Any], name: str) -> None:
        lock = Redlock(key=name, masters=masters, auto_release_time=serve.ttl())
        self._lock = lock
        self.acquire = lock.acquire
        self.release = lock.release

    def attempt(self) -> bool:
        return bool(self._lock.acquire(blocking=False))

    def wait(self, until: float) -> bool:
        return bool(self._lock.acquire(timeout=max(0.0, until - time.monotonic())))


def main() -> None:
    logging.disable()
    masters = {Redis.from_url(url) for url in serve.urls()}
    load = threads.Load(lambda name: Handle(masters, name))
    serve.serve(load)


if __name__ == "__main__":
    main()
