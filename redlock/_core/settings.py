"""The settings that all locks of one `Masters` share, and the settings of a single lock."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from redlock import options

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenacity.wait import wait_base

    from redlock._core.outages import LongWaits, Outages
    from redlock._core.protocols import Observing
    from redlock._core.tokens import FenceClock
    from redlock._core.voters import Voters
    from redlock._core.wire import Call, Keys


@dataclass(slots=True, eq=False)  # CPython reads its fields faster than those of a tuple
class MastersSettings:
    """The masters, the times in seconds, and the sources of tokens, random numbers and clocks."""

    masters: tuple[str, ...]  # their names for people, in the order of the configuration
    node_timeout: float
    drift_factor: float
    fence_ttl: float
    voters: Voters
    fences: FenceClock
    token: Callable[[], str]  # a fresh random token at every call (R8)
    random: Callable[[], float]  # a random number from 0 to 1 at every call
    outages: Outages
    stamp: Callable[[], int] = count(1).__next__  # a number greater than all before, for an extension on record (R35)
    phase: float = 0.0  # from 0 to 1; each client has another, so that their renewals do not coincide
    outage_timeout: float = math.inf  # seconds after which an outage ends a wait that has no other end (R38)
    lost: Callable[[Any], object] = id  # called with the `Renewal` of each lost lease, once, before its `on_lost`
    observer: Observing | None = None
    waits: LongWaits | None = None  # the log of long waits (R45); None for candidates, whose waits are long as a rule

    _replace = replace


@dataclass(slots=True, eq=False)
class Mode:
    """The functions of `wire` that ask about a lock, a lease or a slot, and how answers to an acquire are read."""

    shared: bool
    ballot: Callable[[Any, Call], Any]  # makes the `Ballot` of an attempt, from the settings and the call
    acquire: Callable[[Keys, str, float, int, float], Call]
    extend: Callable[..., Call]  # for a lease on record (R35) also called with the stamp and the fence
    repair: Callable[[Keys, str, float, int | None, float], Call]
    release: Callable[[Keys, str, float, int | None], Call]
    written: Callable[[int], str] = str  # how a fence is written

    _replace = replace


@dataclass(slots=True, eq=False)
class LockSpec:
    """One lock: its names and keys, its times in seconds, the pauses between attempts, and how a lease is kept."""

    names: tuple[str, ...]
    keys: Keys
    mode: Mode
    ttl: float
    min_validity: float
    retry: wait_base
    auto_extend: bool = True
    max_hold: float | None = None  # seconds after which the lease is lost in any case (C7)
    on_lost: Callable[[Any], object] | None = None  # called with the lease, once, if it is lost (C9)
    hold_at_least: float = 0.0  # seconds after the grant in which no other client gets it, released or not (R28)
    refused: Callable[[Any], object] | None = None  # called with each `Refusal` because others hold it
    max_waiters: int | None = None  # of this process, behind the one that holds it or asks for it (R40)
    guard: float = 0.0  # seconds for which masters keep its keys beyond the validity (R36)
    keeps_keys: bool = False  # at `max_hold` its keys stay, until its holder gives it back (R31)

    _replace = replace

    @property
    def name(self) -> str:
        return ", ".join(self.names)

    @property
    def shown(self) -> str:
        return options.named(self.names)

    @property
    def lasts(self) -> float:
        """Seconds for which masters keep its keys."""
        return self.ttl + self.guard

    @property
    def fencing(self) -> bool:
        return bool(self.keys.fences)
