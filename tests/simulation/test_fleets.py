"""Fleets change their masters while clients run (R34): P1 and P2 hold, and each broken variant is caught."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any
from unittest import mock

import pytest

from redlock import scripts
from redlock._core import wire
from redlock._core.fleet import Fleet, compatible
from redlock._core.quorum import majority
from redlock._core.voters import Voters
from tests.simulation.fleets import FleetRun, settings
from tests.simulation.invariants import AGREEMENT, P1, Violation
from tests.simulation.master import ENGINE, REPLACED, Keyspace

SEEDS, CHUNK = 60, 20  # python -m tests.simulation --fleets plays more
FOUND = (7, 16, 17, 18, 27, 31, 47)  # of `EARLY`: two lists were in use for long after that
EARLY = {"refuses": True, "apart": True, "hangs": True, "early": True, "duration": 30.0, "errands": 0}


@pytest.mark.parametrize("start", range(0, SEEDS, CHUNK))
def test_promises_hold_over_whole_sequences_of_changes(start):
    """With clients that are late, crash, close, come back with a list of before, and stand still."""
    runs = [FleetRun(settings(seed)).play() for seed in range(start, start + CHUNK)]
    assert sum(run.steps for run in runs) > CHUNK
    assert sum(run.refused for run in runs) > CHUNK, "nobody ever had to give way"
    assert sum(run.grants for run in runs) > 10 * CHUNK


@pytest.mark.parametrize("seed", FOUND)
def test_seeds_that_once_had_two_lists_in_use(seed):
    FleetRun(settings(seed, **EARLY)).play()


def compatible_is(text):
    before = "return majority(#ARGV - 5) + majority(size) > all"
    assert before in scripts.FLEET.text
    return mock.patch.dict(REPLACED, {"fleet": scripts.FLEET.text.replace(before, text)})


def begins_but_once():
    begin = Fleet._begin

    def broken(self, at, *, has):
        if self._works and not self.rejected:
            return
        begin(self, at, has=has)

    return mock.patch.object(Fleet, "_begin", broken)


def forgets_with_the_master():
    answered = Fleet.answered

    def broken(self, master, *args):
        before = self._answers[master]
        if before is not None:
            before.others.clear()
        answered(self, master, *args)

    return mock.patch.object(Fleet, "answered", broken)


def new_ones_do_not_count():
    outnumbered = Fleet._outnumbered

    def broken(self, at):
        told = [
            one and one._replace(others={n: o for n, o in one.others.items() if o.mark == "2"}) for one in self._answers
        ]
        with mock.patch.object(self, "_answers", told):
            return outnumbered(self, at)

    return mock.patch.object(Fleet, "_outnumbered", broken)


VARIANTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "two addresses at once": (mock.patch.dict(REPLACED), {"refuses": False, "at_once": 2}),
    "a step that does not wait for the old list to be gone": (
        mock.patch.dict(REPLACED), {"refuses": False, "waits": False}
    ),
    "a newcomer that is recorded although it is incompatible": (compatible_is("return true"), {"refuses": True}),
    "the check with >= in place of >": (
        compatible_is("return majority(#ARGV - 5) + majority(size) >= all"), {"refuses": True}
    ),
    "a newcomer that begins with the first majority": (
        mock.patch.object(Fleet, "_silent", return_value=False), {"refuses": True, "size": 3, "apart": True, "errands": 1}
    ),
    "a client that was forgotten goes on with the first majority": (begins_but_once(),
 {"refuses": True, "size": 3, "apart": True, "clients": 2, "errands": 1, "stops": True}),
    "what its master has forgotten is not in use": (forgets_with_the_master(), {"refuses": True, "size": 3, "apart": True, "forgets": True, "clients": 2, "errands": 0}),
    "two that work both stay": (mock.patch.object(Fleet, "_outnumbered", return_value=False), EARLY | {"size": 3}),
    "a client whose master has recorded others that may not work yet goes on": (new_ones_do_not_count(), EARLY | {"size": 3}),
    "a client that stood still trusts what it knew": (
        mock.patch.object(Voters, "known_until", property(lambda _: math.inf, lambda _, __: None), create=True),
        {"refuses": True, "size": 3, "clients": 2, "errands": 1, "apart": True, "stops": True},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_is_caught(name):
    broken, fixed = VARIANTS[name]
    with broken:
        for seed in range(20 * SEEDS):
            run = FleetRun(settings(seed, **fixed))
            try:
                run.play()
            except Violation as violation:
                if violation.invariant == (AGREEMENT if run.settings.hangs else P1):
                    return
    pytest.fail(f"{name} was not caught")


def test_what_is_not_found():
    """Two fleets without a master in common see nothing of each other: P1 does not rest on the check."""
    with pytest.raises(Violation, match="other-"):
        for seed in range(SEEDS):
            FleetRun(settings(seed, refuses=True, blind=True, clients=2)).play()


@pytest.mark.parametrize("size", range(1, 10))
def test_lists_are_compatible_if_and_only_if_their_majorities_meet(size):
    """Over every list that shares some of the masters and has others, of every size up to nine."""
    one = frozenset(f"m{number}" for number in range(size))
    for shared in range(size + 1):
        for others in range(10 - shared):
            if not shared + others:
                continue
            other = frozenset([f"m{number}" for number in range(shared)] + [f"n{number}" for number in range(others)])
            # The least that two majorities can share: each takes what the other lacks first.
            left = (
                max(0, majority(len(one)) - (len(one) - shared)),
                max(0, majority(len(other)) - (len(other) - shared)),
            )
            meet = left[0] + left[1] > shared
            assert compatible(one, other) == compatible(other, one) == meet, (one, other)


@pytest.mark.parametrize("size", range(1, 10))
def test_one_step_is_compatible_and_what_two_steps_make_is_found(size):
    now = frozenset(f"m{number}" for number in range(size))
    more = now | {"new"}
    assert compatible(now, more)
    assert all(compatible(more, more - {gone}) for gone in more)
    if size % 2:  # replacing one
        assert not any(compatible(now, more - {gone}) for gone in now)


def test_the_script_says_the_same_as_the_core():
    """Of all lists out of six masters."""
    every = [
        tuple(f"m{number}" for number in numbers) for size in range(1, 6) for numbers in combinations(range(6), size)
    ]
    for one, other in combinations(every, 2):
        server = Keyspace()
        server.now_ms = 1_700_000_000_000
        answers = []
        for who, names in (("a", one), ("b", other)):
            call = wire.fleet("p:", names, who, "new", 8.0)
            answers.append(
                wire.read_fleet(ENGINE.run("fleet", call.script.text, server, list(call.keys), list(call.args)))
            )
        recorded = compatible(frozenset(one), frozenset(other))
        assert answers[0] == wire.Lists(1)
        others = () if recorded else (wire.OtherList("1", 8.0, frozenset(one)),)
        assert answers[1] == wire.Lists(int(recorded), others), (one, other)


def test_the_script_says_who_takes_an_expiry_in_another_way():
    """R35: of clients that work, or only warn, for as long as they count.  Who gives way does not count."""
    server = Keyspace()
    server.now_ms = 1_700_000_000_000

    def told(who: str, way: wire.Way, says: wire.Says = "settled", names: str = "abc") -> float:
        call = wire.fleet("p:", names, who, says, 8.0, way)
        return wire.read_fleet(ENGINE.run("fleet", call.script.text, server, list(call.keys), list(call.args))).differs

    assert told("one", "trusted") == 0.0
    server.now_ms += 3_000
    assert told("two", "confirmed") == 5.0
    assert told("one", "trusted", "left") == 8.0
    server.now_ms += 3_000
    assert told("two", "confirmed") == 2.0, "nobody has said it again"
    server.now_ms += 3_000
    assert told("two", "confirmed") == 0.0
    assert told("three", "trusted", names="xyz") == 8.0
    assert told("two", "confirmed") == 0.0, "three gives way"
    assert told("~four", "trusted", names="xyz") == 8.0
    assert told("two", "confirmed") == 8.0
