"""``python -m tests.simulation --seeds 1000``: the client as it ships, on simulated masters, on all cores.

--start N           the first seed
--family NAME       of runs in which programs do this alone: see `FAMILIES` in `bench/parameters.py`
--trace SEED        everything that happens in one run
--variant NAME      with a broken variant: how often is it caught, and by what?
--variants          instead of seeds the variants: what catches each of them
--replay            each step must be one of the specification (`bench/replay.py`)
--coverage          which lines of the client that has run
--schedules         instead: schedules of small scope where an expiry is confirmed (R35)
--exhaustive        instead: every interleaving of one hand-over, any connection breaking at any moment
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING
from unittest import mock

from tests.bench.library import replaced
from tests.bench.many import main as play_seeds
from tests.bench.parameters import FAMILIES
from tests.bench.variants import VARIANTS
from tests.simulation.exhaustive import explore
from tests.simulation.master import REPLACED
from tests.simulation.schedules import play as play_schedules
from tests.simulation.seeds import chunks, collect_rarely

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK = 1000  # schedules of one process at a time


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--family", choices=FAMILIES, default="shipped", metavar="NAME")
    for option in ("shipped", "replay", "coverage", "variants", "schedules", "exhaustive"):  # the first is what it does
        parser.add_argument(f"--{option}", action="store_true")
    parser.add_argument("--variant", choices=sorted(VARIANTS), metavar="NAME")
    parser.add_argument("--trace", type=int, metavar="SEED")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if options.exhaustive:
        for ahead in (-50.0, 0.0, 50.0):
            print(f"B's wall clock {ahead:+g} s: {explore(ahead=ahead, breaks=(0, 1, 2))}", flush=True)
        return 0
    if options.schedules:
        with mock.patch.dict(REPLACED, replaced(VARIANTS[options.variant].patches) if options.variant else {}):
            if options.trace is not None:
                print(*play_schedules(range(options.trace, options.trace + 1), traced=True))
                return 0
            return tallied(play_schedules, chunks(options.start, options.seeds, CHUNK), options.jobs)
    return play_seeds(options)


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
