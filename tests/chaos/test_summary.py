"""Figures of a history."""

from __future__ import annotations

import pytest

from chaos.report import text
from chaos.summary import OfLock, OfStore, summarize
from tests.chaos.tape import Tape, told


def summary(tape):
    return summarize(tape.history(), tape.verdict())


def test_operations():
    found = summary(
        told("1 A held until 11 asked 0, 2 B is-refused, 3 kill strikes master-1 until 4, 4 C asks, 5 master-1 has")
    )
    assert found.operations == {"acquire": {"invoke": 2, "ok": 1, "fail": 1, "info": 0, "unasked": 1, "unended": 1}}
    assert (found.events, found.seconds) == (7, 5)


def test_figures_that_look_wrong_are_explained():
    """More extensions were won than invoked, and more seconds were held than the run had: readers."""
    tape = told("0 A held until 10 asked 0 as shared, 0 B held until 10 asked 0 as shared")
    tape.told("1 A extended until 11, 2 A extended until 12, 3 A extended until 13")  # by the library
    tape.told("4 B extends, 5 flap strikes x until 6, 7 A wrote fence 2")
    tape.lost(11, "client-1", "A", "max_hold")
    verdict = tape.verdict()
    shown = text(tape.history(), verdict, summarize(tape.history(), verdict))
    for line in (
        "12 events in 11.000 s, 2 clients, 5 masters, TTL 10 s, seed 7",
        "max_hold      1",
        "plain         1        0      0  not recorded",
        "operation  invoke  ok  fail  info  unasked  unended",
        "acquire         2   2     0     0        0        0",
        "extend          1   3     0     0        3        1",
        "  held s: more than there were, as holds at the same time are added up",
        "  flap: each time that links go counts",
    ):
        assert line in shown.splitlines(), shown
    assert "  unasked: they ended without an invocation: renewals" in shown
    assert "  unended: they were invoked and never ended" in shown
    assert "strobe" not in shown


def test_what_kills_clients_is_told_from_what_kills_masters():
    tape = Tape()
    tape.fault("kill", "master-1", 1, 2)
    tape.event(3, "nemesis", "kill", "invoke", target="client-1", fault="crash")
    tape.event(4, "nemesis", "stop", "invoke", target="client-2", fault="machine")
    tape.event(5, "nemesis", "stop", "ok", target="client-2", fault="machine")
    assert summary(tape).faults == {"crash": 1, "kill": 1, "machine": 1}


def test_faults_by_kind():
    tape = told("1 kill strikes master-1 until 2, 3 kill strikes master-2+master-3")  # one fault on two masters
    tape.told("4 halves strikes x until 5, 6 stop strikes client-1, 7 stop misses client-1, 8 flush strikes x")
    assert summary(tape).faults == {"flush": 1, "halves": 1, "kill": 2}


def test_holding_and_not_holding():
    tape = Tape(locks=("a", "b", "c"))
    tape.told("3 A held until 13 asked 0, 5 A releases, 12 B held until 14, 18 B is-refused, 1 C held until 2 of b")
    tape.told("100 observer looks")  # nobody wanted it any more
    tape.lost(14, "client-2", "B", "taken")
    found = {of.lock: of for of in summary(tape).locks}
    assert found["a"] == OfLock("a", holds=2, held=4, longest_hold=2, longest_gap=7)
    assert found["b"] == OfLock("b", holds=1, held=1, longest_hold=1, longest_gap=0)
    assert found["c"] == OfLock("c", holds=0, held=0, longest_hold=0, longest_gap=0)
    assert summary(tape).lost == {"taken": 1}


@pytest.mark.parametrize(("tail", "gap"), [(16, 3), (30, 17)])
def test_the_gaps_at_both_ends_count_while_somebody_tries(tail, gap):
    tape = told(f"3 A held until 13 asked 0, 4 B/1 held until 8, {tail} A is-refused")  # the one within the other one
    assert summary(tape).locks[0].longest_gap == gap


def test_both_stores():
    tape = told("1 A held until 20 fence 5, 2 A wrote fence 5 read 0")
    tape.told(
        "3 B wrote fence 6 read 0, 4 A wrote fence 5 read 1, 5 A wrote fence 5 read 1"
    )  # B has not seen the one before
    tape.told("6 A turned-away fence 5, 7 B stored fence 6 read 0")
    assert summary(tape).stores == (
        OfStore("fenced", accepted=1, refused=1, stale=0, lost_updates=0),
        OfStore("plain", accepted=4, refused=0, stale=2, lost_updates=2),
    )


def test_versions_that_were_not_recorded():
    [found] = summary(told("1 A held until 20 fence 5, 2 A wrote fence 5 read 0, 3 B wrote fence 4")).stores
    assert (found.stale, found.lost_updates) == (1, None)
