"""Seeds, a chunk at a time, and the trace of one: what each long run is made of."""

from __future__ import annotations

import gc
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any, TypeAlias

from tests.simulation.invariants import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SHOWN = 3  # with all that led to it; of the others the seed, and what was violated
# How many seeds, how many grants, and what went wrong: seed, invariant and text.
Played: TypeAlias = "tuple[int, int, list[tuple[int, str, str]]]"


def collect_rarely() -> None:
    """Have the garbage collector look seldom: what a run makes lives until its end, and looking took a sixth of it."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 1_000)


def chunks(start: int, seeds: int, size: int) -> list[range]:
    end = start + seeds
    return [range(first, min(first + size, end)) for first in range(start, end, size)]


def trace(run: Any, setting: object) -> int:
    """Play ``run``, and print all that happened under ``setting``."""
    try:
        run.play()
    except Violation:  # it is the last line of the trace
        pass
    finally:
        print(setting, *run.world.lines(), sep="\n")
    return 0


def played(runs: Iterable[tuple[int, Any]], report: Callable[[Any], str]) -> Played:
    seeds, grants, failures = 0, 0, []
    for seed, run in runs:
        try:
            run.play()
        except Violation as violation:
            failures.append((seed, violation.invariant, f"{violation}\n{report(run)}"))
        except Exception as error:  # noqa: BLE001 - a long run goes on and tells in the end
            failures.append((seed, type(error).__name__, f"{error!r}\n{report(run)}"))
        seeds, grants = seeds + 1, grants + run.judge.grants
    return seeds, grants, failures


def many(play: Callable[[range], Played], pieces: list[range], jobs: int | None, variant: str | None, fits: Any) -> int:
    """Play all on ``jobs`` cores.  ``fits``: the invariants that catch ``variant``, where there is one."""
    began, done, grants = time.perf_counter(), 0, 0
    seen: Counter[str] = Counter()
    with ProcessPoolExecutor(jobs, initializer=collect_rarely) as pool:
        for count, granted, failures in pool.map(play, pieces):
            done, grants = done + count, grants + granted
            for seed, invariant, text in failures:
                seen[invariant] += 1
                at_length = sum(seen.values()) <= SHOWN
                if variant is None or at_length:
                    short = f"seed {seed}: {text.splitlines()[0]}"
                    print(f"\n{text if at_length and variant is None else short}", file=sys.stderr)
            took = time.perf_counter() - began
            print(f"\r{done} seeds, {grants} grants, {took:.0f} s, violated: {dict(seen)}", end="", flush=True)
    print()
    if variant is not None:
        caught = sum(count for name, count in seen.items() if name in fits)
        print(f"{variant}: caught in {caught} of {done} runs")
        return 0 if caught else 1
    return 1 if seen else 0
