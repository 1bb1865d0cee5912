"""What is made of samples, and what the files keep of them."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks.records import Record, Results, markdown, ratio
from benchmarks.scenarios.contention import Hold, handovers, jain
from benchmarks.scenarios.slots import most_at_once


def record(**given):
    return dataclasses.replace(Record("s", "c", "who", "m", "ms", 1.0), **given)


@pytest.mark.parametrize(("value", "bar", "at_most", "ok"), [
    (1.2, 1.2, True, True), (1.21, 1.2, True, False), (1.2, 1.2, False, True), (1.19, 1.2, False, False),
    (None, 1.2, True, False), (None, 1.2, False, False), (99.0, None, True, None), (0.0, 0.0, True, True),
])  # fmt: skip
def test_a_bar(value, bar, at_most, ok):
    assert record(value=value, bar=bar, at_most=at_most).ok is ok


def test_a_ratio_is_the_median_of_the_ratios_of_neighbours():
    """Not the ratio of medians: what disturbs both of a pair is in neither."""
    found = ratio("s", "c", "who", "m", [(2e-6, 1e-6), (30e-6, 10e-6), (2.1e-6, 1e-6)], baseline="limit", bar=2.0)
    assert found.value == pytest.approx(2.1)
    assert found.samples == pytest.approx([2, 3, 2.1])
    assert found.typical == pytest.approx(2.1)
    assert (found.typical_unit, found.baseline) == ("µs", "limit")
    assert found.ok is False


def test_a_neighbour_that_did_nothing_is_none():
    """As may happen in a tenth of a second on a busy machine."""
    assert ratio("s", "c", "who", "m", [(20.0, 0.0), (30.0, 10.0)], baseline="limit").value == 3.0
    nobody = ratio("s", "c", "who", "m", [(20.0, 0.0)], baseline="limit")
    assert (nobody.value, nobody.note) == (None, "limit did nothing in its time")


def results():
    return Results(
        "full", "2026-01-02", {"processors": "2"}, {"Python": "3.11"}, 12.5, {"aioredlock": "it does not start"},
        [record(samples=[1.0, 2.0], bar=0.5), record(value=None, note="did not return within 3 s", case="")],
    )  # fmt: skip


def test_written_and_read_again(tmp_path):
    results().write(tmp_path / "new" / "results.json")
    assert Results.read(tmp_path / "new" / "results.json") == results()


def test_of_another_version(tmp_path):
    (tmp_path / "results.json").write_text('{"schema": 0}')
    with pytest.raises(SystemExit, match="measure again"):
        Results.read(tmp_path / "results.json")


def test_as_markdown():
    text = markdown(results())
    assert "- left out: aioredlock, because it does not start" in text
    cells = ("| c: m | who | 1 ms |", "≤ 0.50 **missed** |", "(did not return within 3 s)")
    assert [part for part in ("1 bars missed", *cells) if part not in text] == []


def test_only_what_another_contender_gets_is_a_hand_over():
    a, b = (0, 0), (1, 0)
    holds = [Hold(0.0, 1.0, a), Hold(1.5, 2.0, a), Hold(2.25, 3.0, b), Hold(3.5, 4.0, a)]
    assert handovers(holds) == pytest.approx([0.25, 0.5])
    # A tiny run on a busy machine may see no hold.
    assert [most_at_once(of) for of in ([], holds, [*holds, Hold(2.5, 3.75, b)])] == [0, 1, 2]


def test_jains_index():
    """Of four contenders: all alike, and one that gets everything."""
    alike = [Hold(0.0, 0.0, (process, number)) for process in (0, 1) for number in (0, 1)]
    assert (jain(alike * 3, 2, 2), jain(alike[:1] * 9, 2, 2), jain([], 2, 2)) == (1.0, 0.25, 0.0)
