"""The documentation's two pages on performance, with their pictures, from results that were measured.

python -m tools.performance.page [--results FILE] [--docs FOLDER]
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Final

from benchmarks.lab import EFFORTS
from benchmarks.peers import ROOT
from benchmarks.records import Record, Results, number
from benchmarks.scenarios import contention, delays, faults, held, latency, masters, throughput
from benchmarks.subjects import OURS, PEERS, SINGLE, SOCKETS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

HERE: Final = Path(__file__).parent
RESULTS: Final = ROOT / "benchmarks" / "results.json"
PICTURES: Final = Path("_static") / "performance"
# Each page, and what it is made from.
PAGES: Final = {"performance.md": "page.md.in", "performance-limits.md": "limits.md.in"}

_NOT_MEASURED: Final = "not measured"
# A large deployment: how much memory to plan for.
_LEASES: Final = 100_000
# Bare loops and what one could write by hand are for developers.
_FOR_USERS: Final = {subject.title for subject in (*OURS, SOCKETS, SINGLE, *PEERS)}

# What each picture shows, for those who do not see it.
_SHOWN = {
    "latency": "Bars: what acquire and release take, to bare sockets, for everybody",
    "sizes": "Lines: what acquire and release take, to the limit, from one to nine masters",
    "faults": "Marks: seconds until everybody returns, with one, two or three masters frozen and one that refuses",
    "contention": "Lines: hand-overs per second of everybody, from two contenders to fifty, in one process and in four",
    "throughput": "Lines: operations per second, to bare sockets, with one, eight and sixty-four at once",
}

_REMARKS = """\
- **Python costs more than the network here.** On loopback a round trip takes less than the interpreter needs for counting
  votes, so the ratios above are the worst case.
- **Threads share one interpreter.** With many threads the operations per second are those of one processor."""


def digest(file: Path) -> str:
    """Which run it was."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def write(results: Results, docs: Path, run: str = "") -> None:
    from tools.performance import plots  # noqa: PLC0415 - it needs matplotlib, which takes long to import

    drawn = plots.draw(results, docs / PICTURES, run)
    found = parts(results, drawn)
    for name, source in PAGES.items():
        template = Template((HERE / source).read_text(encoding="utf-8"))
        (docs / name).write_text(template.substitute(found), encoding="utf-8")


def parts(results: Results, drawn: Sequence[str]) -> dict[str, str]:
    """What stands in the pages, by its name there."""

    def picture(name: str) -> str:
        return f"![{_SHOWN[name]}]({(PICTURES / name).as_posix()}.svg)" if name in drawn else ""

    alone = results.of("latency", case=latency.FIVE)
    return {
        "about": _about(results),
        "day_table": _day(results),
        "many": f"{EFFORTS[results.effort].many:,}",
        "bars": _bars(results),
        "latency_picture": picture("latency"),
        "latency_table": _alone(
            [one for one in alone if one.subject not in _FOR_USERS or one.subject in (THREADS_TITLE, ASYNCIO_TITLE)]
        ),
        "peers_table": _alone([one for one in alone if one.subject in _FOR_USERS]),
        "sizes_picture": picture("sizes"),
        "patience": f"{EFFORTS[results.effort].patience:g} s",
        "peers_faults_picture": picture("faults"),
        "peers_faults_table": _outcomes(results.of("peers and faults")),
        "delays_table": _wide_cases(
            results.of("delays"),
            {
                (delays.ONE, delays.AFTERWARDS): "one behind 50 ms, to all near",
                (delays.ALL, delays.EXTRA): "all behind 5 ms: an acquire, beyond one round trip",
            },
        ),
        "contention_picture": picture("contention"),
        "contention_table": _contention(results),
        "throughput_picture": picture("throughput"),
        "held_table": _by_subject(results.of("held")),
        "shared_table": _wide(results.of("leaders"), (THREADS_TITLE, ASYNCIO_TITLE)),
        "added_table": _added([one for name in ("confirmed", "readers", "transactions") for one in results.of(name)]),
        "masters_table": _by_subject(results.of("masters")),
        "missed": _missed(results),
        "beaten": _beaten(results),
        "remarks": _REMARKS,
    }


