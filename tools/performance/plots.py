"""The pictures of the page "Performance", from the records alone."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.records import number
from benchmarks.scenarios import contention, faults, latency, throughput
from benchmarks.subjects import ASYNCIO, EVERYBODY, PROTOCOLS, SOCKETS, THREADS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matplotlib.axes import Axes

    from benchmarks.records import Results

# Text that stays text, and the same bytes for the same records.
mpl.rcParams.update(
    {
        "svg.fonttype": "none",
        "svg.hashsalt": "redlock",
        "font.size": 10,
        "font.family": "sans-serif",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "axes.grid": True,
        "grid.color": "#e4e4e4",
        "axes.edgecolor": "#888888",
    }
)

# Light becomes dark and colours stay what they were: a picture follows the reader's system, also outside of the pages.
_DARK = "@media (prefers-color-scheme: dark) {#figure_1{filter: invert(0.88) hue-rotate(180deg)}}"
_COLOURS = {"ours": "#2a9d5c", "limit": "#8d99ae", "home-made": "#e9a03b", "peer": "#457b9d"}
_WORDS = {"ours": "this library", "limit": "the limits", "home-made": "made at home", "peer": "other quorum libraries"}
_KINDS = {subject.title: subject.kind for subject in EVERYBODY}
_MARKS = "osD^vP*X"
_WIDTH = 7.6  # inches
_NONE = 0.2  # hand-overs a second: where none is on a logarithmic scale


def draw(results: Results, folder: Path, run: str) -> list[str]:
    """The names of the pictures.  One without records is left out; in each stands which ``run`` it shows."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, picture in _PICTURES.items():
        figure = picture(results)
        if figure is not None:
            file = folder / f"{name}.svg"
            figure.savefig(file, metadata={"Date": None, "Creator": None, "Description": run}, bbox_inches="tight")
            drawing = file.read_text(encoding="utf-8")
            file.write_text(drawing.replace("</style>", f"{_DARK}</style>", 1), encoding="utf-8")
            drawn.append(name)
    return drawn


def _axes(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_WIDTH, height), facecolor="white")
    return figure, figure.add_subplot()


def _latency(results: Results) -> Figure | None:
    found = results.of("latency", case=latency.FIVE, measure=latency.TIME, baseline=SOCKETS.title)
    found = sorted((record for record in found if record.value), key=lambda record: -(record.value or 0))
    if not found:
        return None
    figure, axes = _axes(0.34 * len(found) + 1.1)
    for place, record in enumerate(found):
        axes.barh(place, record.value or 0, color=_COLOURS[_KINDS[record.subject]], height=0.7)
        axes.text((record.value or 0) * 1.04, place, f"{number(record.value or 0)} ×", va="center", fontsize=9)
    axes.set_yticks(range(len(found)), [record.subject for record in found])
    axes.set_xscale("log")
    axes.set_xlim(0.25, max(record.value or 0 for record in found) * 1.5)
    _plain_numbers(axes.xaxis, (0.25, 0.5, 1, 2, 5, 10, 20))
    axes.axvline(1, color="#555555", linewidth=1)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("acquire + release on five masters, to bare sockets that wait for a majority")
    _kinds(axes, {_KINDS[record.subject] for record in found})
    return figure


def _sizes(results: Results) -> Figure | None:
    figure, axes = _axes(3.4)
    sizes: list[int] = []
    for subject, limit, style in ((THREADS, SOCKETS, "o-"), (ASYNCIO, PROTOCOLS, "s--")):
        found = results.of("latency", subject=subject.title, measure=latency.TIME, baseline=limit.title)
        points = sorted((int(record.case.split()[0]), record) for record in found)
        if not points:
            return None
        sizes = [masters for masters, _ in points]
        values = [record.value or 0 for _, record in points]
        axes.plot(sizes, values, style, color=_COLOURS["ours"], label=f"{subject.title}, to {limit.title}")
        halves = [record.half or (value, value) for (_, record), value in zip(points, values, strict=True)]
        axes.fill_between(
            sizes,
            [low for low, _ in halves],
            [high for _, high in halves],
            color=_COLOURS["ours"],
            alpha=0.12,
            linewidth=0,
        )
    axes.axhline(1, color="#555555", linewidth=1)
    axes.set_xticks(sizes)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("masters")
    axes.set_ylabel("acquire + release, to the limit")
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    return figure


