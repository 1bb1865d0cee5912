"""The wire contract (docs/reference/wire.md): keys, arguments and replies of the scripts.

Outside the scripts, only this file knows milliseconds.  The most frequent replies are known by their bytes, unparsed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from redlock import scripts
from redlock._core.outcomes import ErrorReply
from redlock.errors import printable
from redlock.options import LONGEST_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from redlock.scripts import Policy, Script

LIFE, REFRESH = 2.0, 0.5  # in max_ttl: how long an announcement holds, and after how long it is repeated
ANNOUNCEMENT = "redlock-max-ttl:"
FLEET = "redlock-fleet:"
GRANTED = "*2\r\n:1\r\n${}\r\n{}\r\n"  # the usual answer to an acquire: the keys are set, and this fence is stored

# What a client announces of itself to fleet.lua, and how it takes an expiry (R35).
Says: TypeAlias = Literal["new", "working", "back", "refused", "left"]
Way: TypeAlias = Literal["confirmed", "trusted"]
Slots: TypeAlias = tuple[int, ...]  # of a group, by their numbers

MOST_NAMED, _FEWER_NAMED = 1000, 50  # readers of a name that a look at one name lists at most, and one at many names
_LONGEST_LIST = 1 << 16  # bytes of the names of masters that a client uses; more are no list of ours


@dataclass(slots=True)
class Call:
    """A script with its keys and arguments, as strings in the order of the protocol."""

    script: Script
    keys: tuple[str, ...]
    args: tuple[str, ...]
    usual: bytes | tuple[()] = ()  # bytes of nearly every grant: faster to compare than to parse; (): none is usual

    _replace = replace

    @property
    def words(self) -> tuple[str, ...]:
        """The command that runs the script, by its name in the master's cache."""
        return ("EVALSHA", self.script.sha, str(len(self.keys)), *self.keys, *self.args)

    @property
    def words_with_text(self) -> tuple[str, ...]:
        """The same for a master that has forgotten the script."""
        return ("EVAL", self.script.text, *self.words[2:])

    @property
    def words_as_function(self) -> tuple[str, ...]:
        """The same for a master that has the function library (R44)."""
        return ("FCALL", self.script.function, *self.words[2:])


class Keys(NamedTuple):
    """The keys of one lock, the same on every master."""

    locks: tuple[str, ...]
    fences: tuple[str, ...]
    grants: tuple[str, ...] = ()  # the records of their holders (R35)


def keys_for(prefix: str, names: Sequence[str], *, fencing: bool = True, records: bool = False) -> Keys:
    locks = (prefix + names[0],) if len(names) == 1 else tuple(prefix + name for name in names)
    if not fencing:
        return Keys(locks, ())
    fences = (fence_key(locks[0]),) if len(names) == 1 else tuple(map(fence_key, locks))
    return Keys(locks, fences, tuple(fence_key(lock, ":grant") for lock in locks) if records else ())


def fence_key(key: str, suffix: str = ":fence") -> str:
    """A key in the hash slot of ``key``: of the text between the first ``{`` and the next ``}``, unless it is empty."""
    start = key.find("{")
    if start < 0:
        return f"{{{key}}}{suffix}"
    end = key.find("}", start + 1)
    return f"{key}{suffix}" if end > start + 1 else f"{{{key}}}{suffix}"


def channel(key: str) -> str:
    return key + ":released"


def known_key(prefix: str) -> str:
    """The record since when clients know whose data a master has (R21): the rights for fences are enough for it."""
    return fence_key(prefix, ":replid")


