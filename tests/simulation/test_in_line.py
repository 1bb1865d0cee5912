"""Threads of one process that wait for one name while too few masters are there (C2, R23)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from redlock._core.local_queue import LocalQueue
from tests.simulation.actor import Actor
from tests.simulation.scene import client_of, quiet
from tests.simulation.slot_user import SlotUser

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.client import Client, Task
    from tests.simulation.run import Run


def told(run: Run, client: Client, patience: list[float], *, after: float = 0.0) -> list[str]:
    """What each of several threads is told, in the order in which they came; all come in the same moment."""
    answers: dict[int, str] = {}

    def thread(number: int) -> Actor:
        class Thread(SlotUser if run.parameters.slots else Actor):  # type: ignore[misc]
            def _acquired(self, task: Task, outcome: Any, interrupted: BaseException | None) -> None:
                answers[number] = getattr(outcome, "kind", "granted")

        return Thread(client)

    for number, seconds in enumerate(patience):
        run.world.after(after, thread(number).acquire, ["lock-0"], 8.0, seconds)
    run.world.run(run.world.now + after + 10.0)
    return [answers[number] for number in range(len(patience))]


def killed(run: Run) -> None:
    for master in run.masters[:3]:
        master.stop()


def frozen(run: Run) -> None:
    for master in run.masters[:3]:
        master.frozen = True


@pytest.mark.parametrize("slots", [0, 2])
@pytest.mark.parametrize("outage", [killed, frozen])
@pytest.mark.parametrize("patience", [2.0, 0.1, 0.0])
def test_an_outage_is_told_to_everybody(patience: float, outage: Callable[[Run], None], slots: int) -> None:
    run = quiet(masters=5, several=0.0, slots=slots)
    client = client_of(run)
    outage(run)
    assert told(run, client, [patience] * 5) == ["unreachable"] * 5


@pytest.mark.parametrize("slots", [0, 2])
def test_also_to_who_does_not_want_to_wait(slots: int) -> None:
    """Behind one that waits for the masters to come back."""
    run = quiet(masters=5, several=0.0, slots=slots)
    client = client_of(run)
    killed(run)
    (SlotUser if slots else Actor)(client).acquire(["lock-0"], 8.0, 30.0)
    assert told(run, client, [0.0] * 3, after=1.0) == ["unreachable"] * 3


@pytest.mark.parametrize("slots", [0, 1])
def test_while_masters_are_there_others_have_it(slots: int) -> None:
    run = quiet(masters=5, several=0.0, slots=slots)
    client = client_of(run)
    first, *rest = told(run, client, [0.0] + [0.5] * 3 + [0.0])
    assert first == "granted"
    assert rest == ["held"] * 4


def test_it_would_be_seen() -> None:
    run = quiet(masters=5, several=0.0)
    client = client_of(run)
    killed(run)
    with mock.patch.object(LocalQueue, "look_ahead", return_value=[True]):
        assert told(run, client, [2.0] * 5).count("held") > 1
