"""A master that is frozen (it takes everything and answers nothing) or refuses: which clients notice, and how much."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from benchmarks.lab import Hung
from benchmarks.peers import LeftOut
from benchmarks.records import Record, middle, ratio
from benchmarks.subjects import GATHER, OURS, PEERS, POOL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.lab import Lab, Worker
    from redlock.testing import LocalMasters

TITLE = "Masters that are frozen or refuse"
AFTERWARDS = "acquire + release"
FIRST = "the first acquire + release"
FAILS = "fails after"
LEFT = "keys left behind"
ACQUIRED, KEYS_ON = "acquired", "; keys left on masters: "  # in the notes on everybody
# (case, which are frozen, which refuse, how much slower it may be)
MINORITIES: tuple[tuple[str, tuple[int, ...], tuple[int, ...], float | None], ...] = (
    ("one frozen", (4,), (), 1.1),
    ("two frozen", (3, 4), (), None),
    ("one refuses", (), (4,), None),
)
MAJORITY = "three frozen"
NODE_TIMEOUT = 0.25  # seconds: the default of the library
_MARGIN = 0.01
_CLEAN = 2.0  # seconds for keys to be gone after all masters are back


def run(lab: Lab) -> Iterator[Record]:
    for case, frozen, refusing, bar in MINORITIES:
        yield from _ours(lab, case, frozen, refusing, bar)
    yield from _ours_without_majority(lab)
    others = (*OURS, POOL, GATHER, *PEERS)
    minorities = MINORITIES[:1] if lab.effort.hurry else MINORITIES
    for case, frozen, refusing, _ in (*minorities, (MAJORITY, (2, 3, 4), (), None)):
        lab.progress(f"{case}: who returns within {lab.effort.patience:g} s")
        yield from _everybody(lab, others, case, frozen, refusing)


@contextlib.contextmanager
def struck(servers: LocalMasters, frozen: tuple[int, ...], refusing: tuple[int, ...]) -> Iterator[None]:
    for number in frozen:
        servers.pause(number)
    for number in refusing:
        servers.kill(number)
    try:
        yield
    finally:
        for number in frozen:
            servers.resume(number)
        for number in refusing:
            servers.restart(number)


def _ours(
    lab: Lab, case: str, frozen: tuple[int, ...], refusing: tuple[int, ...], bar: float | None
) -> Iterator[Record]:
    lab.reset()
    cycles = lab.effort.cycles
    rounds = lab.effort.rounds if frozen else lab.effort.few  # a restart takes its time
    with lab.open(OURS) as workers:
        pairs: dict[str, list[tuple[float, float]]] = {worker.subject.title: [] for worker in workers}
        first: dict[str, list[float]] = {worker.subject.title: [] for worker in workers}
        for number in range(rounds):
            lab.progress(f"{case}: round {number + 1} of {rounds}")
            for worker in workers:
                title = worker.subject.title
                healthy = worker.ask("cycles", cycles)["seconds"] / cycles
                with struck(lab.servers, frozen, refusing):
                    first[title].append(worker.ask("cycles", 1)["seconds"])
                    pairs[title].append((worker.ask("cycles", cycles)["seconds"] / cycles, healthy))
                _settle(worker)
        lab.progress("")
    for title, taken in pairs.items():
        yield ratio("faults", case, title, AFTERWARDS, taken, baseline="all healthy", bar=bar)
        yield middle("faults", case, title, FIRST, "ms", [seconds * 1000 for seconds in first[title]])


def _settle(worker: Worker) -> None:
    """What waited in a master is answered, a connection that was lost is made again."""
    worker.ask("cycles", 2)
    time.sleep(0.05)
    worker.ask("cycles", 20)


def _ours_without_majority(lab: Lab) -> Iterator[Record]:
    lab.reset()
    with lab.open(OURS) as workers:
        for worker in workers:
            took, left = [], []
            for number in range(lab.effort.few):
                lab.progress(f"{MAJORITY}: round {number + 1} of {lab.effort.few}")
                name = f"majority-{worker.subject.tasks}-{number}"
                with struck(lab.servers, (2, 3, 4), ()):
                    answer = worker.ask("attempt", name)
                    assert not answer["acquired"]
                    took.append(answer["seconds"] * 1000)
                left.append(float(_left_behind(lab, name)))
                _settle(worker)
            title = worker.subject.title
            yield middle("faults", MAJORITY, title, FAILS, "ms", took, bar=(NODE_TIMEOUT + _MARGIN) * 1000)
            yield middle("faults", MAJORITY, title, LEFT, "", left, bar=0)
        lab.progress("")


def _left_behind(lab: Lab, name: str) -> int:
    """How many masters still have a key of that name, once all have been back for a while; fences are meant to stay."""
    until = time.monotonic() + _CLEAN
    while (left := _keys(lab, name)) and time.monotonic() < until:
        time.sleep(0.02)
    return left


def _keys(lab: Lab, name: str) -> int:
    return sum(
        any(not key.endswith(":fence") for key in keys) for keys in lab.servers.keys(f"*{name}*") if keys is not None
    )


def _everybody(
    lab: Lab, subjects: Any, case: str, frozen: tuple[int, ...], refusing: tuple[int, ...]
) -> Iterator[Record]:
    """All at the same time, for most of them take as long as they are given."""
    lab.reset()
    majority = len(frozen) > 2
    with lab.open(subjects) as workers:
        names = {worker: f"everybody-{number}" for number, worker in enumerate(workers)}
        for worker in workers:
            worker.ask("cycles", 5)
        hung = set()
        answers: dict[Worker, dict[str, Any]] = {}
        with struck(lab.servers, frozen, refusing):
            until = time.monotonic() + lab.effort.patience
            for worker in workers:
                worker.tell("attempt", names[worker])
            for worker in workers:
                try:
                    answers[worker] = worker.hear(max(0.01, until - time.monotonic()))
                except (Hung, LeftOut):
                    hung.add(worker)
        time.sleep(_CLEAN)  # so long the others have to clean up, now that all masters are back
        for worker in workers:
            title = worker.subject.title
            if worker in hung:
                note = f"did not return within {lab.effort.patience:g} s"
                yield Record("peers and faults", case, title, FAILS if majority else FIRST, "s", None, note=note)
                continue
            answer = answers[worker]
            note = _said(answer)
            left = _keys(lab, names[worker])
            if left:
                note += f"{KEYS_ON}{left}"
            yield Record(
                "peers and faults",
                case,
                title,
                FAILS if majority else FIRST,
                "s",
                answer["both"],
                [answer["both"]],
                note=note,
            )


def _said(answer: dict[str, Any]) -> str:
    if answer["acquired"]:
        return ACQUIRED + (f", then {answer['error']}" if answer["error"] else "")
    return f"not acquired: {answer['error']}" if answer["error"] else "not acquired"
