"""The times of a lock, checked together."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from redlock import options
from redlock._core.kernel.validity import drift
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
    guard: float


def checked(limits: Limits, *options_: object) -> Times:
    """``options_``: of a lock, as `_checked` takes them.  Raises ConfigurationError."""
    try:
        return _checked(limits, *options_)
    except TypeError:  # not hashable, so not a number: the check reports it
        return _checked.__wrapped__(limits, *options_)


def check_guard(value: object, max_ttl: float) -> float:
    """The guard of a lock, or of all locks, checked; but not whether a TTL fits beside it (R36)."""
    return options.seconds(
        "guard", value, zero=True, below=max_ttl, why="max_ttl, which is for the ttl and the guard together (R36)"
    )


def check_ttl(limits: Limits, value: object, guard: float = 0.0) -> float:
    ttl = options.seconds("ttl", value, at_most=limits.max_ttl, why="max_ttl is the longest")
    if ttl + guard > limits.max_ttl:
        raise ConfigurationError(
            f"ttl={options.shown(value)} with guard={guard:g}: allowed is max_ttl for both together, "
            f"{limits.max_ttl:g} s, for masters keep the keys of a lock that long (R36)"
        )
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
    limits: Limits,
    ttl: object,
    timeout: object,
    max_hold: object,
    hold_at_least: object,
    min_validity: object,
    guard: object = None,
) -> Times:
    patience = limits.patience if timeout is None else options.timeout("timeout", timeout)
    guards = limits.guard if guard is None else check_guard(guard, limits.max_ttl)
    seconds = check_ttl(limits, ttl, guards)
    longest = seconds - drift(seconds, limits.drift_factor)
    if min_validity is not None:
        why = "the TTL less the allowance for clock drift"
        least = options.seconds("min_validity", min_validity, below=longest, why=why)
    elif (least := seconds / 2) >= longest:
        raise ConfigurationError(
            f"ttl={seconds:g} with drift_factor={limits.drift_factor:g}: {longest:.4g} s are left after "
            "the allowance for clock drift, and by default an acquire has to leave half of the TTL: allowed "
            "are a longer ttl, a smaller drift_factor, or a min_validity of less than that"
        )
    reserved = 0.0
    if hold_at_least is not None:
        why = "the ttl of the lock (R28)"
        reserved = options.seconds("hold_at_least", hold_at_least, zero=True, at_most=seconds, why=why)
        least = max(least, _enough_to_hold(reserved, seconds, limits.drift_factor, limits.node_timeout))
    longest_hold = None if max_hold is None else options.seconds("max_hold", max_hold)
    return Times(seconds, patience, longest_hold, reserved, least, guards)


def _enough_to_hold(at_least: float, ttl: float, factor: float, node_timeout: float) -> float:
    """The validity that a grant has to leave, so that it keeps others out for ``at_least`` seconds (R28).

    Its holder may die right after it.  Then what is left of the lease is all that keeps them out, and the masters have
    `node_timeout` to answer.
    """
    return min(at_least, ttl - drift(ttl, factor) - node_timeout)
