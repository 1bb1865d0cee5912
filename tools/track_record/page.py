"""docs/track-record.md, from what runs and people have recorded."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tools.track_record.runs import Line

HERE: Final = Path(__file__).parent
PAGE: Final = HERE.parents[1] / "docs" / "track-record.md"
DEFECTS: Final = HERE / "defects.toml"
RELEASES: Final = ("0.1.0",)
_COUNTED: Final = {"simulation": ("seeds", "grants", "seconds"), "chaos": ("runs", "holds", "faults", "seconds")}


def write(runs: Sequence[Line], page: Path = PAGE) -> None:
    page.write_text(text(runs), encoding="utf-8")


def defects() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads(DEFECTS.read_text(encoding="utf-8"))["defect"]
    return found


def text(runs: Sequence[Line]) -> str:
    known = defects()
    found = Counter(one["found"] for one in known)
    template = Template((HERE / "page.md.in").read_text(encoding="utf-8"))
    return template.substitute(
        first=min((line["date"] for line in runs), default="the first record"),
        totals="\n".join(_totals(runs)),
        judges="\n".join(_judges([line for line in runs if line["what"] == "judges"]))
        or "They have not been asked yet.",
        runs="\n".join(_by_commit([line for line in runs if line["what"] in _COUNTED]))
        or "No run has been recorded yet.",
        counts=f"{len(known)} defects. By whom: {', '.join(f'{who} {number}' for who, number in found.most_common())}.",
        held="\n".join(_defects(one for one in known if one["kind"] == "held" and one["since"] in RELEASES)),
    )


def _totals(runs: Sequence[Line]) -> Iterator[str]:
    simulation, chaos = _sum(runs, "simulation"), _sum(runs, "chaos")
    shipped = _sum([line for line in runs if line.get("family", "").startswith("shipped")], "simulation")
    yield (
        f"In all: {simulation['seeds']:,.0f} schedules of the simulation with {simulation['grants']:,.0f} grants, in "
        f"{simulation['seconds']:,.0f} s, of these {shipped['seeds']:,.0f} with the client as it ships; {chaos['holds']:,.0f} holds and {chaos['faults']:,.0f} faults on real servers, in "
        f"{chaos['seconds']:,.0f} s. Violated: {sum(len(line['violated']) for line in runs)}."
    )


def _sum(lines: Iterable[Line], what: str) -> dict[str, float]:
    mine = [line for line in lines if line["what"] == what]
    return {name: sum(line[name] for line in mine) for name in _COUNTED[what]}


def _by_commit(runs: Sequence[Line]) -> Iterator[str]:
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in runs:
        groups.setdefault((line["date"], line["commit"]), []).append(line)
    if groups:
        yield "| Date | Commit | Schedules | Grants | Seconds | Chaos runs | Holds | Faults | Seconds | Violated |"
        yield "|---|---|---|---|---|---|---|---|---|---|"
    for (date, commit), lines in groups.items():
        figures = [figure for what in _COUNTED for figure in _sum(lines, what).values()]
        shown = " | ".join(f"{figure:,.0f}" if figure else "–" for figure in figures)
        violated = "; ".join(f"`{one}`" for line in lines for one in line["violated"])
        if violated:
            yield f"| {date} | `{commit}` | {shown} | {violated} |"


def _judges(lines: Sequence[Line]) -> Iterator[str]:
    if lines:
        yield "| Date | Commit | Of the | Histories | Locks | Held by two: first judge | second | Porcupine, of registers | They differ on |"
        yield "|---|---|---|---|---|---|---|---|---|"
    for line in lines:
        figures = (f"{line[name]:,}" for name in ("histories", "locks", "first", "second"))
        asked = f"{line['porcupine']:,} of {line['registers']:,}" if line["registers"] else "–"
        differ = "; ".join(f"`{name}`" for name in line["differ"]) or "none"
        yield f"| {line['date']} | `{line['commit']}` | {line['of']} | {' | '.join(figures)} | {asked} | {differ} |"


def _defects(found: Iterable[dict[str, Any]]) -> Iterator[str]:
    yield "| Rule | What | Since | Mended |"
    yield "|---|---|---|---|"
    for one in found:
        yield f"| {one['rule']} | {one['what']} | {one['since']} | `{one['commit']}` |"
