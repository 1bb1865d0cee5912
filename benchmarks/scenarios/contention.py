"""Many who want one name: how often a second it changes hands.

A hand-over is a hold by another contender than the one before, so whoever takes the lock again and again hands
nothing over.  One contender alone hands over to nobody: its own holds per second are what the lock could do.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.lab import TTL, Hung
from benchmarks.peers import LeftOut
from benchmarks.records import Record, middle, ratio
from benchmarks.subjects import OURS, PEERS, SOCKETS_ALL
from redlock import Masters

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.lab import Lab, Worker

TITLE = "Contention"
RATE = "hand-overs per second"
SHARE = "hand-overs"
JAIN = "Jain's index"
SECTION = 0.001  # seconds: how long each one holds it
_PAUSE = 0.004  # between two holds of one contender, where only two processes take turns
_RETRIES = 0.6  # seconds: most of the others look again every 0.2 s
_SLACK = 30.0  # seconds for an acquire that was under way at the end
_BEGIN = 0.1  # seconds from the request to the start of the load

# What it is called, how many processes, and how many contenders in each.
CASES = (
    ("2 in one process", 1, 2),
    ("10 in one process", 1, 10),
    ("50 in one process", 1, 50),
    ("2 processes of 1", 2, 1),
    ("4 processes of 3", 4, 3),
    ("4 processes of 12", 4, 12),
)
_BARS = {"10 in one process": 0.65, "50 in one process": 0.6, "4 processes of 12": 0.3}
_CROWD = "4 processes of 12"
_FAIR, _FAIR_SHARE = 0.99, 0.5  # bars of the lock in order (R42)
_SEVERAL = 4.0  # seconds: so long that each of the crowd has its turn several times; not where nobody reads the figures


class Hold(NamedTuple):
    acquired: float  # the return of acquire
    released: float  # the call of release
    contender: tuple[int, int]


def run(lab: Lab) -> Iterator[Record]:
    rounds = max(1, lab.effort.few // 3)
    for subject in OURS:
        lab.reset()
        with lab.open([subject] * 4) as workers:
            for case, processes, contenders in CASES:
                yield from _ours(lab, case, workers[:processes], contenders, rounds)
    yield from _in_order(lab, rounds)
    yield from _against_polling(lab)
    yield _without_a_message(lab)
    for subject in PEERS:
        lab.reset()
        with lab.open([subject] * 4) as workers:
            for case, processes, contenders in CASES[1::4] if lab.effort.hurry else CASES:
                if len(workers) == 4:
                    lab.progress(f"{case}: {subject.title}")
                    yield from _peer(lab, case, workers[:processes], contenders)
    lab.progress("")


def contend(workers: Sequence[Worker], name: str, contenders: int, lasts: float, pause: float = 0.0) -> list[Hold]:
    """What they did together, in its order.  All begin at the same moment, and nobody begins a hold after the end."""
    begin = time.monotonic() + _BEGIN
    end = begin + lasts
    for worker in workers:
        worker.tell("contend", name, contenders, SECTION, pause, begin, end)
    by_process = [worker.hear(lasts + _SLACK)["holds"] for worker in workers]
    return sorted(
        Hold(acquired, released, (process, number))
        for process, holds in enumerate(by_process)
        for acquired, released, number in holds
        if acquired <= end
    )


def handovers(holds: Sequence[Hold]) -> list[float]:
    """Seconds from the call of release to the return of the next one's acquire, where that is another one."""
    return [
        after.acquired - before.released
        for before, after in itertools.pairwise(holds)
        if after.contender != before.contender
    ]


def _ours(lab: Lab, case: str, workers: Sequence[Worker], contenders: int, rounds: int) -> Iterator[Record]:
    title, lasts = workers[0].subject.title, lab.effort.lasts
    pairs, gaps, spreads, calls = [], [], [], []
    for number in range(rounds):
        lab.progress(f"{case}: {title}, round {number + 1} of {rounds}")
        alone = contend(workers[:1], f"alone-{case.replace(' ', '-')}", 1, lasts)
        before = _script_calls(lab)
        holds = contend(workers, f"many-{case.replace(' ', '-')}", contenders, lasts)
        if len(holds) < 2 or len(alone) < 2:
            continue
        calls.append((_script_calls(lab) - before) / len(holds))
        pairs.append((len(handovers(holds)) / lasts, len(alone) / lasts))
        gaps.append(1000 * max(later.acquired - former.released for former, later in itertools.pairwise(holds)))
        counts = [
            sum(hold.contender == (p, c) for hold in holds) for p in range(len(workers)) for c in range(contenders)
        ]
        spreads.append(max(counts) / max(1, min(counts)))
    if not pairs:
        yield Record("contention", case, title, RATE, "/s", None, note=f"no two holds in {lasts:g} s")
        return
    yield middle("contention", case, title, RATE, "/s", [rate for rate, _ in pairs])
    yield ratio(
        "contention",
        case,
        title,
        SHARE,
        pairs,
        baseline="one alone",
        bar=_BARS.get(case),
        at_most=False,
        scale=1,
        unit="/s",
    )
    crowd = case == _CROWD
    yield middle("contention", case, title, "longest gap", "ms", gaps, bar=200 if crowd else None)
    yield middle("contention", case, title, "luckiest to unluckiest", "", spreads, bar=5 if crowd else None)
    yield middle(
        "contention", case, title, "scripts run on a master, for each hold", "", calls, bar=10 if crowd else None
    )


