"""`handover`: another one leads soon after a leader ended (R31); only where it is demanded."""

from __future__ import annotations

import pytest

from chaos.history import MUST
from tests.chaos.tape import Tape


def led(story, first="1 A held until 11, 60 B asks"):
    """One leads from 1 on, and others stand until 60."""
    return Tape(must=(*MUST, "handover"), ttl=10).told(f"{first}, {story}, 100 observer looks")


@pytest.mark.parametrize(("t", "well"), [(5.5, True), (6, True), (6.000001, False), (20, False), (None, False)])
def test_within_a_second_after_a_release(t, well):
    tape = led("5 A releases" + (f", {t} B held until {t + 1}" if t else ""))
    assert bool(tape.judge("handover")) != well
    assert not tape.ruling("handover").vacuous


@pytest.mark.parametrize(("t", "well"), [(16, True), (16.000001, False)])
def test_within_a_ttl_and_a_second_after_a_kill(t, well):
    assert bool(led(f"{t} B held until 17, 5 kill strikes client-1").judge("handover")) != well


@pytest.mark.parametrize(("story", "late"), [
    ("{t} B held until 9, 5 A releases", 7.5), ("{t} B held until 17, 5 kill strikes client-1", 17.5),
])  # fmt: skip
def test_what_a_busy_machine_takes_is_given_back(story, late):
    """Whichever client it is of, and nothing for what it took before or later."""
    for t, well in ((late, True), (late + 0.000001, False)):
        tape = led(story.format(t=t))
        for busy, until in ((4, 5.5), (5.5, 6.5), (late, 20)):
            tape.event(busy, "observer", "busy", "info", target="client-3", detail={"until": until})
        assert bool(tape.judge("handover")) != well


def test_who_is_struck_may_have_had_it():
    assert led("5 A releases, 5.5 stop strikes client-2").judge("handover") == []
    killed = "5 kill strikes client-1, 10 kill strikes client-2"
    assert led(f"20.9 C held until 30, {killed}").judge("handover") == []


def test_a_lease_that_was_over_hands_nothing_over():
    tape = led("12 A releases")
    assert tape.judge("handover") == []
    assert tape.ruling("handover").vacuous


def test_when_nobody_stands_any_more():
    assert led("59.5 B held until 99, 59.6 B releases, 2 kill strikes client-1").judge("handover") != []
    assert led("59.5 A releases", first="1 A held until 70, 60 B asks").judge("handover") == []


def test_the_sentence():
    [violation] = led("5 A releases").ruling("handover").violations
    assert violation.sentence == (
        "client-1 led with 'a' (A) and released it at t=5.000000, and no successor led until t=6.000000"
    )
