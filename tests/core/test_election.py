"""The order of what a candidate does (R31).  What threads and tasks do in between is in ``tests/scenes``."""

from __future__ import annotations

from typing import Any

import pytest
from tenacity.wait import wait_fixed

from redlock._core.election import Pause, Progress, election, unfinished
from redlock._core.stop import Stop

UNTIL_STOPPED = None


class Term:
    """Whose lease is ``valid``."""

    def __init__(self, *, valid: bool = True) -> None:
        self.lease = self
        self.valid = valid


TERM = Term()


class Played:
    """``answers``: what each kind of step is resumed with; one that can be called is, with the `Stop`."""

    def __init__(self, pauses: Any = None, *, steps: int = 50, stopped: bool = False, **answers: Any) -> None:
        self.steps: list[str] = []
        self.pauses: list[float] = []
        self.error: Any = None
        stop, given = Stop(), {"Campaign": TERM} | answers
        if stopped:
            stop.request()
        generator = election(stop, pauses)
        result: Any = None
        try:
            for _ in range(steps):
                step = generator.send(result)
                name = type(step).__name__
                self.steps.append(name)
                if isinstance(step, Pause):
                    self.pauses.append(step.seconds)
                result = given.get(name)
                result = result(stop) if callable(result) else result
        except StopIteration as end:
            self.error = end.value


def stopping(result: Any) -> Any:
    """Somebody stops the election just before."""
    return lambda stop: (stop.request(), result)[1]


def in_turn(*results: Any) -> Any:
    left = [*results]
    return lambda _: left.pop(0)


ONE = "Campaign Lead SayStopped Resign "
RETRIES = {"pauses": wait_fixed(3.0)}


@pytest.mark.parametrize(("given", "steps", "pauses"), [
    pytest.param({"steps": 8}, ONE + ONE, [], id="one-term-after-the-other"),
    pytest.param({"Campaign": UNTIL_STOPPED}, "Campaign", [], id="a-stop-in-a-campaign-ends-it"),
    pytest.param({"Campaign": stopping(TERM)}, "Campaign Resign", [], id="one-in-the-moment-of-the-grant-begins-no-body"),
    pytest.param({"stopped": True}, "", [], id="a-stop-before-the-beginning"),
    # It stands again.
    pytest.param({"Campaign": in_turn(Term(valid=False), TERM), "steps": 6}, f"Campaign Resign {ONE}", [],
        id="who-was-frozen-until-its-term-was-over-begins-no-body"),
    pytest.param({**RETRIES, "Lead": ValueError("x"), "steps": 6}, f"{ONE}Pause Campaign", [3.0],
        id="an-error-is-retried-after-a-pause"),
    pytest.param({**RETRIES, "Lead": stopping(ValueError("x"))}, f"{ONE}Pause", [0.0],
        id="a-stopped-election-does-not-pause"),
])  # fmt: skip
def test_the_steps(given: dict[str, Any], steps: str, pauses: list[float]) -> None:
    played = Played(**given)
    assert played.steps == steps.split()
    assert played.pauses == pauses
    assert played.error is None or pauses == [0.0]


def test_several_errors_are_one_with_notes():
    played = Played(Lead=ValueError("the body"), SayStopped=KeyError("on_stopped"), Resign=OSError("release"))
    assert repr(played.error) == "ValueError('the body')"
    assert played.error.__notes__ == ["besides, KeyError: 'on_stopped'", "besides, OSError: release"]


def test_an_error_that_passes_is_said_by_the_world():
    error = KeyboardInterrupt()
    stop = Stop()
    steps = election(stop, wait_fixed(3.0), lambda raised: raised is error)
    results: list[Any] = [None, TERM, error, None, None]
    assert [steps.send(result) for result in results][-1] == Pause(3.0, error)


@pytest.mark.parametrize(("stands", "begun", "left"), [
    (None, None, []), ("a candidate", None, ["Resign"]), ("a candidate", TERM, ["SayStopped", "Resign"]),
])  # fmt: skip
def test_after_an_interruption_all_that_was_begun_is_ended(stands, begun, left):
    steps = unfinished(Progress(stands, begun), KeyboardInterrupt())
    assert [type(step).__name__ for step in steps] == left
