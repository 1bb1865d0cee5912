"""Runs that write down themselves how much they tried, on which commit, and what was violated.

A line is for one family of the simulation, or for one suite of the chaos harness. What no run has written is not there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from chaos import history
from chaos.judge import steps
from chaos.session import HISTORY
from redlock import __version__
from tests.bench.parameters import FAMILIES
from tests.simulation.seeds import chunk, collect_rarely

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT: Final = Path(__file__).parents[2]
FILE: Final = Path(__file__).parent / "runs.jsonl"
# What is tried: changes of it that are in no commit could not be checked by anybody.
TRIED: Final = ("redlock", "chaos", "tests/bench", "tests/simulation")
STEPS: Final = "steps"
SHIPPED: Final = "shipped"
# What was recorded before by other names was the decisions alone, without the client around them.
ALL: Final = (SHIPPED, *(f"{SHIPPED} {name}" for name in FAMILIES if name != SHIPPED))
# The first seed of the record: those below were tried before there was one, by nobody knows which version.
FIRST: Final = 10_000_000
_CHUNK: Final = 20

Line: TypeAlias = "dict[str, Any]"


class NotRecorded(Exception):  # noqa: N818 - named for what is so
    """There is no line, and why."""


class Source(NamedTuple):
    """What was run."""

    date: str
    commit: str
    version: str


def source() -> Source:
    """Raises `NotRecorded` if it is in no commit."""

    def git(*words: str) -> str:
        try:
            done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S607
        except FileNotFoundError:
            raise NotRecorded("there is no git, so nobody knows which commit this is") from None
        if done.returncode:
            raise NotRecorded(f"git {words[0]} says: {done.stderr.strip()}; a record names the commit that was tried")
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--", *TRIED)
    if changed:
        raise NotRecorded(
            f"in no commit: {', '.join(changed.split()[1::2])}. Commit it, so that others can run the same"
        )
    return Source(time.strftime("%Y-%m-%d", time.gmtime()), git("rev-parse", "--short=10", "HEAD"), __version__)


def read(file: Path) -> list[Line]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def add(file: Path, line: Line) -> None:
    with file.open("a", encoding="utf-8") as opened:
        opened.write(json.dumps(line) + "\n")


def told(line: Line) -> str:
    """For who watches."""
    found = f"VIOLATED: {'; '.join(line['violated'])}" if line["violated"] else "nothing violated"
    if line["what"] == "simulation":
        seeds = f"seeds {line['first']} to {line['first'] + line['seeds'] - 1}"
        return f"{line['family'] or 'locks'}: {seeds}, {line['grants']} grants, {line['seconds']} s; {found}"
    if line["what"] == "judges":
        reds = f"held by two: {line['first']}, {line['second']} and {line['porcupine']} of {line['registers']}"
        return f"{line['histories']} histories of the {line['of']}, {line['locks']} locks, {reds}; differ: {line['differ'] or 'never'}"
    return (
        f"{line['runs']} runs, {line['holds']} holds, {line['faults']} faults, {line['seconds']} s of faults; {found}"
    )


# -- the simulation ----------------------------------------------------------------------------------


def following(known: Sequence[Line], family: str) -> int:
    """The first seed that no line of this family has."""
    ends = [
        line["first"] + line["seeds"] for line in known if line["what"] == "simulation" and line["family"] == family
    ]
    return max(ends, default=FIRST)


def simulated(
    known: Sequence[Line], seeds: int, jobs: int | None, source: Source, families: Sequence[str] = ALL
) -> Iterator[Line]:
    with ProcessPoolExecutor(jobs or os.cpu_count(), initializer=collect_rarely) as pool:
        for family in families:
            first, began = following(known, family), time.monotonic()
            play = partial(plays, family.removeprefix(SHIPPED).strip() or SHIPPED)
            parts = [(start, min(_CHUNK, first + seeds - start)) for start in range(first, first + seeds, _CHUNK)]
            grants, violated = 0, []
            for granted, wrong in pool.map(play, parts):
                grants += granted
                violated += wrong
            yield {
                "what": "simulation", **source._asdict(), "family": family, "first": first, "seeds": seeds, "grants": grants,
                "seconds": round(time.monotonic() - began, 1), "violated": violated,
            }  # fmt: skip


def plays(family: str, part: tuple[int, int]) -> tuple[int, list[str]]:
    """Of so many seeds: grants, and what was violated, each with the command that shows it."""
    _, grants, failures = chunk(family, range(part[0], sum(part)))
    return grants, [
        f"{invariant}: python -m tests.simulation --family {family} --trace {seed}" for seed, invariant, _ in failures
    ]


# -- the chaos harness -------------------------------------------------------------------------------


def under_chaos(options: Sequence[str], source: Source, out: Path | None = None) -> Iterator[Line]:
    """One line, of `python -m chaos ci` with these options, which leaves its histories in the new folder ``out``.

    Counted is what was tried in runs that must keep all promises: neither a lock that is broken on purpose, nor what is beyond the
    model. Seconds are those of the histories.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = out or Path(folder, "out")
        done = subprocess.run([sys.executable, "-m", "chaos", "ci", "--out", str(out), *options], cwd=ROOT, check=False)
        verdicts = [with_steps(file.parent) for file in sorted(out.glob("*/verdict.json"))]
        if not verdicts:
            raise NotRecorded(f"the suite left no verdict, and ended with {done.returncode}")
        yield counted(verdicts, options, source)


def with_steps(run: Path) -> dict[str, Any]:
    """The verdict on a run, and how many locks took a step that the specification forbids."""
    verdict: dict[str, Any] = json.loads((run / "verdict.json").read_text(encoding="utf-8"))
    verdict["summary"]["violations"][STEPS] = len(steps(history.read(run / HISTORY)).found)
    return verdict


def counted(verdicts: Sequence[dict[str, Any]], options: Sequence[str], source: Source) -> Line:
    held = [one for one in verdicts if not one["history"].get("variant") and "exclusive" in one["history"]["must"]]
    violated = [
        f"{name}: seed {one['history']['seed']} with {', '.join(one['history'].get('faults', ())) or 'no fault'}"
        for one in held for name in (*one["history"]["must"], STEPS) if one["summary"]["violations"].get(name)
    ]  # fmt: skip
    return {
        "what": "chaos", **source._asdict(), "options": list(options), "runs": len(held),
        "holds": sum(lock["holds"] for one in held for lock in one["summary"]["locks"]),
        "faults": sum(sum(one["summary"]["faults"].values()) for one in held),
        "seconds": round(sum(one["summary"]["seconds"] for one in held), 1),
        "caught": sorted({one["history"]["variant"] for one in verdicts if one["history"].get("variant") and _caught(one)}),
        "violated": violated,
    }  # fmt: skip


def _caught(verdict: dict[str, Any]) -> bool:
    return any(verdict["summary"]["violations"].get(name) for name in verdict["history"]["breaks"])
