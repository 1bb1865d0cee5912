"""Several attempts: how long acquire goes on, and what keeps one attempt apart from the next (C1, R8, R25)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from redlock._core.outcomes import Failure
from tests.core.world import NEVER, START, Master, World, down, held, refuses, turns
from tests.owners import proves

if TYPE_CHECKING:
    from tenacity import RetryCallState

pytestmark = proves("C1", "C4")

HELD = [0, b"0", b"somebody-else", 5000]


def frees_itself(after: int, refused_with: object = HELD) -> Master:
    """Grants from the attempt number ``after`` + 1 on."""
    return Master(0.01, {"acquire": turns(*[refused_with] * after, lambda call: [1, call.args[3].encode()])})


@pytest.mark.parametrize(("master", "timeout", "attempts", "ends"), [
    # Every attempt takes 0.01 s, the pause between two is 0.5 s.
    pytest.param(held(0.01), 0.0, [0.0], 0.01, id="once"),
    pytest.param(held(0.01), -5.0, [0.0], 0.01, id="deadline-in-the-past"),
    pytest.param(held(0.01), 0.3, [0.0, 0.3], 0.31, id="last-look-at-the-deadline"),
    pytest.param(held(0.01), 0.51, [0.0, 0.51], 0.52, id="pause-ends-with-the-deadline"),
    pytest.param(held(0.01), 1.2, [0.0, 0.51, 1.02, 1.2], 1.21, id="pause-is-cut-short"),
    # One that ends at the deadline or later is the last, and may take one `node_timeout` beyond it.
    pytest.param(Master(NEVER), 0.125, [0.0], 0.25, id="outlives-the-deadline"),
    pytest.param(Master(NEVER), 0.25, [0.0], 0.25, id="ends-with-the-deadline"),
    pytest.param(Master(NEVER), 0.375, [0.0, 0.375], 0.625, id="ends-before-the-deadline"),
    pytest.param(Master(NEVER), 0.875, [0.0, 0.75], 1.0, id="the-second-one-outlives-it"),
])  # fmt: skip
def test_tries_until_the_deadline_and_once_more_at_it(
    master: Master, timeout: float, attempts: list[float], ends: float
) -> None:
    world = World(*[master] * 3, node_timeout=0.25)
    refusal = world.refused(world.acquire(world.spec(pause=0.5), deadline=world.now + timeout))
    assert refusal.kind == ("unreachable" if master.after == NEVER else "held")
    assert refusal.waited.attempts == len(attempts)
    assert [sent.at - START for sent in world.all("acquire")] == pytest.approx(attempts)
    assert world.after_start() == pytest.approx(ends)


def test_the_last_attempt_says_what_was_wrong() -> None:
    """C1: `QuorumUnreachable` only if the last attempt was an outage."""
    first_down = turns(Failure("error", "down", sent=False), HELD)
    world = World(*[Master(0.01, {"acquire": first_down}) for _ in range(3)])
    refusal = world.refused(world.acquire(world.spec(), deadline=world.now + 0.1))
    assert (refusal.kind, refusal.waited.attempts) == ("held", 2)


@pytest.mark.parametrize(("masters", "attempts"), [
    # Waiting does not cure a wrong password; but only a majority of them makes it hopeless.
    pytest.param([refuses()] * 3, 1, id="all"),
    pytest.param([refuses(), refuses(), Master()], 1, id="majority"),
    pytest.param([refuses(), held(), held()], 2, id="minority"),
    pytest.param([refuses(), Master()], 1, id="half-of-two"),
    pytest.param([refuses(), refuses(), down(), Master(), Master()], 2, id="minority-and-an-outage"),
    pytest.param([refuses(configuration=False)] * 3, 2, id="passing-errors"),
    pytest.param([down(configuration=True)] * 3, 1, id="wrong-password-while-connecting"),
])  # fmt: skip
def test_a_misconfigured_majority_ends_it_at_once(masters: list[Master], attempts: int) -> None:
    world = World(*masters)
    refusal = world.refused(world.acquire(world.spec(), deadline=world.now + 0.1))
    assert refusal.waited.attempts == attempts


def test_a_straggler_of_an_earlier_attempt_is_not_a_vote() -> None:
    # It answers 0.05 s after the attempt was given up, in the middle of the next one: a grant of a token
    # that has been rolled back since.
    world = World(Master(0.3), node_timeout=0.25)
    refusal = world.refused(world.acquire(world.spec(pause=0.02), deadline=world.now + 0.27))
    assert refusal.waited.attempts == 2
    assert len(world.arrived) == 1  # it did arrive
    assert world.after_start() == pytest.approx(0.52)


@pytest.mark.parametrize("won", [None, []])
def test_the_grant_is_handed_over_the_moment_there_is_one(won: list[Any] | None) -> None:
    """R11: an interruption on the way back to the caller must not make it forget what it has to release."""
    world = World(*[frees_itself(1) for _ in range(3)])
    grant = world.granted(
        world.acquire(world.spec(), deadline=START + 1.0, granted=bool if won is None else won.append)
    )
    assert won in (None, [grant])


def test_the_wait_object_is_asked_after_every_refused_attempt() -> None:
    """C4, R25: any callable that tenacity would take, with the number of attempts so far."""
    asked = []

    def strategy(state: RetryCallState) -> float:
        asked.append(state.attempt_number)
        return 0.1 * state.attempt_number

    world = World(*[held()] * 3)
    spec = world.spec()._replace(retry=strategy)
    world.run(world.acquire(spec, deadline=world.now + 0.65))
    assert asked == [1, 2, 3, 4]
    assert [sent.at - START for sent in world.all("acquire")] == pytest.approx([0.0, 0.1, 0.3, 0.6, 0.65])
