"""The options of locks and of masters, for type checkers: they check ``**options`` in the caller's code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenacity.wait import wait_base

    from redlock._core.fleet import Agreement
    from redlock._events import Event


class NoOptions(TypedDict):
    """No option at all: for ``**unknown`` in a function that reports unknown keywords itself."""


class ElectionOptions(TypedDict, total=False):
    """The options of an election (R31): the options of a lock that make sense for a leader."""

    ttl: float
    max_hold: float | None
    hold_at_least: float | None
    guard: float | None
    min_validity: float | None
    retry: wait_base | None
    owner: str | None


class SlotOptions(ElectionOptions, total=False):
    """The options of slots (R32) that threads and asyncio share: the options of a lock that is held alone."""

    timeout: float | None
    auto_extend: bool
    max_waiters: int | None
    fencing: bool
    bound: bool


class LockOptions(SlotOptions, total=False):
    """The options of a lock that threads and asyncio share."""

    shared: bool
    max_readers: int
    fair: bool


class LeaseOptions(TypedDict, total=False):
    """The options of `Masters.resume` (R46) that threads and asyncio share: about a lease, and not about an acquire."""

    shared: bool
    ttl: float
    guard: float | None
    hold_at_least: float | None
    auto_extend: bool
    max_hold: float | None
    bound: bool


class MastersOptions(TypedDict, total=False):
    """The options of `Masters` and `AsyncMasters`."""

    node_timeout: float
    connect_timeout: float
    drift_factor: float
    max_ttl: float
    restart_guard: bool
    prefix: str
    fence_ttl: float
    timeout: float
    guard: float
    outage_timeout: float | Literal["max_ttl"] | None
    confirm_expiry: bool
    owner: str | None
    agreement: Agreement | None
    observer: Callable[[Event], object] | None
