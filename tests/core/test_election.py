"""The order of what a candidate does (R31).  The interleavings are in ``tests/simulation``."""

from __future__ import annotations

from typing import Any

import pytest
from tenacity.wait import wait_fixed

from redlock._core.election import Pause, Progress, SayStopped, election, unfinished
from redlock._core.stop import Stop

UNTIL_STOPPED = None


class Term:
    """Whose lease is ``valid``."""

    def __init__(self, *, valid: bool = True) -> None:
        self.lease = self
        self.valid = valid


TERM = Term()


class Played:
    """``answers``: what each kind of step is resumed with."""

    def __init__(self, stop: Stop, pauses: Any = None, **answers: Any) -> None:
        self.steps: list[str] = []
        self.pauses: list[float] = []
        self.error: Any = None
        given = {"Campaign": TERM} | answers
        generator = election(stop, pauses)
        result: Any = None
        try:
            for _ in range(given.pop("steps", 50)):
                step = generator.send(result)
                name = type(step).__name__
                self.steps.append(name)
                if isinstance(step, Pause):
                    self.pauses.append(step.seconds)
                result = given.get(name)
                result = result() if callable(result) else result
        except StopIteration as end:
            self.error = end.value


def test_one_term_after_the_other():
    stop = Stop()
    played = Played(stop, steps=8)
    assert played.steps == ["Campaign", "Lead", "SayStopped", "Resign"] * 2


def test_a_stop_in_a_campaign_ends_it():
    played = Played(Stop(), Campaign=UNTIL_STOPPED)
    assert played.steps == ["Campaign"]
    assert played.error is None


def test_a_stop_in_the_moment_of_the_grant_begins_no_body():
    stop = Stop()

    def elected():
        stop.request()
        return TERM

    assert Played(stop, Campaign=elected).steps == ["Campaign", "Resign"]


def test_who_was_frozen_until_its_term_was_over_begins_no_body():
    """It stands again."""
    terms = [Term(valid=False), TERM]
    played = Played(Stop(), steps=6, Campaign=lambda: terms.pop(0))
    assert played.steps == ["Campaign", "Resign", "Campaign", "Lead", "SayStopped", "Resign"]


def test_a_stop_before_the_beginning():
    stop = Stop()
    stop.request()
    assert Played(stop).steps == []


@pytest.mark.parametrize("where", ["Lead", "SayStopped", "Resign"])
def test_an_error_ends_the_election_after_all_was_given_back(where):
    error = ValueError("x")
    played = Played(Stop(), **{where: error})
    assert played.steps == ["Campaign", "Lead", "SayStopped", "Resign"]
    assert played.error is error


def test_an_error_is_retried_after_a_pause():
    played = Played(Stop(), wait_fixed(3.0), steps=6, Lead=ValueError("x"))
    assert played.steps == ["Campaign", "Lead", "SayStopped", "Resign", "Pause", "Campaign"]
    assert played.pauses == [3.0]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_what_is_no_exception_is_not_retried(error):
    assert Played(Stop(), wait_fixed(3.0), Lead=error).error is error


def test_a_stopped_election_does_not_pause():
    stop = Stop()

    def failing():
        stop.request()
        return ValueError("x")

    played = Played(stop, wait_fixed(3.0), Lead=failing)
    assert played.steps == ["Campaign", "Lead", "SayStopped", "Resign", "Pause"]
    assert played.pauses == [0.0]


def test_several_errors_are_one_with_notes():
    played = Played(Stop(), Lead=ValueError("the body"), SayStopped=KeyError("on_stopped"), Resign=OSError("release"))
    assert repr(played.error) == "ValueError('the body')"
    assert played.error.__notes__ == ["besides, KeyError: 'on_stopped'", "besides, OSError: release"]


def test_a_ctrl_c_goes_before_an_error():
    played = Played(Stop(), wait_fixed(3.0), Lead=ValueError("the body"), SayStopped=KeyboardInterrupt())
    assert isinstance(played.error, KeyboardInterrupt)


def test_an_error_that_passes_is_said_by_the_world():
    error = KeyboardInterrupt()
    stop = Stop()
    steps = election(stop, wait_fixed(3.0), lambda raised: raised is error)
    results: list[Any] = [None, TERM, error, None, None]
    assert [steps.send(result) for result in results][-1] == Pause(3.0, error)


@pytest.mark.parametrize(
    ("begun", "stands", "left"),
    [
        (None, None, []),
        (None, "a candidate", ["Resign"]),
        (TERM, "a candidate", ["SayStopped", "Resign"]),
    ],
)
def test_after_an_interruption_all_that_was_begun_is_ended(begun, stands, left):
    progress = Progress()
    progress.begun, progress.stands = begun, stands
    interruption = KeyboardInterrupt()
    steps = unfinished(progress, interruption)
    played: list[str] = []
    result = None
    with pytest.raises(StopIteration) as end:
        while True:
            step = steps.send(result)
            played.append(type(step).__name__)
            result = ValueError("on_stopped") if isinstance(step, SayStopped) else None
    assert end.value.value is interruption
    assert played == left
    assert getattr(interruption, "__notes__", []) == (["besides, ValueError: on_stopped"] if begun else [])
