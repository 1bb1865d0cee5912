"""What a lock weighs: as an object, with a lease, and for whoever waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.records import Record, middle
from benchmarks.subjects import OURS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.lab import Lab

TITLE = "Memory"
_WAITING_TASKS, _WAITING_THREADS = 1000, 200
_BARS = {"held": 4.0}  # KB


def run(lab: Lab) -> Iterator[Record]:
    lab.reset()
    for subject in OURS:
        for what in ("idle", "held", "waiting"):
            number = lab.effort.many
            if what == "waiting":
                number = min(number, _WAITING_TASKS if subject.tasks else _WAITING_THREADS)
            lab.progress(f"{what}: {subject.title}")
            with lab.open([subject]) as workers:  # a new process each, for memory is only ever given
                samples = [worker.ask("footprint", what, number)["bytes"] / 1024 for worker in workers]
            waits = ", with its task" if subject.tasks else ", with its thread"
            case = {"idle": "a lock", "held": "a lease and its lock", "waiting": f"who waits{waits}"}[what]
            small = lab.effort.many < 1000
            yield middle(
                "memory",
                case,
                subject.title,
                f"of {number:,}, each",
                "KB",
                samples,
                bar=None if small else _BARS.get(what),
            )
    lab.progress("")
