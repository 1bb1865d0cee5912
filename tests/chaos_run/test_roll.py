"""The nemesis, with masters that take longer to restart than the plan has for it: no server."""

from __future__ import annotations

import itertools
import time
from typing import Any

from chaos.nemesis import Nemesis
from chaos.plan import Strike

BACK_AFTER = 0.15


class Masters:
    """A restart takes a while, as that of a container does."""

    def __init__(self) -> None:
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


class Nobody:
    def check(self):
        """All are there."""


class Notes:
    def __init__(self) -> None:
        self.told: list[tuple[float, str, list[str]]] = []

    def write(self, op, phase, *, target, fault=None, detail=None):
        assert (op, fault) == ("roll", None)
        self.told.append((time.monotonic(), phase, target))


def test_the_next_one_waits_for_the_one_before_however_long_that_takes():
    plan = [
        Strike(fault="roll", at=at, until=at + 0.02, settled=at + 0.07, masters=(master,))
        for at, master in ((0.0, 2), (0.08, 1), (0.16, 3))
    ]
    rig: Any = Masters()
    cast: Any = Nobody()
    notes: Any = Notes()
    Nemesis(rig, cast, notes, lambda line: None).carry_out(plan)
    assert [(phase, *target) for _, phase, target in notes.told] == [
        (phase, f"master-{number}") for number in (2, 1, 3) for phase in ("invoke", "ok")
    ]
    times = [at for at, _, _ in notes.told]
    assert all(one <= two for one, two in itertools.pairwise(times))
    for struck, settled in zip(times[::2], times[1::2], strict=True):
        assert settled - struck > BACK_AFTER + 0.05, "away, and then without a vote"
