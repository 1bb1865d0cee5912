"""What the slots of a group have beyond a lock; threads and asyncio share it (R32).

`Slots` is a lock whose leases are on different names: the lock ``name#i`` for slot i.  All that a lock does with a
lease it does here as well, with the keys and the scripts of that slot.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from redlock import options
from redlock._core.inspect import SlotsStatus, known
from redlock._core.slots import SlotTarget
from redlock._lock.holds import AnyLease
from redlock._lock.lock import AnyMasters, LockBase
from redlock._lock.refused import none_free
from redlock.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redlock._core.acquire import Target
    from redlock._core.ballots import Refusal
    from redlock._core.effects import Op
    from redlock._core.lease import LeaseState
    from redlock._core.settings import LockSpec
    from redlock._lock.holds import Hold
    from redlock.errors import LockUnavailable


class SlotsBase(LockBase[AnyMasters, AnyLease]):
    """The slots of `Slots` and `AsyncSlots`."""

    def __init__(self, name: str, masters: AnyMasters | Iterable[object], *, limit: int, **of_lock: Any) -> None:
        """Check the options, which are those of the lock, and how many slots there are; nothing is sent.

        Args:
            name: of the group; slot i is the lock ``name#i``.  On a cluster it needs a hash tag: ``{import}``.
            masters: see the lock.
            limit: how many may hold a slot at once, 1 to 100.  Each client goes by its own limit, so all need the same.
            of_lock: those of the lock, without ``token``, ``fence`` and ``shared``.

        Raises:
            ConfigurationError: a value cannot be right; the text names it and what is allowed.
        """
        if not isinstance(name, str):
            raise ConfigurationError(f"name={options.shown(name)}: allowed is one name, each slot is a lock by itself")
        for option in ("token", "fence"):
            if option in of_lock:
                raise ConfigurationError(
                    f"{option}: slots are not resumed; the lease of a slot is that of the lock lease.name"
                )
        if of_lock.get("shared"):
            raise ConfigurationError("shared=True: a slot is held alone")
        limit = options.limit(limit)
        super().__init__(name, masters, **of_lock)
        self._group = self._runtime.deployment.group(self._spec, limit)
        self._names = tuple(spec.name for spec in self._group.slots)

    @property
    def limit(self) -> int:
        """How many may hold a slot at once."""
        return len(self._names)

    # -- looking -------------------------------------------------------------------------------------

    def _inspection(self) -> Op[SlotsStatus]:
        found = []
        for name in self._names:
            status, tally = yield from self._runtime.deployment.inspection(name)
            found.append(known(status, tally))
        return SlotsStatus(self._spec.name, tuple(found))

    # -- what a lock asks ----------------------------------------------------------------------------

    def _wants_any(self, names: tuple[str, ...]) -> bool:
        return any(name in self._names for name in names)

    def _wants_all(self, names: tuple[str, ...]) -> bool:
        return len(names) == 1 and names[0] in self._names

    def _check_asked(self, hold: Hold[AnyLease]) -> None:
        """As of a lock.  A lease of the lock ``name#i`` is from now on one of slot i, with its number (R26)."""
        super()._check_asked(hold)
        self._is_slot(hold.state, self._names.index(hold.state.name))

    def _spec_of(self, state: LeaseState) -> LockSpec:
        return self._group.slots[self._names.index(state.name)]

    def _refused(self, refusal: Refusal) -> LockUnavailable:
        if refusal.kind == "held":
            return none_free(self._spec, refusal, self.limit)
        return super()._refused(refusal)

    # -- operations ----------------------------------------------------------------------------------

    def _target(self) -> SlotTarget:
        return SlotTarget(self._group, len(self._settings.masters), self._settings.random)

    def _slot_of(self, state: LeaseState, target: Target) -> LockSpec:
        assert isinstance(target, SlotTarget)  # noqa: S101 - see `_target`
        spec = self._group.slots[target.slot]
        state.names = spec.names
        self._is_slot(state, target.slot)
        self._group.board.took(target.slot, weakref.ref(state))
        return spec

    def _is_slot(self, state: LeaseState, slot: int) -> None:
        state.slot, state.mode = slot, self._group.slots[slot].mode  # its release is announced to the group as well
