"""Several ask at once, and nobody gets a majority (C3): who only tries tries again, and what it is told if that does not help."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from redlock._lock.refused import not_acquired
from tests.core.world import GRANTS, NEVER, START, Master, World, down, held, turns


def contended(times: int = 100, after: float = 0.01) -> list[Master]:
    """One master grants, and each of two others has been given to somebody else; so many times, then all are free."""
    refusals: list[Any] = [[0, b"0", by, 5000] for by in (b"ann", b"bob")]
    return [
        Master(after),
        *(Master(after, {"acquire": turns(*[refusal] * times, GRANTS["acquire"])}) for refusal in refusals),
    ]


def tried(*masters: Master) -> tuple[World, Any]:
    world = World(*masters)
    return world, world.refused(world.acquire(world.spec(), deadline=START))


def times(world: World) -> list[float]:
    return [round(sent.at - START, 6) for sent in world.all("acquire")]


@pytest.mark.parametrize(("after", "at"), [
    # Pauses are 2, 4, 8 and 16 times as long as an attempt; by chance they are the longest here.
    pytest.param(0.01, [0.0, 0.03, 0.08, 0.17, 0.34], id="pauses-longer-than-an-attempt"),
    pytest.param(0.2, [0.0, 0.6, 1.6, 2.8, 4.0], id="and-not-longer-than-four-times-what-a-master-may-take"),
])  # fmt: skip
def test_it_tries_again_a_few_times_whatever_its_deadline(after: float, at: list[float]) -> None:
    world, refusal = tried(*contended(after=after))
    assert times(world) == pytest.approx(at)
    assert (refusal.kind, refusal.contended, refusal.waited.attempts) == ("held", True, 5)


def test_without_time_left_no_release_is_awaited() -> None:
    """Every answer comes at the deadline itself."""
    world, refusal = tried(*contended(after=0.0))
    assert refusal.waited.attempts == 5
    assert "Listen" not in dict(world.effects)


@pytest.mark.parametrize(("masters", "attempts"), [
    pytest.param([held()] * 3, 1, id="somebody-has-it"),
    pytest.param([Master(), held(0.1), held(0.1)], 1, id="on-a-majority"),
    pytest.param([down(), held(), held(NEVER)], 1, id="a-master-is-down-and-somebody-has-it"),
    pytest.param([down(), down(), held()], 1, id="an-outage"),
    pytest.param([down(), Master(), held(0.1)], 5, id="a-master-is-down-and-two-have-tried"),
    pytest.param([down(), Master(NEVER), held(0.1, "ann"), held(0.1, "bob"), held(0.1, "eve")], 5, id="others-have-tried"),
])  # fmt: skip
def test_what_is_an_answer_is_believed(masters: list[Master], attempts: int) -> None:
    world, refusal = tried(*masters)
    assert len(times(world)) == attempts
    assert refusal.contended is (attempts > 1)


def test_nobody_has_it_is_what_is_said() -> None:
    world, refusal = tried(*contended())
    error = not_acquired(world.spec(), refusal)
    assert error.kind == "nobody"
    assert error.message == (
        "'invoice:42' not acquired in 5 attempts: "
        "no client has it: several asked at the same time, and none got a majority"
    )
    assert pickle.loads(pickle.dumps(error)).kind == "nobody"  # noqa: S301 - our own


def test_an_error_shows_eight_characters_of_what_another_program_has_there() -> None:
    world, refusal = tried(*[held(by='{"user": "ann"}')] * 3)
    assert 'held by {"user":… for up to' in str(not_acquired(world.spec(), refusal))
    assert "ann" not in str(not_acquired(world.spec(), refusal))
