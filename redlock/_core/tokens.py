"""The two tokens of a lease: the value of its lock keys, and the fencing token.

The value of a lock key names its holder (R27), or its last one: a release before the end of `hold_at_least` leaves
``released:`` and the token (R28).  While readers hold a name (R33), masters answer ``shared:`` instead of a token;
``shared:full`` if no reader more may have it; or ``waiting:`` if a writer waits for it.  For a slot that can never be
had they answer ``other:`` (R32). Where clients wait in order (R42): ``ticket:`` and the token of the next one;
``tickets:`` to one that does not wait.

Fencing tokens (R16-R18) are proposed by a hybrid logical clock: wall time exceeds a fence that was granted long ago and
forgotten, "highest seen + 1" one from a client whose wall clock is ahead.  Order never rests on the clock: masters
store a proposal only if it is greater than the fence that they have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redlock import options

if TYPE_CHECKING:
    from collections.abc import Callable

# Half of what a double of Lua counts to, in microseconds: a wall clock beyond 2112 must not use up all numbers.
LIMIT = 2**52

_SHOWN = 8  # digits in a text; people compare no more
_RELEASED = "released:"
_EXPIRED = "expired:"
_TICKET = "ticket:"
READERS = "shared:"
TICKETS = "tickets:"
_SHARED = {
    READERS: "readers",
    "shared:full": "as many readers as it may have (max_readers)",
    "waiting:": "readers, and a writer waits",
    "other:": "something that is not a lock",
    TICKETS: "clients that wait in order",
}


class TokenSource:
    """Makes fresh tokens (R8), all of one owner (R27)."""

    __slots__ = ("_random", "_signature")

    def __init__(self, random: Callable[[int], bytes], owner: str) -> None:
        self._random = random
        self.sign(owner)

    def sign(self, owner: str) -> None:
        self._signature = owner and f":{owner}"

    def fresh(self) -> str:
        return self._random(20).hex() + self._signature  # 20 bytes: those of each attempt (R8)


class FenceClock:
    """Proposes fencing tokens above all that were seen.  Two threads may get one: a master stores it once (R18)."""

    __slots__ = ("_seen", "_wall_ns")

    def __init__(self, wall_ns: Callable[[], int]) -> None:
        self._wall_ns = wall_ns
        self._seen = 0

    def propose(self) -> int:
        proposal = max(min(self._wall_ns() // 1000, LIMIT), self._seen + 1)
        self._seen = proposal
        return proposal

    def learn(self, fence: int) -> None:
        """Remember a fence that a master showed.  One from `LIMIT` on would spoil the proposals for all names."""
        if fence < LIMIT:
            self._seen = max(self._seen, fence)

    def age(self, fence: int) -> float:
        """Seconds since it was proposed, if the clock of its holder is right.  For people."""
        return max(0.0, self._wall_ns() / 1e9 - fence / 1e6)


def owner_of(value: str | None) -> str:
    """The owner in ``value``, which can be printed; "" if there is none, as in the tokens of other libraries."""
    found = None if value is None else options.TOKEN.fullmatch(released_token(value) or turn_of(value) or value)
    owner = found["owner"] if found else None
    return owner if owner and options.is_owner(owner) else ""


def released_token(value: str | None) -> str:
    """The token of the lease that was released, if the name is kept from all after that (R28); else ""."""
    return value.removeprefix(_RELEASED) if value is not None and value.startswith(_RELEASED) else ""


def turn_of(value: str | None) -> str:
    """The token of the next waiter in the queue, if the name is free (R42); else ""."""
    return value.removeprefix(_TICKET) if value is not None and value.startswith(_TICKET) else ""


def is_phantom(value: str) -> bool:
    """Whether the name is kept from all, as its last lease may still be valid (R35)."""
    return value.startswith(_EXPIRED)


def readers_of(value: str | None) -> str:
    """For a text: the readers that have a name, if ``value`` says so (R33), or what else is no token; else ""."""
    return _SHARED.get(value, "") if value is not None else ""


def shown(value: str) -> str:
    """A value as people and programs may see it: of one that has not the form of our tokens eight characters (R27)."""
    for what in (_RELEASED, _EXPIRED, _TICKET):
        if value.startswith(what):
            return what + shown(value.removeprefix(what))
    found = options.TOKEN.fullmatch(value)
    ours = found and (found["owner"] is None or options.is_owner(found["owner"]))
    return value if ours or value in _SHARED or len(value) <= _SHOWN else f"{value[:_SHOWN]}…"


def by_whom(value: str) -> str:
    """The holder that is in the way, for a text: its owner and a few digits, which tell two of its attempts apart."""
    if (readers := readers_of(value)) != "":
        return f"by {readers}"
    if is_phantom(value):
        return "by nobody: the last lease may still be valid; free once it must have ended"
    owner, released, turn = owner_of(value), released_token(value), turn_of(value)
    token = released or turn or value
    who = f"{owner} ({token[:_SHOWN]}…)" if owner else shown(token)
    if turn:
        return f"for {who}, whose turn it is"
    return f"released by {who}, and kept from others" if released else f"by {who}"
