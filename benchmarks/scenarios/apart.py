"""The same as `latency`, where whoever is measured has a processor of its own and the masters have the others.

On few processors clients and masters empty each other's caches, the more the longer a client computes: this says how much
of `latency` that is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.scenarios import latency
from benchmarks.subjects import OURS, PROTOCOLS, SOCKETS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.lab import Lab
    from benchmarks.records import Record

TITLE = "The same, with a processor of its own"


def run(lab: Lab) -> Iterator[Record]:
    lab.reset()
    with lab.apart() as possible:
        if not possible:
            lab.say("  left out: it takes two processors, and a system that says who runs on which (Linux)")
            return
        with lab.open((*OURS, SOCKETS, PROTOCOLS)) as workers:
            yield from latency.compared(lab, workers, "apart", latency.FIVE, max(1, lab.effort.rounds // 2))
