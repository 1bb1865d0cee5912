"""Keeps leases while their holders work: when to extend one, when to give it up, whom to tell (R13, R15).

Nothing here waits.  The renewer asks the `Schedule` which leases are due.  `tasks` makes operations for them, like any
other operation, and one for many leases.  So one thread, or one timer of a loop, keeps any number of leases.

When a lease is due (R15):

- A lease is due when a third of its TTL has passed, or up to a fifth of that earlier, at random.  Otherwise
  thousands of leases that were granted at once would be due at once.
- That time is rounded down to a step of a 32nd of the TTL.  There the lease meets other leases of the same client:
  they leave in one packet, and wake the renewer once.  Each client has a phase of its own, so the steps of several
  clients do not coincide.
- Leases that were extended together get the same pause, so they meet again.  They stay together until one of them
  ends, or is tried again sooner.  So requests are full, and what is the same for all is computed once.
- A large ``drift_factor`` may leave little of the TTL.  Then a quarter of what it leaves passes before the next
  extension.  Otherwise there would be no pause at all.
- If too few masters answered, the next try is after a twentieth of the TTL, while the lease is valid.
- If the holder itself extends the lease, to a longer or shorter TTL, the renewer goes on with that TTL.

Losses.  A loss by time needs no answer.  The end of a lease is a time in the same schedule, also while an extension
is under way.

New leases.  Most leases are released long before they are due, so the renewer does nothing for them in advance.  A
new lease waits in a queue, and goes into the schedule when the renewer looks next.  If it is lost or gets shorter
before that, it goes there at once.  When more than 256 are queued, the thread that adds the next one also empties the
queue: otherwise a busy process would keep all that it has released since the last look.

Also considered: a thread or task for each lease (there may be 10,000); one long-lived generator for each (it wakes up
for nothing, and has to be told of every change); a pause of its own for each (leases part at every extension, and a
client with a hundred leases asks for ten at a time); a batch as an object of its own, with its packed request (a
second place where a lease stands, to be kept true at every release, loss and extension).
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
OVER = -math.inf  # `due` of a lease that has ended: nothing is left to be done
RENEWALS = 3  # in the time of one TTL, so that two may fail (R15)
_SPREAD = 0.2  # a pause is shorter by up to this part, at random: leases granted at once are due at different times
_STEP = 1 / 32  # of the TTL: leases are due at such steps only, so that many of them meet in one packet
_RETRY = 1 / 20  # of the TTL: the pause after an extension that too few masters answered
_LEFT = 1 - 1 / RENEWALS  # of the TTL: so much is left when a lease is due at the latest ...
_LEFT_OF_VALIDITY = 3 / 4  # ... but no more than this of the validity, or the lease would be due again at once
_MOST_LEFT = 1 - (1 - _SPREAD) / RENEWALS + _STEP  # of the TTL: so much may be left when a lease is first due
_SOON = 0.05  # seconds after which a lease that may be abandoned is looked at again
_VOID = 64  # a schedule may have so many void entries, and as many again as there are valid ones
_MANY_NEWCOMERS = 256  # up to so many new leases are queued before somebody looks which of them are over

# An operation for one or several leases.  It returns how the extension of each ended, in their order.
Task: TypeAlias = "Op[list[Extension]]"
# Whether a lease still has a holder.
# "gone": its thread or task has ended, and the lease runs out by itself (P3).
# "abandoned": its `with` or its lock object is gone.  Nobody else can give the lease back, so the renewer does (R15).
# "perhaps": the garbage collector is about to free these.  It runs finalizers first, perhaps inside of the `with`.
Owner: TypeAlias = Literal["here", "gone", "abandoned", "perhaps"]


class Renewal:
    """One lease, and what its holder wants to be done for it.

    ``renew``: extend the lease at a third of its TTL, as long as ``owner()`` says that it has a holder.
    ``max_hold``: seconds after which the lease is lost, whatever happens (C7).
    ``owner``: says whether the lease still has a holder.
    ``random``: returns a number from 0 to 1, another one for every pause.
    ``tell``: called once if the lease is lost, and never after a release (C9).
    ``kept``: called after every extension that was won.
    ``released``: called when the renewer has released the lease in place of a holder that is gone.
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
        self._busy = False  # an extension by the renewer is under way
        self.alone = False  # extend it by a request of its own: a master refused to do it together with others
        self.refused: Collection[int] = ()  # the masters that did so in the last extension; late ones are added
        self._since = now
        self._renew_at: float | None = None  # computed when it is first needed: most leases are over by then
        self._at = math.inf  # `_renew_at` in step with other leases, and early enough ...
        self._for = _UNKNOWN  # ... if the lease ends at this time
        self._again = math.inf  # when to look again whether it was abandoned
        self.stands: float | None = None  # the time at which its `Schedule` has it
        self.new = True  # no `Schedule` has it yet
        self.soonest = lease.valid_until - lease.ttl * _MOST_LEFT  # it is not `due` earlier
        if max_hold is None:
            self._ends = math.inf
        else:
            self._ends = now + max_hold
            self.soonest = min(self.soonest, self._ends)

    @property
    def due(self) -> float:
        """When to look at the lease next; `OVER` if it has ended."""
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
        """Compute when to extend the lease, which ends at ``end``."""
        lease = self.lease
        if self._renew_at is None:
            self._renew_at = self._since + _pause(lease.ttl, self.random())
        if lease.all_pending:
            end = math.inf
        # The TTL is that of now: the holder itself may have made it shorter.
        latest = end - _left(lease.ttl, self.settings.drift_factor)
        self._at = _in_step(self._renew_at, latest, lease.ttl, self.settings.phase)
        self._for = end

    @property
    def over(self) -> bool:
        """The lease has ended.  Nothing is left to be done but to `tell`."""
        return self.lease.over

    @property
    def abandoned(self) -> bool:
        """Nobody can give the lease back any more."""
        return not self.over and self._owner() == "abandoned"

    def changed(self) -> bool:
        """Whether the renewer has to look at the lease: not if it was released before the first look."""
        if self.new:
            if self.lease.released:
                return False
            self.new = False
        return True

    def tell(self) -> None:
        """The lease is lost: call the function that the holder gave, once (C9)."""
        tell, self._tell = self._tell, None
        if tell is not None:
            tell()

    def look(self, now: float) -> Literal["nothing", "renew", "give up", "give back"]:
        """What to do now that the lease is due; see `tasks`."""
        lease = self.lease
        if now >= lease.valid_until:
            return "nothing"  # the caller will `put` it back, and that finds the lease over
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
        """When the lease is lost, unless it is extended."""
        return min(self.lease.valid_until, self._ends)

    def renewed(self, extension: Extension, spread: float) -> None:
        """The operation that was to extend the lease is over.

        ``spread``: the random number for the next pause, the same for all leases of the operation.
        """
        self._busy = False
        lease = self.lease
        if extension.kind == "kept":
            self._renew_at = extension.at + _pause(lease.ttl, spread)
            self._for = _UNKNOWN
        else:  # try again soon, however little time is left
            self._renew_at = extension.at + lease.ttl * _RETRY
            self._for = lease.valid_until
            self._at = _in_step(self._renew_at, math.inf, lease.ttl, self.settings.phase)
        self.refused = extension.refused

    def give_up(self) -> Task:
        """Release the lost lease.  Nobody waits for the answers."""
        yield release_lost(self.spec, self.lease)
        return []

    def give_back(self) -> Task:
        """Release a lease that nobody can give back any more."""
        yield from abandon(self.spec, self.lease)
        if self._released is not None:
            self._released()
        return []


