"""What an acquire costs in functions and bytecodes, and how large the house is: none of it grows unnoticed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks import shape
from benchmarks.counter import HOUSE, Counter

FIGURES = dict.fromkeys([*shape.LINES, "bare thread calls", "bare task calls"], 100)


@pytest.mark.skipif(sys.platform != "linux", reason="the loop has other bytecodes elsewhere")
@pytest.mark.skipif(shape.VERSION not in shape.kept_figures(), reason="each version of Python has bytecodes of its own")
@pytest.mark.timeout(300)  # seconds on a free machine
def test_nothing_has_grown():
    command = [sys.executable, "-m", "benchmarks", "shape"]
    done = subprocess.run(command, cwd=HOUSE.parent, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(title in done.stdout for title, _ in shape.LINES.values())


@pytest.mark.parametrize(("key", "now", "code"), [("thread", 105, 0), ("thread", 106, 1), ("lines", 106, 1)])
def test_growth_is_said_until_it_is_kept(key, now, code, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(shape, "KEPT", tmp_path / "shape.json")
    monkeypatch.setattr(shape, "measured", lambda: FIGURES)
    assert shape.main(["--write"]) == 0
    monkeypatch.setattr(shape, "measured", lambda: FIGURES | {key: now})
    capsys.readouterr()
    assert shape.main([]) == code
    said = capsys.readouterr().out
    assert ("--write" in said) == bool(code)
    assert (f"{shape.LINES[key][0]}: {now}" in said) == bool(code)
    assert shape.main(["--write"]) == 0
    assert shape.main([]) == 0


@pytest.mark.parametrize(("key", "bar"), [("thread", 2400), ("task calls", 100), ("reaches", 15)])
def test_a_missed_bar_is_said(key, bar):
    def missed(now):
        lines = shape.table(FIGURES | {key: now}, {})
        return any(line.startswith(shape.LINES[key][0]) and line.endswith("missed") for line in lines)

    assert missed(bar + 1)
    assert not missed(bar)


def test_calls_are_those_of_two_rounds():
    rounds, sends, answers, polls = 2, 5, 5, 1
    assert shape.on_bare_sockets()["bare thread calls"] == rounds * (sends + answers + polls)


def test_bytecodes_are_counted_one_by_one():
    def counted(times: int) -> int:
        counter = Counter()
        with counter.counting():
            repeat(times)
        return counter.bytecodes

    assert counted(30) - counted(20) == counted(20) - counted(10) >= 10


def repeat(times: int) -> None:
    for _ in range(times):
        pass


def test_a_reader_comes_back_to_the_caller():
    caller, first, second, beside = ("_threads/a.py", 1), ("_core/a.py", 1), ("_core/a.py", 9), ("_threads/b.py", 1)
    counter = Counter()
    counter.entered = {caller: None, first: caller, second: caller, beside: caller}
    assert counter.walk() == {"functions": 4, "files": 3, "changes": 4}
