"""The process that is measured has a processor of its own, where there is one to be had."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.lab import EFFORTS, Lab
from benchmarks.scenarios import apart

MASTERS = (11, 12)


class Processors(dict[int, set[int]]):
    """Which process may run on which processor, by its number; 0 is the one that asks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, everywhere: set[int]) -> None:
        super().__init__(dict.fromkeys((0, *MASTERS), everywhere))
        monkeypatch.setattr(os, "sched_getaffinity", self.__getitem__, raising=False)
        monkeypatch.setattr(os, "sched_setaffinity", self.__setitem__, raising=False)


@pytest.fixture
def lab():
    servers: Any = SimpleNamespace(pids=list(MASTERS), reset=lambda: None)
    return Lab(servers, EFFORTS["tiny"], peers=False)


def test_the_masters_have_the_others_and_everybody_all_again(lab, monkeypatch):
    processors = Processors(monkeypatch, {2, 3, 5})
    with pytest.raises(KeyboardInterrupt), lab.apart() as possible:
        assert possible
        assert processors == {0: {2}, 11: {3, 5}, 12: {3, 5}}
        raise KeyboardInterrupt
    assert processors == {0: {2, 3, 5}, 11: {2, 3, 5}, 12: {2, 3, 5}}


def test_left_out_where_there_is_one_processor(lab, monkeypatch, capsys):
    processors = Processors(monkeypatch, {0})
    assert not list(apart.run(lab))
    assert "left out" in capsys.readouterr().out
    assert processors == {0: {0}, 11: {0}, 12: {0}}


def test_left_out_where_nobody_can_say_who_runs_where(lab, monkeypatch, capsys):
    Processors(monkeypatch, {0, 1})
    monkeypatch.delattr(os, "sched_setaffinity")
    monkeypatch.delattr(os, "sched_getaffinity")
    assert not list(apart.run(lab))
    assert "left out" in capsys.readouterr().out
