"""Virtual time: what happens next, and everything that happened.

No sleep, no wall clock, one source of randomness.  A run is a pure function of its parameters, so a
failure that was seen once can be seen again.
"""

from __future__ import annotations

import heapq
import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class World:
    """True time in seconds, and the queue of what is to happen."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.random = random.Random(seed)
        self.trace: list[tuple[float, str, tuple[Any, ...]]] = []
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0  # equal times happen in the order in which they were asked for

    def at(self, time: float, action: Callable[..., None], *args: Any) -> None:
        self._count += 1
        heapq.heappush(self._queue, (max(time, self.now), self._count, action, args))

    def after(self, delay: float, action: Callable[..., None], *args: Any) -> None:
        self.at(self.now + delay, action, *args)

    def run(self, until: float) -> None:
        """Let everything happen that is due before ``until``."""
        queue = self._queue
        while queue and queue[0][0] <= until:
            self.now, _, action, args = heapq.heappop(queue)
            action(*args)
        self.now = max(self.now, until)

    def log(self, what: str, *details: Any) -> None:
        """Formatted only when somebody reads it: most runs are never looked at."""
        self.trace.append((self.now, what, details))

    def lines(self, last: int | None = None) -> list[str]:
        trace = self.trace if last is None else self.trace[-last:]
        return [f"{at:10.4f}  {what} {' '.join(map(str, details))}" for at, what, details in trace]
