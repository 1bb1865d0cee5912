"""What one uncontended acquire and release takes, in time and on the processor, as a ratio to bare sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.records import Record, ratio
from benchmarks.subjects import ASYNCIO, EVERYBODY, OURS, PROTOCOLS, SOCKETS, THREADS, limit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.lab import Lab, Worker
    from benchmarks.subjects import Subject

TITLE = "Acquire and release, nobody in the way"
TIME = "acquire + release"
CPU = "processor time"
FIVE = "5 masters"
_BARS = {THREADS: 1.2, ASYNCIO: 1.25}
_CPU_BAR = 1.4
_OTHER_SIZES = 1.1  # the bars are that much higher for other numbers of masters


def run(lab: Lab) -> Iterator[Record]:
    lab.reset()
    for masters in lab.effort.masters:
        subjects = EVERYBODY if masters == 5 else (*OURS, SOCKETS, PROTOCOLS)
        rounds = lab.effort.rounds if masters == 5 else max(1, lab.effort.rounds // 2)
        with lab.open(subjects, lab.addresses(masters)) as workers:
            yield from compared(lab, workers, "latency", "1 master" if masters == 1 else f"{masters} masters", rounds)


def compared(lab: Lab, workers: Sequence[Worker], scenario: str, case: str, rounds: int) -> Iterator[Record]:
    opened = {worker.subject: worker for worker in workers}
    cycles = lab.effort.cycles

    def limits(subject: Subject) -> list[Worker]:
        return [opened[SOCKETS], *([opened[PROTOCOLS]] if subject is ASYNCIO else [])]

    def measure(worker: Worker) -> dict[str, Any]:
        return worker.ask("cycles", cycles)

    answers = lab.compared(workers, limits, measure, rounds)
    for what, name in (("seconds", TIME), ("cpu", CPU)):
        for subject in opened:
            for number, base in enumerate(limits(subject), 1):
                promised = scenario == "latency" and subject in _BARS and base.subject is limit(subject)
                pairs = [(one[0][what] / cycles, one[number][what] / cycles) for one in answers[subject.title]]
                bar = None
                if promised and name is TIME:
                    bar = _BARS[subject] * (1 if case == FIVE else _OTHER_SIZES)
                elif promised and case == FIVE:
                    bar = _CPU_BAR
                yield ratio(scenario, case, subject.title, name, pairs, baseline=base.subject.title, bar=bar)
