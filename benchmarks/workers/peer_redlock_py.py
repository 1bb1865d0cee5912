"""redlock-py (PyPI), for threads: its module has the name of this library's, so it has to be alone."""

from __future__ import annotations

import logging
import time
from typing import Any

from benchmarks.workers import serve, threads
from redlock import Redlock  # type: ignore[attr-defined]  # not ours: see above


class Handle:
    def __init__(self, manager: Any, once: Any, name: str) -> None:
        self._manager, self._once, self._name = manager, once, name
        self._lock: Any = False
        self._ms = int(serve.ttl() * 1000)

    def acquire(self) -> None:
        self._lock = self._manager.lock(self._name, self._ms)

    def release(self) -> None:
        self._manager.unlock(self._lock)

    def attempt(self) -> bool:
        self._lock = self._once.lock(self._name, self._ms)
        return bool(self._lock)

    def wait(self, until: float) -> bool:
        while time.monotonic() < until:
            self.acquire()
            if self._lock:
                return True
        return False


def main() -> None:
    logging.disable()
    manager = Redlock(serve.urls())
    once = Redlock(serve.urls(), retry_count=1)
    load = threads.Load(lambda name: Handle(manager, once, name))
    serve.serve(load)


if __name__ == "__main__":
    main()
