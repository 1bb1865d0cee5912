"""What locks and questions need of their masters: the settings that all of them share, and which keys a name has."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from redlock import options
from redlock._core import inspect, wire
from redlock._core.fair import tickets
from redlock._core.modes import EXCLUSIVE
from redlock._core.slots.target import Group, KnownSlots, group_of, slot_name
from redlock._system import clock
from redlock.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redlock._core.effects import Op
    from redlock._core.inspect import LockStatus
    from redlock._core.kernel.quorum import Tally
    from redlock._core.listing import Listing
    from redlock._core.settings import LockSpec, MastersSettings
    from redlock._core.watch import Watch


class Limits(NamedTuple):
    """What the masters' options say of the times of every lock."""

    max_ttl: float
    node_timeout: float
    drift_factor: float
    patience: float  # for a lock without a timeout of its own
    guard: float  # ... no guard of its own (R36)


class Deployment:
    """The masters of one `Masters`, as operations ask them.

    ``records``: each grant is on record until its release (R35).  ``mode``: of a lock which is not shared.
    """

    def __init__(self, settings: MastersSettings, limits: Limits, prefix: str, *, records: bool = False) -> None:
        self.settings = settings
        self.limits = limits
        self.prefix = prefix
        self.records = records
        self.mode = EXCLUSIVE
        if records:
            from redlock._core.confirm.ballot import RECORDED  # noqa: PLC0415 - few programs confirm

            self.mode = RECORDED
        self._announced = frozenset((wire.ANNOUNCEMENT + prefix, wire.FLEET + prefix))
        self._known_slots: weakref.WeakValueDictionary[str, KnownSlots] = weakref.WeakValueDictionary()

    def keys(self, names: tuple[str, ...], *, fencing: bool, fair: bool = False) -> wire.Keys:
        keys = wire.keys_for(self.prefix, names, fencing=fencing, records=self.records)
        line = tickets.beside(keys) if fair else ()
        if not self._announced.isdisjoint(keys.locks) or (
            len(names) > 1 and not set(keys.fences + keys.grants + line).isdisjoint(keys.locks)
        ):
            self._refuse(names, keys, line)
        return keys

    def group(self, spec: LockSpec, limit: int) -> Group:
        """The ``limit`` slots of the group ``spec.name``.  All groups of this name share one `Group`."""
        name = spec.name
        options.names([slot_name(name, limit - 1)])  # the longest
        keys = [self.keys((slot_name(name, slot),), fencing=spec.fencing) for slot in range(limit)]
        return group_of(spec, keys, self.prefix, self._known_slots.setdefault(name, KnownSlots()))

    def _refuse(self, names: tuple[str, ...], keys: wire.Keys, line: tuple[str, ...]) -> NoReturn:
        """One of ``keys`` has another use already. Raises ConfigurationError, with the name to change."""
        for name, lock in zip(names, keys.locks, strict=True):
            for beside, what in ((keys.fences, "fencing token"), (keys.grants, "record"), (line, "queue")):
                if lock in beside:  # else it would be granted, and then lost at its extension, or refused to a waiter
                    whose = f"the masters keep the {what} of {options.shown(names[beside.index(lock)])}"
                    text = f"name={options.shown(names)}: {options.shown(name)} is where {whose}"
                    raise ConfigurationError(f"{text}: take another name")
        (ours,) = self._announced.intersection(keys.locks)
        text = f"name={options.shown(names)}: at {options.shown(ours)} the masters keep what clients announce"
        raise ConfigurationError(f"{text}: take another name")

    def status_op(self, name: str) -> Op[tuple[LockStatus, Tally]]:
        (checked,) = options.names([name])
        return inspect.inspect(self.settings, checked, self.prefix + checked)

    def listing(self, match: str) -> Listing:
        from redlock._core.listing import Listing  # noqa: PLC0415 - few programs ever list

        return Listing(self.settings, self.prefix, options.pattern(match))

    def watch(self, name: str) -> Watch:
        from redlock._core.watch import Watch  # noqa: PLC0415 - few programs watch

        (checked,) = options.names([name])
        return Watch(self.settings, checked, self.prefix + checked)

    def free_op(self, name: str | Sequence[str], timeout: float) -> Op[tuple[str | None, Tally]]:
        from redlock._core.watch import wait_until_free  # noqa: PLC0415 - few programs ever wait without taking

        now = clock.now()
        deadline = now + options.timeout("timeout", timeout)
        return wait_until_free(self.settings, options.names(name), self.prefix, deadline, now)
