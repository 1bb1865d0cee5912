"""Checks of options. A wrong value is refused where it is given. All times are seconds.

The `ConfigurationError` shows the value, and says what is allowed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from redlock.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST_NAME = 512  # bytes of UTF-8 (docs/reference/wire.md)
# Of one lock.  Its acquire keeps a master busy for 3 ms, with the longest names for 8 ms; until then the master serves
# no other client.  20,000 names took 60 ms and 280 ms, and 75 of 80 other acquires then found no quorum in time.
MOST_NAMES = 1000
LONGEST_OWNER = 64  # bytes of UTF-8 (R27)
TOKEN = re.compile("[0-9a-f]{40}(?::(?P<owner>.*))?", re.DOTALL)  # (R27)
BEYOND_FENCES = 2**53  # fencing tokens are less: scripts count in doubles, which are exact below this
MOST_SLOTS = 100  # of a group: each attempt names them all, and a refusal looks at each (R32)
_LONGEST_SHOWN = 200  # characters of a wrong value that an error shows
_BEGINNING = 20  # characters of a text that may have a token in it
_FEW = 10  # names of one lock that a text shows all of
_SOME = 3  # names that it shows if there are more

LONGEST_MASTER = 64  # characters of the name of a master (R34)
_MASTER = re.compile(f"[A-Za-z0-9._:-]{{1,{LONGEST_MASTER}}}")
# In front of an address.  A text that cannot be a name may be a password there by mistake: it is not shown.
_NAMED = re.compile("(?P<name>[A-Za-z0-9._:-]+)=(?P<address>[a-z]+://.*)", re.DOTALL)

LONGEST = 1e9  # seconds: thirty years. With more, timers of the operating system overflow


def seconds(
    option: str, value: object, *, zero: bool = False, at_most: float = LONGEST, below: float = math.inf, why: str = ""
) -> float:
    """A number of seconds: above 0, or also 0 if ``zero``; at most ``at_most``, and less than ``below``."""
    number = _number(option, value, "a number of seconds")
    if (number > 0 or (zero and number == 0)) and number <= at_most and number < below:
        return number
    allowed = "0 or more and " if zero else "more than 0 and "
    allowed += f"at most {at_most:g} s" if at_most < below else f"less than {below:g} s"
    raise ConfigurationError(f"{option}={shown(value)}: allowed is {allowed}{': ' if why else ''}{why}")


def third(of: float) -> float:
    """A third of ``of``, and a trifle more. 0.2 must count as a third of 0.6 (R7), but in floats it is more."""
    return of / 3 * (1 + 1e-12)


def timeout(option: str, value: object) -> float:
    """Seconds to wait. A negative number waits for ever: infinity is returned. 0 tries once."""
    allowed = "a number of seconds; negative waits for ever"
    number = _number(option, value, allowed)
    if math.isnan(number):
        raise ConfigurationError(f"{option}={shown(value)}: allowed is {allowed}")
    return math.inf if number < 0 else number


def patience(option: str, value: object, allowed: str = "a number of seconds, or None") -> float:
    """Seconds to wait, or that have to be left. A negative number does not wait, and is always left."""
    number = _number(option, value, allowed)
    if math.isnan(number):
        raise ConfigurationError(f"{option}={shown(value)}: allowed is {allowed}")
    return number


def fraction(option: str, value: object, *, below: float) -> float:
    number = _number(option, value, "a number")
    if 0 <= number < below:
        return number
    raise ConfigurationError(f"{option}={shown(value)}: allowed is 0 up to, not including, {below:g}")


def number(option: str, value: object) -> int:
    """A whole number above 0."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < BEYOND_FENCES:
        return value
    raise ConfigurationError(f"{option}={shown(value)}: allowed is a whole number above 0")


def flag(option: str, value: object) -> bool:
    """True or False. Another value that Python would take for one of them ("no", a number) is a mistake."""
    if value is True or value is False:
        return value
    raise ConfigurationError(f"{option}={shown(value)}: allowed are True and False")


def names(value: object) -> tuple[str, ...]:
    """The names of a lock, from one name or a sequence of different names."""
    if type(value) is str and value.isascii() and 0 < len(value) <= LONGEST_NAME and "\0" not in value:
        return (value,)
    if isinstance(value, str):
        return (_name(value),)
    if not isinstance(value, Iterable) or isinstance(value, (bytes, bytearray)):
        raise ConfigurationError(f"name={shown(value)}: allowed is a str or a sequence of str")
    several = tuple(_name(name) for name in value)
    if not several:
        raise ConfigurationError(f"name={shown(value)}: at least one name is needed")
    if len(several) > MOST_NAMES:
        raise ConfigurationError(
            f"name={shown(value)}: {len(several)} names: allowed are at most {MOST_NAMES}, because a master is busy "
            "with all of them at once, and serves no other client until it is done"
        )
    if len(set(several)) < len(several):
        twice = next(name for name in several if several.count(name) > 1)
        raise ConfigurationError(f"name={shown(value)}: {shown(twice)} is there twice")
    return several