def _faults(results: Results) -> Figure | None:
    found = results.of("peers and faults")
    if not found:
        return None
    cases = [case for case, *_ in faults.MINORITIES] + [faults.MAJORITY]
    titles = list(dict.fromkeys(record.subject for record in found))[::-1]
    figure, axes = _axes(0.42 * len(titles) + 1.4)
    longest = max([record.value for record in found if record.value] + [1])
    colours = ("#457b9d", "#1d3557", "#e9a03b", "#d1495b")
    for index, case in enumerate(cases):
        for record in found:
            if record.case != case:
                continue
            place = titles.index(record.subject) + (1.5 - index) * 0.18
            axes.plot(
                record.value if record.value is not None else longest * 2,
                place,
                _MARKS[index] if record.value is not None else ">",
                color=colours[index],
                fillstyle="full" if record.value is not None else "none",
                markersize=7,
            )
        axes.plot([], [], _MARKS[index], color=colours[index], label=case)
    axes.plot([], [], ">", color="#555555", fillstyle="none", label="did not return")
    axes.set_yticks(range(len(titles)), titles)
    axes.set_xscale("log")
    _plain_numbers(axes.xaxis, (0.001, 0.01, 0.1, 1, 10))
    axes.set_xlabel("seconds until the first acquire + release, or the refusal, is over")
    axes.legend(
        frameon=False,
        fontsize=9,
        ncols=5,
        loc="lower center",
        bbox_to_anchor=(0.35, 1.0),
        handletextpad=0.2,
        columnspacing=1.0,
    )
    return figure


def _contention(results: Results) -> Figure | None:
    found = results.of("contention", measure=contention.RATE)
    if not found:
        return None
    cases = [case for case, _, _ in contention.CASES]
    titles = list(dict.fromkeys(record.subject for record in found))
    figure, axes = _axes(4.2)
    marks = itertools.cycle(_MARKS)
    for title in titles:
        rates = {record.case: record.value for record in found if record.subject == title}
        axes.plot(
            range(len(cases)),
            [max(_NONE, rates.get(case) or 0) for case in cases],
            next(marks),
            linestyle="-" if _KINDS[title] == "ours" else ":",
            color=_COLOURS[_KINDS[title]],
            label=title,
            markersize=7,
        )
    axes.axvline(2.5, color="#888888", linewidth=0.8)
    axes.set_xticks(range(len(cases)), [case.replace(" in one", "\nin one").replace(" of", "\nof") for case in cases])
    axes.set_yscale("log")
    _plain_numbers(axes.yaxis, (_NONE, 1, 10, 100, 1000))
    axes.set_ylabel("hand-overs per second")
    axes.legend(frameon=False, fontsize=9, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


def _throughput(results: Results) -> Figure | None:
    found = results.of("throughput", measure=throughput.RATE)
    if not found:
        return None
    figure, axes = _axes(4.2)
    marks = itertools.cycle(_MARKS)
    for title in dict.fromkeys(record.subject for record in found):
        points = [(int(record.case.split()[0]), record.value) for record in found if record.subject == title]
        axes.plot(
            *zip(*points, strict=True),
            next(marks),
            linestyle="-" if _KINDS[title] == "ours" else ":",
            color=_COLOURS[_KINDS[title]],
            label=title,
            markersize=7,
        )
    axes.axhline(1, color="#555555", linewidth=1)
    axes.set_xscale("log")
    axes.set_yscale("log")
    _plain_numbers(axes.xaxis, throughput.SIZES)
    _plain_numbers(axes.yaxis, (0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8))
    axes.set_xlabel("threads, or tasks, each on a name of its own")
    axes.set_ylabel("operations per second,\nto bare sockets in one thread")
    axes.legend(frameon=False, fontsize=9, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


def _plain_numbers(axis: Any, ticks: tuple[float, ...]) -> None:
    low, high = axis.get_view_interval()
    axis.set_major_locator(mpl.ticker.FixedLocator([tick for tick in ticks if low / 1.5 <= tick <= high * 1.5]))
    axis.set_major_formatter(mpl.ticker.FuncFormatter(lambda value, _: "none" if value == _NONE else f"{value:g}"))
    axis.set_minor_locator(mpl.ticker.NullLocator())


def _kinds(axes: Axes, kinds: set[str]) -> None:
    for kind, colour in _COLOURS.items():
        if kind in kinds:
            axes.barh(0, 0, color=colour, label=_WORDS[kind])
    axes.legend(frameon=False, fontsize=9, ncols=4, loc="lower center", bbox_to_anchor=(0.4, 1.0))


_PICTURES: dict[str, Callable[[Results], Figure | None]] = {
    "latency": _latency,
    "sizes": _sizes,
    "faults": _faults,
    "contention": _contention,
    "throughput": _throughput,
}
