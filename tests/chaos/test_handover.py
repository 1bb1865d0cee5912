"""`handover`: another one leads soon after a leader ended (R31); only where it is demanded."""

from __future__ import annotations

import pytest

from chaos.history import MUST
from tests.chaos.tape import Tape


def led(story: str = "", *faults: tuple[str, str, float]) -> Tape:
    """One leads from 1 on, and others stand until 60."""
    tape = Tape(must=(*MUST, "handover"), ttl=10).told(", ".join(filter(None, ("1 A held until 11, 60 B asks", story))))
    for fault in faults:
        tape.fault(*fault)
    tape.until(100)
    return tape


@pytest.mark.parametrize(("t", "well"), [(5.5, True), (6, True), (6.000001, False), (20, False), (None, False)])
def test_within_a_second_after_a_release(t: float | None, well: bool) -> None:
    tape = led("5 A releases" + (f", {t} B held until {t + 1}" if t else ""))
    assert bool(tape.judge("handover")) != well
    assert not tape.ruling("handover").vacuous


@pytest.mark.parametrize(("t", "well"), [(16, True), (16.000001, False)])
def test_within_a_ttl_and_a_second_after_a_kill(t: float, well: bool) -> None:
    assert bool(led(f"{t} B held until 17", ("kill", "client-1", 5)).judge("handover")) != well


def test_who_is_struck_may_have_had_it() -> None:
    assert led("5 A releases", ("stop", "client-2", 5.5)).judge("handover") == []
    killed = ("kill", "client-1", 5), ("kill", "client-2", 10)
    assert led("20.9 C held until 30", *killed).judge("handover") == []


def test_a_lease_that_was_over_hands_nothing_over() -> None:
    tape = led("12 A releases")
    assert tape.judge("handover") == []
    assert tape.ruling("handover").vacuous


def test_when_nobody_stands_any_more() -> None:
    assert led("59.5 B held until 99, 59.6 B releases", ("kill", "client-1", 2)).judge("handover") != []
    tape = Tape(must=(*MUST, "handover")).told("1 A held until 70, 60 B asks, 59.5 A releases")
    tape.until(100)
    assert tape.judge("handover") == []


def test_the_sentence() -> None:
    [violation] = led("5 A releases").ruling("handover").violations
    assert violation.sentence == (
        "client-1 led with 'a' (A) and released it at t=5.000000, and no successor led until t=6.000000"
    )
