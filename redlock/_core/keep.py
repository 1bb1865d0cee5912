"""Keeping leases while their holders work: when to renew, when to give up, whom to tell (R13, R15).

Nothing here waits.  A keeper asks the roster who is due, and each of those what is to be done; that is
an operation like any other.  So one thread, or one timer of a loop, keeps any number of leases.
"""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING, TypeAlias

from redlock._core.extend import Extension, extend
from redlock._core.release import farewell

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.effects import Op
    from redlock._core.lease import LeaseState
    from redlock._core.terms import Plan, Terms

OVER = -math.inf    # due of a lease that has ended: nothing is left to be done
RENEWALS = 3        # in the time of one TTL, so that two may be missed (R15)
_SPREAD = 0.2       # up to so much of the pause earlier: leases that were granted at once part
# Renewals are due at times that are so far apart, as a part of the TTL: those of many leases then leave in one packet
# for each master, and wake their keeper once.
_STEP = 1 / 96
_RETRY = 1 / 20     # of the TTL, after a renewal that nobody answered

Task: TypeAlias = "Op[Extension | None]"


class Keeping:
    """One lease, and what its holder wants to be done for it.

    ``renew``: extend it at a third of its TTL, as long as ``alive()`` says that its owner is there.
    ``max_hold``: seconds after which it is lost whatever happens (C7).  ``random``: a number from 0 to 1,
    for every pause another one.  ``tell``: called once if it is lost, and never after a release (C9).  ``kept``: after every
    renewal that was won.
    """

    __slots__ = ("_alive", "_busy", "_ends", "_kept", "_plan", "_random", "_renew", "_renew_at", "_tell", "_terms",
                 "_tried", "lease")

    def __init__(
        self,
        terms: Terms,
        plan: Plan,
        lease: LeaseState,
        now: float,
        *,
        renew: bool,
        max_hold: float | None,
        alive: Callable[[], bool],
        random: Callable[[], float],
        tell: Callable[[], object] | None = None,
        kept: Callable[[], object] | None = None,
    ) -> None:
        self.lease = lease
        self._kept = kept
        self._tell = tell
        self._terms = terms
        self._plan = plan
        self._renew = renew
        self._ends = math.inf if max_hold is None else now + max_hold
        self._alive = alive
        self._random = random
        self._busy = False      # an operation of ours is under way
        self._tried = -math.inf     # the end of its time, when it was last tried in vain to move that
        self._renew_at = self._next(now)

    @property
    def due(self) -> float:
        """When to look at it next; `OVER` if it is over."""
        if self.lease._over:  # noqa: SLF001 - the operations are its other half
            return OVER
        lease = self.lease
        until = min(lease.valid_until, self._ends)
        if self._busy or not self._renew:
            return until
        at = self._renew_at
        if not (lease._under_way or lease.valid_until == self._tried):  # noqa: SLF001
            # The holder itself may have made the TTL shorter since.
            at = min(at, lease.valid_until - lease.ttl * (1 - 1 / RENEWALS))
        step = lease.ttl * _STEP
        return min(until, at - (at - self._terms.phase * step) % step)

    @property
    def over(self) -> bool:
        """Nothing is left to be done but to `tell`."""
        return self.lease._over  # noqa: SLF001 - the operations are its other half

    def tell(self) -> None:
        """It is lost: let who wants to know, know, once (C9)."""
        tell, self._tell = self._tell, None
        if tell is not None:
            tell()

    def look(self, now: float) -> Task | None:
        """What to do at ``now``.  None: nothing, see `over` and `due`."""
        lease = self.lease
        if self.over or now < self.due:
            return None
        if now >= self._ends:
            lease._lose("max_hold")  # noqa: SLF001
            return self._give_up()
        if self._busy or not self._renew:
            return None
        if not self._alive():       # its owner has gone and left it: it runs out by itself
            self._renew = False
            return None
        self._busy = True
        return self._extend(now)

    def _extend(self, now: float) -> Task:
        at = now
        extension: Extension | None = None
        try:
            extension = yield from extend(self._terms, self._plan, self.lease, self.lease.ttl, now)
            at = extension.at
        finally:
            self._busy = False
            kept = extension is not None and extension.kind == "kept"
            self._tried = -math.inf if kept else self.lease.valid_until
            self._renew_at = self._next(at) if kept else at + self.lease.ttl * _RETRY
        if kept and self._kept is not None:
            self._kept()
        return extension

    def _give_up(self) -> Task:
        yield farewell(self._plan, self.lease)
        return None

    def _next(self, now: float) -> float:
        return now + self.lease.ttl / RENEWALS * (1 - _SPREAD * self._random())


class Roster:
    """Who is kept, in the order in which they are due."""

    __slots__ = ("_due", "_heap", "_number")

    def __init__(self) -> None:
        self._due: dict[Keeping, float] = {}
        self._heap: list[tuple[float, int, Keeping]] = []   # entries whose time is not that of `_due` are void
        self._number = 0

    def __len__(self) -> int:
        return len(self._due)

    def put(self, keeping: Keeping) -> float:
        """It is there from now on, or its time has changed, or it is over.  Returns when it is due."""
        due = keeping.due
        if due == OVER:
            self._due.pop(keeping, None)
            return due
        if self._due.get(keeping) == due:
            return due
        self._number += 1
        heapq.heappush(self._heap, (due, self._number, keeping))
        self._due[keeping] = due
        if len(self._heap) > 2 * len(self._due) + 64:       # most were released long before their time
            self._heap = [entry for entry in self._heap if self._due.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)
        return due

    def next(self) -> float:
        """When the first one is due; infinity if there is none."""
        heap = self._heap
        while heap and self._due.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else math.inf

    def take(self, now: float) -> list[Keeping]:
        """Those that are due at ``now``.  They are out until they are `put` back."""
        taken = []
        while self.next() <= now:
            keeping = heapq.heappop(self._heap)[2]
            del self._due[keeping]
            taken.append(keeping)
        return taken
