"""Takes one of k slots: at most k holders, by k ordinary locks, never by a counter (R32).

Why the second attempt asks for any free slot.  A refused client does not know which others still ask: any single slot
that it chooses may be chosen by one of them.  But masters serve requests mostly in the same order: so the second client
is given what the first one has left.  No slot is asked for twice before a pause: else contenders that split the votes
of a slot would meet there again and again.  A single try (`blocking=False`) waits for an attempt in front that has had
no answer yet: that one takes one slot of several.

Also considered: one slot for each attempt (of k contenders on k free slots one in 20, for k = 3, to one in seven, for k
= 8, needs a third round); any slot from the first attempt on (where masters are reached in different orders, one in ten
does); the channel of each slot (a majority would have to be counted over k channels); a pause before another slot is
asked for (longer than the round that it saves).
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from redlock._core import wire
from redlock._core.acquire import Target
from redlock._core.confirm import records
from redlock._core.effects import Op, Send
from redlock._core.kernel.ballot import Ballot, Grant, Refusal
from redlock._core.kernel.quorum import Tally, majority
from redlock._core.local_queue import Place
from redlock._core.outcomes import NEVER
from redlock._core.subscriptions import Subscription
from redlock._core.tokens import by_whom

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable, Iterable

    from redlock._core.lease import LeaseState
    from redlock._core.settings import LockSpec, MastersSettings
    from redlock.errors import Outcome


class KnownSlots:
    """What one process (or event loop) knows of a group: where to ask first.  Nothing but speed depends on it."""

    __slots__ = ("__weakref__", "_held", "latest")

    def __init__(self) -> None:
        self._held: dict[int, weakref.ref[LeaseState]] = {}
        self.latest: int | None = None  # the slot that was taken last

    def took(self, slot: int, lease: weakref.ref[LeaseState]) -> None:
        """From now on all threads see ``lease``, which was granted."""
        self._held[slot], self.latest = lease, slot

    def holds(self, slot: int) -> bool:
        reference = self._held.get(slot)
        lease = None if reference is None else reference()
        return lease is not None and lease.valid


class Group(NamedTuple):
    """The slots of one name: the key of their line and channel, and each slot as the lock that it is."""

    key: str
    slots: tuple[LockSpec, ...]
    known_slots: KnownSlots

    def any_of(self, asked: tuple[int, ...]) -> LockSpec:
        """What to send in order to take, and to take back, the first of several slots that is free."""
        specs = [self.slots[slot] for slot in asked]
        keys, group = _keys_of(specs), _keys_of(self.slots)
        names = tuple(name for spec in specs for name in spec.names)
        calls = records if keys.grants else wire
        acquire = functools.partial(calls.occupy, group, asked)
        release = functools.partial(calls.vacate, self.key, asked)
        mode = specs[0].mode._replace(acquire=acquire, release=release)
        if len(asked) > 1:
            mode = mode._replace(ballot=functools.partial(SlotBallot, group=self, asked=asked))
        return specs[0]._replace(names=names, keys=keys, mode=mode)


def _keys_of(specs: Iterable[LockSpec]) -> wire.Keys:
    return wire.Keys(*(tuple(chain.from_iterable(keys)) for keys in zip(*(spec.keys for spec in specs), strict=True)))


def slot_name(name: str, slot: int) -> str:
    return f"{name}#{slot}"


def group_of(spec: LockSpec, keys: Iterable[wire.Keys], prefix: str, known_slots: KnownSlots) -> Group:
    """The group ``spec.name``. ``keys``: of each slot."""
    slots = tuple(spec._replace(names=(slot_name(spec.name, slot),), keys=one) for slot, one in enumerate(keys))
    group = Group(f"{prefix}{spec.name}#", slots, known_slots)
    return group._replace(slots=tuple(group.any_of((slot,)) for slot in range(len(slots))))


class SlotTarget(Target):
    """Which slots one operation asks for.  ``slot``: the first of these, or the one that was granted."""

    __slots__ = ("_asked", "_seen", "group", "slot")

    stays = False  # a client with a slot leaves the line to the next one

    def __init__(self, settings: MastersSettings, group: Group, new_lease: Callable[[], LeaseState]) -> None:
        super().__init__(settings, group.slots[0], new_lease)
        self.group = group
        line = group.key + "\0"  # no name has a NUL: no lock has this line
        self.place = Place((line,), most=self.spec.max_waiters)
        self.slot = -1
        self._asked: set[int] = set()  # since the last pause
        self._seen: tuple[tuple[float, ...], ...] = ()  # the times of all slots, from each master that refused
        self.first()

    def first(self) -> None:
        """The slot that this process had last, if it has it no more; else any that it does not hold."""
        known_slots = self.group.known_slots
        free = [slot for slot in range(len(self.group.slots)) if not known_slots.holds(slot)]
        latest = known_slots.latest
        self._ask(latest if latest in free else self._any(free or range(len(self.group.slots))))

    def granted(self, grant: Grant) -> None:
        """From now on the lease is one of the slot that was granted: its release is announced to the group as well."""
        lease, spec = self.lease, grant.lock or self.spec
        assert lease is not None  # noqa: S101 - `asked` came first
        self.slot = next(slot for slot, one in enumerate(self.group.slots) if one is spec)
        lease.names, lease.keys, lease.slot, lease.mode = spec.names, spec.keys.locks, self.slot, spec.mode
        lease.granted(grant._replace(place=None))

    def refused(self, refusal: Refusal) -> Refusal | None:
        """Ask at once for any slot that most masters call free, at random; wait if there is none."""
        self._seen = tuple(one.slots for one in refusal.held if one.slots)
        if refusal.kind == "held":
            others = [slot for slot in range(len(self.group.slots)) if slot not in self._asked]
            free = {slot: sum(left[slot] == 0 for left in self._seen) for slot in others}
            best = [(-n, self.settings.random(), slot) for slot, n in free.items() if 2 * n > len(self._seen)]
            if best:
                self._ask(*(slot for _, _, slot in sorted(best)))
                return None
        soon = 0.001  # it is on record: its end is not known, or the name is kept from all (R35)
        remaining = min((left for left in self._left() if left > soon), default=None) if self._seen else None
        return refusal._replace(remaining=refusal.remaining if remaining is None else remaining)

    def after_pause(self, *, heard: bool) -> None:
        """The slot whose release was announced; else one that is free soonest."""
        self._asked.clear()
        announced = self.subscription.announced if heard and isinstance(self.subscription, SlotSubscription) else None
        if announced is not None and announced < len(self.group.slots):
            self._ask(announced)
            return
        left = self._left()
        self._ask(self._any(slot for slot, soon in enumerate(left) if soon == min(left)))

    def _new_subscription(self) -> Subscription:
        return SlotSubscription(self.group.key, len(self.settings.masters))

    def _left(self) -> list[float]:
        """Per slot: seconds until a majority can be free, counting silent masters as free."""
        masters = len(self.settings.masters)
        missing = majority(masters) - (masters - len(self._seen))
        if missing < 1:
            return [0.0] * len(self.group.slots)
        return [sorted(left)[missing - 1] for left in zip(*self._seen, strict=True)]

    def _any(self, slots: Iterable[int]) -> int:
        several = list(slots)
        return several[math.floor(self.settings.random() * len(several)) % len(several)]

    def _ask(self, *slots: int) -> None:
        self.slot = slots[0]
        self._asked.update(slots)
        self.spec = self.group.slots[slots[0]] if len(slots) == 1 else self.group.any_of(slots)


class SlotBallot(Ballot):
    """The votes of an attempt for any of several slots: they count for the slot that the master gave."""

    def __init__(self, settings: MastersSettings, call: wire.Call, group: Group, asked: tuple[int, ...]) -> None:
        super().__init__(settings, call)
        self._group, self._asked = group, asked
        self._others: dict[int, int] = {}  # by master: the slot that it gave, if that is not the first one
        self._given: list[int | None] = []  # the slot that each master gave, when the round had ended
        self._slot = asked[0]  # that most masters gave

    def read(self, master: int, value: Any) -> tuple[Outcome, str]:
        flagged = records.read_flagged(value)
        if flagged is not None:  # a slot that is on record is asked for by itself, after the next pause
            fence, shown, slots = flagged
            self.learn(fence)
            self.held += (wire.Held(fence, "", math.inf, slots),)
            whose = by_whom(next(iter(shown.values())).token)
            return "held", f"{whose}, perhaps: a slot is on record, and its key is gone"
        value, slot = wire.read_occupied(value)
        if slot is not None:
            if slot not in self._asked:
                raise wire.BadReply(f"it gave slot {slot}, which was not asked for")
            if self.tally.outcome(master) is None:  # only its first answer is its vote
                self._others[master] = slot
        return super().read(master, value)

    def ask(self, until: float = math.inf) -> Op[float]:
        at = yield from super().ask(until)
        if at != NEVER:
            self._given = [self.given(master) for master in range(self.tally.size)]
            self.granted_spec = self._group.slots[self._choose()]
        return at

    def late(self, master: int, value: Any, at: float) -> None:
        """It may have given another slot."""

    def decides(self, at: float) -> bool:
        """Decided: a majority gave the same slot, or none can do so any more."""
        tally = self.tally
        most = max(self._votes().values(), default=0)
        if self.open and not most < tally.need <= most + tally.size - tally.yes - tally.no:
            self.decided_at, self.open = at, False
        return self.decided_at is not None

    def given(self, master: int) -> int | None:
        """The slot that this master gave.  None: it gave none, or its vote does not count."""
        return self._others.get(master, self._asked[0]) if self.tally.outcome(master) == "granted" else None

    def _votes(self) -> Counter[int]:
        return Counter(slot for slot in map(self.given, range(self.tally.size)) if slot is not None)

    def _choose(self) -> int:
        """The slot that most masters gave.  From now on the tally is the one of that slot."""
        votes, before, given = self._votes(), self.tally, self._given
        slot = max(votes, key=lambda one: votes[one], default=self._asked[0])
        self.counts = None  # late grants may be of another slot
        self.tally = Tally(before.masters)
        for master, entry in enumerate(before.entries):
            if given[master] in (None, slot):
                self.tally.inherit(before, master)
            elif entry is not None:
                self.tally.count(master, "held", entry[1], f"gave slot {given[master]} instead")
        self._slot = slot
        return slot

    def _next_call(self, spec: LockSpec, token: str, proposal: str) -> tuple[wire.Call, frozenset[int]]:
        call, to = super()._next_call(spec, token, proposal)
        if not spec.keys.grants:
            return call, to
        return records.confirm(spec.keys, token, spec.lasts, proposal, self._settings.fence_ttl, [()]), to

    def after_grant(self, token: str) -> tuple[Send, ...]:
        """A master that has not said that it gave this slot may have given another one, or may do so yet."""
        elsewhere = frozenset(master for master in self.reached() if self._given[master] != self._slot)
        if not elsewhere:
            return ()
        rest = self._group.any_of(tuple(one for one in self._asked if one != self._slot))
        release = rest.mode.release(rest.keys, token, 0.0, None)
        return (Send(release, to=elsewhere, owed_until=self.sent_at + 2 * rest.lasts),)


class SlotSubscription(Subscription):
    """Gets the releases of all slots, counts them for each slot, and knows the slot that was ``announced`` last."""

    __slots__ = ("_by_slot", "announced")

    def __init__(self, group: str, masters: int) -> None:
        super().__init__((group,), masters)
        self.announced: int | None = None
        self._by_slot: dict[int | None, int] = {}  # as `_all`, for each slot

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
