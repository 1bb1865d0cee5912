"""What all locks of one `Masters` share, and what one lock adds to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenacity.wait import wait_base

    from redlock._core.fencing import FenceClock
    from redlock._core.quorum import Tally
    from redlock._core.voters import Voters
    from redlock._core.wire import Keys


class MastersSettings(NamedTuple):
    """One deployment: the masters, its times in seconds, and the sources of what is not pure."""

    masters: tuple[str, ...]  # as shown to people; the order is that of the configuration
    node_timeout: float
    drift_factor: float
    fence_ttl: float
    voters: Voters
    fences: FenceClock
    token: Callable[[], str]  # a fresh random token at every call (R8)
    random: Callable[[], float]  # from 0 to 1
    phase: float = 0.0  # from 0 to 1, of renewals: those of two clients are not due at the same moments
    attempted: Callable[[Tally], object] = id  # told the votes of every attempt; `id` does nothing with them


class LockSpec(NamedTuple):
    """One lock: what is taken, for how long, and how often it is tried."""

    names: tuple[str, ...]
    keys: Keys
    ttl: float
    min_validity: float
    retry: wait_base

    @property
    def fencing(self) -> bool:
        return bool(self.keys.fences)
