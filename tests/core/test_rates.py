"""Whether the clock of a master runs too fast, whatever messages and this process do (R43)."""

from __future__ import annotations

import math

from hypothesis import given, strategies as st

from redlock._core.rates import Rates, Reading, bounds
from tests.properties.profile import PROPERTY

DRIFT, MAX_TTL = 0.01, 60.0
NAMES = ("a", "b", "c")
delays = st.floats(0.0, 5.0)


def asked(at: float, rate: float = 1.0, *, there: float = 0.0, back: float = 0.0, offset: float = 1.7e9) -> Reading:
    """Sent at ``at``; the master has it after ``there`` seconds, and we have the answer after ``back`` more."""
    clock = math.floor((offset + rate * (at + there)) * 1e6) / 1e6
    return Reading(clock, at, at + there + back)


def rates(*readings: Reading, master: int = 0, masters: int = 3) -> Rates:
    made = Rates(masters, DRIFT)
    for one in readings:
        made.answered(master, one, MAX_TTL)
    return made


@PROPERTY
@given(
    rate=st.floats(1 - DRIFT, 1 + DRIFT),
    asks=st.lists(st.tuples(st.floats(0.0, 60.0), delays, delays), min_size=2, max_size=8),
)
def test_no_delay_no_order_of_answers_and_no_pause_of_the_client_make_a_right_clock_look_fast_or_slow(rate, asks):
    """A pause is a delay of the answer, as it is read when the process goes on.  Answers come in any order."""
    found = rates(
        *sorted((asked(at, rate, there=there, back=back) for at, there, back in asks), key=lambda one: one.at)
    )
    assert found.surely == [0.0] * 3
    assert found.votes_from(0) == -math.inf


@PROPERTY
@given(rate=st.floats(1.03, 1.2), there=st.floats(0.0, 0.005), back=st.floats(0.0, 0.005))
def test_a_clock_that_is_faster_by_far_is_found_in_a_second(rate, there, back):
    found = rates(asked(10.0, rate), asked(11.0, rate, there=there, back=back))
    assert 1 + DRIFT < 1 + found.surely[0] <= rate + 1e-6, "never more than it is"


def test_a_fast_clock_is_not_right_for_the_delay_of_an_answer():
    """The bound says nothing then.  With more time between the readings it does."""
    found = rates(asked(0.0, 1.05), asked(1.0, 1.05), asked(2.0, 1.05, back=0.2))
    assert found.votes_from(0) == math.inf
    for at in (3.0, 30.0):  # right from 1.0 on
        found.answered(0, asked(at, offset=1.7e9 + 0.05, there=0.1), MAX_TTL)
        assert found.votes_from(0) == (math.inf if at < 5.0 else 1.0 + MAX_TTL)


def test_readings_that_say_nothing_are_followed_by_more_until_one_is_sure():
    """Each as long after the last one as that was after the first, which stays."""
    for rate, sure_at, pauses in ((1.05, 4.0, [1.1, 2.1, 0.0]), (1.0, 16.0, [1.1, 2.1, 4.1, 8.1, 0.0])):
        found = rates(asked(0.0, rate, back=0.15))
        for at, pause in zip((1.0, 2.0, 4.0, 8.0, 16.0), pauses, strict=False):
            assert math.isclose(found.answered(0, asked(at, rate, back=0.1), MAX_TTL), pause)
            assert (found.surely[0] > 0) == (rate > 1 and at == sure_at)


def test_a_reading_that_is_more_exact_by_half_replaces_the_first():
    found = rates(asked(0.0, 1.083, back=0.4))
    assert found.answered(0, asked(1.0, 1.083, back=0.1), MAX_TTL) == 1.1
    assert found.answered(0, asked(3.0, 1.083), MAX_TTL) == 0.0
    assert found.surely[0] > DRIFT, "0.4 s of 3 s would say nothing"


def test_a_slow_clock_and_one_that_is_set_back_are_told_and_count():
    for slow in (rates(asked(0.0, 0.9), asked(2.0, 0.9)), rates(asked(0.0), asked(30.0, offset=1.7e9 - 60.0))):
        assert slow.surely[0] < -DRIFT
        assert slow.votes_from(0) == -math.inf
        assert slow.why_not_counted(0, 2.0) == ""
        [(master, text)] = slow.changes(NAMES, 50.0)
        assert master == 0
        assert "slower" in text


def test_another_process_at_the_address_is_measured_anew_and_trusted_no_more():
    found = rates(asked(0.0, 1.05), asked(1.0, 1.05))
    found.forget(0)
    found.answered(0, asked(5.0, offset=1.8e9), MAX_TTL)
    assert found.votes_from(0) == math.inf
    found.answered(0, asked(6.0, offset=1.8e9), MAX_TTL)
    assert found.votes_from(0) == 1.0 + MAX_TTL


def test_the_bounds_hold_the_rate():
    least, greatest = bounds(asked(0.0, 1.05, there=0.1, back=0.2), asked(10.0, 1.05, there=0.3, back=0.1))
    assert least < 1.05 < greatest
    assert bounds(asked(0.0, back=2.0), asked(1.0))[1] == math.inf


def test_each_change_is_told_once():
    found = rates(asked(0.0, 1.05), asked(1.0, 1.05))
    assert [text[:10] for _, text in found.changes(NAMES, 50.0)] == ["master a h"]
    found.answered(0, asked(2.0, 1.07), MAX_TTL)
    assert list(found.changes(NAMES, 50.0)) == []
    found.answered(0, asked(40.0), MAX_TTL)
    [(_, text)] = found.changes(NAMES, 50.0)
    assert "right rate again" in text
    assert list(found.changes(NAMES, 50.0)) == []