def name_of(prefix: str, key: bytes) -> str | None:
    """The name of the lock at ``key``; None: no lock of this prefix is there.  Goes by the key alone."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return None
    name = text.removeprefix(prefix)
    ours = text.startswith(prefix) and 0 < len(name.encode()) <= LONGEST_NAME and "\0" not in name
    beside = text == known_key(prefix) or any(_is_beside(text, suffix) for suffix in (":fence", ":grant"))
    return name if ours and not text.startswith((ANNOUNCEMENT, FLEET)) and not beside else None


def _is_beside(key: str, suffix: str) -> bool:
    lock = key.removesuffix(suffix)
    return lock != key and (fence_key(lock, suffix) == key or (lock.startswith("{") and lock.endswith("}")))


def literal(text: str) -> str:
    """A pattern that matches ``text`` alone."""
    return "".join(f"\\{character}" if character in "*?[]\\" else character for character in text)


@lru_cache(maxsize=64)  # a process uses few different times
def milliseconds(seconds: float) -> str:
    """Whole milliseconds, rounded up: a key may outlive its lease.  Less a nanosecond, else 0.07 s would be 71 ms."""
    return str(max(1, math.ceil(seconds * 1000 - 1e-6)))


# -- requests ----------------------------------------------------------------------------------------


def acquire(keys: Keys, token: str, ttl: float, proposal: int, fence_ttl: float) -> Call:
    fence = str(proposal)
    args = (str(len(keys.locks)), token, milliseconds(ttl), fence, milliseconds(fence_ttl))
    return Call(scripts.ACQUIRE, keys.locks + keys.fences, args, GRANTED.format(len(fence), fence).encode())


def fence(keys: Keys, token: str, proposal: int | str, fence_ttl: float) -> Call:
    args = (str(len(keys.locks)), token, str(proposal), milliseconds(fence_ttl))
    return Call(scripts.FENCE, keys.locks + keys.fences, args)


def extend(keys: Keys, token: str, ttl: float, fence_ttl: float) -> Call:
    args = (str(len(keys.locks)), token, milliseconds(ttl), milliseconds(fence_ttl))
    return Call(scripts.EXTEND, keys.locks + keys.fences, args, b"*1\r\n:1\r\n")


def extend_resumed(keys: Keys, token: str, ttl: float, fence_ttl: float) -> Call:
    """`extend`, but not of a lease that is on record (R35)."""
    grants = tuple(fence_key(lock, ":grant") for lock in keys.locks)
    call = extend(keys, token, ttl, fence_ttl)
    return call._replace(script=scripts.EXTEND_RESUMED, keys=call.keys + grants)


def renew(leases: Sequence[tuple[Keys, str, float]], fence_ttl: float) -> Call:
    """``leases``: the keys, the token and the TTL of each."""
    keys: list[str] = []
    args = [milliseconds(fence_ttl)]
    for where, token, ttl in leases:
        keys += where.locks
        keys += where.fences
        args += (str(len(where.locks)), str(len(where.fences)), token, milliseconds(ttl))
    return Call(scripts.RENEW, tuple(keys), tuple(args), renewed(len(leases)))


class _Command(Call):
    """A command that is no script."""

    __slots__ = ()

    @property
    def words(self) -> tuple[str, ...]:
        return self.args

    words_as_function = words


TIME = _Command(scripts.Script("", ""), (), ("TIME",))


def read_time(value: Any) -> float:
    """Seconds since 1970 on the master's clock (R43)."""
    match value:
        case [bytes(seconds), bytes(micros)] if are_digits(seconds, micros):
            return int(seconds) + int(micros) / 1e6
    raise BadReply(odd(value))


def nothing(script: Script) -> Call:
    """A call for no names.  It changes nothing, and the master knows the script afterwards."""
    return Call(script, (), ("0",) * 5)


@lru_cache(maxsize=64)
def renewed(leases: int) -> bytes:
    return b"*%d\r\n" % leases + leases * b":1\r\n"


def repair(keys: Keys, token: str, ttl: float, fence: int | None, fence_ttl: float) -> Call:
    args = (str(len(keys.locks)), token, milliseconds(ttl), str(fence or 0), milliseconds(fence_ttl))
    return Call(scripts.REPAIR, keys.locks + keys.fences, args)


def release(keys: Keys, token: str, keep: float = 0.0, fence: int | None = None) -> Call:  # noqa: ARG001 - see `records`
    """``keep``: seconds in which no client may have the names yet (R28)."""
    args = (token, milliseconds(keep)) if keep > 0 else (token,)
    # The usual answer: the key was ours, and no client listened.
    return Call(scripts.RELEASE, keys.locks, args, b"*2\r\n:1\r\n:0\r\n")


def _of_reader(call: Call, keys: Keys, *more: str) -> Call:
    policies: tuple[Policy, ...] = ("shared", "recorded") if keys.grants else ("shared",)
    script = scripts.compose(call.script.verb, *policies)
    return call._replace(script=script, keys=call.keys + keys.grants, args=call.args + more)


def acquire_shared(keys: Keys, token: str, ttl: float, proposal: int, fence_ttl: float, most: int) -> Call:
    """`acquire` for a reader (R33).  ``most``: how many readers a name may have."""
    return _of_reader(acquire(keys, token, ttl, proposal, fence_ttl), keys, str(most))


