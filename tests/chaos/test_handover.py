"""`handover`: another one leads soon after a leader ended (R31); only where it is demanded."""

from __future__ import annotations

import pytest

from chaos.history import MUST
from tests.chaos.tape import Tape

EVERYTHING = (*MUST, "handover")


def led(*, until: float = 11) -> Tape:
    """One leads from 1 on, and others stand until 60."""
    tape = Tape(must=EVERYTHING, ttl=10)
    tape.held(1, "client-1", "A", until=until, fence=1)
    tape.event(60, "client-2", "acquire", "invoke", lock="a")
    return tape


@pytest.mark.parametrize(("t", "well"), [(5.5, True), (6, True), (6.000001, False), (20, False), (None, False)])
def test_within_a_second_after_a_release(t: float | None, well: bool) -> None:
    tape = led()
    tape.release(5, "client-1", "A")
    if t is not None:
        tape.held(t, "client-2", "B", until=t + 1, fence=2)
    assert bool(tape.judge("handover")) != well
    assert not tape.ruling("handover").vacuous


@pytest.mark.parametrize(("t", "well"), [(16, True), (16.000001, False)])
def test_within_a_ttl_and_a_second_after_a_kill(t: float, well: bool) -> None:
    tape = led()
    tape.fault("kill", "client-1", 5)
    tape.held(t, "client-2", "B", until=t + 1, fence=2)
    assert bool(tape.judge("handover")) != well


def test_who_is_struck_may_have_had_it() -> None:
    tape = led()
    tape.release(5, "client-1", "A")
    tape.fault("stop", "client-2", 5.5, 8)
    assert tape.judge("handover") == []
    again = led()
    again.fault("kill", "client-1", 5)
    again.fault("kill", "client-2", 10)
    again.held(20.9, "client-3", "B", until=30, fence=2)
    assert again.judge("handover") == []


def test_a_lease_that_was_over_hands_nothing_over() -> None:
    tape = led()
    tape.release(12, "client-1", "A")
    assert tape.judge("handover") == []
    assert tape.ruling("handover").vacuous


def test_when_nobody_stands_any_more() -> None:
    tape = led()
    tape.release(59.5, "client-1", "A")
    tape.until(100)
    assert tape.judge("handover") == []


def test_the_sentence() -> None:
    tape = led()
    tape.release(5, "client-1", "A")
    [violation] = tape.ruling("handover").violations
    assert violation.sentence == (
        "client-1 led with 'a' (A) and released it at t=5.000000, and nobody followed until t=6.000000"
    )
