"""`live`: after the last heal some client acquires each lock within twice the TTL (C30)."""

from __future__ import annotations

import pytest

from tests.chaos.tape import Tape, told
from tests.owners import proves

pytestmark = proves("C30")


def healed(*acquired, ttl=10):
    """The last fault is healed at 100.3; the lock is acquired at those times."""
    tape = Tape(ttl=ttl).told("50 kill strikes master-1 until 60, 90 halves strikes client-1+master-2 until 100.3")
    for number, t in enumerate(acquired):
        tape.held(t, "client-1", f"{number}", until=t + 1)
    return tape


@pytest.mark.parametrize(("acquired", "holds"), [
    ([105], True), ([100.3], True), ([120.3], True), ([120.300001], False), ([], False), ([70, 100.2], False),
    ([70, 110], True), ([130, 105], True),
])  # fmt: skip
def test_within_twice_the_ttl(acquired, holds):
    assert bool(healed(*acquired).judge("live")) != holds
    assert healed(100.9, ttl=0.3).judge("live") == []  # floating point: 100.3 + 0.6 < 100.9


@pytest.mark.parametrize(("acquired", "holds"), [(125.3, True), (125.31, False)])
def test_what_a_busy_machine_takes_is_given_back(acquired, holds):
    """Once, whichever client it is of; of what was given back as well, and nothing for what it took before or later."""
    tape = healed(acquired)
    for client, t, until in ((1, 99, 101.3), (2, 101, 102.3), (1, 101.5, 102), (3, 121.3, 124.3), (3, 125.3, 130)):
        tape.event(t, "observer", "busy", "info", target=f"client-{client}", detail={"until": until})
    assert bool(tape.judge("live")) != holds


def test_it_names_the_heal_and_who_came_too_late():
    late, never = healed(125), healed()
    assert (late.judge("live"), never.judge("live")) == ([[5, 6]], [[5]])
    assert "'a' was acquired 24.700000 s later; 20 s are allowed" in late.ruling("live").violations[0].sentence
    [violation] = never.ruling("live").violations
    assert ("never again" in violation.sentence, violation.at) == (True, 100.3)  # the recording ends there


def test_each_lock_of_the_header():
    tape = healed(105)
    tape.header["locks"] = ["a", "b", "c"]
    tape.held(106, "client-2", "B", until=107, lock="b")
    assert [violation.lock for violation in tape.ruling("live").violations] == ["c"]


def test_without_a_heal_it_holds_trivially():
    ruling = told("1 A held until 2, 5 kill strikes master-1, 1000 observer looks").ruling(
        "live"
    )  # it never comes back
    assert ruling.outcome == "passed"
    assert ruling.vacuous
    assert ruling.note == "no fault was healed"
    assert not healed(105).ruling("live").vacuous


@pytest.mark.parametrize("phase", ["invoke", "fail", "info"])
def test_only_an_acquire_that_was_won_by_a_client(phase):
    tape = healed().told("105 A resumed until 106, 105 A extended until 106")
    tape.event(105, "client-1", "acquire", phase, lock="a")
    tape.event(105, "observer", "acquire", "ok", lock="a", token="A", valid_until=106)
    assert len(tape.judge("live")) == 1


def test_only_what_the_nemesis_heals():
    tape = healed(105)
    tape.told("200 master-1 has, 200 kill misses master-1")
    tape.event(200, "client-1", "kill", "ok", target="master-1")
    tape.event(200, "nemesis", "kill", "info", target="master-1")
    assert tape.judge("live") == []