THREADS_TITLE, ASYNCIO_TITLE = (subject.title for subject in OURS)


def _about(results: Results) -> str:
    versions = ", ".join(f"{name} {version.removeprefix('v')}" for name, version in results.versions.items())
    machine = "; ".join(f"{name}: {text}" for name, text in results.machine.items())
    text = f"Measured on {results.when}, effort *{results.effort}*, in {results.seconds:.0f} s. {machine}. {versions}."
    left_out = "".join(f"\n- {subject} is left out: {why}." for subject, why in results.left_out.items())
    return text + ("\n" + left_out if left_out else "")


def _day(results: Results) -> str:
    """What a user asks first."""

    def shown(scenario: str, case: str, measure: str, subject: str, baseline: str | None = None) -> Record | None:
        found = results.of(scenario, case=case, measure=measure)
        mine = [one for one in found if one.subject == subject and baseline in (None, one.baseline)]
        return mine[0] if mine and mine[0].value is not None else None

    def time(subject: str) -> str:
        found = shown("latency", latency.FIVE, latency.TIME, subject, SOCKETS.title)
        return f"{number(found.typical or 0)} {found.typical_unit}, {found.shown}" if found else _NOT_MEASURED

    def plain(*what: str) -> str:
        found = shown(*what)
        return found.shown if found else _NOT_MEASURED

    def in_total(found: Record | None) -> str:
        return f"{number((found.value or 0) * _LEASES / 1024)} MB" if found else _NOT_MEASURED

    ours = (THREADS_TITLE, ASYNCIO_TITLE)
    many = f"of {EFFORTS[results.effort].many:,}, each"
    pairs = plain("masters", "one at a time", masters.PAIRS, masters.SUBJECT)
    imported = plain("imports", "", "from redlock import Masters, after that", ours[0].partition(",")[0])
    on_masters = in_total(shown("masters", masters.WEIGHT, many, masters.SUBJECT))
    rows = [
        ["acquire and release a free name; to bare sockets", *map(time, ours)],
        ["the same by redis-py's `Lock`, with one master", time(SINGLE.title), ""],
        ["hand-overs among ten in one process that each hold for 1 ms",
         *(plain("contention", "10 in one process", contention.RATE, one) for one in ours)],
        ["one master is frozen: acquire and release, to before",
         *(plain("faults", "one frozen", "acquire + release", one) for one in ours)],
        ["three of five are frozen: an acquire says so after",
         *(plain("faults", "three frozen", "fails after", one) for one in ours)],
        ["locks in a second that one master can take", pairs, pairs],
        [f"memory of {_LEASES:,} held leases in the program",
         *(in_total(shown("memory", "a lease and its lock", many, one)) for one in ours)],
        ["and on each master", on_masters, on_masters],
        ["`from redlock import Masters`, with redis-py imported", imported, imported],
    ]  # fmt: skip
    return _table(["", "threads", "asyncio"], rows)


