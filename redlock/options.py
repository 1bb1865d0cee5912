"""Refuse a wrong value where it is given, with the value and what is allowed.  All times are seconds."""

from __future__ import annotations

import math
from collections.abc import Iterable

from redlock.errors import ConfigurationError

LONGEST_NAME = 512      # bytes of UTF-8 (section 4)


LONGEST = 1e9           # thirty years; beyond it the operating system's timers overflow


def seconds(option: str, value: object, *, above: float = 0.0, at_most: float = LONGEST, why: str = "") -> float:
    """A finite number of seconds in ``(above, at_most]``."""
    number = _number(option, value)
    if math.isfinite(number) and above < number <= at_most:
        return number
    allowed = f"more than {above:g} and at most {at_most:g} s"
    raise ConfigurationError(f"{option}={value!r}: allowed is {allowed}{': ' if why else ''}{why}")


def timeout(option: str, value: object) -> float:
    """Seconds to wait: negative waits for ever (infinity comes back), 0 tries once."""
    number = _number(option, value)
    if math.isnan(number):
        raise ConfigurationError(f"{option}={value!r}: allowed is a number of seconds; negative waits for ever")
    return math.inf if number < 0 else number


def fraction(option: str, value: object, *, below: float) -> float:
    number = _number(option, value)
    if 0 <= number < below:
        return number
    raise ConfigurationError(f"{option}={value!r}: allowed is 0 up to, not including, {below:g}")


def names(value: object) -> tuple[str, ...]:
    """One name, or a sequence of different ones."""
    if isinstance(value, str):
        return (_name(value),)
    if not isinstance(value, Iterable) or isinstance(value, (bytes, bytearray)):
        raise ConfigurationError(f"name={value!r}: allowed is a str or a sequence of str")
    several = tuple(_name(name) for name in value)
    if not several:
        raise ConfigurationError(f"name={value!r}: at least one name is needed")
    if len(set(several)) < len(several):
        twice = next(name for name in several if several.count(name) > 1)
        raise ConfigurationError(f"name={value!r}: {twice!r} is there twice")
    return several


def token(value: object) -> str:
    """The token of a lease that is resumed: what `Lease.token` said."""
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"token={value!r}: allowed is the token of a lease, a str that is not empty")
    return value


def fence(value: object) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    raise ConfigurationError(f"fence={value!r}: allowed is the fencing token of a lease, an int above 0, or None")


def prefix(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ConfigurationError(f"prefix={value!r}: allowed is a str without NUL")
    return value


def _name(value: object) -> str:
    if not isinstance(value, str):
        raise ConfigurationError(f"name={value!r}: allowed is a str, not {type(value).__name__}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"name={value!r}: cannot be encoded as UTF-8 ({error.reason})") from None
    if not 1 <= size <= LONGEST_NAME:
        raise ConfigurationError(
            f"name={value[:40]!r}: {size} bytes of UTF-8, allowed are 1 to {LONGEST_NAME}"
        )
    if "\0" in value:
        raise ConfigurationError(f"name={value!r}: must not contain NUL")
    return value


def _number(option: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigurationError(f"{option}={value!r}: allowed is a number, not {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:
        raise ConfigurationError(f"{option}: the number has {len(str(value))} digits") from None