def extend_shared(keys: Keys, token: str, ttl: float, fence_ttl: float, *_: object, reads: bool = False) -> Call:
    """``reads``: only of a reader; else a writer becomes one, and is not on record any more (R35)."""
    return _of_reader(extend(keys, token, ttl, fence_ttl), keys, *(("reads",) if reads else ()))


def repair_shared(keys: Keys, token: str, ttl: float, fence: int | None, fence_ttl: float) -> Call:
    return _of_reader(repair(keys, token, ttl, fence, fence_ttl), keys)


def release_shared(keys: Keys, token: str, *_: object) -> Call:  # readers keep no client out (R28)
    return _of_reader(release(keys, token), keys)


def mark(keys: Keys, token: str, lasts: float) -> Call:
    """A writer waits: keep new readers away for ``lasts`` seconds, or no longer (0)."""
    return Call(scripts.MARK, keys.locks, (token, milliseconds(lasts) if lasts > 0 else "0"))


def occupy(group: Keys, asked: Slots, keys: Keys, token: str, ttl: float, proposal: int, fence_ttl: float) -> Call:
    """`acquire` for the first free one of the slots ``asked``, of ``keys``; ``group``: the keys of all (R32)."""
    call = acquire(keys, token, ttl, proposal, fence_ttl)
    args = (str(len(group.locks)), *call.args[1:], *map(str, asked))
    return Call(scripts.OCCUPY, group.locks + keys.fences, args, call.usual)


def vacate(group: str, asked: Slots, keys: Keys, token: str, keep: float = 0.0, *_: object) -> Call:
    """`release` for any of the slots ``asked``; ``group``: the key of their channel (R32)."""
    lasts = milliseconds(keep) if keep > 0 else "0"
    return Call(scripts.VACATE, keys.locks, (token, channel(group), lasts, *map(str, asked)), b"*2\r\n:1\r\n:0\r\n")


def announced_slot(message: bytes) -> int | None:
    """The slot whose release ``message`` announces; None: it is no such message."""
    number, _, token = message.partition(b" ")
    return int(number) if token and are_digits(number) else None


def status(key: str, *, listeners: bool = False) -> Call:
    args = (str(MOST_NAMED), "1") if listeners else (str(MOST_NAMED),)
    return Call(scripts.STATUS, (key, fence_key(key)), args)


def look(prefix: str, names: Sequence[str]) -> Call:
    keys = keys_for(prefix, names)
    return Call(scripts.LOOK, keys.locks + keys.fences, (str(_FEWER_NAMED),))


def scan(cursor: str, pattern: str, count: int) -> Call:
    return Call(scripts.SCAN, (), (cursor, pattern, str(count)))


def announce(prefix: str, max_ttl: float) -> Call:
    return Call(scripts.ANNOUNCE, (ANNOUNCEMENT + prefix,), (milliseconds(max_ttl), milliseconds(LIFE * max_ttl)))


def fleet(prefix: str, names: Sequence[str], client: str, says: Says, life: float, way: Way = "trusted") -> Call:
    """``client`` begins with ~ if it only warns.  ``life``: seconds for which it is remembered.  See fleet.lua."""
    # Its fingerprint does not depend on the order, and neither does compatibility.
    ordered = sorted(names)
    args = (fingerprint(ordered), client, says, milliseconds(life), way, *ordered)
    return Call(scripts.FLEET, (FLEET + prefix,), args)


def known(prefix: str) -> Call:
    return Call(scripts.KNOWN, (known_key(prefix),), ())


def fingerprint(names: Iterable[str]) -> str:
    return scripts.fingerprint("\n".join(sorted(names)))


# -- replies -----------------------------------------------------------------------------------------

# Scripts count in doubles, so all numbers that they return are smaller.  The protocol allows integers of any size.
BEYOND = 2**53
_NO_KEY = -2  # what PTTL says where there is no key
_DIGITS = 16  # a number below `BEYOND` has no more digits


class BadReply(ValueError):  # noqa: N818 - a reply that is bad, not an error of ours
    """An answer that the contract of the script does not allow."""


class Taken(NamedTuple):
    """Answer of acquire: the keys are set."""

    fence: int  # that the master has now
    stored: bool  # our proposal; an equal fence proves nothing: it may be another client's (R18)


