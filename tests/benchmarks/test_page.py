"""The pages on performance say what was measured: they are what its results give, and their pictures are of the same run."""

from __future__ import annotations

import re

import pytest

from benchmarks.peers import ROOT
from benchmarks.records import Results
from benchmarks.subjects import OURS, PEERS
from tools.performance import page

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def results():
    return Results.read(page.RESULTS)


@pytest.fixture(scope="module")
def written(results, tmp_path_factory):
    folder = tmp_path_factory.mktemp("docs")
    page.write(results, folder)
    return folder


@pytest.mark.parametrize("name", page.PAGES)
def test_a_page_is_what_the_results_give(written, name):
    assert (DOCS / name).read_text(encoding="utf-8") == (written / name).read_text(encoding="utf-8"), (
        f"docs/{name} is not what benchmarks/results.json and tools/performance/{page.PAGES[name]} give: run `make bench-page`"
    )


def words(picture):
    """All that is written in it; lines and colours are another version of matplotlib's business."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", picture.read_text(encoding="utf-8"))


def test_the_pictures_are_of_this_run(written):
    made = {file.name for file in (written / page.PICTURES).iterdir()}
    assert made == {file.name for file in (DOCS / page.PICTURES).iterdir()}
    for name in made:
        committed = DOCS / page.PICTURES / name
        assert words(committed) == words(written / page.PICTURES / name)
        assert page.digest(page.RESULTS) in committed.read_text(encoding="utf-8"), (
            f"{name} shows another run: `make bench-page`"
        )


def test_pictures_are_no_white_boxes_in_the_dark():
    """Timelines have the colours of the theme; a picture in a file follows the system of its reader."""
    for picture in (DOCS / "_static").rglob("*.svg"):
        assert "prefers-color-scheme: dark" in picture.read_text(encoding="utf-8"), picture.name


def test_the_run_was_a_full_one(results):
    """Of all scenarios, and with at least one other library to compare with."""
    assert results.effort == "full"
    assert len(results.left_out) < len(PEERS)
    scenarios = {record.scenario for record in results.records}
    files = {file.stem for file in (ROOT / "benchmarks" / "scenarios").glob("*.py")}
    assert scenarios - {"peers and faults"} == files


T, A = (subject.title for subject in OURS)
PROMISED = {
    ("latency", "5 masters", "acquire + release"): {T: 1.2, A: 1.25},
    **{("latency", f"{n} master{'' if n == 1 else 's'}", "acquire + release"): {T: 1.32, A: 1.375} for n in (1, 3, 7, 9)},
    ("latency", "5 masters", "processor time"): {T: 1.4, A: 1.4},
    ("faults", "one frozen", "acquire + release"): {T: 1.1, A: 1.1},
    ("faults", "three frozen", "fails after"): {T: 260, A: 260},
    ("faults", "three frozen", "keys left behind"): {T: 0, A: 0},
    ("delays", "one behind 50 ms", "acquire + release"): {T: 1.1, A: 1.1},
    ("delays", "all behind 5 ms", "acquire, beyond one round trip"): {T: 1, A: 1},
    ("contention", "10 in one process", "hand-overs"): {T: 0.65, A: 0.65},
    ("contention", "50 in one process", "hand-overs"): {T: 0.6, A: 0.6},
    ("contention", "4 processes of 12", "hand-overs"): {T: 0.3, A: 0.3},
    ("contention", "4 processes of 12", "longest gap"): {T: 200, A: 200},
    ("contention", "4 processes of 12", "luckiest to unluckiest"): {T: 5, A: 5},
    ("contention", "4 processes of 12", "scripts run on a master, for each hold"): {T: 10, A: 10},
    ("contention", "4 processes of 12, fair=True", "hand-overs"): {T: 0.5, A: 0.5},
    ("contention", "4 processes of 12, fair=True", "Jain's index"): {T: 0.99, A: 0.99},
    ("contention", "2 processes take turns", "hand-over"): {T: 2, A: 2},
    ("throughput", "64 at once", "operations per second"): {T: 1, A: 2},
    **{("held", case, measure): {T: bar, A: bar}
       for case in ("1,000 leases, TTL 3 s", "10,000 leases, TTL 30 s")
       for measure, bar in (("of a core", 3), ("lost", 0), ("threads that hold them", 1))},
    ("memory", "a lease and its lock", "of 10,000, each"): {T: 4, A: 4},
    ("imports", "", "from redlock import Masters, after that"): {"redlock-quorum": 30},
    **{("slots", f"{n} processes on {n} free slots", "rounds, 99th percentile"): {T: 2, A: 2} for n in (2, 3, 5, 8)},
    ("slots", "4 processes of 12 on 3 slots", "holds per second"): {T: 1, A: 1},
    ("single", "1 master, threads", "acquire + release"): {T: 1.1},
    ("single", "1 master, asyncio", "acquire + release"): {A: 1.1},
}  # fmt: skip
AT_LEAST = {"hand-overs", "operations per second", "holds per second", "Jain's index"}


def test_nothing_that_was_promised_is_left_out_or_made_easier(results):
    found: dict[tuple[str, str, str], dict[str, float]] = {}
    for record in results.records:
        if record.bar is not None:
            found.setdefault((record.scenario, record.case, record.measure), {})[record.subject] = record.bar
            assert record.at_most is (record.measure not in AT_LEAST)
    assert found == {what: pytest.approx(bars, rel=1e-3) for what, bars in PROMISED.items()}


def test_what_was_missed_is_on_the_page(results):
    text = (DOCS / "performance-limits.md").read_text(encoding="utf-8")
    section = text[text.index("## What was missed") : text.index("## Alone")]
    for record in results.missed:
        assert f"{record.subject}: " in section
        assert record.shown in section