# The three functions are cached: leases that were extended together call them with the same arguments, one by one.
@lru_cache(maxsize=16)
def _pause(ttl: float, spread: float) -> float:
    return ttl / RENEWALS * (1 - _SPREAD * spread)


@lru_cache(maxsize=16)
def _left(ttl: float, drift_factor: float) -> float:
    """How many seconds before its end a lease is due at the latest."""
    return min(ttl * _LEFT, (ttl - quorum.drift(ttl, drift_factor)) * _LEFT_OF_VALIDITY)


@lru_cache(maxsize=16)
def _in_step(at: float, latest: float, ttl: float, phase: float) -> float:
    """The earlier of ``at`` and ``latest``, rounded down to a step: all leases of that step get the same time."""
    step = ttl * _STEP
    at = min(at, latest)
    return (math.floor(at / step - phase) + phase) * step


def tasks(due: Iterable[Renewal], now: float) -> tuple[list[tuple[Task, list[Renewal]]], list[Renewal]]:
    """What to do for the renewals that are ``due``, all of one `Masters`.

    Returns the operations to start at once, each with its renewals.  Returns also the renewals for which there is
    nothing to do: the caller will `put` them back.

    Leases are extended together.  If a master refuses that for a lease, the lease gets an operation of its own.
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
    """The text of a log line."""
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
        # One pause for all of them, so that they are due at the same moment again.
        spread = first.random()
        interrupted = Extension("unanswered", now)
        for renewal, extension in zip(renewals, extensions or [interrupted] * len(renewals), strict=True):
            renewal.renewed(extension, spread)
    errors: list[Exception] = []
    for renewal, extension in zip(renewals, extensions, strict=True):
        if renewal.kept is not None and extension.kind == "kept":
            try:
                renewal.kept()
            except Exception as error:  # noqa: BLE001 - an error of the user's code must not stop the others
                errors.append(error)
    if errors:
        raise errors[0]
    return extensions


class Schedule:
    """All renewals, in the order in which they are due."""

    __slots__ = ("_heap", "_in_hand", "_moments", "_newcomers", "_number", "_standing", "_void")

    def __init__(self) -> None:
        # The leases of each operation under way, with the first of their ends.  The number between them keeps the heap
        # from comparing lists.
        self._in_hand: list[tuple[float, int, list[Renewal]]] = []
        self._newcomers: deque[Renewal] = deque()
        # By the time at which they are due.  An entry is void if its renewal stands at another time by now.
        self._moments: dict[float, list[Renewal]] = {}
        self._heap: list[float] = []  # the keys of `_moments`
        self._standing = 0  # valid entries
        self._void = 0  # void entries
        self._number = 0

    def __len__(self) -> int:
        return self._standing

    def add(self, renewal: Renewal) -> bool:
        """Queue a new renewal, which is due at its `soonest` or later.

        True: too many are queued, and the caller must call `take_in`.

        Most leases are released long before they are due, and then all work for them would be in vain.  So a new one
        is only queued here.  Before the renewer looks which leases are due, it takes in those that are not over by
        then.  Any thread may call this at any time, while another one uses this schedule.
        """
        self._newcomers.append(renewal)
        return len(self._newcomers) > _MANY_NEWCOMERS

    def take_in(self) -> tuple[float, list[Renewal]]:
        """Put the queued renewals into the schedule, unless their lease was released.  Returns what `put` returns."""
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
        """Put ``renewals`` into the schedule, or move them if their time has changed, or remove them if they are over.

        Returns when the first of them is due, and the renewals that are over.
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
        if self._void > _VOID + self._standing:  # most leases are released long before they are due
            self._sweep()
        return first, over

    def _sweep(self) -> None:
        """Remove all void entries."""
        swept: dict[float, list[Renewal]] = {}
        for at, renewals in self._moments.items():
            there = [renewal for renewal in dict.fromkeys(renewals) if renewal.stands == at]
            if there:
                swept[at] = there
        self._moments = swept
        self._heap = sorted(swept)
        self._void = 0

    def lend(self, renewals: list[Renewal]) -> None:
        """An operation works on these.  When the first of them may be lost, `take` puts them back, answers or not (P6).

        Usually the caller will `put` them back earlier, and empty the list.  So no work is done for each in vain.
        """
        if renewals:
            self._number += 1
            heapq.heappush(self._in_hand, (min([renewal.ends for renewal in renewals]), self._number, renewals))

    def next(self) -> float:
        """When the first renewal is due; infinity if there is none."""
        heap, in_hand = self._heap, self._in_hand
        while heap and not self._anybody(heap[0]):
            del self._moments[heapq.heappop(heap)]
        while in_hand and not in_hand[0][2]:
            heapq.heappop(in_hand)
        due = heap[0] if heap else math.inf
        return min(due, in_hand[0][0]) if in_hand else due

    def _anybody(self, at: float) -> bool:
        """Whether any renewal is still due at ``at``."""
        renewals = self._moments[at]
        while renewals and renewals[-1].stands != at:
            renewals.pop()
            self._void -= 1
        return bool(renewals)

    def take(self, now: float) -> list[Renewal]:
        """Remove and return the renewals that are due at ``now``.  They stay out until they are `put` back."""
        taken: list[Renewal] = []
        while self._in_hand and self._in_hand[0][0] <= now:
            _, _, renewals = heapq.heappop(self._in_hand)
            taken += self.put(renewals)[1]  # each is due at its end from now on; some are over already
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
