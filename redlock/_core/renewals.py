"""Keeping leases while their holders work: when to renew, when to give up, whom to tell (R13, R15).

Nothing here waits.  A renewer asks the schedule who is due, and `tasks` what is to be done for those: operations like any
other, one for many leases at once.  So one thread, or one timer of a loop, keeps any number of leases.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias

from redlock._core import quorum
from redlock._core.extend import MOST, Extension, extend, renew
from redlock._core.release import abandon, release_lost

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from redlock._core.effects import Op
    from redlock._core.lease import LeaseState
    from redlock._core.settings import LockSpec, MastersSettings

_UNKNOWN = math.nan  # equal to no time
OVER = -math.inf  # due of a lease that has ended: nothing is left to be done
RENEWALS = 3  # in the time of one TTL, so that two may be missed (R15)
_SPREAD = 0.2  # up to so much of the pause earlier: leases that were granted at once part
# Renewals are due at times that are so far apart, as a part of the TTL: those of many leases then leave in one packet
# for each master, and wake their renewer once.
_STEP = 1 / 32
_RETRY = 1 / 20  # of the TTL, after a renewal that nobody answered
_LEFT = 1 - 1 / RENEWALS  # of the TTL, when a lease is due at the latest
_LEFT_OF_VALIDITY = (
    3 / 4
)  # ... but never more than this of what the drift leaves of it, or it would be due at once again
_MOST_LEFT = 1 - (1 - _SPREAD) / RENEWALS + _STEP  # of the TTL, when a lease is due for the first time
_SOON = 0.05  # seconds after which a lease that is perhaps abandoned is looked at again
_VOID = 64  # so many entries of a schedule may be void, besides as many as there are good ones
_MANY_NEWCOMERS = 256  # so many newcomers are not looked through for those that are over

# What there is to do for one or several leases; returns how each was extended, in their order.
Task: TypeAlias = "Op[list[Extension]]"
# Whether a lease has a holder yet.  "gone": its thread or task has ended, and the lease runs out by itself (P3).  "abandoned":
# nobody can give it back any more, as its `with` or its lock object is no more, and so the renewer does (R15).  "perhaps": the
# collector is about to take these apart, and runs finalizers first, which may be inside of the `with`.
Owner: TypeAlias = Literal["here", "gone", "abandoned", "perhaps"]


class Renewal:
    """One lease, and what its holder wants to be done for it.

    ``renew``: extend it at a third of its TTL, as long as ``owner()`` says that somebody holds it.
    ``max_hold``: seconds after which it is lost whatever happens (C7).  ``random``: a number from 0 to 1,
    for every pause another one; those that were renewed together have one pause.  ``tell``: called once if it is lost, and never after a release (C9).  ``kept``: after every
    renewal that was won.  ``released``: once the renewer has given it back in place of a holder that has gone.
    """

    __slots__ = (
        "_again",
        "_at",
        "_busy",
        "_ends",
        "_for",
        "_owner",
        "_released",
        "_renew",
        "_renew_at",
        "_since",
        "_tell",
        "alone",
        "kept",
        "lease",
        "new",
        "random",
        "refused",
        "settings",
        "soonest",
        "spec",
        "stands",
    )

    def __init__(
        self,
        settings: MastersSettings,
        spec: LockSpec,
        lease: LeaseState,
        now: float,
        *,
        renew: bool,
        max_hold: float | None,
        owner: Callable[[], Owner],
        random: Callable[[], float],
        tell: Callable[[], object] | None = None,
        kept: Callable[[], object] | None = None,
        released: Callable[[], object] | None = None,
    ) -> None:
        self.lease = lease
        self.kept = kept
        self._released = released
        self._tell = tell
        self.settings = settings
        self.spec = spec
        self._renew = renew
        self._owner = owner
        self.random = random
        self._busy = False  # an operation of ours is under way
        self.alone = False  # a master does not renew it together with others ...
        self.refused: Collection[int] = ()  # ... as it said the last time, or says yet
        self._since = now
        self._renew_at: float | None = None  # not known before somebody wants to know: most leases are over by then
        self._at = math.inf  # the same in step with others, and early enough ...
        self._for = _UNKNOWN  # ... for this end of its time
        self._again = math.inf  # when to look whether it was abandoned
        self.stands: float | None = None  # where its `Schedule` has it
        self.new = True  # nobody has
        self.soonest = lease.valid_until - lease.ttl * _MOST_LEFT  # it is not `due` earlier
        if max_hold is None:
            self._ends = math.inf
        else:
            self._ends = now + max_hold
            self.soonest = min(self.soonest, self._ends)

    @property
    def due(self) -> float:
        """When to look at it next; `OVER` if it is over."""
        lease = self.lease
        if lease.over:
            return OVER
        end = lease.valid_until
        until = min(end, self._ends, self._again)
        if self._busy or not self._renew:
            return until
        if end != self._for:
            self._reckon(end)
        return min(until, self._at)

    def _reckon(self, end: float) -> None:
        """When to renew it, if its time ends at ``end``."""
        lease = self.lease
        if self._renew_at is None:
            self._renew_at = self._since + _pause(lease.ttl, self.random())
        if lease.all_pending:
            end = math.inf
        latest = end - _left(
            lease.ttl, self.settings.drift_factor
        )  # the holder itself may have made the TTL shorter since
        self._at = _in_step(self._renew_at, latest, lease.ttl, self.settings.phase)
        self._for = end

    @property
    def over(self) -> bool:
        """Nothing is left to be done but to `tell`."""
        return self.lease.over

    @property
    def abandoned(self) -> bool:
        """Nobody can give it back any more."""
        return not self.over and self._owner() == "abandoned"

    def changed(self) -> bool:
        """Whether anybody has to look at it: not if it was released before anybody did."""
        if self.new:
            if self.lease.released:
                return False
            self.new = False
        return True

    def tell(self) -> None:
        """It is lost: let who wants to know, know, once (C9)."""
        tell, self._tell = self._tell, None
        if tell is not None:
            tell()

    def look(self, now: float) -> Literal["nothing", "renew", "give up", "give back"]:
        """What is to be done now that it is due; see `tasks`."""
        lease = self.lease
        if now >= lease.valid_until:
            return "nothing"  # but to `put` it back, which finds that out as well
        if now >= self._ends:
            if self.over:
                return "nothing"
            lease.lose("max_hold")
            return "give up"
        owner = "gone" if self.over else self._owner()
        if owner == "abandoned":
            return "give back"
        self._again = now + _SOON if owner == "perhaps" else math.inf
        if self._busy or not self._renew or (owner == "perhaps" and now < self._at):
            return "nothing"
        if owner == "gone":
            self._renew = False
            return "nothing"
        self._busy = True
        return "renew"

    @property
    def ends(self) -> float:
        """When it is lost, as things are."""
        return min(self.lease.valid_until, self._ends)

    def renewed(self, extension: Extension, spread: float) -> None:
        """The operation that has it in hand is over; ``spread``: of the next pause, the same for all that were together."""
        self._busy = False
        lease = self.lease
        if extension.kind == "kept":
            self._renew_at = extension.at + _pause(lease.ttl, spread)
            self._for = _UNKNOWN
        else:  # soon again, however little is left
            self._renew_at = extension.at + lease.ttl * _RETRY
            self._for = lease.valid_until
            self._at = _in_step(self._renew_at, math.inf, lease.ttl, self.settings.phase)
        self.refused = extension.refused

    def give_up(self) -> Task:
        """Release it; nobody waits for that."""
        yield release_lost(self.spec, self.lease)
        return []

    def give_back(self) -> Task:
        """Release what nobody can give back any more."""
        yield from abandon(self.spec, self.lease)
        if self._released is not None:
            self._released()
        return []


# Those that were renewed together ask the same, one after the other.
@lru_cache(maxsize=16)
def _pause(ttl: float, spread: float) -> float:
    return ttl / RENEWALS * (1 - _SPREAD * spread)


@lru_cache(maxsize=16)
def _left(ttl: float, drift_factor: float) -> float:
    """Seconds before its end at which a lease is due at the latest."""
    return min(ttl * _LEFT, (ttl - quorum.drift(ttl, drift_factor)) * _LEFT_OF_VALIDITY)


@lru_cache(maxsize=16)
def _in_step(at: float, latest: float, ttl: float, phase: float) -> float:
    """At ``at`` or at ``latest``, or up to a step earlier: one number for all who meet there."""
    step = ttl * _STEP
    at = min(at, latest)
    return (math.floor(at / step - phase) + phase) * step


def tasks(due: Iterable[Renewal], now: float) -> tuple[list[tuple[Task, list[Renewal]]], list[Renewal]]:
    """What is to be done for those that are ``due``, all of one `Masters`: operations to be started at once, and whom each
    is for; and those for which there is nothing to do, but to be `put` back.

    Those that are to be renewed are so together.  One that a master renews only by itself has an operation of its own.
    """
    started: list[tuple[Task, list[Renewal]]] = []
    rest: list[Renewal] = []
    together: list[Renewal] = []
    names = 0
    for renewal in due:
        todo = renewal.look(now)
        if todo == "renew":
            if renewal.alone or renewal.refused:
                renewal.alone = True
                started.append((_renew([renewal], now), [renewal]))
                continue
            more = len(renewal.spec.names)
            if together and names + more > MOST:
                started.append((_renew(together, now), together))
                together, names = [], 0
            together.append(renewal)
            names += more
        elif todo == "give up":
            started.append((renewal.give_up(), [renewal]))
        elif todo == "give back":
            started.append((renewal.give_back(), [renewal]))
        else:
            rest.append(renewal)
    if together:
        started.append((_renew(together, now), together))
    return started, rest


def failed_to_keep(renewals: list[Renewal]) -> str:
    """For people."""
    others = f" and {len(renewals) - 1} more" if len(renewals) > 1 else ""
    return f"keeping {renewals[0].lease!r}{others} failed"


def _renew(renewals: list[Renewal], now: float) -> Task:
    first = renewals[0]
    extensions: list[Extension] = []
    try:
        if len(renewals) == 1:
            extensions = [(yield from extend(first.settings, first.spec, first.lease, first.lease.ttl, now))]
        else:
            leases = [(renewal.spec, renewal.lease) for renewal in renewals]
            extensions = yield from renew(first.settings, leases, now)
    finally:
        # They stay together: one pause for all of them, so that they are due at one moment again.
        spread = first.random()
        interrupted = Extension("unanswered", now)
        for renewal, extension in zip(renewals, extensions or [interrupted] * len(renewals), strict=True):
            renewal.renewed(extension, spread)
    errors: list[Exception] = []
    for renewal, extension in zip(renewals, extensions, strict=True):
        if renewal.kept is not None and extension.kind == "kept":
            try:
                renewal.kept()
            except Exception as error:  # noqa: BLE001 - a user's; others have to be told as well
                errors.append(error)
    if errors:
        raise errors[0]
    return extensions


class Schedule:
    """Who is kept, in the order in which they are due."""

    __slots__ = ("_heap", "_in_hand", "_moments", "_newcomers", "_number", "_standing", "_void")

    def __init__(self) -> None:
        self._in_hand: list[tuple[float, int, list[Renewal]]] = []
        self._newcomers: deque[Renewal] = deque()
        self._moments: dict[float, list[Renewal]] = {}  # who is due when; void are those that stand elsewhere by now
        self._heap: list[float] = []  # when anybody is due
        self._standing = 0
        self._void = 0
        self._number = 0

    def __len__(self) -> int:
        return self._standing

    def add(self, renewal: Renewal) -> bool:
        """It is new, and due at its `soonest` or later.  True: `take_in` is to be called, or too many would wait for that.

        Most leases are released long before they are due.  So nothing is done for one that could be in vain, and whoever
        looks for those that are due takes in first those that are not over by then.  May be called by anybody at any time,
        while somebody else does whatever with this schedule.
        """
        self._newcomers.append(renewal)
        return len(self._newcomers) > _MANY_NEWCOMERS

    def take_in(self) -> tuple[float, list[Renewal]]:
        """From now on they are there like all others, those that were not released yet; returns what `put` does."""
        coming = []
        while self._newcomers:
            renewal = self._newcomers.popleft()
            if renewal.changed():
                coming.append(renewal)
        return self.put(coming)

    @property
    def newcomers(self) -> bool:
        return bool(self._newcomers)

    def put(self, renewals: Iterable[Renewal]) -> tuple[float, list[Renewal]]:
        """They are there from now on, or their time has changed, or they are over.

        Returns when the first of them is due, and those that are over.
        """
        first, over = math.inf, []
        for renewal in renewals:
            due, stood = renewal.due, renewal.stands
            if stood == due:
                first = min(first, due)
                continue
            if stood is not None:
                self._void += 1
                self._standing -= 1
                renewal.stands = None
            if due == OVER:
                over.append(renewal)
                continue
            renewal.stands = due
            self._standing += 1
            first = min(first, due)
            others = self._moments.get(due)
            if others is not None:
                others.append(renewal)
            else:
                self._moments[due] = [renewal]
                heapq.heappush(self._heap, due)
        if self._void > _VOID + self._standing:  # most were released long before their time
            self._sweep()
        return first, over

    def _sweep(self) -> None:
        """Throw away what is void."""
        swept: dict[float, list[Renewal]] = {}
        for at, renewals in self._moments.items():
            there = [renewal for renewal in dict.fromkeys(renewals) if renewal.stands == at]
            if there:
                swept[at] = there
        self._moments = swept
        self._heap = sorted(swept)
        self._void = 0

    def lend(self, renewals: list[Renewal]) -> None:
        """An operation has these in hand.  They are there again when the first of them may be lost, answers or not (P6).

        Unless they are `put` back before, and the list is emptied: so nothing is done for each of them in vain.
        """
        if renewals:
            self._number += 1
            heapq.heappush(self._in_hand, (min([renewal.ends for renewal in renewals]), self._number, renewals))

    def next(self) -> float:
        """When the first one is due; infinity if there is none."""
        heap, in_hand = self._heap, self._in_hand
        while heap and not self._anybody(heap[0]):
            del self._moments[heapq.heappop(heap)]
        while in_hand and not in_hand[0][2]:
            heapq.heappop(in_hand)
        due = heap[0] if heap else math.inf
        return min(due, in_hand[0][0]) if in_hand else due

    def _anybody(self, at: float) -> bool:
        """Whether anybody stands there yet."""
        renewals = self._moments[at]
        while renewals and renewals[-1].stands != at:
            renewals.pop()
            self._void -= 1
        return bool(renewals)

    def take(self, now: float) -> list[Renewal]:
        """Those that are due at ``now``.  They are out until they are `put` back."""
        taken: list[Renewal] = []
        while self._in_hand and self._in_hand[0][0] <= now:
            _, _, renewals = heapq.heappop(self._in_hand)
            taken += self.put(renewals)[1]  # each at its end from now on; and those that are over
        while self._heap and self._heap[0] <= now:
            at = heapq.heappop(self._heap)
            for renewal in self._moments.pop(at):
                if renewal.stands == at:
                    renewal.stands = None
                    self._standing -= 1
                    taken.append(renewal)
                else:
                    self._void -= 1
        return taken
