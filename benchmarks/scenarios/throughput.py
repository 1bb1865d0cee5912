"""Many workers on names of their own: operations per second, to bare sockets in one thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.records import Record, ratio
from benchmarks.subjects import ASYNCIO, GATHER, OURS, PEERS, POOL, SOCKETS, THREADS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.lab import Lab, Worker

TITLE = "Throughput on names of their own"
RATE = "operations per second"
SIZES = (1, 8, 64)
_BARS = {(ASYNCIO, 64): 2.0, (THREADS, 64): 1.0}


def run(lab: Lab) -> Iterator[Record]:
    lab.reset()
    lasts = lab.effort.lasts / 3
    with lab.open((SOCKETS, *OURS, POOL, GATHER, *PEERS)) as workers:
        bare, *others = workers
        for size in SIZES:

            def measure(worker: Worker, size: int = size) -> dict[str, Any]:
                return worker.ask("throughput", 1 if worker is bare else size, lasts)

            for title, taken in lab.compared(others, lambda _: [bare], measure, max(1, lab.effort.few // 2)).items():
                rates = [(mine["pairs"] / mine["seconds"], base["pairs"] / base["seconds"]) for mine, base in taken]
                bar = next((bar for (who, many), bar in _BARS.items() if who.title == title and many == size), None)
                yield ratio(
                    "throughput",
                    f"{size} at once",
                    title,
                    RATE,
                    rates,
                    baseline=SOCKETS.title,
                    bar=bar,
                    at_most=False,
                    scale=1,
                    unit="/s",
                )
