"""Keeping leases while their holders work: when to renew, when to give up, whom to tell (R13, R15).

Nothing here waits.  A keeper asks the roster who is due, and `tasks` what is to be done for those: operations like any
other, one for many leases at once.  So one thread, or one timer of a loop, keeps any number of leases.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal, TypeAlias

from redlock._core.extend import MOST, Extension, extend, renew
from redlock._core.release import farewell

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from redlock._core.effects import Op
    from redlock._core.lease import LeaseState
    from redlock._core.terms import Plan, Terms

OVER = -math.inf    # due of a lease that has ended: nothing is left to be done
RENEWALS = 3        # in the time of one TTL, so that two may be missed (R15)
_SPREAD = 0.2       # up to so much of the pause earlier: leases that were granted at once part
# Renewals are due at times that are so far apart, as a part of the TTL: those of many leases then leave in one packet
# for each master, and wake their keeper once.
_STEP = 1 / 32
_RETRY = 1 / 20     # of the TTL, after a renewal that nobody answered
_LEFT = 1 - 1 / RENEWALS     # of the TTL, when a lease is due at the latest
_MOST_LEFT = 1 - (1 - _SPREAD) / RENEWALS + _STEP       # of the TTL, when a lease is due for the first time
_CROWD = 256        # so many newcomers are not looked through for those that are over

# What there is to do for one or several leases; returns how each was extended, in their order.
Task: TypeAlias = "Op[list[Extension]]"


class Keeping:
    """One lease, and what its holder wants to be done for it.

    ``renew``: extend it at a third of its TTL, as long as ``alive()`` says that its owner is there.
    ``max_hold``: seconds after which it is lost whatever happens (C7).  ``random``: a number from 0 to 1,
    for every pause another one.  ``tell``: called once if it is lost, and never after a release (C9).  ``kept``: after every
    renewal that was won.
    """

    __slots__ = ("_alive", "_alone", "_busy", "_ends", "_kept", "_plan", "_random", "_refused", "_renew", "_renew_at", "_since",
                 "_tell", "_terms", "_tried", "lease", "new", "soonest")

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
        self._alive = alive
        self._random = random
        self._busy = False      # an operation of ours is under way
        self._alone = False     # a master does not renew it together with others ...
        self._refused: Collection[int] = ()     # ... as it said the last time, or says yet
        self._tried = -math.inf     # the end of its time, when it was last tried in vain to move that
        self._since = now
        self._renew_at: float | None = None     # not known before somebody wants to know: most leases are over by then
        self.new = True     # nobody has
        self.soonest = lease.valid_until - lease.ttl * _MOST_LEFT       # it is not `due` earlier
        if max_hold is None:
            self._ends = math.inf
        else:
            self._ends = now + max_hold
            self.soonest = min(self.soonest, self._ends)

    @property
    def due(self) -> float:
        """When to look at it next; `OVER` if it is over."""
        lease = self.lease
        if lease._over:  # noqa: SLF001 - the operations are its other half
            return OVER
        end = until = lease.valid_until
        until = min(until, self._ends)
        if self._busy or not self._renew:
            return until
        at, ttl = self._renew_at, lease.ttl
        if at is None:
            at = self._renew_at = self._next(self._since)
        # The holder itself may have made the TTL shorter since.
        if not (lease._ceilings or end == self._tried) and end - ttl * _LEFT < at:  # noqa: SLF001
            at = end - ttl * _LEFT
        step = ttl * _STEP
        at -= (at - self._terms.phase * step) % step
        return min(until, at)

    @property
    def over(self) -> bool:
        """Nothing is left to be done but to `tell`."""
        return self.lease._over  # noqa: SLF001 - the operations are its other half

    def changed(self) -> bool:
        """Whether anybody has to look at it: not if it was released before anybody did."""
        if self.new:
            if self.lease._released:  # noqa: SLF001
                return False
            self.new = False
        return True

    def tell(self) -> None:
        """It is lost: let who wants to know, know, once (C9)."""
        tell, self._tell = self._tell, None
        if tell is not None:
            tell()

    def look(self, now: float) -> Literal["nothing", "renew", "give up"]:
        """What is to be done at ``now``; see `tasks`."""
        due = self.due
        if due == OVER or now < due:
            return "nothing"
        if now >= self._ends:
            self.lease._lose("max_hold")  # noqa: SLF001
            return "give up"
        if self._busy or not self._renew:
            return "nothing"
        if not self._alive():       # its owner has gone and left it: it runs out by itself
            self._renew = False
            return "nothing"
        self._busy = True
        return "renew"

    @property
    def ends(self) -> float:
        """When it is lost, as things are."""
        return min(self.lease.valid_until, self._ends)

    def _renewed(self, extension: Extension | None, now: float) -> None:
        """None: interrupted."""
        self._busy = False
        if extension is not None and extension.kind == "kept":
            self._tried = -math.inf
            self._renew_at = self._next(extension.at)
        else:
            at = now if extension is None else extension.at
            self._tried = self.lease.valid_until
            self._renew_at = at + self.lease.ttl * _RETRY
        if extension is not None and not self._alone:
            self._refused = extension.refused

    def _give_up(self) -> Task:
        yield farewell(self._plan, self.lease)
        return []

    def _next(self, now: float) -> float:
        return now + self.lease.ttl / RENEWALS * (1 - _SPREAD * self._random())


def tasks(due: Iterable[Keeping], now: float) -> tuple[list[tuple[Task, list[Keeping]]], list[Keeping]]:
    """What is to be done for those that are ``due``, all of one `Masters`: operations to be started at once, and whom each
    is for; and those for which there is nothing to do, but to be `put` back.

    Those that are to be renewed are so together.  One that a master renews only by itself has an operation of its own.
    """
    started: list[tuple[Task, list[Keeping]]] = []
    rest: list[Keeping] = []
    together: list[Keeping] = []
    names = 0
    for keeping in due:
        todo = keeping.look(now)
        if todo == "give up":
            started.append((keeping._give_up(), [keeping]))  # noqa: SLF001 - the two are one thing
        elif todo == "renew":
            if keeping._refused:  # noqa: SLF001
                keeping._alone = True  # noqa: SLF001
            if keeping._alone:  # noqa: SLF001
                started.append((_renew([keeping], now), [keeping]))
                continue
            more = len(keeping._plan.names)  # noqa: SLF001
            if together and names + more > MOST:
                started.append((_renew(together, now), together))
                together, names = [], 0
            together.append(keeping)
            names += more
        else:
            rest.append(keeping)
    if together:
        started.append((_renew(together, now), together))
    return started, rest


def failed_to_keep(keepings: list[Keeping]) -> str:
    """For people."""
    others = f" and {len(keepings) - 1} more" if len(keepings) > 1 else ""
    return f"keeping {keepings[0].lease!r}{others} failed"


def _renew(keepings: list[Keeping], now: float) -> Task:
    extensions: list[Extension] = []
    try:
        first = keepings[0]
        if len(keepings) == 1:
            extensions = [(yield from extend(first._terms, first._plan, first.lease, first.lease.ttl, now))]  # noqa: SLF001
        else:
            leases = [(keeping._plan, keeping.lease) for keeping in keepings]  # noqa: SLF001
            extensions = yield from renew(first._terms, leases, now)  # noqa: SLF001
    finally:
        for keeping, extension in zip_longest(keepings, extensions):
            keeping._renewed(extension, now)  # noqa: SLF001
    errors: list[Exception] = []
    for keeping, extension in zip(keepings, extensions, strict=True):
        if extension.kind == "kept" and keeping._kept is not None:  # noqa: SLF001
            try:
                keeping._kept()  # noqa: SLF001
            except Exception as error:  # noqa: BLE001 - a user's; others have to be told as well
                errors.append(error)
    if errors:
        raise errors[0]
    return extensions


class Roster:
    """Who is kept, in the order in which they are due."""

    __slots__ = ("_due", "_heap", "_in_hand", "_newcomers", "_number")

    def __init__(self) -> None:
        self._in_hand: list[tuple[float, int, list[Keeping]]] = []
        self._newcomers: deque[Keeping] = deque()
        self._due: dict[Keeping, float] = {}
        self._heap: list[tuple[float, int, Keeping]] = []   # entries whose time is not that of `_due` are void
        self._number = 0

    def __len__(self) -> int:
        return len(self._due)

    def add(self, keeping: Keeping) -> bool:
        """It is new, and due at its `soonest` or later.  True: `take_in` is to be called, or too many would wait for that.

        Most leases are released long before they are due.  So nothing is done for one that could be in vain, and whoever
        looks for those that are due takes in first those that are not over by then.  May be called by anybody at any time,
        while somebody else does whatever with this roster.
        """
        self._newcomers.append(keeping)
        return len(self._newcomers) > _CROWD

    def take_in(self) -> tuple[float, list[Keeping]]:
        """From now on they are there like all others, those that were not released yet; returns what `put` does."""
        coming = []
        while self._newcomers:
            keeping = self._newcomers.popleft()
            if keeping.changed():
                coming.append(keeping)
        return self.put(coming)

    @property
    def newcomers(self) -> bool:
        return bool(self._newcomers)

    def put(self, keepings: Iterable[Keeping]) -> tuple[float, list[Keeping]]:
        """They are there from now on, or their time has changed, or they are over.

        Returns when the first of them is due, and those that are over.
        """
        first, over = math.inf, []
        for keeping in keepings:
            due = keeping.due
            if due == OVER:
                self._due.pop(keeping, None)
                over.append(keeping)
                continue
            first = min(first, due)
            if self._due.get(keeping) != due:
                self._number += 1
                heapq.heappush(self._heap, (due, self._number, keeping))
                self._due[keeping] = due
        if len(self._heap) > 2 * len(self._due) + 64:       # most were released long before their time
            self._heap = [entry for entry in self._heap if self._due.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)
        return first, over

    def lend(self, keepings: list[Keeping]) -> None:
        """An operation has these in hand.  They are there again when the first of them may be lost, answers or not (P6).

        Unless they are `put` back before, and the list is emptied: so nothing is done for each of them in vain.
        """
        if keepings:
            self._number += 1
            heapq.heappush(self._in_hand, (min([keeping.ends for keeping in keepings]), self._number, keepings))

    def next(self) -> float:
        """When the first one is due; infinity if there is none."""
        heap, in_hand = self._heap, self._in_hand
        while heap and self._due.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        while in_hand and not in_hand[0][2]:
            heapq.heappop(in_hand)
        due = heap[0][0] if heap else math.inf
        return min(due, in_hand[0][0]) if in_hand else due

    def take(self, now: float) -> list[Keeping]:
        """Those that are due at ``now``.  They are out until they are `put` back."""
        while self._in_hand and self._in_hand[0][0] <= now:
            self._look_after(heapq.heappop(self._in_hand)[2])
        taken = []
        heap = self._heap
        while heap and heap[0][0] <= now:
            due, _, keeping = heapq.heappop(heap)
            if self._due.get(keeping) == due:
                del self._due[keeping]
                taken.append(keeping)
        return taken

    def _look_after(self, keepings: list[Keeping]) -> None:
        """Each at its end; and those that are over now."""
        for keeping in keepings:
            self._number += 1
            self._due[keeping] = due = keeping.due
            heapq.heappush(self._heap, (due, self._number, keeping))