class Held(NamedTuple):
    """Answer of acquire: ``holder`` has the lock for ``remaining`` seconds (infinity: the key has no expiry)."""

    fence: int
    holder: str
    remaining: float
    slots: tuple[float, ...] = ()  # if one of a group was asked for: the same of every slot; 0 if that one is free


class Owned(NamedTuple):
    """Answer of extend and release: the caller held every name; ``listeners`` got the announcement of its release."""

    listeners: int = 0


class NotOwned(NamedTuple):
    """Answer of extend and release: the caller did not hold every name; ``other`` holds one, "" if no client does."""

    other: str


class OtherMode(NamedTuple):
    """The caller ``reads`` what it would have alone, or the reverse (R33); or it is ``recorded``, not here (R35)."""

    reads: bool
    recorded: bool = False


class Seen(NamedTuple):
    """Answer of status: what a master has of a name."""

    holder: str  # "" if there is none
    remaining: float
    fence: int
    readers: tuple[str, ...] = ()  # if it is held by readers: their tokens, those that end first (R33)
    listeners: int | None = None  # for its release; None: not asked, or not permitted


class Announced(NamedTuple):
    """Answer of announce: the largest ``max_ttl`` there, and for how many seconds it holds (infinity: it stays)."""

    max_ttl: float
    left: float = math.inf


class Known(NamedTuple):
    """Answer of known: a replication ID, and for how long clients have known it; None: no replica since its start."""

    replid: str
    age: float | None


class OtherList(NamedTuple):
    """An incompatible list, which holds for ``left`` seconds if it is not announced again."""

    status: str  # see fleet.lua
    left: float
    names: frozenset[str]


class Lists(NamedTuple):
    """Answer of fleet: a state (see fleet.lua), and the incompatible lists."""

    state: int
    others: tuple[OtherList, ...] = ()
    differs: float = 0.0  # seconds for which clients count that treat an expiry in another way (R35); 0: none


def read_acquire(value: Any) -> Taken | Held:
    match value:
        case [1, bytes(fence)]:
            return Taken(_fence(fence), stored=True)
        case [2, bytes(fence)]:
            return Taken(read_exceeded(fence), stored=False)
        case [0, bytes(fence), bytes(holder), int(pttl)]:
            return Held(read_exceeded(fence), _holder(holder), seconds(pttl))
        case [0, bytes(fence), bytes(holder), int(pttl), list(slots)] if all(type(left) is int for left in slots):
            return Held(read_exceeded(fence), _holder(holder), seconds(pttl), read_slots(slots))
    raise BadReply(odd(value))


def read_slots(slots: Sequence[int]) -> tuple[float, ...]:
    # A key that has less than a millisecond left is not free yet.
    return tuple(0.0 if left == _NO_KEY else max(seconds(left), 0.001) for left in slots)


def read_occupied(value: Any) -> tuple[Any, int | None]:
    """The answer as `read_acquire` reads it, and which of several slots was taken, if it is not the first one (R32)."""
    match value:
        case [(1 | 2), bytes(), int(slot)]:
            return value[:2], slot
    return value, None


def check_ours(fence: int, proposal: int, stored: bool) -> None:
    """Raise ConnectionAbortedError, unless a grant can be the answer to a request with ``proposal`` (R16)."""
    if fence < proposal or (stored and fence != proposal):
        raise ConnectionAbortedError(f"the fence {fence} was granted, and this client has not proposed it")


def read_fence(value: Any) -> tuple[int, int]:
    """The verdict of the script (1, 0 or -1; see fence.lua), and the fence that the master has now."""
    match value:
        case [(1 | 0 | -1) as verdict, bytes(fence)]:
            return verdict, _fence(fence)
    raise BadReply(odd(value))


def read_owned(value: Any) -> Owned | NotOwned | OtherMode:
    match value:
        case [(-1 | -2) as mode]:
            return OtherMode(mode == -1)
        case [-3]:
            return OtherMode(reads=False, recorded=True)
        case [1]:
            return Owned()
        case [1, int(listeners)]:
            return Owned(listeners)
        case [0, bytes(other)]:
            return NotOwned(text_of(other))
    raise BadReply(odd(value))


def read_renew(value: Any, leases: int) -> dict[int, NotOwned | ErrorReply]:
    """The answers that are not "extended", by the index of their lease."""
    if type(value) is not list or len(value) != leases:
        raise BadReply(odd(value))
    others: dict[int, NotOwned | ErrorReply] = {}
    for index, answer in enumerate(value):
        match answer:
            case 1:
                pass
            case bytes():
                others[index] = NotOwned(text_of(answer))
            case ErrorReply():
                others[index] = answer
            case _:
                raise BadReply(odd(answer))
    return others


