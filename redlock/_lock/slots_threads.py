# Made from redlock/_lock/slots_async.py by tools/unasync.py: change that file, then run `make faces`.
"""Slots, for threads: a lock whose leases are on different names, the lock ``name#i`` for slot i (R32)."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from redlock import options
from redlock._core.inspect import SlotsStatus, known
from redlock._core.kernel.ballot import Grant, Refusal
from redlock._core.slots.target import SlotTarget
from redlock._lock.lock_threads import MultiLock
from redlock._lock.refused import none_free
from redlock._lock.typed import SlotOptions
from redlock.errors import ConfigurationError, LockUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from redlock._core.effects import Op
    from redlock._core.lease import LeaseState
    from redlock._core.settings import LockSpec
    from redlock._lock.holds import Hold
    from redlock._lock.lease_threads import Lease
    from redlock._lock.masters_threads import Masters


class SlotsOptions(SlotOptions, total=False):
    """The options of `Slots`, for type checkers."""

    on_lost: Callable[[Lease], object] | None


class Slots(MultiLock):
    """At most ``limit`` holders of one name at once, each with a slot of its own.

    Slot i is the lock ``name#i``, with all promises of a lock.  `Lease.slot` says which one it is, and its fence
    orders the holders of *that slot*.  A waiter gets the slot that is free first.  A thread that has one and acquires
    again gets the same one (R26); with ``bound=False`` another one, and a release gives back the latest one.
    """

    def __init__(self, name: str, masters: Masters | Iterable[object], *, limit: int, **of_lock: Any) -> None:
        """Check the options; nothing is sent.

        Args:
            name: of the group; slot i is the lock ``name#i``.  On a cluster it needs a hash tag: ``{import}``.
            masters: see the lock.
            limit: how many may hold a slot at once, 1 to 100.  Each client applies its own limit, so all need the same.
            of_lock: as of a lock, without ``shared`` and ``fair``.

        Raises:
            ConfigurationError: a value cannot be right; the text names it and what is allowed.
        """
        if not isinstance(name, str):
            raise ConfigurationError(f"name={options.shown(name)}: allowed is one name, each slot is a lock by itself")
        if of_lock.get("shared"):
            raise ConfigurationError("shared=True: a slot is held alone")
        if of_lock.get("fair"):
            raise ConfigurationError("fair=True: a waiter for slots takes any that is free, so there is no order (R42)")
        limit = options.limit(limit)
        super().__init__(name, masters, **of_lock)
        self._group = group = self._runtime.deployment.group(self._spec, limit)
        self._target = lambda settings, _, new_lease: SlotTarget(settings, group, new_lease)
        self._names = tuple(spec.name for spec in group.slots)

    @property
    def limit(self) -> int:
        """How many may hold a slot at once."""
        return len(self._names)

    def _acquire_op(self, hold: Hold[Lease], deadline: float, began: float) -> Op[Grant | Refusal | None]:
        outcome = yield from super()._acquire_op(hold, deadline, began)
        if isinstance(outcome, Grant) and hold.state.slot is not None:
            self._group.known_slots.took(hold.state.slot, weakref.ref(hold.state))
        return outcome

    def status(self) -> SlotsStatus:
        """Which slots are free, and who holds the others.  It takes at most `node_timeout` for each slot.

        Raises:
            QuorumUnreachable: too few masters answered to know.
        """
        return self._runtime.run(self._status_op())

    def _status_op(self) -> Op[SlotsStatus]:
        found = []
        for name in self._names:
            status, tally = yield from self._runtime.deployment.status_op(name)
            found.append(known(status, tally))
        return SlotsStatus(self._spec.name, tuple(found))

    def locked(self) -> bool:
        """Whether no slot is free, as far as a majority of masters says.

        Raises:
            QuorumUnreachable: too few masters answered to know.
        """
        return (self.status()).free == 0

    def _wants_any(self, names: tuple[str, ...]) -> bool:
        return any(name in self._names for name in names)

    def _wants_all(self, names: tuple[str, ...]) -> bool:
        return len(names) == 1 and names[0] in self._names

    def _check_asked(self, hold: Hold[Lease]) -> None:
        """As a lock does. From now on a lease of the lock ``name#i`` is a lease of slot i, with its number (R26)."""
        super()._check_asked(hold)
        slot = self._names.index(hold.state.name)
        hold.state.slot, hold.state.mode = slot, self._group.slots[slot].mode

    def _spec_of(self, state: LeaseState) -> LockSpec:
        return self._group.slots[self._names.index(state.name)]

    def _refusal_error(self, refusal: Refusal) -> LockUnavailable:
        if refusal.kind == "held":
            return none_free(self._spec, refusal, self.limit)
        return super()._refusal_error(refusal)
