"""The times of a lock, checked together."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from redlock import options
from redlock._core import quorum
from redlock.errors import ConfigurationError

if TYPE_CHECKING:
    from redlock._io.deployment import Limits


class Times(NamedTuple):
    """Seconds, as the options of a lock say; ``patience`` is infinite where a timeout is negative."""

    ttl: float
    patience: float
    max_hold: float | None
    hold_at_least: float
    min_validity: float


def checked(
    limits: Limits, ttl: object, timeout: object, max_hold: object, hold_at_least: object, min_validity: object
) -> Times:
    """Raises ConfigurationError."""
    try:
        return _checked(limits, ttl, timeout, max_hold, hold_at_least, min_validity)
    except TypeError:  # not hashable, so hardly a number: the check says so
        return _checked.__wrapped__(limits, ttl, timeout, max_hold, hold_at_least, min_validity)


def check_ttl(limits: Limits, value: object) -> float:
    ttl = options.seconds("ttl", value, at_most=limits.max_ttl, why="max_ttl is the longest")
    if limits.node_timeout > options.third(ttl):
        raise ConfigurationError(
            f"ttl={options.shown(value)} with node_timeout={limits.node_timeout:g}: allowed is a ttl of at least "
            f"{3 * limits.node_timeout:g} s, three times node_timeout, or too little of it is left when the "
            "masters have answered (R7)"
        )
    return ttl


# Programs make many locks with few different times.  `typed`: True is no number of seconds, although it equals 1.
@functools.lru_cache(maxsize=128, typed=True)
def _checked(
    limits: Limits, ttl: object, timeout: object, max_hold: object, hold_at_least: object, min_validity: object
) -> Times:
    patience = limits.patience if timeout is None else options.timeout("timeout", timeout)
    seconds = check_ttl(limits, ttl)
    longest = seconds - quorum.drift(seconds, limits.drift_factor)
    if min_validity is not None:
        why = "the TTL less the allowance for clock drift"
        least = options.seconds("min_validity", min_validity, below=longest, why=why)
    elif (least := seconds / 2) >= longest:
        raise ConfigurationError(
            f"ttl={seconds:g} with drift_factor={limits.drift_factor:g}: {longest:.4g} s are left after "
            "the allowance for clock drift, and by default an acquire has to leave half of the TTL: allowed "
            "are a longer ttl, a smaller drift_factor, or a min_validity of less than that"
        )
    kept = 0.0
    if hold_at_least is not None and (hold_at_least != 0 or isinstance(hold_at_least, bool)):
        kept = options.seconds("hold_at_least", hold_at_least, at_most=seconds, why="the ttl of the lock (R28)")
        least = max(least, quorum.enough_to_hold(kept, seconds, limits.drift_factor, limits.node_timeout))
    return Times(
        seconds, patience, None if max_hold is None else options.seconds("max_hold", max_hold), kept, min_validity=least
    )