def read_status(value: Any) -> Seen:
    match value:
        case [bytes(holder), int(pttl), bytes(fence), *rest]:
            listeners = rest.pop(0) if rest and type(rest[0]) is int else -1
            if all(type(one) is bytes for one in rest):
                if rest and rest[0].startswith(b"t"):  # tickets of another name (R42), not the token of a reader
                    pttl, rest = _NO_KEY, []
                token = "" if pttl == _NO_KEY else _holder(holder)
                readers = tuple(map(text_of, rest))
                return Seen(token, seconds(pttl), _fence(fence), readers, listeners if listeners >= 0 else None)
    raise BadReply(odd(value))


def read_look(value: Any, names: int) -> list[Seen | ErrorReply]:
    if type(value) is not list or len(value) != names:
        raise BadReply(odd(value))
    return [answer if isinstance(answer, ErrorReply) else read_status(answer) for answer in value]


def read_scan(value: Any) -> tuple[str, list[bytes]]:
    """Where to go on, "0" at the end, and the keys that were found."""
    match value:
        case [bytes(cursor), list(keys)] if cursor.isdigit() and all(type(key) is bytes for key in keys):
            return cursor.decode(), keys
    raise BadReply(odd(value))


def read_announce(value: Any) -> Announced:
    match value:
        case [int(ms), int(left)] if 0 < ms < BEYOND:
            return Announced(ms / 1000, seconds(left))
    raise BadReply(odd(value))


def read_known(value: Any) -> Known | None:
    match value:
        case [b"", -1]:
            return None
        case [bytes(replid), int(ms)] if ms < BEYOND:
            return Known(text_of(replid), ms / 1000 if ms >= 0 else None)
    raise BadReply(odd(value))


def read_fleet(value: Any) -> Lists:
    match value:
        case [(-1 | 0 | 1 | 2) as state, *lists] if all(type(one) is bytes for one in lists):
            way, _, left = lists[-1].partition(b" ") if lists else (b"", b"", b"")
            differs = 0.0
            if way in (b"confirmed", b"trusted") and are_digits(left):
                lists.pop()
                differs = int(left) / 1000
            return Lists(state, tuple(map(_read_other_list, lists)), differs)
    raise BadReply(odd(value))


def _read_other_list(value: bytes) -> OtherList:
    head, _, names = value.partition(b"\n")
    match head.split(b" "):
        case [(b"1" | b"2" | b"-" | b"~") as status, left] if are_digits(left) and 0 < len(names) < _LONGEST_LIST:
            return OtherList(status.decode(), int(left) / 1000, frozenset(lines(names)))
    raise BadReply(odd(value))


def are_digits(*numbers: bytes) -> bool:
    return all(number.isdigit() and len(number) <= _DIGITS for number in numbers)


def lines(names: bytes) -> list[str]:
    return [text_of(name) for name in names.split(b"\n") if name]


def how_long(remaining: float) -> str:
    """The remaining time of a key, for people."""
    return f"for {remaining:.3f} s" if math.isfinite(remaining) else "without expiry"


def text_of(written: bytes) -> str:
    """A text of unknown origin, printable; with control characters in quotes: so no prefix makes a token of it."""
    text = written.decode("utf-8", "backslashreplace")
    return text if text.isprintable() else f"'{printable(text)}'"


def _holder(written: bytes) -> str:
    """The value of a key that is there.  An empty one holds the name as well, so it does not pass for a free one."""
    return text_of(written) or "''"


def _fence(digits: bytes) -> int:
    # Where others have one that is not exact in a script, they refuse the name.  A waiter's has a zero in front (R42).
    if not (digits.isdigit() and len(digits) <= _DIGITS + 1) or (fence := int(digits)) >= BEYOND:
        raise BadReply(odd(digits))
    return fence


def read_exceeded(digits: bytes) -> int:
    # The next fence has to be greater than this one (R17), and a valid one itself.
    if (fence := _fence(digits)) + 1 == BEYOND:
        raise BadReply(odd(digits))
    return fence


def seconds(pttl: int) -> float:
    if pttl >= BEYOND:
        raise BadReply(odd(pttl))
    return math.inf if pttl == -1 else max(0, pttl) / 1000


def odd(value: Any) -> str:
    return f"unexpected answer {value!r:.80}"
