"""The judge of those who try once, or whose time is up (C3): somebody gets it, and nobody takes for ever to say that."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.client import Task
    from tests.simulation.invariants import Judge

SOMEBODY_WINS = "C3 somebody wins"
ENDS = "C3 ends in time"

FORGIVEN = 1  # rounds of one run without a winner; by chance one in many thousand has none
# In `node_timeout`: in line, five tries, and pauses of 2, 4, 4 and 4 between them.  A try for a slot is one attempt
# for each that most masters call free, and one more.
_IN_LINE, _TRIES, _PAUSES = 2, 5, 14
_LATE = 60  # steps that its thread may come to late


class Tries:
    """Part of the `Judge`."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.rounds = 0
        self.without = 0
        self._ended: dict[int, list[bool]] = {}

    def ended(self, round_: int, *, granted: bool) -> None:
        """A try of this round is over."""
        ended = self._ended.setdefault(round_, [])
        ended.append(granted)
        if len(ended) < self.judge.parameters.clients:
            return
        self.rounds += 1
        if not any(ended):
            self.without += 1
            if self.without > FORGIVEN:
                self.judge.fail(SOMEBODY_WINS, f"{self.without} of {self.rounds} rounds have no winner")

    def waits_until(self, task: Task, deadline: float) -> None:
        """An acquire may wait until then, by its own clock."""
        client, parameters = task.client, self.judge.parameters
        task.deadline = deadline
        most = (_IN_LINE + _TRIES * (1 + parameters.slots) + _PAUSES) * parameters.node_timeout
        end = client.true_time(max(deadline, client.clock()) + most) + _LATE * client.late
        self.judge.world.at(end, self._must_be_over, task, self.judge.world.now)

    def _must_be_over(self, task: Task, since: float) -> None:
        client = task.client
        if not (task.over or client.crashed or client.paused or client.true_time(client.resumed_at) > since):
            self.judge.fail(ENDS, f"{task} goes on, although it should have ended at {task.deadline:.4f} by its clock")
