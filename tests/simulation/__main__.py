"""``python -m tests.simulation --seeds 1000``: the client as it ships, on simulated masters, on all cores.

--start N           the first seed
--family NAME       of runs in which programs do this alone: see `FAMILIES` in `bench/parameters.py`
--trace SEED        everything that happens in one run
--variant NAME      with a broken variant: how often is it caught, and by what?
--variants          instead of seeds the variants: what catches each of them
--replay            each step must be one of the specification (`bench/replay.py`)
--coverage          which lines of the client that has run
"""

from __future__ import annotations

import argparse
import os
import sys

from tests.bench.parameters import FAMILIES
from tests.bench.variants import VARIANTS
from tests.simulation.seeds import main as play_seeds


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--family", choices=FAMILIES, default="shipped", metavar="NAME")
    for option in ("shipped", "replay", "coverage", "variants"):  # the first is what it does
        parser.add_argument(f"--{option}", action="store_true")
    parser.add_argument("--variant", choices=sorted(VARIANTS), metavar="NAME")
    parser.add_argument("--trace", type=int, metavar="SEED")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    return play_seeds(options)


if __name__ == "__main__":
    sys.exit(main())
