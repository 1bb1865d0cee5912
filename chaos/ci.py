"""``redlock-chaos ci``: every scenario and every broken variant, several at a time, in a few minutes."""

from __future__ import annotations

import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final

from redlock.testing import ClockUnavailable, ServerNotFound

from . import NAME
from .backends import BACKENDS, Unavailable, choose
from .faults import unknown
from .judge import steps
from .launch import PASSED, UNKNOWN, VIOLATED, SessionFailed, judged, session
from .report import directory
from .run import check, introduce, lacks, seconds, without_database
from .scenarios import SCENARIOS, Scenario
from .variants import VARIANTS, Variant

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection, Iterable

    from .backends import Backend
    from .launch import Judged
    from .settings import Settings

_SEED: Final = 7
# The seed decides what is done, not who wins a race: what must break has that many seeds to do so, one after the
# other: the one that shows least often does so in about half of its runs.  As many again follow when all other runs have
# ended, because a machine that is short of processors leaves too few holds to show anything.  What must hold has one.
_TRIES: Final = 8
# Broken variants that take a step which this rule forbids, before anybody is harmed or without.
_FORBIDDEN: Final = {
    "minority": "R1",
    "fence-by-maximum": "R1",
    "resurrecting-extension": "R12",
    "slots-counted": "R6",
    "slots-no-owner-check": "R6",
    "records-every-list": "R34",
}
_AT_ONCE: Final = 2 * (os.cpu_count() or 2)  # a run waits for more than half of its time


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Every scenario: those in the model must keep all promises, the others must show what breaks; and "
        "every broken variant of the lock, which must be caught.  No step may be one that the specification forbids.  Fixed seeds, and one run with a random one, which is "
        "printed.  Exit 0: all as it must be; 1: something was violated, or not caught; 2: unknown."
    )
    parser.add_argument(
        "--backend", choices=("auto", *BACKENDS), default="auto", help="auto takes the first that works here"
    )
    parser.add_argument(
        "--out", type=directory, metavar="DIR", default="chaos-out", help="a folder for each run (chaos-out)"
    )
    parser.add_argument("--seed", type=int, help=f"of all runs, instead of {_SEED} and a random one for the last")
    parser.add_argument("--jobs", type=int, metavar="N", help="runs at a time (two per core)")
    parser.add_argument(
        "--only", metavar="LIST", help="comma-separated names of scenarios, and of variants as variant-NAME"
    )
    parser.add_argument(
        "--complete", action="store_true", help="fail if something cannot be done here, instead of leaving it out"
    )
    parser.add_argument(
        "--longer",
        type=float,
        default=1.0,
        metavar="FACTOR",
        help="make the faults of every run go on for that many times as long",
    )


@dataclass(frozen=True, slots=True)
class Job:
    """One run, and what is expected of it."""

    name: str
    scenario: Scenario
    settings: Settings
    variant: Variant | None = None

    @property
    def tries(self) -> int:
        return 1 if self.variant is None and self.scenario.shows is None else _TRIES

    def again(self, number: int) -> Job:
        """The same with another seed."""
        return replace(self, settings=replace(self.settings, seed=self.settings.seed + number))

    def as_expected(self, found: Judged) -> bool:
        if self.variant is None:
            return found.ending == "passed"
        return found.verdict[self.variant.breaks].count > 0


def main(args: argparse.Namespace) -> int:
    at_once = _AT_ONCE if args.jobs is None else args.jobs
    if at_once < 1 or args.longer <= 0:
        print(f"{NAME}: --jobs must be at least 1, and --longer more than 0", file=sys.stderr)
        return UNKNOWN
    out = Path(args.out)
    try:
        backend = choose(args.backend)
        wanted = _chosen(_jobs(args.seed, args.longer), args.only)
        jobs, left_out = _possible(wanted, lacks(backend))
        for job in jobs:
            check(job.settings, backend)
    except (ValueError, Unavailable, ServerNotFound, ClockUnavailable) as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return UNKNOWN
    print(introduce(backend))
    for what in left_out:
        print(f"left out: {what}")
    if left_out and args.complete:
        print(f"{NAME}: --complete, and something cannot be done here", file=sys.stderr)
        return UNKNOWN
    least = sum(seconds(job.settings) for job in jobs) / at_once
    print(
        f"{len(jobs)} runs, {at_once} at a time, in some {max(least, 1):.0f} s or more; histories and timelines in {out}/\n",
        flush=True,
    )
    began = time.monotonic()
    try:
        results = _carry_out(jobs, backend, out, at_once)
    except KeyboardInterrupt:
        print("\ninterrupted; nothing is left running", file=sys.stderr)
        return UNKNOWN
    codes = [code for _, code, _ in results]
    # Once more, because a log is read from its end.
    print("", *(_shown(*one) for one in results if one[1] != PASSED), sep="\n")
    print(f"{codes.count(PASSED)} of {len(codes)} as they must be, after {time.monotonic() - began:.0f} s")
    return VIOLATED if VIOLATED in codes else max(codes, default=UNKNOWN)


