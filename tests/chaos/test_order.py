"""`order`: who stood first is served first, and a waiter that died costs a second, once (R42); only where it is demanded."""

from __future__ import annotations

import pytest

from chaos.history import MUST
from tests.chaos.tape import Tape

KNOWN = ", ".join(f"{t} {who} held until 9 asked {t}, {t}.5 {who} releases" for t, who in enumerate("ABC", start=1))
LINE = "4 A held until 14 asked 4, 5 B asks, 6 C asks, 9 A releases"
IN_ORDER, TURNED = (f"{{}} {a} held until 40, {{}}9 {a} releases, 9.93 {b} held until 50" for a, b in ("BC", "CB"))


def line(story="", known=KNOWN):
    """client-1 holds from 4 until 9, client-2 asks at 5 and client-3 at 6; all have had an answer before."""
    return Tape(must=(*MUST, "order")).told(", ".join(filter(None, (known, LINE, story, "100 observer looks"))))


def served(story, t=9.1):
    return story.format(t, t)


def test_who_stood_first_is_served_first():
    assert line(served(IN_ORDER)).judge("order") == []
    assert len(line(served(TURNED)).judge("order")) == 1


@pytest.mark.parametrize(("asked", "well"), [("5.499999", True), ("5.5", False)])
def test_who_asked_half_a_second_later_came_later(asked, well):
    tape = Tape(must=(*MUST, "order")).told(f"{KNOWN}, {LINE.replace('6 C', f'{asked} C')}, {served(TURNED)}")
    assert bool(tape.judge("order")) != well


@pytest.mark.parametrize(("t", "detail", "well"), [
    (9.2, "held", True), (9.200001, "held", False), (30, "unreachable", True),
])  # fmt: skip
def test_who_gave_up_was_not_overtaken(t, detail, well):
    tape = line("9.1 C held until 40")
    tape.event(t, "client-2", "acquire", "fail", lock="a", detail=detail)
    assert bool(tape.judge("order")) != well


@pytest.mark.parametrize(("t", "whom", "well"), [(7, 2, True), (9.15, 2, False), (7, 3, False)])
def test_who_was_struck_has_lost_its_place(t, whom, well):
    tape = line(f"9.1 C held until 40, {t} stop strikes client-{whom} until {t + 0.5}")
    assert bool(tape.judge("order")) != well


def test_the_first_acquire_of_a_process_takes_time_to_connect():
    assert line(served(TURNED), known=KNOWN.replace(" B ", " D ")).judge("order") == []


@pytest.mark.parametrize(("died", "t", "well"), [
    (None, 9.75, True), (None, 9.750001, False), (None, 30, False),
    (8.5, 10.25, True), (8.5, 10.250001, False),  # its ticket ends a second after its death
    (7.5, 9.75, True), (7.5, 9.750001, False),  # and that is all
    (9.05, 30, True),  # it may have had the lock
])  # fmt: skip
def test_a_release_is_followed_at_once_but_for_who_has_died(died, t, well):
    tape = line(f"{t} C held until 40, {died} kill strikes client-2" if died else f"{t} B held until 40")
    assert bool(tape.judge("order")) != well
    assert not tape.ruling("order").vacuous


@pytest.mark.parametrize(("t", "until", "well"), [(9.05, 9.2, True), (4, 4.9, False), (9.9, 10, False)])
def test_a_machine_that_is_busy_says_nothing(t, until, well):
    tape = line(served(TURNED))
    tape.event(t, "observer", "busy", "info", target="client-2", detail={"until": until})
    assert bool(tape.judge("order")) != well
    assert not tape.ruling("order").vacuous
    tape.event(0, "observer", "busy", "info", target=["client-1", "client-2", "client-3"], detail={"until": 100})
    assert (tape.judge("order"), tape.ruling("order").vacuous) == ([], True)


def test_where_nobody_stood_it_holds_trivially():
    tape = Tape(must=(*MUST, "order")).told(KNOWN)
    assert (tape.judge("order"), tape.ruling("order").vacuous) == ([], True)


def test_the_sentences():
    late, overtaken = line(served(TURNED, 9.8)).ruling("order").violations
    assert late.sentence.endswith(
        "released 'a' (A) at t=9.000000, and client-2 still waited at t=9.750000, since t=5.000000"
    )
    assert overtaken.sentence == (
        "client-3 asked for 'a' at t=6.000000 and had it at t=9.800000, and client-2 still waited, since t=5.000000"
    )
