"""What locks and looks need of their masters: the settings that all of them share, and which keys a name has."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from redlock import _clock, options
from redlock._core import inspect, wire
from redlock._core.slots import Board, group_of, slot_name
from redlock.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redlock._core.effects import Op
    from redlock._core.inspect import LockStatus
    from redlock._core.listing import Listing
    from redlock._core.quorum import Tally
    from redlock._core.settings import LockSpec, MastersSettings
    from redlock._core.slots import Group
    from redlock._core.watch import Watch


class Limits(NamedTuple):
    """What the masters' options say of the times of every lock."""

    max_ttl: float
    node_timeout: float
    drift_factor: float
    patience: float  # of a lock that has no timeout of its own


class Deployment:
    """The masters of one `Masters`, as operations ask them."""

    __slots__ = ("_announced", "_boards", "limits", "prefix", "settings")

    def __init__(self, settings: MastersSettings, limits: Limits, prefix: str) -> None:
        self.settings = settings
        self.limits = limits
        self.prefix = prefix
        self._announced = frozenset((wire.announcement_key(prefix), wire.fleet_key(prefix)))
        self._boards: weakref.WeakValueDictionary[str, Board] = weakref.WeakValueDictionary()

    def keys(self, names: tuple[str, ...], *, fencing: bool) -> wire.Keys:
        keys = wire.keys_for(self.prefix, names, fencing=fencing)
        if not self._announced.isdisjoint(keys.locks) or (
            len(names) > 1 and not set(keys.fences).isdisjoint(keys.locks)
        ):
            self._refuse(names, keys)
        return keys

    def group(self, spec: LockSpec, limit: int) -> Group:
        """The ``limit`` slots of the group ``spec.name``.  All groups of this name share what is known of it."""
        name = spec.name
        options.names([slot_name(name, limit - 1)])  # the longest
        keys = [self.keys((slot_name(name, slot),), fencing=spec.fencing) for slot in range(limit)]
        return group_of(spec, keys, self.prefix, self._boards.setdefault(name, Board()))

    def _refuse(self, names: tuple[str, ...], keys: wire.Keys) -> NoReturn:
        """One of ``keys`` has another use already.  Raises ConfigurationError, with the name to change."""
        for name, lock in zip(names, keys.locks, strict=True):
            if lock in keys.fences:  # else it would be granted, and lost at its extension
                whose = options.shown(names[keys.fences.index(lock)])
                raise ConfigurationError(
                    f"name={options.shown(names)}: {options.shown(name)} is where the fencing token of {whose} is "
                    "kept: take another name"
                )
        (ours,) = self._announced.intersection(keys.locks)
        raise ConfigurationError(
            f"name={options.shown(names)}: at {options.shown(ours)} the masters keep what clients announce: "
            "take another name"
        )

    def inspection(self, name: str) -> Op[tuple[LockStatus, Tally]]:
        (checked,) = options.names([name])
        return inspect.inspect(self.settings, checked, self.prefix + checked)

    def listing(self, match: str) -> Listing:
        from redlock._core.listing import Listing  # noqa: PLC0415 - few programs ever list

        return Listing(self.settings, self.prefix, options.pattern(match))

    def watch(self, name: str) -> Watch:
        from redlock._core.watch import Watch  # noqa: PLC0415 - few programs watch

        (checked,) = options.names([name])
        return Watch(self.settings, checked, self.prefix + checked)

    def waiting_free(self, name: str | Sequence[str], timeout: float) -> Op[tuple[str | None, Tally]]:
        from redlock._core.wait_until_free import wait_until_free  # noqa: PLC0415 - few programs ever wait without taking

        now = _clock.now()
        deadline = now + options.timeout("timeout", timeout)
        return wait_until_free(self.settings, options.names(name), self.prefix, deadline, now)
