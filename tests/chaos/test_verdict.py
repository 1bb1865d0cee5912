"""What follows from five rulings: passed, violated or unknown; a crash is never a pass."""

from __future__ import annotations

import pytest

import chaos.judge.verdict as verdict_
from chaos.history import MUST
from chaos.judge import judge
from tests.chaos.tape import Tape, told


def good():
    return told("1 A held until 11 fence 1, 2 A releases")


def overlapping():
    return good().told("3 B/1 held until 13 fence 2, 4 C/2 held until 14 fence 3")


def broken_on_purpose(tape, *breaks):
    tape.header |= {"variant": "minority", "breaks": list(breaks)}
    return tape


def demands(tape, *must):
    tape.header["must"] = list(must)
    return tape


@pytest.mark.parametrize(("tape", "must", "outcome", "code", "violated"), [
    # A scenario outside the model has to show that it breaks something.
    pytest.param(overlapping(), ("fenced", "prompt"), "passed", 0, ["exclusive"], id="what-need-not-hold-is-judged-as-well"),
    pytest.param(demands(overlapping(), "fenced"), (), "passed", 0, ["exclusive"], id="the-header-says-what-must-hold"),
    pytest.param(demands(overlapping(), "fenced"), ("exclusive",), "violated", 1, ["exclusive"], id="or-the-caller"),
    pytest.param(demands(overlapping()), (), "passed", 0, ["exclusive"], id="nothing-has-to-hold"),
    pytest.param(Tape(), (), "unknown", 2, [], id="no-event-at-all"),
    pytest.param(told("1 A resumed until 5"), ("exclusive",), "passed", 0, [], id="a-hand-over-alone-is-a-hold"),
])  # fmt: skip
def test_what_follows_from_the_rulings(tape, must, outcome, code, violated):
    verdict = tape.verdict(*must)
    assert verdict.must == (must or tuple(tape.header["must"]))
    assert (verdict.outcome, verdict.exit_code) == (outcome, code)
    assert [ruling.name for ruling in verdict.rulings if ruling.outcome == "violated"] == violated


@pytest.mark.parametrize("must", [(), ("exclusive",), MUST])
def test_without_a_hold_nothing_is_proven(must):
    # Over when it was returned; and something is wrong, besides.
    tape = told("1 A asks, 2 A is-refused, 3 A held until 3, 100 master-1 has B=-1, 200 observer looks")
    verdict = judge(tape.history(), must)
    assert (verdict.outcome, verdict.exit_code) == ("unknown", 2)
    assert verdict["clean"].outcome == "violated"
    assert "proves nothing" in verdict.note


@pytest.mark.parametrize("name", MUST)
@pytest.mark.parametrize("demanded", [True, False])
def test_a_judge_that_crashes_is_no_pass(name, demanded, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("no idea")

    monkeypatch.setitem(verdict_._JUDGES, name, broken)
    must = (name,) if demanded else tuple(other for other in MUST if other != name)
    verdict = good().verdict(*must)
    assert (verdict.outcome, verdict.exit_code) == ("unknown", 2)
    assert verdict[name].crashed
    assert verdict[name].note == "the judge crashed: ZeroDivisionError: no idea"
    assert all(ruling.outcome == "passed" for ruling in verdict.rulings if ruling.name != name)


def test_what_was_proven_before_the_crash_stays_proven(monkeypatch):
    monkeypatch.setitem(verdict_._JUDGES, "live", lambda *_: 1 / 0)
    assert overlapping().verdict().outcome == "violated"


def test_nobody_can_tell_who_held_what(monkeypatch):
    monkeypatch.setattr(verdict_, "holds", lambda _: 1 / 0)
    verdict = overlapping().verdict()
    assert verdict.exit_code == 2
    assert all(ruling.crashed for ruling in verdict.rulings)


def asked_for(tape, *faults, by_name=()):
    tape.header |= {"faults": list(faults), "must_strike": list(by_name)}
    return tape


def test_what_never_struck_takes_no_breach_back():
    assert asked_for(overlapping(), "kill", by_name=("kill",)).verdict().outcome == "violated"


@pytest.mark.parametrize(("op", "phase", "fault"), [
    ("kill", "ok", "crash"),  # of a client, and masters were to be killed
    ("kill", "fail", None),  # it was tried
    ("stop", "ok", "machine"),
])  # fmt: skip
def test_what_was_not_the_fault_that_was_asked_for(op, phase, fault):
    tape = asked_for(good(), op, by_name=(op,))
    tape.event(1, "nemesis", op, "invoke", target="x", fault=fault)
    tape.event(2, "nemesis", op, phase, target="x", fault=fault)
    assert tape.verdict().never_struck == (op,)


def test_what_is_to_be_broken_is_judged_though_nobody_has_demanded_it():
    assert broken_on_purpose(overlapping(), "kept").verdict("fenced")["kept"].outcome == "passed"


def test_violations_are_in_the_order_in_which_they_could_be_seen():
    tape = overlapping().told("2.5 D/1 held until 3.5 fence 9")
    assert [violation.at for violation in tape.ruling("exclusive").violations] == [3, 4]


def test_many_events_are_judged():
    """Thirty thousand of them; only that it ends, and soon enough for the test's time limit."""
    tape = Tape(ttl=2)
    for number in range(5_000):
        t, process, token = number * 0.1, f"client-{number % 7}", f"{number}"
        tape.held(t + 0.01, process, token, until=t + 2, fence=number, invoked=t)
        tape.used(t + 0.03, process, token, fence=number, store="fenced", invoked=t + 0.02, read=number)
        tape.release(t + 0.05, process, token)
        tape.event(t + 0.06, process, "release", "ok", lock="a", token=token)
        if number % 50 == 0:
            tape.fault("stop", process, t, t + 1)
    assert len(tape.lines) > 30_000
    assert tape.verdict("exclusive", "fenced", "prompt", "clean").outcome == "passed"
    tape.held(100.02, "client-9", "late", until=100.03, fence=3)
    assert tape.verdict().outcome == "violated"
