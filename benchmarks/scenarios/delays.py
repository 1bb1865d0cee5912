"""Masters that are far away: a relay on the way holds every answer back."""

from __future__ import annotations

import contextlib
import statistics
from typing import TYPE_CHECKING

from benchmarks.lab import Hung
from benchmarks.records import Record, middle, ratio
from benchmarks.subjects import GATHER, OURS, PEERS, POOL, PROTOCOLS, SOCKETS, limit
from chaos.backends.relay import Relay

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.lab import Lab

TITLE = "Masters that are far away"
AFTERWARDS = "acquire + release"
EXTRA = "acquire, beyond one round trip"
ONE, ALL = "one behind 50 ms", "all behind 5 ms"
_FAR, _NEAR = 0.05, 0.005  # seconds
_BARS = {ONE: 1.1, ALL: 1.0}


class Road:
    """A relay for each of the first masters, or for the last of them alone."""

    def __init__(self, lab: Lab, numbers: list[int]) -> None:
        self._relay = Relay()
        self._links = [(1, number) for number in numbers]  # client and master
        self.addresses = lab.addresses()
        for link in self._links:
            port = self._relay.open(link, "127.0.0.1", 0, lab.servers.ports[link[1]])
            self.addresses[link[1]] = f"127.0.0.1:{port}"

    @contextlib.contextmanager
    def long(self, seconds: float) -> Iterator[None]:
        self._relay.change({link: {"slow": seconds} for link in self._links})
        try:
            yield
        finally:
            self._relay.change({})


def run(lab: Lab) -> Iterator[Record]:
    yield from _one(lab)
    yield from _all(lab)


def _one(lab: Lab) -> Iterator[Record]:
    lab.reset()
    road = Road(lab, [4])
    cycles = lab.effort.cycles
    with lab.open((*OURS, POOL, GATHER, *PEERS), road.addresses) as workers:
        for worker in workers:
            ours = worker.subject in OURS
            rounds, times = (lab.effort.rounds, cycles) if ours else (min(3, lab.effort.few), 3)
            pairs = []
            with contextlib.suppress(Hung):
                for number in range(rounds):
                    lab.progress(f"{ONE}: {worker.subject.title}, round {number + 1} of {rounds}")
                    near = worker.ask("cycles", times)["seconds"] / times
                    with road.long(_FAR):
                        worker.ask("cycles", 1)
                        pairs.append((worker.ask("cycles", times)["seconds"] / times, near))
                    worker.ask("cycles", 2)
            yield ratio(
                "delays",
                ONE,
                worker.subject.title,
                AFTERWARDS,
                pairs,
                baseline="all near",
                bar=_BARS[ONE] if ours else None,
                scale=1e3,
                unit="ms",
            )
    lab.progress("")


def _all(lab: Lab) -> Iterator[Record]:
    lab.reset()
    road = Road(lab, list(range(5)))
    times = 3
    with lab.open((*OURS, SOCKETS, PROTOCOLS, POOL, GATHER, *PEERS), road.addresses) as workers, road.long(_NEAR):
        opened = {worker.subject: worker for worker in workers}
        answers = lab.compared(
            [worker for worker in workers if worker.subject.kind != "limit"],
            lambda subject: [opened[limit(subject)]],
            lambda worker: worker.ask("cycles", times),
            max(lab.effort.few, lab.effort.rounds // 3),
        )
    for subject in opened:
        if subject.title in answers:
            taken = [
                (mine["acquire"] / times * 1000, base["acquire"] / times * 1000)
                for mine, base in answers[subject.title]
            ]
            trip = statistics.median(base for _, base in taken)
            yield middle(
                "delays",
                ALL,
                subject.title,
                EXTRA,
                "ms",
                [mine - base for mine, base in taken],
                bar=_BARS[ALL] if subject in OURS else None,
                note=f"the round trip is {trip:.1f} ms",
            )
