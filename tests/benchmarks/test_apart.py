"""Whoever is measured has a processor of its own, where there is one to be had."""

from __future__ import annotations

import os

import pytest

from benchmarks.lab import EFFORTS, Lab
from benchmarks.scenarios import apart
from redlock.testing import LocalMasters

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="nobody can say who runs on which processor")


@pytest.fixture
def lab():
    with LocalMasters(2) as servers:
        yield Lab(servers, EFFORTS["tiny"], peers=False)


@pytest.fixture
def two_processors():
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one processor")


def where(lab: Lab) -> list[set[int]]:
    return [os.sched_getaffinity(pid) for pid in (0, *lab.servers.pids)]


@pytest.mark.usefixtures("two_processors")
def test_the_masters_have_the_others_and_everybody_all_again(lab):
    before = where(lab)
    with pytest.raises(KeyboardInterrupt), lab.apart() as possible:
        assert possible
        own, *masters = where(lab)
        assert len(own) == 1
        assert all(others == before[0] - own for others in masters)
        raise KeyboardInterrupt
    assert where(lab) == before


@pytest.mark.parametrize("missing", [True, False])
def test_left_out_where_it_cannot_be(lab, monkeypatch, capsys, missing):
    before = where(lab)
    if missing:
        monkeypatch.delattr(os, "sched_setaffinity")
    else:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert not list(apart.run(lab))
    monkeypatch.undo()
    assert "left out" in capsys.readouterr().out
    assert where(lab) == before
