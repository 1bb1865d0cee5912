"""What one acquire takes and a lease keeps, counted: a pair of today takes no more than 2 % above its budget."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys

import pytest

from benchmarks import counts, shape
from benchmarks.counter import HOUSE
from redlock import MultiLock


@pytest.mark.skipif(sys.platform != "linux", reason="the loop has other bytecodes elsewhere")
@pytest.mark.skipif(shape.VERSION not in shape.kept_figures(), reason="each version of Python has bytecodes of its own")
@pytest.mark.timeout(300)  # seconds on a free machine
def test_nothing_is_beyond_its_budget():
    """Without valgrind, which takes minutes."""
    command = [sys.executable, "-m", "benchmarks", "counts"]
    environment = os.environ | {"PATH": ""}
    done = subprocess.run(command, cwd=HOUSE.parent, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    budgets = json.loads(counts.BUDGETS.read_text(encoding="utf-8"))[shape.VERSION]
    missing = {what for what in budgets if f"\n{what} " not in done.stdout}
    assert missing == {*counts.BY_CALLGRIND}


@pytest.mark.parametrize(("figure", "larger"), [(1000, False), (1020, False), (1021, True)])
def test_there_is_room_for_two_hundredths(figure, larger, monkeypatch, tmp_path, capsys):
    budgets = tmp_path / "counts.json"
    monkeypatch.setattr(counts, "BUDGETS", budgets)
    monkeypatch.setattr(counts, "by_callgrind", dict)
    monkeypatch.setattr(counts, "counted", lambda: {"thread": 1000, "new": 5})
    assert counts.main(["--write"]) == 0
    monkeypatch.setattr(counts, "counted", lambda: {"thread": figure, "newer": 7})
    assert counts.main([]) == larger
    assert ("too many: thread" in capsys.readouterr().out) == larger
    assert json.loads(budgets.read_text())[shape.VERSION] == {"thread": 1000, "new": 5}


def test_objects_that_others_keep_for_a_while_are_not_counted(monkeypatch):
    """A thread in the background has some more of them in one run than in another."""
    usual, acquire = counts.kept(), MultiLock.acquire
    others: list[list[object]] = []

    def disturbed(lock):
        if "lock-50" in repr(lock):
            others.extend([] for _ in range(40))
        return acquire(lock)

    monkeypatch.setattr(MultiLock, "acquire", disturbed)
    assert (counts.kept(), len(others)) == (usual, 40)


def test_a_pair_in_a_task_leaves_nothing_to_the_garbage_collector():
    assert asyncio.run(counts.garbage()) == 0


def test_masters_that_do_nothing_grant_and_release():
    counts.play(3)
