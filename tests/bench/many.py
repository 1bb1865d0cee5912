"""``python -m tests.simulation``: many seeds, on all cores, and what of `_io` and `_lock` they run."""

from __future__ import annotations

import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import coverage

from tests.bench.parameters import FAMILIES
from tests.bench.replay import Replay, drawn
from tests.bench.run import Run, report
from tests.bench.variants import VARIANTS, Caught, hunt
from tests.simulation.seeds import Played, chunks, collect_rarely, many, played, trace

if TYPE_CHECKING:
    import argparse

CHUNK = 5
MOST = 200  # seeds for a variant to be caught
TABLE = Path(__file__).with_name("variants.md")
HEAD = """# The library, broken

Each of these is caught by one scene, or by a seed of the simulation, as the last column but one says; the last one has the seconds
of a processor until then. `python -m tests.simulation --variants` writes this table.

| variant | what it breaks | caught by | s |
|---|---|---|---|
"""


def main(options: argparse.Namespace) -> int:
    if options.variants:
        return _table(options.jobs)
    variant = VARIANTS[options.variant] if options.variant else None
    if options.trace is not None:
        run = _run(options.trace, options.variant, options.family, options.replay)
        return trace(run, run.setting)
    with tempfile.TemporaryDirectory() as folder:
        data = str(Path(folder) / "data") if options.coverage else None
        play = partial(chunk, options.family, variant=options.variant, data=data, replays=options.replay)
        pieces = chunks(options.start, options.seeds, CHUNK)
        failed = many(play, pieces, options.jobs, options.variant, variant and variant.expected)
        if data is not None:
            _print_coverage(folder, data)
    return failed


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
    runs = ((seed, _run(seed, variant, family, replays)) for seed in seeds)
    found = played(runs, partial(report, family=family))
    if measured is not None:
        measured.stop()
        measured.save()
    return found


def _print_coverage(folder: str, data: str) -> None:
    found = coverage.Coverage(data, branch=True)
    found.combine([folder])
    found.report(include=["*/redlock/_io/*", "*/redlock/_lock/*"], show_missing=True, skip_empty=True)
