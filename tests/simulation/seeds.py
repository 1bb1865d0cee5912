"""Seeds: each long run is made of them.  What plays many on all cores, and what of `_io` and `_lock` they run."""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import coverage

from tests.bench.judge import Violation
from tests.bench.parameters import FAMILIES
from tests.bench.replay import Replay, drawn
from tests.bench.run import Run, report
from tests.bench.variants import VARIANTS, Caught, hunt

if TYPE_CHECKING:
    import argparse

CHUNK = 5
MOST = 200  # seeds for a variant to be caught
SHOWN = 3  # with all that led to it; of the others the seed, and what was violated
# How many seeds, how many grants, and what went wrong: seed, invariant and text.
Played: TypeAlias = "tuple[int, int, list[tuple[int, str, str]]]"
TABLE = Path(__file__).with_name("variants.md")
HEAD = """# The library, broken

Each of these is caught by one scene, or by a seed of the simulation, as the last column but one says; the last one has the seconds
of a processor until then. `python -m tests.simulation --variants` writes this table.

| variant | what it breaks | caught by | s |
|---|---|---|---|
"""


def collect_rarely() -> None:
    """Have the garbage collector look seldom: what a run makes lives until its end, and looking took a sixth of it."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 1_000)


def main(options: argparse.Namespace) -> int:
    if options.variants:
        return _table(options.jobs)
    if options.trace is not None:
        run = _run(options.trace, options.variant, options.family, options.replay)
        try:
            run.play()
        except Violation:  # it is the last line of the trace
            pass
        finally:
            print(run.setting, *run.world.lines(), sep="\n")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        data = str(Path(folder) / "data") if options.coverage else None
        failed = _many(options, data)
        if data is not None:
            _print_coverage(folder, data)
    return failed


def _many(options: argparse.Namespace, data: str | None) -> int:
    """Play all on all cores."""
    began, done, grants = time.perf_counter(), 0, 0
    seen: Counter[str] = Counter()
    play = partial(chunk, options.family, variant=options.variant, data=data, replays=options.replay)
    end = options.start + options.seeds
    pieces = [range(first, min(first + CHUNK, end)) for first in range(options.start, end, CHUNK)]
    with ProcessPoolExecutor(options.jobs, initializer=collect_rarely) as pool:
        for count, granted, failures in pool.map(play, pieces):
            done, grants = done + count, grants + granted
            for seed, invariant, text in failures:
                seen[invariant] += 1
                at_length = sum(seen.values()) <= SHOWN
                if options.variant is None or at_length:
                    short = f"seed {seed}: {text.splitlines()[0]}"
                    print(f"\n{text if at_length and options.variant is None else short}", file=sys.stderr)
            took = time.perf_counter() - began
            print(f"\r{done} seeds, {grants} grants, {took:.0f} s, violated: {dict(seen)}", end="", flush=True)
    print()
    if options.variant is None:
        return 1 if seen else 0
    caught = sum(count for name, count in seen.items() if name in VARIANTS[options.variant].expected)
    print(f"{options.variant}: caught in {caught} of {done} runs")
    return 0 if caught else 1


def _table(jobs: int | None) -> int:
    """The variants, each with what catches it."""
    TABLE.write_text(HEAD, encoding="utf-8")
    missed = 0
    with ProcessPoolExecutor(jobs, initializer=collect_rarely) as pool, TABLE.open("a", encoding="utf-8") as table:
        for name, caught in zip(VARIANTS, pool.map(_hunt, VARIANTS), strict=True):
            by, seconds = ("nothing", "") if caught is None else (caught.by, f"{caught.seconds:.1f}")
            missed += caught is None
            print(f"| `{name}` | {VARIANTS[name].what} | {by} | {seconds} |", flush=True, file=table)
            print(f"{name}: {by}", flush=True)
    return 1 if missed else 0


def _hunt(name: str) -> Caught | None:
    return hunt(VARIANTS[name], MOST)


def _run(seed: int, variant: str | None, family: str, replays: bool) -> Run:
    if replays:
        return Replay(drawn(seed))
    if variant is None:
        return Run(FAMILIES[family](seed))
    broken = VARIANTS[variant]
    if broken.setting is None:
        raise SystemExit(f"{variant} is caught by {broken.scene}: pytest tests/scenes")
    return Run(broken.setting(seed), broken.patches)


def chunk(
    family: str, seeds: range, *, variant: str | None = None, data: str | None = None, replays: bool = False
) -> Played:
    measured = coverage.Coverage(data, data_suffix=True, branch=True, concurrency="greenlet", source_pkgs=["redlock._io", "redlock._lock"]) if data else None  # fmt: skip
    if measured is not None:
        measured.start()
    grants, failures = 0, []
    for seed in seeds:
        run = _run(seed, variant, family, replays)
        try:
            run.play()
        except Exception as error:  # noqa: BLE001 - a long run goes on and tells in the end
            invariant, text = type(error).__name__, repr(error)
            if isinstance(error, Violation):
                invariant, text = error.invariant, str(error)
            failures.append((seed, invariant, f"{text}\n{report(run, family)}"))
        grants += run.judge.grants
    if measured is not None:
        measured.stop()
        measured.save()
    return len(seeds), grants, failures


def _print_coverage(folder: str, data: str) -> None:
    found = coverage.Coverage(data, branch=True)
    found.combine([folder])
    found.report(include=["*/redlock/_io/*", "*/redlock/_lock/*"], show_missing=True, skip_empty=True)
