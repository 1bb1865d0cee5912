"""Takes one of k slots: at most k holders, by k ordinary locks, never by a counter (R32).

An attempt asks for one slot.  A refusal also tells which of the k are free on that master.  The next attempt asks at
once for a slot that most of those masters call free.  No slot is asked for twice before a pause.  So contenders that
split the votes of a slot do not meet there again and again.  Where all slots are taken, there is only one attempt.

Who finds none free waits as for a lock (R24), on one channel of the group.  The release of a slot is announced there as
well, with the number of the slot, and that one is asked for next.

In one process there is one line for the group (R23).  Only the first one in it asks the masters.  It leaves the line
once it has a slot, unlike the holder of a lock.  Who only tries (`blocking=False`) does not stand behind waiters, but
waits for an attempt that is under way: that one takes one slot of several.

Also considered:

- One script that takes the first free slot on each master.  It needs fewer rounds while all clients reach all masters
  in one order.  Otherwise an attempt gets some slots here and others there, keeps them from others until it is rolled
  back, and splits the votes of several.
- To subscribe to the channel of each slot.  That is k subscriptions on each connection, and nothing for the scripts.
  But announcements of a majority would have to be counted over k channels.
- A pause before another slot is asked for.  It would be random, and longer than the round that it saves.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, NamedTuple

from redlock._core import wire
from redlock._core.acquire import Grant, Refusal, attempt, despite_interrupts, next_try, pause
from redlock._core.effects import Leave, Listen, Op, Timeout, wait
from redlock._core.local_queue import Place
from redlock._core.mode import EXCLUSIVE
from redlock._core.quorum import Tally, majority
from redlock._core.subscriptions import Subscription

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable, Iterable

    from redlock._core.lease import LeaseState
    from redlock._core.settings import LockSpec, MastersSettings


class Board:
    """What one process (or event loop) knows of a group: where to ask first.  Nothing but speed depends on it."""

    __slots__ = ("__weakref__", "_held", "latest", "waiting")

    def __init__(self) -> None:
        self._held: dict[int, weakref.ref[LeaseState]] = {}
        self.latest: int | None = None  # the slot that was taken last
        self.waiting = 0  # operations that were refused, and wait for a release

    def took(self, slot: int, lease: weakref.ref[LeaseState]) -> None:
        self._held[slot], self.latest = lease, slot

    def holds(self, slot: int) -> bool:
        """Whether this process holds ``slot``."""
        reference = self._held.get(slot)
        lease = None if reference is None else reference()
        return lease is not None and lease.valid


class Group(NamedTuple):
    """The slots of one name: the key of their line and channel, and each slot as the lock that it is."""

    key: str
    slots: tuple[LockSpec, ...]
    board: Board


def slot_name(name: str, slot: int) -> str:
    return f"{name}#{slot}"


def group_of(spec: LockSpec, keys: Iterable[wire.Keys], prefix: str, board: Board) -> Group:
    """The group ``spec.name``.  ``keys``: those of each slot."""
    every = tuple(keys)
    locks = tuple(key for one in every for key in one.locks)
    group = f"{prefix}{spec.name}#"
    return Group(
        group,
        tuple(
            spec._replace(
                names=(slot_name(spec.name, slot),),
                keys=one,
                mode=EXCLUSIVE._replace(
                    acquire=functools.partial(wire.occupy, locks), release=functools.partial(wire.vacate, group, slot)
                ),
            )
            for slot, one in enumerate(every)
        ),
        board,
    )


class Asking:
    """Which slot one operation asks for.  ``slot``: the one that it has asked for last."""

    __slots__ = ("_asked", "_masters", "_random", "_seen", "group", "slot")

    def __init__(self, group: Group, masters: int, random: Callable[[], float]) -> None:
        self.group = group
        self.slot = -1
        self._masters = masters
        self._random = random
        self._asked: set[int] = set()  # since the last pause
        self._seen: tuple[tuple[float, ...], ...] = ()  # what each master that refused said of all slots

    def first(self) -> LockSpec:
        """The slot that this process had last, if it has it no more; else any that it does not hold."""
        board = self.group.board
        free = [slot for slot in range(len(self.group.slots)) if not board.holds(slot)]
        latest = board.latest
        return self._ask(latest if latest in free else self._any(free or range(len(self.group.slots))))

    def elsewhere(self, refusal: Refusal) -> LockSpec | None:
        """The slot to ask for at once after ``refusal``: one that most masters call free.  None: wait."""
        self._seen = refusal.slots
        if refusal.kind != "held":
            return None
        free = [
            0 if slot in self._asked else sum(left[slot] == 0 for left in self._seen)
            for slot in range(len(self.group.slots))
        ]
        most = max(free)
        return (
            self._ask(self._any(s for s, count in enumerate(free) if count == most))
            if 2 * most > len(self._seen)
            else None
        )

    def after_pause(self, announced: int | None) -> LockSpec:
        """The slot to ask for after a pause.  ``announced``: the one whose release has ended it; None: none has."""
        self._asked.clear()
        if announced is not None and announced < len(self.group.slots):
            return self._ask(announced)
        left = self._left()
        return self._ask(self._any(slot for slot, soon in enumerate(left) if soon == min(left)))

    def remaining(self) -> float | None:
        """Seconds until a majority is free in some slot, unless keys are extended.  None: that cannot be known."""
        return min((left for left in self._left() if left > 0), default=None) if self._seen else None

    def _left(self) -> list[float]:
        """For each slot the seconds until a majority may be free there, if those are that said nothing."""
        missing = majority(self._masters) - (self._masters - len(self._seen))
        if missing < 1:
            return [0.0] * len(self.group.slots)
        return [sorted(left)[missing - 1] for left in zip(*self._seen, strict=True)]

    def _any(self, slots: Iterable[int]) -> int:
        several = list(slots)
        return several[math.floor(self._random() * len(several)) % len(several)]

    def _ask(self, slot: int) -> LockSpec:
        self.slot = slot
        self._asked.add(slot)
        return self.group.slots[slot]


def acquire_slot(settings: MastersSettings, asking: Asking, deadline: float, won: list[Grant]) -> Op[Grant | Refusal]:
    """Try until a slot is granted or ``deadline`` has passed; ``won``: see `acquire`.  `Asking.slot` says which one.

    Each try asks for every slot that may be free, one after the other, also if the deadline passes meanwhile.
    """
    place = Place((asking.group.key + "\0",))  # no name has a NUL: no lock stands in this line
    try:
        outcome = yield from _contend(settings, asking, deadline, won, place)
        interruption = yield from despite_interrupts(Leave(place))
        if interruption is not None:
            raise interruption  # noqa: TRY301 - `except` below sends `Leave` again, which does no harm
    except GeneratorExit:  # the generator was dropped: no driver would carry out what it yields
        raise
    except BaseException:
        yield from despite_interrupts(Leave(place))
        raise
    return outcome._replace(place=None) if isinstance(outcome, Grant) else outcome


def _contend(
    settings: MastersSettings, asking: Asking, deadline: float, won: list[Grant], place: Place
) -> Op[Grant | Refusal]:
    waiting = _Waiting(settings, asking)
    attempts = 1
    spec = asking.first()
    outcome = yield from attempt(settings, spec, won, attempts, place, enter=True)
    if outcome is None:  # it was not our turn
        refusal = yield from _queue(settings, asking.group.board, place, deadline)
        if refusal is not None:
            return refusal
        spec = asking.first()
        outcome = yield from attempt(settings, spec, won, attempts, place)
    while isinstance(outcome, Refusal):
        other = asking.elsewhere(outcome)
        if other is None:
            outcome = outcome._replace(attempts=attempts, remaining=asking.remaining())
            if spec.refused is not None and outcome.kind == "held":
                spec.refused(outcome)
            if outcome.at >= deadline or outcome.tally.misconfigured:  # C1
                return outcome
            other = yield from waiting.wait(spec, outcome, deadline)
        spec = other
        attempts += 1
        waiting.attempting()
        outcome = yield from attempt(settings, spec, won, attempts, place)
        waiting.tried(outcome)
    assert outcome is not None  # noqa: S101 - it is our turn
    return outcome


class SlotSubscription(Subscription):
    """Hears of the releases of all slots, and counts those of each slot by themselves.

    ``announced``: the slot whose release was announced last.
    """

    __slots__ = ("_by_slot", "announced")

    def __init__(self, group: str, masters: int) -> None:
        super().__init__((group,), masters)
        self.announced: int | None = None
        self._by_slot: dict[int | None, int] = {}  # what `_all` is for each slot

    def attempting(self) -> None:
        super().attempting()
        self._by_slot.clear()

    def hear(self, master: int, token: bytes) -> bool:
        slot = wire.announced_slot(token)
        self._all = self._by_slot.get(slot, 0)
        reason = super().hear(master, token)
        self._by_slot[slot] = self._all
        if reason:
            self.announced = slot
        return reason


class _Waiting:
    """How one operation waits until there is reason to ask again."""

    def __init__(self, settings: MastersSettings, asking: Asking) -> None:
        self._settings, self._asking = settings, asking
        self._subscription: SlotSubscription | None = None
        self._failed = 1  # attempts since a release was announced: after a release all waiters begin anew

    def wait(self, spec: LockSpec, refusal: Refusal, deadline: float) -> Op[LockSpec]:
        """Returns the slot to ask for."""
        if self._subscription is None and refusal.kind == "held":
            self._subscription = SlotSubscription(self._asking.group.key, len(self._settings.masters))
            yield Listen(self._subscription)
        subscription, board = self._subscription, self._asking.group.board
        until = next_try(spec, refusal, self._failed, deadline)
        board.waiting += 1
        try:
            announced = yield from pause(self._settings, subscription, refusal, until)
        finally:
            board.waiting -= 1
        if announced:
            self._failed = 0
        return self._asking.after_pause(subscription.announced if announced and subscription is not None else None)

    def attempting(self) -> None:
        self._failed += 1
        if self._subscription is not None:
            self._subscription.attempting()

    def tried(self, outcome: Grant | Refusal | None) -> None:
        if self._subscription is None:
            return
        if not isinstance(outcome, Refusal):
            self._subscription.tried(collided=False)
            return
        self._subscription.tried(collided=outcome.split, took=outcome.tally.took)
        self._subscription.refused(outcome.tally.in_the_way())  # also if another slot is asked for at once


def _queue(settings: MastersSettings, board: Board, place: Place, deadline: float) -> Op[Refusal | None]:
    """Wait until it is our turn.  Returns a `Refusal` if the deadline comes first.

    Behind an attempt it is waited a little longer: it takes one slot of several, and nobody waits in the line.
    """
    until, longer = deadline, False
    while not place.turn:
        event = yield from wait(until, quiet=True)
        if isinstance(event, Timeout) and not place.turn:
            if longer or board.waiting:
                return Refusal("held", Tally(settings.masters), event.at, attempts=0)
            until, longer = event.at + settings.node_timeout, True
    place.inbox = None  # no `Turn` will come any more
    return None
