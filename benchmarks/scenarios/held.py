"""Leases that are held and renewed: what it costs to keep them (R15)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.lab import Hung
from benchmarks.peers import LeftOut
from benchmarks.records import Record, middle
from benchmarks.subjects import AIOREDLOCK, NODE, OURS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.lab import Lab
    from benchmarks.subjects import Subject

TITLE = "Leases that are held"
LOAD = "of a core"
_BAR = 3.0  # per cent
_MANY = 10_000


def run(lab: Lab) -> Iterator[Record]:
    few = min(1000, lab.effort.many)
    for subject in (*OURS, NODE, AIOREDLOCK):
        yield from _held(lab, subject, few, 3.0, lab.effort.renewal, max(1, lab.effort.few // 3))
    if lab.effort.long_renewal:
        for subject in OURS:
            yield from _held(lab, subject, _MANY, 30.0, lab.effort.long_renewal, 1)


def _held(lab: Lab, subject: Subject, leases: int, ttl: float, lasts: float, rounds: int) -> Iterator[Record]:
    lab.reset()
    case = f"{leases:,} leases, TTL {ttl:g} s"
    lab.progress(f"{case}: {subject.title}")
    ours = subject in OURS
    with lab.open([subject], ttl=ttl) as workers:
        for worker in workers:
            try:
                held = worker.ask("hold", leases)
                rests = [worker.ask("rest", lasts) for _ in range(rounds)]
                worker.ask("drop")
            except (Hung, LeftOut) as why:
                yield Record("held", case, subject.title, LOAD, "%", None, note=str(why) or "did not return")
                continue
            load = [100 * rest["cpu"] / rest["seconds"] for rest in rests]
            yield middle("held", case, subject.title, LOAD, "%", load, bar=_BAR if ours else None)
            yield middle("held", case, subject.title, "lost", "", [rests[-1]["lost"]], bar=0 if ours else None)
            if ours:
                yield middle("held", case, subject.title, "threads that hold them", "", [held["threads"]], bar=1)
    lab.progress("")
