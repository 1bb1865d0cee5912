"""Many try once, in the same instant, over links of different length: somebody gets it (C3).

Again and again, each time for a name that is free.  A round in which all were refused, by each other, is one too many:
each of them was told that somebody has the lock.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from redlock._core.ballots import Grant
from tests.simulation.actor import Actor
from tests.simulation.slot_user import SlotUser

if TYPE_CHECKING:
    from redlock._core.settings import LockSpec
    from tests.simulation.client import Client, Task
    from tests.simulation.invariants import Hold

PERIOD = 8.0  # seconds from one round to the next
HOLDS = 5.0  # so long a job takes: all tries of its round are over by then
APART = 0.0005  # seconds between the first one and the last


class Trier(Actor):
    """Tries once in each round."""

    _round = 0

    def think(self) -> None:
        self._idle = self._begins = True
        self._round = math.floor(self.world.now / PERIOD) + 1
        at = self._round * PERIOD + self.world.random.uniform(0.0, APART)
        self.world.at(at, self.client.gate, self.begin)

    def begin(self) -> None:
        self._begins = False
        if not self.client.closing:
            self._idle = False
            parameters = self.client.parameters
            self.acquire([f"lock-{number}" for number in range(parameters.names)], parameters.ttl, 0.0)

    def _acquired(self, task: Task, outcome: Any, interrupted: BaseException | None) -> None:
        if interrupted is None and not self.client.closing:
            self.judge.tries.ended(self._round, granted=isinstance(outcome, Grant))
        super()._acquired(task, outcome, interrupted)

    def _plan_hold(self, hold: Hold, spec: LockSpec) -> None:
        self.world.after(0.0 if self.client.closing else HOLDS, self.client.gate, self._release, hold, spec)


class SlotTrier(Trier, SlotUser):
    """Tries once in each round to get a slot."""


def reach(client: Client, number: int) -> None:
    """Put this client near to one master, and far from the others."""
    for link in client.links:
        if link.master.index != number % len(client.links):
            link.lengthen(client.parameters.far)
