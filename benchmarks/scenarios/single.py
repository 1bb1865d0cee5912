"""One master: what a newcomer measures, beside redis-py's own lock in the same world.

That lock renews nothing and has no fence; its waiters ask every tenth of a second.  Its acquire and release are a command and a script,
ours are two scripts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.records import Record, ratio
from benchmarks.subjects import ASYNCIO, SINGLE, SINGLE_TASKS, THREADS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.lab import Lab, Worker

TITLE = "One master, beside redis-py's own lock"
BASES = {THREADS: SINGLE, ASYNCIO: SINGLE_TASKS}
_BAR = 1.1  # no slower than what it replaces, as far as can be measured


def run(lab: Lab) -> Iterator[Record]:
    lab.reset()
    cycles = lab.effort.cycles

    def measure(worker: Worker) -> dict[str, Any]:
        return worker.ask("cycles", cycles)

    for ours, theirs in BASES.items():
        with lab.open((ours, theirs), lab.addresses(1)) as workers:
            answers = lab.compared(workers, lambda one: workers[1:] if one in BASES else [], measure, lab.effort.rounds)
        for what, name, bar in (("seconds", "acquire + release", _BAR), ("cpu", "processor time", None)):
            pairs = [(one[what] / cycles, base[what] / cycles) for one, base in answers[ours.title]]
            world = "asyncio" if ours.tasks else "threads"
            yield ratio("single", f"1 master, {world}", ours.title, name, pairs, baseline=theirs.title, bar=bar)
