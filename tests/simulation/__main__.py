"""``python -m tests.simulation --seeds 100000``: the long run, on all cores.

--start N           the first seed
--crowd             of runs in which many wait for one name
--household         of runs in which each client holds many names
--periods           of runs in which nobody else gets a lock for a while after a grant
--rivals            of runs in which many want the same at once, and nothing else goes wrong
--guarded           of runs in which names stay taken for a while after a loss
--readers           of runs with readers and writers
--come-and-go       of runs with many readers and one writer
--slots             of runs in which all want one of few slots
--in-order          of runs in which most wait in order (R42)
--confirmed         of runs in which a minority of clocks is wrong, and an expiry is confirmed by more than one (R35)
--shipped           instead: the client as it ships, with threads and event loops, on simulated masters
--replay            ... where each step must be one of the specification (`bench/replay.py`)
--coverage          ... and which lines of it that has run
--variant NAME      ... with a broken variant: how often is it caught, and by what?
--variants          ... and instead of seeds its variants: which seed or scene catches each of them, and how
--trace SEED        everything that happens in one run
--schedules         instead: schedules of small scope where an expiry is confirmed (R35)
--exhaustive        instead: every interleaving of one hand-over, any connection breaking at any moment
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from tests.bench.many import main as shipped
from tests.bench.variants import VARIANTS
from tests.simulation import parameters
from tests.simulation.exhaustive import explore
from tests.simulation.run import Run, collect_rarely, report
from tests.simulation.schedules import play as play_schedules
from tests.simulation.seeds import Played, chunks, many, played, trace

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK = 20  # seeds of one process at a time
Draw: TypeAlias = "Callable[[int], parameters.Parameters]"
# By the name of their option.
DRAWS: dict[str, Draw] = {
    name: getattr(parameters, name)
    for name in (
        "crowd", "household", "periods", "rivals", "guarded", "come_and_go", "slots", "in_order",
        "confirmed", "at_once",
    )
} | {"readers": parameters.readers_and_writers}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--start", type=int, default=0)
    for option in (*DRAWS, "replay", "schedules", "shipped", "coverage", "variants", "exhaustive"):
        parser.add_argument(f"--{option.replace('_', '-')}", action="store_true")
    parser.add_argument("--variant", choices=sorted(VARIANTS), metavar="NAME")
    parser.add_argument("--trace", type=int, metavar="SEED")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if options.exhaustive:
        for ahead in (-50.0, 0.0, 50.0):
            print(f"B's wall clock {ahead:+g} s: {explore(ahead=ahead, breaks=(0, 1, 2))}", flush=True)
        return 0
    if options.shipped or options.replay:
        return shipped(options)
    if options.schedules:
        if options.trace is not None:
            print(*play_schedules(range(options.trace, options.trace + 1), traced=True))
            return 0
        return tallied(play_schedules, chunks(options.start, options.seeds, 50 * CHUNK), options.jobs)
    drawn = next((draws for option, draws in DRAWS.items() if getattr(options, option)), parameters.draw)
    if options.trace is not None:
        run = Run(drawn(options.trace))
        return trace(run, run.parameters)
    return many(partial(chunk, drawn=drawn), chunks(options.start, options.seeds, CHUNK), options.jobs, None, None)


def chunk(seeds: range, *, drawn: Draw) -> Played:
    return played(((seed, Run(drawn(seed))) for seed in seeds), report)


def tallied(play: Callable[[range], tuple[Counter[str], list[str]]], pieces: list[range], jobs: int) -> int:
    violated, had = 0, Counter[str]()
    with ProcessPoolExecutor(jobs, initializer=collect_rarely) as pool:
        for more, failures in pool.map(play, pieces):
            violated += len(failures)
            had.update(more)
            print(*failures, sep="\n", end="\n" if failures else "", file=sys.stderr)
            shown = ", ".join(f"{number} {what}" for what, number in had.items())
            print(f"\r{shown}, violated: {violated}", end="", flush=True)
    print()
    return 1 if violated else 0


if __name__ == "__main__":
    sys.exit(main())
