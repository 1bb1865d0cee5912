"""As many contenders as there are free slots, all at once: how many rounds until each has one (R32).

``jitter``: how much the ways of two messages differ.  With 0.1 masters get the requests mostly in one order.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from redlock._core.slots import KnownSlots, SlotTarget
from tests.simulation.network import Link
from tests.simulation.scene import client_of, quiet
from tests.simulation.slot_user import SlotUser

if TYPE_CHECKING:
    from tests.simulation.client import Client, Task

DELAY = 0.001
TURNS = 60


class Contender(SlotUser):
    """Counts its rounds, and keeps what it gets: the next turn is about another group."""

    def __init__(self, client: Client, rounds: list[int]) -> None:
        super().__init__(client)
        self._board = KnownSlots()
        self._rounds = rounds

    def _acquired(self, task: Task, outcome: Any, interrupted: BaseException | None) -> None:
        self._rounds.append(outcome.attempts)


def rounds_of(slots: int, masters: int, *, turns: int = TURNS, jitter: float = 0.1) -> list[int]:
    """The rounds of each contender, sorted.  They begin within half of the way to a master."""
    with mock.patch.object(Link, "delay", lambda link: link.world.random.uniform(1 - jitter, 1 + jitter) * DELAY):
        return _rounds_of(slots, masters, turns)


def _rounds_of(slots: int, masters: int, turns: int) -> list[int]:
    run = quiet(masters=masters, slots=slots, several=0.0)
    chance, rounds = random.Random(f"{slots} slots, {masters} masters"), []  # type: ignore[var-annotated]
    clients = [client_of(run) for _ in range(slots)]
    for turn in range(turns):
        for client in clients:
            begin = partial(Contender(client, rounds).acquire, [f"turn-{turn}"], 30.0, 10.0)
            run.world.after(chance.uniform(0.0, DELAY / 2), begin)
        run.world.run(run.world.now + 1.0)
    assert len(rounds) == slots * turns, "each has one"
    return sorted(rounds)


def later_than(most: int, rounds: list[int]) -> float:
    return sum(one > most for one in rounds) / len(rounds)


@pytest.mark.parametrize("masters", [3, 5])
@pytest.mark.parametrize("slots", [2, 3, 5, 8])
def test_two_rounds_at_the_99th_percentile(slots, masters):
    """R32: where requests that leave one after the other mostly arrive so, as in one network."""
    assert later_than(2, rounds_of(slots, masters)) <= 0.01


@pytest.mark.parametrize("slots", [3, 8])
def test_hardly_more_where_each_master_is_reached_in_another_order(slots):
    assert later_than(2, rounds_of(slots, 3, jitter=0.8)) <= 0.03
    assert later_than(3, rounds_of(slots, 3, jitter=0.8)) <= 0.01


@pytest.mark.parametrize("slots", [3, 8])
def test_one_slot_for_each_attempt_would_not_do(slots):
    """Those who were refused together know nothing of each other, and choose the same slot."""
    ask = SlotTarget._ask

    def ask_for_one(target: SlotTarget, *slots: int) -> None:
        ask(target, slots[0])

    with mock.patch.object(SlotTarget, "_ask", ask_for_one):
        assert later_than(2, rounds_of(slots, 3)) > 0.03
