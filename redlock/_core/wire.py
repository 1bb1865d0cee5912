"""The wire contract (docs/reference/wire.md): keys, arguments and replies of the scripts.

The only place outside the scripts that knows milliseconds.  Replies come as the protocol has them,
bytes, integers and lists, and leave as small records; those that nearly always come are known by their bytes.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from redlock import scripts
from redlock._core.refusals import ErrorReply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redlock.scripts import Script


class Call(NamedTuple):
    """A script with its keys and arguments, as strings in the order of the protocol.

    ``usual``: what a master that grants it answers nearly always, in the bytes of the protocol; no answer begins with the
    empty tuple.  To compare costs less than to parse and to read, and every vote passes here.
    """

    script: Script
    keys: tuple[str, ...]
    args: tuple[str, ...]
    usual: bytes | tuple[()] = ()


class Keys(NamedTuple):
    """Where one lock lives on every master."""

    locks: tuple[str, ...]
    fences: tuple[str, ...]


def keys_for(prefix: str, names: Sequence[str], *, fencing: bool = True) -> Keys:
    locks = tuple(prefix + name for name in names)
    return Keys(locks, tuple(fence_key(lock) for lock in locks) if fencing else ())


def fence_key(key: str) -> str:
    """The fence key, in the same hash slot as ``key``.

    A cluster hashes what stands between the first ``{`` and the next ``}``, if anything does.
    """
    start = key.find("{")
    end = key.find("}", start + 1) if start >= 0 else -1
    return f"{key}:fence" if end > start + 1 else f"{{{key}}}:fence"


def channel(key: str) -> str:
    """Where masters announce that ``key`` was released."""
    return key + ":released"


def announcement_key(prefix: str) -> str:
    return "redlock-max-ttl:" + prefix


@lru_cache(maxsize=64)  # a process uses few different times
def milliseconds(seconds: float) -> str:
    """Whole milliseconds, rounded up: a key may outlive what it guards, never the reverse.

    What is subtracted first is far below the clock's resolution; without it 0.07 s would be 71 ms.
    """
    return str(max(1, math.ceil(seconds * 1000 - 1e-6)))


# -- requests ----------------------------------------------------------------------------------------


def acquire(keys: Keys, token: str, ttl: float, proposal: int, fence_ttl: float) -> Call:
    fence = str(proposal)
    return Call(
        scripts.ACQUIRE,
        keys.locks + keys.fences,
        (str(len(keys.locks)), token, milliseconds(ttl), fence, milliseconds(fence_ttl)),
        f"*2\r\n:1\r\n${len(fence)}\r\n{fence}\r\n".encode(),  # set, and the proposal is stored
    )


def fence(keys: Keys, token: str, proposal: int, fence_ttl: float) -> Call:
    args = (str(len(keys.locks)), token, str(proposal), milliseconds(fence_ttl))
    return Call(scripts.FENCE, keys.locks + keys.fences, args)


def extend(keys: Keys, token: str, ttl: float, fence_ttl: float) -> Call:
    args = (str(len(keys.locks)), token, milliseconds(ttl), milliseconds(fence_ttl))
    return Call(scripts.EXTEND, keys.locks + keys.fences, args, b"*1\r\n:1\r\n")


def renew(leases: Sequence[tuple[Keys, str, float]], fence_ttl: float) -> Call:
    """``leases``: of each its keys, its token and its TTL."""
    keys: list[str] = []
    args = [milliseconds(fence_ttl)]
    for where, token, ttl in leases:
        keys += where.locks
        keys += where.fences
        args += (str(len(where.locks)), str(len(where.fences)), token, milliseconds(ttl))
    return Call(scripts.RENEW, tuple(keys), tuple(args), _renewed(len(leases)))


def nothing(script: Script) -> Call:
    """`acquire` or `repair` for no names: it changes nothing, and its text is known afterwards."""
    return Call(script, (), ("0", "", "0", "0", "0"))


@lru_cache(maxsize=64)
def _renewed(leases: int) -> bytes:
    """Of all of them a master says that they are extended."""
    return b"*%d\r\n" % leases + leases * b":1\r\n"


def repair(keys: Keys, token: str, ttl: float, fence: int | None, fence_ttl: float) -> Call:
    args = (str(len(keys.locks)), token, milliseconds(ttl), str(fence or 0), milliseconds(fence_ttl))
    return Call(scripts.REPAIR, keys.locks + keys.fences, args)


def release(keys: Keys, token: str) -> Call:
    return Call(
        scripts.RELEASE, keys.locks, (token,), b"*2\r\n:1\r\n:0\r\n"
    )  # ours, and nobody was there to hear of it


def status(key: str) -> Call:
    return Call(scripts.STATUS, (key, fence_key(key)), ())


def announce(prefix: str, max_ttl: float) -> Call:
    return Call(scripts.ANNOUNCE, (announcement_key(prefix),), (milliseconds(max_ttl),))


# -- replies -----------------------------------------------------------------------------------------


# No number that a script returns is greater: it counts in doubles.  A reply of any size would be an integer.
_BEYOND = 2**53
_DIGITS = 16  # of what is below


class BadReply(ValueError):  # noqa: N818 - a reply that is bad, not an error of ours
    """A master answered something that the contract of the script does not allow."""


class Taken(NamedTuple):
    """Answer of acquire: the keys are set; ``fence`` is what the master has now.

    ``stored``: it is our proposal.  That the two are equal is not enough: it may be somebody else's (R18).
    """

    fence: int
    stored: bool


class Held(NamedTuple):
    """Answer of acquire: ``holder`` has it, for ``remaining`` seconds (infinite without expiry)."""

    fence: int
    holder: str
    remaining: float


class Owned(NamedTuple):
    """Answer of extend and release: the caller held every name, and so many heard of the release."""

    listeners: int = 0


class NotOwned(NamedTuple):
    """Answer of extend and release: ``other`` holds one of the names, "" if nobody does."""

    other: str


class Seen(NamedTuple):
    """Answer of status."""

    holder: str
    remaining: float
    fence: int


def read_acquire(value: Any) -> Taken | Held:
    match value:
        case [1, bytes(fence)]:
            return Taken(_fence(fence), stored=True)
        case [2, bytes(fence)]:
            return Taken(_exceeded(fence), stored=False)
        case [0, bytes(fence), bytes(holder), int(pttl)]:
            return Held(_exceeded(fence), _text(holder), _seconds(pttl))
    raise BadReply(_odd(value))


def read_fence(value: Any) -> tuple[int, int]:
    """1, 0 or -1 as the script says, and the fence that the master has now."""
    match value:
        case [(1 | 0 | -1) as verdict, bytes(fence)]:
            return verdict, _fence(fence)
    raise BadReply(_odd(value))


def read_owned(value: Any) -> Owned | NotOwned:
    match value:
        case [1]:
            return Owned()
        case [1, int(listeners)]:
            return Owned(listeners)
        case [0, bytes(other)]:
            return NotOwned(_text(other))
    raise BadReply(_odd(value))


def read_renew(value: Any, leases: int) -> dict[int, NotOwned | ErrorReply]:
    """Of which leases a master says anything else than that they are extended, by their indexes."""
    if type(value) is not list or len(value) != leases:
        raise BadReply(_odd(value))
    others: dict[int, NotOwned | ErrorReply] = {}
    for index, answer in enumerate(value):
        match answer:
            case 1:
                pass
            case bytes():
                others[index] = NotOwned(_text(answer))
            case ErrorReply():
                others[index] = answer
            case _:
                raise BadReply(_odd(answer))
    return others


def read_status(value: Any) -> Seen:
    match value:
        case [bytes(holder), int(pttl), bytes(fence)]:
            return Seen(_text(holder), _seconds(pttl), _fence(fence))
    raise BadReply(_odd(value))


def read_announce(value: Any) -> float:
    match value:
        case int(ms) if 0 < ms < _BEYOND:
            return ms / 1000
    raise BadReply(_odd(value))


def read_announced(value: bytes) -> float:
    """What the key holds, as the script takes it; 0: it is replaced.  ValueError: it is refused."""
    try:
        ms = float(value)
    except ValueError:
        return 0.0
    if ms >= _BEYOND:
        raise BadReply(_odd(value))
    return ms / 1000 if ms > 0 else 0.0


def how_long(remaining: float) -> str:
    """Of a key, for people."""
    return f"for {remaining:.3f} s" if math.isfinite(remaining) else "without expiry"


def _text(token: bytes) -> str:
    # Other libraries may use any bytes as a token; ours are hexadecimal.
    return token.decode("utf-8", "backslashreplace")


def _fence(digits: bytes) -> int:
    # One that is not exact in a script must not be stored on the other masters, which refuse it from then on.
    if not (digits.isdigit() and len(digits) <= _DIGITS) or (fence := int(digits)) >= _BEYOND:
        raise BadReply(_odd(digits))
    return fence


def _exceeded(digits: bytes) -> int:
    # The next token is greater than what is there (R17), and has to be one.
    if (fence := _fence(digits)) + 1 == _BEYOND:
        raise BadReply(_odd(digits))
    return fence


def _seconds(pttl: int) -> float:
    if pttl >= _BEYOND:
        raise BadReply(_odd(pttl))
    return math.inf if pttl == -1 else max(0, pttl) / 1000


def _odd(value: Any) -> str:
    return f"unexpected answer {value!r:.80}"
