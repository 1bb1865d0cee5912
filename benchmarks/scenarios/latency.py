"""What one uncontended acquire and release takes, in time and on the processor, as a ratio to bare sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.records import Record, ratio
from benchmarks.subjects import ASYNCIO, EVERYBODY, OURS, PROTOCOLS, SOCKETS, THREADS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.lab import Lab, Worker
    from benchmarks.subjects import Subject

TITLE = "Acquire and release, nobody in the way"
TIME = "acquire + release"
CPU = "processor time"
_BARS = {THREADS: 1.2, ASYNCIO: 1.25}
_CPU_BAR = 1.4
_OTHER_SIZES = 1.1      # the bars are that much higher for other numbers of masters


def run(lab: Lab) -> Iterator[Record]:
    lab.reset()
    for masters in (5, 1, 3, 7, 9):
        subjects = EVERYBODY if masters == 5 else (*OURS, SOCKETS, PROTOCOLS)
        rounds = lab.effort.rounds if masters == 5 else max(1, lab.effort.rounds // 2)
        with lab.open(subjects, lab.addresses(masters)) as workers:
            yield from _compared(lab, workers, f"{masters} master{'s'[: masters - 1]}", rounds)


def _compared(lab: Lab, workers: Sequence[Worker], case: str, rounds: int) -> Iterator[Record]:
    opened = {worker.subject: worker for worker in workers}
    cycles = lab.effort.cycles

    def limits(subject: Subject) -> list[Worker]:
        return [opened[SOCKETS], *([opened[PROTOCOLS]] if subject is ASYNCIO else [])]

    def measure(worker: Worker) -> dict[str, Any]:
        return worker.ask("cycles", cycles)

    answers = lab.compared(workers, limits, measure, rounds)
    for subject in opened:
        for number, limit in enumerate(limits(subject), 1):
            against = PROTOCOLS if subject.tasks else SOCKETS
            promised = subject in _BARS and limit.subject is against
            bar = _BARS[subject] * (1 if case == "5 masters" else _OTHER_SIZES) if promised else None
            pairs = [(one[0], one[number]) for one in answers[subject.title]]
            for what, name, limit_of_it in (("seconds", TIME, bar), ("cpu", CPU, _CPU_BAR if promised else None)):
                yield ratio(
                    "latency", case, subject.title, name,
                    [(mine[what] / cycles, base[what] / cycles) for mine, base in pairs],
                    baseline=limit.subject.title, bar=limit_of_it,
                )