def master_name(value: object) -> str:
    """The name of a master, the same in every client (R34)."""
    if not isinstance(value, str) or not _MASTER.fullmatch(value):
        raise ConfigurationError(
            f"masters: {shown(value)} is no name of a master: "
            f"allowed are up to {LONGEST_MASTER} letters, digits and . _ : -"
        )
    return plain(value)


def masters(several: Sequence[str]) -> list[str] | dict[str, str]:
    """Addresses, each with its name in front (``lock-1=redis://…``), or none with one."""
    found = [_NAMED.fullmatch(one) for one in several]
    if not any(found):
        return list(several)
    named: dict[str, str] = {}
    for number, one in enumerate(found):
        if one is None:
            raise ConfigurationError(
                f"masters[{number}] has no name, and others have: "
                "write NAME=redis://HOST:PORT for each of them, or for none"
            )
        if one["name"] in named:
            raise ConfigurationError(f"masters[{number}] has the name {shown(one['name'])}, as another one has")
        named[master_name(one["name"])] = one["address"]
    return named


def owner(value: object) -> str:
    """The name by which people know the holder of a lock (R27). "" is none."""
    if not isinstance(value, str):
        raise ConfigurationError(f"owner={shown(value)}: allowed is a str, not {type(value).__name__}")
    value = plain(value)
    if value and not is_owner(value):
        if not value.isprintable():
            raise ConfigurationError(f"owner={shown(value)}: allowed is printable text, on one line")
        raise ConfigurationError(
            f"owner={shown(value)}: {len(value.encode())} bytes of UTF-8, allowed are at most {LONGEST_OWNER}"
        )
    return value


def is_owner(text: str) -> bool:
    """Whether ``text`` may be an owner, and not "": 1 to 64 bytes of printable UTF-8."""
    # Printable text can also be encoded.
    return text != "" and text.isprintable() and len(text.encode()) <= LONGEST_OWNER


def token(value: object) -> str:
    """The token of a lease that is resumed. It is the `Lease.token` of that lease, with its owner.

    A status may show something else: what a release left (R28) has no lease, and neither have readers or other
    libraries.
    """
    found = TOKEN.fullmatch(value) if isinstance(value, str) else None
    if found is None or not (found["owner"] is None or is_owner(found["owner"])):
        raise ConfigurationError(
            f"token={begun(value)}: allowed is the token of a lease, "
            "40 hexadecimal digits and, behind a colon, its owner, if it has one"
        )
    return found[0]


def fence(value: object) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 < value < BEYOND_FENCES):
        return value
    raise ConfigurationError(
        f"fence={shown(value)}: allowed is the fencing token of a lease, an int above 0 and below 2**53, or None"
    )


def prefix(value: object) -> str:
    if not isinstance(value, str) or "\0" in value or not _encodes(value):
        raise ConfigurationError(f"prefix={shown(value)}: allowed is a str without NUL that can be encoded as UTF-8")
    return plain(value)


def pattern(value: object) -> str:
    """A pattern for names, as `Masters.locks` takes it."""
    if not isinstance(value, str) or not value or "\0" in value or not _encodes(value):
        raise ConfigurationError(
            f"match={shown(value)}: allowed is a pattern for names, a str without NUL that is not empty: invoice:*"
        )
    return plain(value)


def plain(text: str) -> str:
    """``text`` as itself.  A member of ``class Kind(str, Enum)`` is a str, and another text in every f-string."""
    return text if type(text) is str else str.__str__(text)


def shown(value: object) -> str:
    """``value`` as text for an error. Its type is shown if its repr fails, and long texts are cut."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a user's object, or an int with more digits than Python prints
        return f"<{type(value).__name__}>"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def begun(value: object) -> str:
    """The beginning of ``value`` for an error: all of it is enough to release a lock."""
    text = shown(value)
    return text if len(text) <= _BEGINNING else f"{text[:_BEGINNING]}…"


def named(several: Sequence[str]) -> str:
    """The names of a lock for a text: all of a few, and the first ones of many."""
    if len(several) <= _FEW:
        return repr(", ".join(several))
    return f"{', '.join(several[:_SOME])!r} and {len(several) - _SOME} more"


def _name(value: object) -> str:
    if not isinstance(value, str):
        raise ConfigurationError(f"name={shown(value)}: allowed is a str, not {type(value).__name__}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"name={shown(value)}: cannot be encoded as UTF-8 ({error.reason})") from None
    if not 1 <= size <= LONGEST_NAME:
        raise ConfigurationError(f"name={shown(value[:40])}: {size} bytes of UTF-8, allowed are 1 to {LONGEST_NAME}")
    if "\0" in value:
        raise ConfigurationError(f"name={shown(value)}: must not contain NUL")
    return plain(value)


def _encodes(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def limit(value: object) -> int:
    """How many slots a group has."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_SLOTS:
        return value
    raise ConfigurationError(f"limit={shown(value)}: allowed is a whole number from 1 to {MOST_SLOTS}")


def _number(option: str, value: object, allowed: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigurationError(f"{option}={shown(value)}: allowed is {allowed}, not {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:
        raise ConfigurationError(f"{option}={shown(value)}: the number is too large") from None