def jain(holds: Sequence[Hold], processes: int, contenders: int) -> float:
    """Jain's index of fairness over what each contender got: 1 if all got the same, 1/n if one got everything."""
    counts = [sum(hold.contender == (p, c) for hold in holds) for p in range(processes) for c in range(contenders)]
    return sum(counts) ** 2 / (len(counts) * sum(count * count for count in counts)) if any(counts) else 0.0


def _in_order(lab: Lab, rounds: int) -> Iterator[Record]:
    """The crowd with ``fair=True`` (R42), and each time without."""
    (processes, contenders), lasts = (
        next((p, c) for case, p, c in CASES if case == _CROWD),
        min(14 * lab.effort.lasts, _SEVERAL),
    )
    for subject in OURS:
        lab.reset()
        pairs, fair, plain = [], [], []
        with lab.open([subject] * processes) as workers:
            for number in range(rounds):
                lab.progress(f"{_CROWD}, in order: {subject.title}, round {number + 1} of {rounds}")
                in_line = contend(workers, "in-order-crowd", contenders, lasts)
                without = contend(workers, "crowd", contenders, lasts)
                pairs.append((len(handovers(in_line)) / lasts, len(handovers(without)) / lasts))
                fair.append(jain(in_line, processes, contenders))
                plain.append(jain(without, processes, contenders))
        case = f"{_CROWD}, fair=True"
        yield ratio(
            "contention", case, subject.title, SHARE, pairs, baseline="without", bar=_FAIR_SHARE, at_most=False, scale=1, unit="/s",
        )  # fmt: skip
        yield middle("contention", case, subject.title, JAIN, "", fair, bar=_FAIR, at_most=False)
        yield middle("contention", _CROWD, subject.title, JAIN, "", plain)


def _script_calls(lab: Lab) -> int:
    stats: Any = lab.servers.client(0).info("commandstats")
    return sum(stats.get(f"cmdstat_{command}", {}).get("calls", 0) for command in ("evalsha", "eval"))


def _against_polling(lab: Lab) -> Iterator[Record]:
    """Two processes that take turns, and bare sockets that do so by asking every millisecond."""
    lab.reset()
    case, lasts = "2 processes take turns", lab.effort.lasts
    with lab.open([*OURS, *OURS, SOCKETS_ALL, SOCKETS_ALL]) as workers:
        polling = [worker for worker in workers if worker.subject is SOCKETS_ALL]
        for subject in OURS:
            two = [worker for worker in workers if worker.subject is subject]
            pairs = []
            for _ in range(max(1, lab.effort.few // 2)):
                lab.progress(f"{case}: {subject.title}")
                mine = handovers(contend(two, f"turns-{subject.tasks}", 1, lasts, _PAUSE))
                base = handovers(contend(polling, "turns-polling", 1, lasts, _PAUSE))
                if mine and base:
                    pairs.append((statistics.median(mine), statistics.median(base)))
            if pairs:
                yield ratio(
                    "contention",
                    case,
                    subject.title,
                    "hand-over",
                    pairs,
                    baseline="bare sockets that ask every ms",
                    bar=2.0,
                    scale=1000,
                    unit="ms",
                )


def _without_a_message(lab: Lab) -> Record:
    """From a DEL behind everybody's back to the return of the acquire that waits."""
    lab.reset()
    urls = [f"redis://{address}" for address in lab.addresses()]
    samples = []
    with Masters(urls, restart_guard=False) as masters, Masters(urls, restart_guard=False) as others:
        for number in range(max(1, lab.effort.few // 3)):
            name = f"deleted-{number}"
            others.lock(name, ttl=TTL, auto_extend=False).acquire()
            noticed: list[float] = []

            def wait(name: str = name, noticed: list[float] = noticed) -> None:
                masters.lock(name, ttl=TTL).acquire()
                noticed.append(time.monotonic())

            waiting = threading.Thread(target=wait, daemon=True)
            waiting.start()
            time.sleep(0.7)
            deleted = time.monotonic()
            for master in range(5):
                lab.servers.client(master).delete(f"redlock:{name}")
            waiting.join()
            samples.append(1000 * (noticed[0] - deleted))
    note = "pauses between two looks are up to 500 ms"
    return middle(
        "contention", "a raw DEL that nobody announces", OURS[0].title, "noticed after", "ms", samples, note=note
    )


def _peer(lab: Lab, case: str, workers: Sequence[Worker], contenders: int) -> Iterator[Record]:
    lasts = max(2 * lab.effort.lasts, _RETRIES)
    try:
        holds = contend(workers, f"many-{case.replace(' ', '-')}", contenders, lasts)
    except (Hung, LeftOut) as why:
        note = str(why) or "did not return"
        yield Record("contention", case, workers[0].subject.title, RATE, "/s", None, note=note)
        return
    yield middle("contention", case, workers[0].subject.title, RATE, "/s", [len(handovers(holds)) / lasts])
    if case == _CROWD:
        yield middle("contention", case, workers[0].subject.title, JAIN, "", [jain(holds, len(workers), contenders)])
