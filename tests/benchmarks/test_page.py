"""The page "Performance" says what was measured: it is what its results give, and its pictures are of the same run."""

from __future__ import annotations

import re

import pytest

from benchmarks import page
from benchmarks.peers import ROOT
from benchmarks.records import Results

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def results():
    return Results.read(page.RESULTS)


@pytest.fixture(scope="module")
def written(results, tmp_path_factory):
    folder = tmp_path_factory.mktemp("docs")
    page.write(results, folder)
    return folder


def test_the_page_is_what_the_results_give(written):
    assert (DOCS / "performance.md").read_text(encoding="utf-8") == (written / "performance.md").read_text(encoding="utf-8"), (
        "docs/performance.md is not what benchmarks/results.json and benchmarks/page.md give: run `make bench-page`"
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
        assert page.digest(page.RESULTS) in committed.read_text(encoding="utf-8"), f"{name} shows another run: `make bench-page`"


def test_the_run_was_a_full_one(results):
    """Of all scenarios, and with at least one other library to compare with."""
    assert results.effort == "full"
    scenarios = {record.scenario for record in results.records}
    assert scenarios == {"latency", "faults", "peers and faults", "delays", "contention", "throughput", "held", "memory", "imports"}


def test_what_was_missed_is_on_the_page(results):
    text = (DOCS / "performance.md").read_text(encoding="utf-8")
    section = text[text.index("## What is not good"):]
    for record in results.missed:
        assert f"{record.subject}: " in section
        assert record.shown in section


def test_without_results(tmp_path, capsys):
    assert page.main(["--results", str(tmp_path / "none.json"), "--docs", str(tmp_path)]) == 1
    assert "make bench-full" in capsys.readouterr().err
