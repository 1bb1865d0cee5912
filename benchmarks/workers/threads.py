"""The load, for subjects that block: the same loops for all of them."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.workers import serve

if TYPE_CHECKING:
    from collections.abc import Callable


class Handle(Protocol):
    """One contender's way to one name."""

    @property
    def acquire(self) -> Callable[[], Any]:
        """Take it: the method of the library itself, where it has one."""

    @property
    def release(self) -> Callable[[], Any]:
        """Give it back."""

    def attempt(self) -> bool:
        """Try once.  False: somebody else has it.  Raises what the library raises."""

    def wait(self, until: float) -> bool:
        """Take it, waiting as this library waits; False if that took until then (on the monotonic clock)."""


class Load:
    def __init__(self, handle: Callable[[str], Handle], kept: Callable[[str], Any] | None = None) -> None:
        """``kept`` makes handles of leases that are renewed, and taken and given back by whomever; they know `lost`."""
        self._handle = handle
        self._kept = kept or handle
        self._mine = handle(serve.name())
        self._held: list[Any] = []

    def cycles(self, times: int) -> dict[str, float]:
        acquire, release, clock = self._mine.acquire, self._mine.release, time.perf_counter
        for _ in range(times // 4):  # another process has run in the meantime: the caches are its own
            acquire()
            release()
        taking = 0.0
        cpu, began = time.process_time(), clock()
        for _ in range(times):
            start = clock()
            acquire()
            taking += clock() - start
            release()
        return {"seconds": clock() - began, "acquire": taking, "cpu": time.process_time() - cpu}

    def attempt(self, name: str) -> dict[str, Any]:
        handle = self._handle(name)
        began = time.perf_counter()
        try:
            acquired, error = handle.attempt(), ""
        except Exception as failure:  # noqa: BLE001 - that is how it says no
            acquired, error = False, type(failure).__name__
        took = time.perf_counter() - began
        if acquired:
            try:
                handle.release()
            except Exception as failure:  # noqa: BLE001
                error = f"release: {type(failure).__name__}"
        return {"acquired": acquired, "seconds": took, "both": time.perf_counter() - began, "error": error}

    def throughput(self, workers: int, lasts: float) -> dict[str, float]:
        handles = [self._handle(f"{serve.name()}-{number}") for number in range(workers)]
        counts = [0] * workers
        everybody = threading.Barrier(workers + 1)

        def work(number: int) -> None:
            acquire, release = handles[number].acquire, handles[number].release
            acquire()
            release()
            everybody.wait()
            count = 0
            while time.monotonic() < until:
                acquire()
                release()
                count += 1
            counts[number] = count

        until = float("inf")  # until all are there
        threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(workers)]
        for thread in threads:
            thread.start()
        while everybody.n_waiting < workers:
            time.sleep(0.001)
        cpu, began = time.process_time(), time.monotonic()
        until = began + lasts
        everybody.wait()
        for thread in threads:
            thread.join()
        return {"pairs": sum(counts), "seconds": time.monotonic() - began, "cpu": time.process_time() - cpu}

    def contend(
        self, name: str, contenders: int, section: float, pause: float, begin: float, end: float
    ) -> dict[str, Any]:
        holds: list[tuple[float, float, int]] = []
        handles = [self._handle(name) for _ in range(contenders)]

        def work(number: int) -> None:
            handle = handles[number]
            time.sleep(max(0.0, begin - time.monotonic()))
            while time.monotonic() < end and handle.wait(end):
                acquired = time.monotonic()
                time.sleep(section)
                holds.append((acquired, time.monotonic(), number))
                handle.release()
                if pause:
                    time.sleep(pause)

        threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(contenders)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {"holds": holds}

    def hold(self, number: int) -> dict[str, float]:
        self._held = [self._kept(f"{serve.name()}-{index}") for index in range(number)]
        began = time.monotonic()
        for handle in self._held:
            handle.acquire()
        return {"seconds": time.monotonic() - began, "threads": threading.active_count() - serve.THREADS}

    def rest(self, lasts: float) -> dict[str, float]:
        cpu, began = time.process_time(), time.monotonic()
        time.sleep(lasts)
        return {"seconds": time.monotonic() - began, "cpu": time.process_time() - cpu, "lost": self._lost()}

    def _lost(self) -> int:
        return sum(handle.lost() for handle in self._held)

    def drop(self) -> dict[str, Any]:
        for handle in self._held:
            handle.release()
        self._held = []
        return {}

    def footprint(self, what: str, number: int) -> dict[str, float]:
        """Bytes for each lock object, for each lease that is held (with its lock), for each thread that waits."""
        first = self._kept(f"{serve.name()}-first")
        first.acquire()
        names = [f"{serve.name()}-{index}" for index in range(number)]
        before = serve.memory()
        self._held = [self._kept(name) for name in names] if what != "waiting" else []
        for handle in self._held if what == "held" else ():
            handle.acquire()
        threads: list[threading.Thread] = []
        if what == "waiting":
            until = time.monotonic() + 60

            def wait() -> None:
                handle = self._handle(f"{serve.name()}-first")
                if handle.wait(until):
                    handle.release()

            threads = [threading.Thread(target=wait, daemon=True) for _ in names]
            for thread in threads:
                thread.start()
            time.sleep(1.0)
        used = serve.memory() - before
        first.release()
        for thread in threads:
            thread.join()
        if what == "held":
            self.drop()
        return {"bytes": used / number}
