"""``python -m tests.simulation --seeds 100000``: the long run, on all cores.

--start N           the first seed
--variant NAME      with a broken variant: how often is it caught, and by what?
--crowd             of runs in which many wait for one name
--household         of runs in which each client holds many names
--periods           of runs in which nobody else gets a lock for a while after a grant
--elections         of runs in which all clients are candidates of one election
--readers           of runs with readers and writers
--come-and-go       of runs with many readers and one writer
--slots             of runs in which all want one of few slots
--transactions      of runs in which all add to what their locks protect, in fenced transactions
--confirmed         of runs in which a minority of clocks is wrong, and an expiry is confirmed by more than one (R35)
--fleets            instead: fleets that change their masters one at a time
--trace SEED        everything that happens in one run
--exhaustive        instead: every interleaving of one hand-over, any connection breaking at any moment
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from tests.simulation.exhaustive import explore
from tests.simulation.fleets import FleetRun, settings
from tests.simulation.invariants import Violation
from tests.simulation.parameters import (
    Parameters,
    at_once,
    come_and_go,
    confirmed,
    crowd,
    draw,
    elections,
    household,
    periods,
    readers_and_writers,
    slots,
    transactions,
)
from tests.simulation.run import Run, collect_rarely, report
from tests.simulation.variants import VARIANTS

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK = 100
Draw: TypeAlias = "Callable[[int], Parameters]"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--crowd", action="store_true")
    parser.add_argument("--household", action="store_true")
    parser.add_argument("--periods", action="store_true")
    parser.add_argument("--elections", action="store_true")
    parser.add_argument("--readers", action="store_true")
    parser.add_argument("--come-and-go", action="store_true")
    parser.add_argument("--slots", action="store_true")
    parser.add_argument("--transactions", action="store_true")
    parser.add_argument("--confirmed", action="store_true")
    parser.add_argument("--at-once", action="store_true")
    parser.add_argument("--fleets", action="store_true")
    parser.add_argument("--variant", choices=sorted(VARIANTS))
    parser.add_argument("--trace", type=int, metavar="SEED")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--exhaustive", action="store_true")
    options = parser.parse_args()
    if options.exhaustive:
        for ahead in (-50.0, 0.0, 50.0):
            print(f"B's wall clock {ahead:+g} s: {explore(ahead=ahead, breaks=(0, 1, 2))}", flush=True)
        return 0
    if options.fleets:
        return fleets(range(options.start, options.start + options.seeds), options.trace)
    drawn = crowd if options.crowd else household if options.household else draw
    drawn = periods if options.periods else elections if options.elections else slots if options.slots else drawn
    drawn = readers_and_writers if options.readers else come_and_go if options.come_and_go else drawn
    drawn = transactions if options.transactions else drawn
    drawn = at_once if options.at_once else confirmed if options.confirmed else drawn
    if options.trace is not None:
        return trace(options.trace, drawn, options.variant)
    return many(options.start, options.seeds, drawn, options.variant, options.jobs)


def broken(name: str | None, drawn: Draw) -> tuple[Any, Draw]:
    return (VARIANTS[name].applied(), VARIANTS[name].parameters) if name else (nullcontext(), drawn)


def trace(seed: int, drawn: Draw, variant: str | None) -> int:
    context, drawn = broken(variant, drawn)
    run = Run(drawn(seed))
    with context:
        try:
            run.play()
        except Violation:  # it is the last line of the trace
            pass
        finally:
            print(run.parameters, *run.world.lines(), sep="\n")
    return 0


def chunk(start: int, *, seeds: int, drawn: Draw, variant: str | None) -> tuple[int, int, list[tuple[int, str, str]]]:
    """So many seeds from ``start``: how many, how many grants, and what went wrong."""
    grants, failures = 0, []
    context, drawn = broken(variant, drawn)
    with context:
        for seed in range(start, start + seeds):
            run = Run(drawn(seed))
            try:
                run.play()
            except Violation as violation:
                failures.append((seed, violation.invariant, f"{violation}\n{report(run)}"))
            except Exception as error:  # noqa: BLE001 - a long run goes on and tells in the end
                failures.append((seed, type(error).__name__, f"{error!r}\n{report(run)}"))
            grants += run.judge.grants
    return seeds, grants, failures


def fleets(seeds: range, traced: int | None) -> int:
    collect_rarely()
    violated = grants = extensions = steps = refused = 0
    for played, seed in enumerate(seeds if traced is None else (traced,), 1):
        run = FleetRun(settings(seed))
        try:
            run.play()
        except Violation as violation:
            violated += 1
            print(f"seed {seed}: {violation}: python -m tests.simulation --fleets --trace {seed}", file=sys.stderr)
        grants, steps, refused = grants + run.grants, steps + run.steps, refused + run.refused
        extensions += run.extensions
        if traced is not None:
            print(run.settings, *run.lines, sep="\n")
        if played % CHUNK == 0:
            print(f"\r{played} seeds, {grants} grants, violated: {violated}", end="", flush=True)
    print(
        f"\n{grants} grants, {extensions} extensions, {steps} steps, a client gave way {refused} times, violated: {violated}"
    )
    return 1 if violated else 0


def many(start: int, seeds: int, drawn: Draw, variant: str | None, jobs: int) -> int:
    began = time.perf_counter()
    done = grants = 0
    seen: Counter[str] = Counter()
    starts = range(start, start + seeds, CHUNK)
    with ProcessPoolExecutor(jobs, initializer=collect_rarely) as pool:
        for count, granted, failures in pool.map(partial(chunk, seeds=CHUNK, drawn=drawn, variant=variant), starts):
            done += count
            grants += granted
            for seed, invariant, text in failures:
                seen[invariant] += 1
                if not variant and sum(seen.values()) <= 3:
                    print(f"\n{text}", file=sys.stderr)
                elif variant and sum(seen.values()) <= 3:
                    print(f"\nseed {seed}: {text.splitlines()[0]}")
            took = time.perf_counter() - began
            print(f"\r{done} seeds, {grants} grants, {took:.0f} s, violated: {dict(seen)}", end="", flush=True)
    print()
    if variant:
        caught = sum(count for name, count in seen.items() if name in VARIANTS[variant].expected)
        print(f"{variant}: caught in {caught} of {done} runs")
        return 0 if caught else 1
    return 1 if seen else 0


if __name__ == "__main__":
    sys.exit(main())
