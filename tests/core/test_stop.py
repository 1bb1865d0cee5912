"""A stop ends a campaign wherever it waits, and nothing of it is left (R31, P7)."""

from __future__ import annotations

import math
from typing import Any

import pytest

from redlock._core.election import until_stopped
from redlock._core.kernel.ballot import Grant
from redlock._core.stop import Stop, Stopped
from tests.core.world import NEVER, Master, World, held

# What a campaign waits for: answers of masters that are slow, silent or split, a pause, the second round for the fence.
CAMPAIGNS = {
    "slow": [Master(0.1)] * 3,
    "held": [held(0.01)] * 3,
    "silent": [Master(NEVER)] * 3,
    "split": [Master(0.02), held(0.03), held(0.05, by="another")],
    "second round": [Master(0.01, {"acquire": [1, b"99999999999999999"]}, {"fence": 0.1})] * 3,
}


@pytest.mark.parametrize("campaign", CAMPAIGNS)
@pytest.mark.parametrize("at", [0.0, 0.005, 0.015, 0.04, 0.06, 0.12, 0.3, 0.52, 1.0])
def test_a_stop_leaves_no_key(campaign: str, at: float) -> None:
    world, stop = World(*CAMPAIGNS[campaign]), Stop()
    world.later(at, stop.request)
    op = until_stopped(world.acquire(world.spec(), deadline=math.inf), stop)
    try:
        outcome = world.run(op)
    except Stopped:
        assert world.after_start() == pytest.approx(at)  # at once
        acquired, released = world.all("acquire"), world.all("release")
        assert [sent.token for sent in released] == [sent.token for sent in acquired]
        assert len(world.local_queue) == 0
    else:
        assert isinstance(outcome, Grant)  # it was elected before
        assert world.after_start() <= at


def test_a_stop_in_line_leaves_the_line() -> None:
    """It waits for another one of this process (R23)."""
    world, stop = World(*[Master()] * 3), Stop()
    first = world.granted(world.acquire(world.spec(), deadline=math.inf))
    assert first.place is not None
    world.later(0.1, stop.request)
    with pytest.raises(Stopped):
        world.run(until_stopped(world.acquire(world.spec(), deadline=math.inf), stop))
    assert world.verbs() == ["acquire"]
    world.local_queue.leave(first.place)
    assert len(world.local_queue) == 0


def test_an_interruption_goes_before_a_stop() -> None:
    """A user that pressed Ctrl-C sees that, also if the election was stopped in the same moment."""
    world, stop = World(*[Master(0.1)] * 3), Stop()
    op = until_stopped(world.acquire(world.spec(), deadline=math.inf), stop)
    op.send(None)
    op.send(None)
    stop.request()
    with pytest.raises(KeyboardInterrupt):
        world.run(_thrown(op, KeyboardInterrupt()))


class Struck(Stop):
    """A Ctrl-C strikes between two steps, at the look with the number ``at``."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._left = at

    def requested(self) -> bool:
        self._left -= 1
        if self._left == 0:
            raise KeyboardInterrupt
        return False


@pytest.mark.parametrize("at", range(1, 5))
def test_a_ctrl_c_between_two_steps_of_a_campaign_leaves_no_key(at: int) -> None:
    world = World(*[held(0.1)] * 3)
    with pytest.raises(KeyboardInterrupt):
        world.run(until_stopped(world.acquire(world.spec(), deadline=math.inf), Struck(at)))
    assert {sent.token for sent in world.all("release")} == {sent.token for sent in world.all("acquire")}
    assert len(world.local_queue) == 0


def test_the_next_ctrl_c_reaches_an_acquire_that_takes_its_keys_back() -> None:
    struck: list[str] = []

    def acquire():
        try:
            yield "ask"
            yield "wait"
        finally:
            try:
                yield "release"
            except KeyboardInterrupt:
                struck.append("release")
                raise

    op: Any = until_stopped(acquire(), Struck(2))
    assert [op.send(None) for _ in range(3)][1:] == ["ask", "release"]
    with pytest.raises(KeyboardInterrupt):
        op.throw(KeyboardInterrupt())
    assert struck == ["release"]


def _thrown(op, error):
    effect = op.throw(error)
    while True:
        effect = op.send((yield effect))
