"""Many who want one of few slots (R32): how soon each has one, and how often slots change hands."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from benchmarks.records import Record, middle, ratio
from benchmarks.scenarios.contention import contend, handovers
from benchmarks.subjects import OURS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.lab import Lab, Worker
    from benchmarks.scenarios.contention import Hold

TITLE = "Slots"
_SETTLE: Final = (2, 3, 5, 8)  # slots, and as many contenders
_AT_MOST: Final = 2  # rounds
_SLOTS, _PROCESSES, _CONTENDERS = 3, 4, 12
_SLACK: Final = 30.0  # seconds
_BEGIN: Final = 0.05  # seconds from the request to the start of all


def run(lab: Lab) -> Iterator[Record]:
    for subject in OURS:
        lab.reset()
        with lab.open([subject] * max(_SETTLE)) as workers:
            for slots in _SETTLE:
                yield _settle(lab, workers[:slots], slots)
            yield from _hand_over(lab, workers[:_PROCESSES])
    lab.progress("")


def _settle(lab: Lab, workers: Sequence[Worker], slots: int) -> Record:
    """Processes begin at one moment on as many free slots."""
    title, rounds = workers[0].subject.title, []
    for number in range(3 * lab.effort.rounds):
        lab.progress(f"{slots} on {slots} free slots: {title}: {number}")
        for worker in workers:
            worker.tell("settle", f"{slots}-slots-of-settle-{slots}-{number}", _BEGIN)
        rounds += [worker.hear(_SLACK)["attempts"] for worker in workers]
    rounds.sort()
    slow = rounds[int(len(rounds) * 0.99)]
    return middle(
        "slots", f"{slots} processes on {slots} free slots", title, "rounds, 99th percentile", "", [slow],
        bar=_AT_MOST,
        note=f"of {len(rounds)}: " + ", ".join(f"{n} in {len(list(of))}" for n, of in itertools.groupby(rounds)),
    )  # fmt: skip


def _hand_over(lab: Lab, workers: Sequence[Worker]) -> Iterator[Record]:
    title, lasts = workers[0].subject.title, lab.effort.lasts
    case, pairs = f"{_PROCESSES} processes of {_CONTENDERS} on {_SLOTS} slots", []
    for number in range(max(1, lab.effort.few // 3)):
        lab.progress(f"{case}: {title}, round {number + 1}")
        one = contend(workers, f"lock-{number}", _CONTENDERS, lasts)
        many = contend(workers, f"{_SLOTS}-slots-of-hand-over-{number}", _CONTENDERS, lasts)
        together = most_at_once(many)
        if together > _SLOTS:
            raise AssertionError(f"{together} held one of {_SLOTS} slots")
        pairs.append((len(many) / lasts, len(handovers(one)) / lasts))
    yield ratio(
        "slots", case, title, "holds per second", pairs, baseline="hand-overs of one lock", bar=1.0, at_most=False,
        scale=1, unit="/s",
    )  # fmt: skip


def most_at_once(holds: Sequence[Hold]) -> int:
    """So many held it at one moment."""
    steps: dict[float, int] = defaultdict(int)
    for hold in holds:
        steps[hold.acquired] += 1
        steps[hold.released] -= 1
    return max(itertools.accumulate(steps[t] for t in sorted(steps)), default=0)