def _bars(results: Results) -> str:
    """One row for each promise; of several numbers of masters the worst."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in results.records:
        if record.bar is not None:
            case = record.case
            if record.scenario == "latency":
                case = case if case == latency.FIVE else "1, 3, 7 and 9 masters, the worst"
            groups.setdefault((record.scenario, case, record.measure), []).append(record)
    rows = []
    for (_, case, measure), records in groups.items():
        about = f"{case}: {measure}" if case else measure
        baseline = {record.baseline for record in records if record.baseline}
        if baseline:
            about += f", to {baseline.pop() if len(baseline) == 1 else 'the limit of each'}"
        row = [about]
        for title in (THREADS_TITLE, ASYNCIO_TITLE):
            mine = [record for record in records if record.subject == title]
            if not mine and title == THREADS_TITLE:
                mine = [record for record in records if record.subject not in (THREADS_TITLE, ASYNCIO_TITLE)]
            row.append(_judged(max(mine, key=_worse)) if mine else "")
        bars = list(dict.fromkeys(record.limit for record in records))
        rows.append([*row, " or ".join(bars)])
    return _table(["", "threads", "asyncio", "promised"], rows)


def _worse(record: Record) -> float:
    if record.value is None:
        return float("inf")
    return record.value if record.at_most else -record.value


def _judged(record: Record) -> str:
    return f"{record.shown}" if record.ok else f"**{record.shown}**, missed"


def _alone(records: Sequence[Record]) -> str:
    times = {
        record.subject: record
        for record in records
        if record.measure == latency.TIME and record.baseline == SOCKETS.title
    }
    cpu = {
        record.subject: record
        for record in records
        if record.measure == latency.CPU and record.baseline == SOCKETS.title
    }
    rows = []
    for title in sorted(times, key=lambda title: times[title].value or 0):
        record = times[title]
        rows.append([title, record.shown, f"{number(record.typical or 0)} {record.typical_unit}", cpu[title].shown])
    heads = ["", "time, to bare sockets", "median", "processor time, to theirs"]
    return _table(heads, rows)


def _wide(records: Sequence[Record], titles: tuple[str, ...]) -> str:
    """A row for each case and measure, a column for each subject."""
    rows = []
    for case, measure, baseline in dict.fromkeys((record.case, record.measure, record.baseline) for record in records):
        row = [f"{case}: {measure}" + (f", to {baseline}" if baseline else "")]
        for title in titles:
            mine = [one for one in records if (one.case, one.measure, one.subject) == (case, measure, title)]
            row.append(mine[0].shown if mine else "")
        rows.append(row)
    return _table(["", *(title.partition(", ")[2] for title in titles)], rows)


def _wide_cases(records: Sequence[Record], columns: dict[tuple[str, str], str]) -> str:
    """A row for each subject, a column for each case."""
    rows = []
    for title in dict.fromkeys(record.subject for record in records):
        row = [title]
        for case, measure in columns:
            mine = [one for one in records if (one.subject, one.case, one.measure) == (title, case, measure)]
            own = f" ({number(mine[0].typical)} {mine[0].typical_unit})" if mine and mine[0].typical is not None else ""
            row.append(mine[0].shown + own if mine else "")
        rows.append(row)
    return _table(["", *columns.values()], rows)


def _outcomes(records: Sequence[Record]) -> str:
    cases = [case for case, *_ in faults.MINORITIES] + [faults.MAJORITY]
    rows = []
    for title in dict.fromkeys(record.subject for record in records):
        row = [title]
        for case in cases:
            mine = [one for one in records if (one.subject, one.case) == (title, case)]
            row.append(_outcome(mine[0]) if mine else "")
        rows.append(row)
    return _table(["", *cases], rows)


def _outcome(record: Record) -> str:
    if record.value is None:
        return "never"
    took = _seconds(record.value)
    keys = record.note.partition(faults.KEYS_ON)[2]
    return (took if record.note.startswith(faults.ACQUIRED) else f"no, {took}") + (f", keys on {keys}" if keys else "")


def _seconds(value: float) -> str:
    return f"{number(value)} s" if value >= 1 else f"{number(value * 1000)} ms"


def _contention(results: Results) -> str:
    found = results.of("contention")
    others = [
        record
        for record in found
        if record.measure not in (contention.RATE, contention.JAIN)
        and record.case.startswith(("4 processes of 12", "a raw"))
    ]
    index = [record for record in found if record.measure == contention.JAIN and record.value is not None]
    shares = _table(
        ["", "index"],
        [
            [f"{one.subject}: {one.case}", f"{one.value:.3f}"]
            for one in sorted(index, key=lambda one: -(one.value or 0))
        ],
    )
    return (
        "How equal the shares of the 48 in four processes are, by Jain's index: 1 if "
        f"all get the same, 1/48 if one gets everything:\n\n{shares}\n\n"
        f"Of this library:\n\n{_wide(others, (THREADS_TITLE, ASYNCIO_TITLE))}"
    )


def _by_subject(records: Sequence[Record]) -> str:
    titles = tuple(dict.fromkeys(record.subject for record in records))
    rows = []
    for case, measure in dict.fromkeys((record.case, record.measure) for record in records):
        row = [f"{case}: {measure}"]
        for title in titles:
            mine = [one for one in records if (one.case, one.measure, one.subject) == (case, measure, title)]
            row.append((mine[0].shown if mine[0].value is not None else mine[0].note) if mine else "")
        rows.append(row)
    return _table(["", *titles], rows)


def _added(records: Sequence[Record]) -> str:
    """What one thing costs beside another: each record names both."""
    rows = [
        [f"{one.subject}, {one.case}: {one.measure}", f"{one.shown}" + (f", to {one.baseline}" if one.baseline else "")]
        for one in records
    ]
    return _table(["", ""], rows)


def _missed(results: Results) -> str:
    if not results.missed:
        return "All that was promised above was kept in this run."
    lines = []
    for record in results.missed:
        about = f"{record.case}: {record.measure}" if record.case else record.measure
        lines.append(f"- {record.subject}: {about}: {record.shown}")
    return "\n".join(lines)


# What others are measured in as well, and whether less is better.
_COMPARED = (
    ("latency", latency.TIME, True),
    ("latency", latency.CPU, True),
    ("delays", delays.EXTRA, True),
    ("contention", contention.RATE, False),
    ("throughput", throughput.RATE, False),
    ("held", held.LOAD, True),
)


def _beaten(results: Results) -> str:
    """Where another library is better than this one, in threads or on asyncio, whichever of the two is better."""
    lines = []
    for scenario, measure, less in _COMPARED:
        found = [one for one in results.of(scenario, measure=measure) if one.baseline in ("", SOCKETS.title)]
        for case in dict.fromkeys(one.case for one in found):
            figures = {one.subject: one for one in found if one.case == case and one.value is not None}
            mine = [figures[subject.title] for subject in OURS if subject.title in figures]
            best = min(mine, key=lambda one: _better(one, less=less), default=None)
            lines += [
                f"- {peer.title}: {case}: {measure} is {figures[peer.title].shown}, here {best.shown}"
                for peer in PEERS
                if best and peer.title in figures and _better(figures[peer.title], less=less) < _better(best, less=less)
            ]
    if not lines:
        return "In nothing that was measured another quorum library was better than the better of threads and asyncio."
    return "Where another quorum library was better than the better of threads and asyncio:\n\n" + "\n".join(lines)


def _better(record: Record, *, less: bool) -> float:
    value = record.value or 0.0
    return value if less else -value


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    found = [list(row) for row in rows]
    if not found:
        return f"*{_NOT_MEASURED.capitalize()} in this run.*"
    line: Callable[[Sequence[str]], str] = lambda cells: f"| {' | '.join(cells)} |"  # noqa: E731
    return "\n".join([line(heads), line(["---"] * len(heads)), *map(line, found)]).replace(" ×", "\u00a0×")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.performance.page",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="what was measured (default %(default)s)")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="where to write it (default %(default)s)")
    options = parser.parse_args(arguments)
    try:
        write(Results.read(options.results), options.docs, digest(options.results))
    except FileNotFoundError:
        print(f"{options.results} is not there: `make bench-full` writes it", file=sys.stderr)
        return 1
    print("written:", ", ".join(str(options.docs / name) for name in PAGES))
    return 0


if __name__ == "__main__":
    sys.exit(main())
