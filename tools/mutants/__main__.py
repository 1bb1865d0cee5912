"""``python -m tools.mutants``: what the trusted files promise is broken by changes of them, and by changes of no other file.

Mutants of the files in trusted.toml have to be killed, by a seed or a scene of the bench or by a test of `tests/core`; who lives is
printed, and is either in lives.toml, with the reason why it is equivalent, or a hole in the tests.  Mutants of all other files that
the bench loads may break anything but P1, P2 and P8, in seeds of all families.

Exit codes: 0 all is so, 1 it is not, 2 nothing was tried, as tests/core is red without any change.
"""

from __future__ import annotations

import argparse
import os
import sys
import tomllib
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.bench.variants.variant import fails
from tools.mutants.drawing import drawn, files, module_of
from tools.mutants.killing import broken, killed, loaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tools.mutants.drawing import Mutant
    from tools.mutants.killing import Fate

LIVES: Final = Path(__file__).with_name("lives.toml")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--inside", type=int, default=200, metavar="N", help="mutants of the trusted files (default: 200)"
    )
    parser.add_argument("--outside", type=int, default=50, metavar="N", help="mutants of all others (default: 50)")
    parser.add_argument("--seeds", type=int, default=100, help="for each mutant outside (default: 100)")
    parser.add_argument("--seed", type=int, default=0, help="which mutants are drawn")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args(arguments)
    if options.inside and (red := fails("core", ())) is not None:
        print(f"{red}\ntests/core is red without any change, and would kill all", file=sys.stderr)
        return _UNKNOWN
    known = {one["mutant"]: one["why"] for one in _known()}
    wrong = 0
    with ProcessPoolExecutor(options.jobs) as pool:
        mine = drawn(options.seed, options.inside, files(trusted=True))
        for fate in _done(pool, partial(killed, seeds=_BEFORE_SCENES), mine):
            lives = not fate.by and fate.mutant.name not in known
            wrong += lives
            equivalent = "" if fate.by or lives else f", for it is equivalent: {known[fate.mutant.name]}"
            print(f"{'LIVES   ' if lives else 'inside  '} {fate}{equivalent}", flush=True)
        there = loaded()
        may = [file for file in files(trusted=False) if module_of(file) in there]
        others = drawn(options.seed, options.outside, may)
        for fate in _done(pool, partial(broken, seeds=options.seeds), others):
            wrong += bool(fate.by)
            print(f"{'BREAKS  ' if fate.by else 'outside '} {fate}", flush=True)
    print(f"{len(mine)} mutants inside, {len(others)} outside: {wrong} not as it must be")
    return int(bool(wrong))


_UNKNOWN: Final = 2
# So many seeds before the scenes, which see more, and more slowly.
_BEFORE_SCENES: Final = 13


def _done(pool: ProcessPoolExecutor, call: Callable[[Mutant], Fate], among: list[Mutant]) -> Iterator[Fate]:
    """As they come."""
    for one in as_completed([pool.submit(call, mutant) for mutant in among]):
        yield one.result()


def _known() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads(LIVES.read_text(encoding="utf-8")).get("lives", [])
    return found


if __name__ == "__main__":
    sys.exit(main())