def _carry_out(jobs: list[Job], backend: Backend, out: Path, at_once: int) -> list[tuple[Job, int, str]]:
    """Each with its exit code and its line, which is shown when it has ended."""
    results: list[tuple[Job, int, str]] = []
    interrupted = Event()
    with ThreadPoolExecutor(at_once) as pool:
        running = {pool.submit(_do, job, backend, out / job.name, interrupted): job for job in jobs}
        try:
            for done in as_completed(running):
                results.append((running[done], *done.result()))
                print(_shown(*results[-1]), flush=True)
            for number, (job, code, _) in enumerate(results):
                if job.tries > 1 and code != PASSED and not _broke_a_promise(job, code):
                    print(f"once more, with nothing beside it: {job.name}", flush=True)
                    again = pool.submit(_do, job.again(_TRIES), backend, out / job.name, interrupted)
                    results[number] = (job, *again.result())
                    print(_shown(*results[number]), flush=True)
        except BaseException:
            interrupted.set()
            pool.shutdown(cancel_futures=True)
            raise
    return results


_WORDS: Final = {PASSED: "ok", VIOLATED: "WRONG", UNKNOWN: "UNKNOWN"}


def _shown(job: Job, code: int, line: str) -> str:
    return f"{_WORDS[code]:9} {job.name:32} {line}"


def _jobs(seed: int | None, longer: float) -> list[Job]:
    """The longest first: then nobody waits for it at the end."""
    fixed = _SEED if seed is None else seed
    jobs = [Job(scenario.name, scenario, scenario.with_seed(fixed)) for scenario in SCENARIOS.values()]
    for variant in VARIANTS.values():
        scenario = SCENARIOS[variant.scenario]
        jobs.append(Job(f"variant-{variant.name}", scenario, scenario.with_seed(fixed, variant=variant.name), variant))
    if seed is None:
        drawn = random.SystemRandom().randrange(10**6)
        scenario = SCENARIOS["everything"]
        jobs.append(Job(f"everything-seed-{drawn}", scenario, scenario.with_seed(drawn)))
    jobs = [replace(job, settings=replace(job.settings, duration=job.settings.duration * longer)) for job in jobs]
    return sorted(jobs, key=lambda job: -job.settings.duration)


def _chosen(jobs: list[Job], only: str | None) -> list[Job]:
    """Those that ``only`` names; all of them without it.  Raises `ValueError` for a name that is none."""
    if only is None:
        return jobs
    named = {job.name: job for job in jobs}
    names = dict.fromkeys(name.strip() for name in only.split(","))
    for name in names:
        if name not in named:
            raise ValueError(f"--only: {unknown('run', name, named)}")
    return [job for job in jobs if job.name in names]


def _possible(jobs: Iterable[Job], missing: Collection[str]) -> tuple[list[Job], list[str]]:
    """Those that can be done here without the faults that are ``missing``, and what is left out."""
    possible, left_out = [], []
    for job in jobs:
        why = without_database(job.settings)
        if why is not None:
            left_out.append(f"{job.name}: {why}")
            continue
        faults = tuple(fault for fault in job.settings.faults if fault not in missing)
        if faults or not job.settings.faults:
            possible.append(replace(job, settings=replace(job.settings, faults=faults)))
            left_out += [f"{fault} in {job.name}" for fault in job.settings.faults if fault not in faults]
        else:
            left_out.append(job.name)
    return possible, left_out


def _do(job: Job, backend: Backend, out: Path, interrupted: Event) -> tuple[int, str]:
    """Its exit code, and a line for people."""
    code, line = UNKNOWN, "interrupted"
    for number in range(job.tries):
        if interrupted.is_set():
            break
        code, line = _try(job.again(number), backend, out, interrupted)
        if code == PASSED or _broke_a_promise(job, code):
            break
    return code, line


def _broke_a_promise(job: Job, code: int) -> bool:
    """Beyond the model, where some promises hold all the same."""
    return job.variant is None and code == VIOLATED


def _try(job: Job, backend: Backend, out: Path, interrupted: Event) -> tuple[int, str]:
    out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        said = stack.enter_context((out / "said.log").open("w"))
        running = stack.enter_context(session(job.settings, backend, out, job.scenario.must, said))
        while running.poll() is None:
            if interrupted.wait(0.1):
                return UNKNOWN, "interrupted"
    try:
        found = judged(running, out, job.scenario.must, None if job.variant else job.scenario.shows)
    except SessionFailed as error:
        return UNKNOWN, f"{error}, see {out / 'said.log'}"
    line = _line(job, found)
    wrong = min(steps(found.history).found, key=lambda one: one.at, default=None)
    if wrong is not None:
        line += f"; not allowed by the specification: line {wrong.events[0].line}, {wrong.sentence}"
    rule = _FORBIDDEN.get(job.variant.name) if job.variant else None
    if (job.variant is None and wrong) or (rule and not (wrong and wrong.sentence.startswith(f"{rule}:"))):
        return VIOLATED, line
    if job.as_expected(found):
        return PASSED, line
    return (UNKNOWN if found.ending in ("unknown", "proves nothing") and job.variant is None else VIOLATED), line


def _line(job: Job, found: Judged) -> str:
    summary = found.summary
    figures = (
        f"seed {job.settings.seed}: {sum(of.holds for of in summary.locks)} holds, "
        f"{sum(summary.faults.values())} faults, {sum(summary.lost.values())} told of a loss"
    )
    if job.variant is not None:
        times = found.verdict[job.variant.breaks].count
        caught = f"caught: {job.variant.breaks} {times} times" if times else f"NOT caught: {job.variant.breaks} holds"
        return f"{figures}; {caught}"
    broken = [
        ruling.violations[0].sentence
        for ruling in found.verdict.rulings
        if ruling.violations and ruling.name in found.verdict.must
    ]
    return "; ".join(filter(None, (figures, found.note, *broken)))
