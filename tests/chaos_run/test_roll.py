"""The nemesis: masters that take longer to restart than the plan has for it, and what it writes down. No server."""

from __future__ import annotations

import itertools
import json
import time
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from chaos import growth
from chaos.history import NEMESIS, Writer
from chaos.nemesis import Nemesis
from chaos.plan import Strike
from redlock.testing import LocalMasters

BACK_AFTER = 0.15


class Masters:
    """A restart takes a while, as that of a container does."""

    def __init__(self):
        self.away: set[int] = set()

    def each(self, masters, do):
        for master in masters:
            do(master)

    def kill(self, master):
        assert not self.away, "one is away already"
        self.away.add(master)

    def restart(self, master, *, keep_data):
        assert not keep_data
        time.sleep(BACK_AFTER)
        self.away.remove(master)


def test_the_next_one_waits_for_the_one_before_however_long_that_takes():
    plan = [
        Strike(fault="roll", at=at, until=at + 0.02, settled=at + 0.07, masters=(master,))
        for at, master in ((0.0, 2), (0.08, 1), (0.16, 3))
    ]
    times, told = list[float](), list[Any]()

    def write(op, phase, *, target, fault=None, detail=None):
        assert (op, fault) == ("roll", None)
        times.append(time.monotonic())
        told.append((phase, *target))

    rig: Any = Masters()
    notes: Any = SimpleNamespace(write=write)
    Nemesis(rig, mock.Mock(), notes, lambda line: None).carry_out(plan)
    assert told == [(phase, f"master-{number}") for number in (2, 1, 3) for phase in ("invoke", "ok")]
    assert all(one <= two for one, two in itertools.pairwise(times))
    for struck, settled in zip(times[::2], times[1::2], strict=True):
        assert settled - struck > BACK_AFTER + 0.05, "away, and then without a vote"


def seats():
    """Clients that are killed and replaced in no time."""
    return mock.Mock(now_on=lambda seat: SimpleNamespace(name=f"client-{seat}"))


def test_what_kills_a_client_is_told_by_the_name_of_the_fault(tmp_path):
    """`kill` is what it does; as a fault, `kill` is for masters."""
    with Writer(tmp_path / "nemesis", NEMESIS) as record:
        cast = seats()
        rig: Any = Masters()
        strikes = [
            Strike(fault=fault, at=0.0, until=0.0, settled=0.0, clients=(seat,), uses=(1,) if fault == "move" else ())
            for seat, fault in enumerate(("crash", "move"), start=1)
        ]
        Nemesis(rig, cast, record, lambda line: None).carry_out(strikes[:1])
        Nemesis(rig, cast, record, lambda line: None).carry_out(strikes[1:])
    told = [json.loads(line) for line in (tmp_path / "nemesis").read_text().splitlines()]
    struck = [(one["op"], one["fault"], one["target"]) for one in told if one["phase"] == "invoke"]
    assert struck == [("kill", "crash", ["client-1"]), ("kill", "move", ["client-2"])]


def test_one_more_comes_when_it_may_and_not_before(monkeypatch, tmp_path):
    """Asked once for each list: the second half of the clients gets the same one."""
    asked: list[Any] = []

    def may_begin(_urls, used, uses, _max_ttl):
        asked.append((used, uses))
        return len(asked) > 1

    monkeypatch.setattr(growth, "may_begin", may_begin)
    rig: Any = SimpleNamespace(urls=lambda _: [], settings=SimpleNamespace(first_list=(1,), longest_ttl=1.0))
    cast = seats()
    strikes = [
        Strike(fault="grow", at=at, until=at, settled=at, clients=(seat,), uses=(1, 2))
        for seat, at in ((1, 0), (2, 0.1))
    ]
    with Writer(tmp_path / "nemesis", NEMESIS) as record:
        Nemesis(rig, cast, record, lambda line: None).carry_out(strikes)
    assert asked == [((1,), (1, 2))] * 2, "nobody overtakes who waits"
    told = [json.loads(line) for line in (tmp_path / "nemesis").read_text().splitlines()]
    assert [one["target"] for one in told if one["phase"] == "invoke"] == [["client-1"], ["client-2"]]


def test_a_step_that_redlock_check_does_not_name_is_refused():
    with LocalMasters(3, persistence="always") as servers:
        assert growth.may_begin(servers.urls, (1,), (1, 2), 1.2)
        with pytest.raises(growth.StepRefused, match="Step 1 of 2: add master-2"):
            growth.may_begin(servers.urls, (1,), (1, 2, 3), 1.2)
