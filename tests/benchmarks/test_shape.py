"""What an acquire costs in functions and files, and how large the house is: none of it grows beyond its budget."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from benchmarks import shape
from benchmarks.counter import HOUSE, Counter

# Each figure is what its budget allows.
FIGURES = {key: budget.most if budget else 100 for key, (_, budget) in shape.LINES.items()}


@pytest.mark.skipif(sys.platform != "linux", reason="the loop has other bytecodes elsewhere")
@pytest.mark.skipif(shape.VERSION not in shape.kept_figures(), reason="each version of Python has bytecodes of its own")
@pytest.mark.timeout(300)  # seconds on a free machine
def test_nothing_is_beyond_its_budget():
    command = [sys.executable, "-m", "benchmarks", "shape"]
    done = subprocess.run(command, cwd=HOUSE.parent, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(title in done.stdout for title, _ in shape.LINES.values())


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Call it with what is to be measured."""
    monkeypatch.setattr(shape, "KEPT", tmp_path / "shape.json")
    return lambda figures: monkeypatch.setattr(shape, "measured", lambda: figures)


BUDGETS = {key: budget for key, (_, budget) in shape.LINES.items() if budget}


@pytest.mark.parametrize("key", BUDGETS)
def test_a_figure_above_its_budget_and_room_fails_and_cannot_be_written_away(key, measured, capsys):
    measured(FIGURES)
    assert shape.main(["--write"]) == 0
    too_many = FIGURES[key] + BUDGETS[key].room + 1
    measured(FIGURES | {key: too_many})
    capsys.readouterr()
    for arguments in ([], ["--write"], []):
        assert shape.main(arguments) == 1
        said = capsys.readouterr().out
        assert "Too large." in said
        assert "Warning" not in said
        assert f"{shape.LINES[key][0]}: {too_many:,}; the budget is {FIGURES[key]:,}" in said


@pytest.mark.parametrize(("more", "warned"), [(0, False), (1, True), (200, True)])
def test_lines_within_the_room_are_a_warning_and_bytecodes_bind_nothing(more, warned, measured, capsys):
    measured(FIGURES | {"lines": FIGURES["lines"] + more, "thread": 12_345})
    assert shape.main([]) == 0
    said = capsys.readouterr().out
    assert (f"{FIGURES['lines'] + more:,}; the budget is {FIGURES['lines']:,}, with room for 200" in said) == warned
    assert ("Warning" in said) == warned
    assert re.search(rf"^{shape.LINES['thread'][0]} +12,345$", said, re.MULTILINE)


def test_calls_are_those_of_two_rounds():
    rounds, sends, answers, polls = 2, 5, 5, 1
    assert shape.on_bare_sockets()["bare thread calls"] == rounds * (sends + answers + polls)


def test_bytecodes_are_counted_one_by_one():
    def counted(times):
        counter = Counter()
        with counter.counting():
            repeat(times)
        return counter.bytecodes

    assert counted(30) - counted(20) == counted(20) - counted(10) >= 10


def repeat(times):
    for _ in range(times):
        pass


def test_a_reader_comes_back_to_the_caller():
    caller, first, second, beside = ("_io/a.py", 1), ("_core/a.py", 1), ("_core/a.py", 9), ("_io/b.py", 1)
    counter = Counter()
    counter.entered = {caller: None, first: caller, second: caller, beside: caller}
    assert counter.walk() == {"functions": 4, "files": 3, "changes": 4}
