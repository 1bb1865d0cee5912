"""Which renewals are due, and when.

They are due at few different times, for these are rounded: so the schedule is a dictionary of moments, each with its
renewals, and a heap of the moments.  Most leases are released long before: so a new one waits in a queue, and is placed
when the renewer looks next; at once if it is lost or shortened before that.  A release takes it out of the queue again.
Else the garbage collector would go through hundreds of ended leases.
"""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

from redlock._core.renewals import OVER, Renewal

if TYPE_CHECKING:
    from collections.abc import Iterable

_NOWHERE = math.inf  # `Renewal.moment` of a renewal that is neither in the queue nor in the wheel
MANY = 256  # new leases in the queue; with more, the thread that adds one empties it
_SPARE = 64  # the heap is rebuilt when it has more than 2n + 64 entries for n moments at which something is due


class Schedule:
    """All renewals of one client, by the moment at which they are due."""

    __slots__ = ("_heap", "_moments", "queue")

    def __init__(self) -> None:
        # New ones, each due at its `soonest` or later.  Any thread may add one, or take it out.
        self.queue: dict[Renewal, None] = {}
        self._moments: dict[float, dict[Renewal, None]] = {}  # not sets: a simulation needs an order
        self._heap: list[float] = []

    @property
    def empty(self) -> bool:
        return not self.queue and not self._moments

    def all(self) -> list[Renewal]:
        return [*self.queue, *(renewal for due in self._moments.values() for renewal in due)]

    def newcomers(self) -> list[Renewal]:
        """The renewals in the queue, for the caller to `put`."""
        coming = list(self.queue)
        for renewal in coming:
            if renewal.moment is None:  # a release from now on takes it out of its moment
                renewal.moment = _NOWHERE
        return coming

    def put(self, renewals: Iterable[Renewal]) -> list[Renewal]:
        """Put ``renewals`` to their moments, or take them out if they have ended.  Returns those that have."""
        over, moments = [], self._moments
        for renewal in renewals:
            self.queue.pop(renewal, None)  # first: a finalizer may queue it again from now on
            due, stood = renewal.due, renewal.moment
            if due == stood:
                continue
            # In this order: a Ctrl-C may leave it in two places, but never in none.
            if due == OVER:
                over.append(renewal)
            elif due in moments:
                moments[due][renewal] = None
            else:
                self._begin(renewal, due)
            renewal.moment = _NOWHERE if due == OVER else due
            if stood is not None and stood in moments:
                others = moments[stood]
                others.pop(renewal, None)
                if not others:
                    del moments[stood]
        return over

    def _begin(self, renewal: Renewal, due: float) -> None:
        self._moments[due] = {renewal: None}
        heapq.heappush(self._heap, due)
        if len(self._heap) > 2 * len(self._moments) + _SPARE:
            self._heap = sorted(self._moments)

    def next(self) -> float:
        """When the first renewal is due; infinity if there is none."""
        while self._heap and self._heap[0] not in self._moments:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else math.inf

    def pop_due(self, now: float) -> list[Renewal]:
        """Take out and return the renewals that are due at ``now``, for the caller to `put` back."""
        taken: list[Renewal] = []
        while self.next() <= now:
            taken += self._moments.pop(heapq.heappop(self._heap))
        for renewal in taken:
            renewal.moment = _NOWHERE
        return taken
