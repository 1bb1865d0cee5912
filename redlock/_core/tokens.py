"""What the value of a lock key says: who has the lock (R27), or who had it (R28).

A token of ours is 40 hexadecimal digits.  If it has an owner, a colon and the owner follow.  Masters and clients
compare the whole token.  The owner is a hint for people, and proves nothing: anybody can write any token.

A release before the end of `hold_at_least` leaves ``released:`` and the token.  That owns nothing any more.

While readers hold a name (R33), masters answer ``shared:`` instead of a token; ``shared:full`` if no reader more may
have it; or ``waiting:`` if a writer waits for it.  For a slot that can never be had they answer ``other:`` (R32).
"""

from __future__ import annotations

from redlock import options

_SHOWN = 8  # digits in a text; people compare no more
_RELEASED = "released:"
_EXPIRED = "expired:"
READERS = "shared:"
_SHARED = {
    READERS: "readers",
    "shared:full": "as many readers as it may have (max_readers)",
    "waiting:": "readers, and a writer waits",
    "other:": "something that is not a lock",
}


def owner_of(value: str | None) -> str:
    """The owner in ``value``, which can be printed; "" if there is none, as in the tokens of other libraries."""
    found = None if value is None else options.TOKEN.fullmatch(released_token(value) or value)
    owner = found["owner"] if found else None
    return owner if owner and options.is_owner(owner) else ""


def released_token(value: str | None) -> str:
    """The token of the lease that was released, if the name is kept from everybody after that (R28); else ""."""
    return value.removeprefix(_RELEASED) if value is not None and value.startswith(_RELEASED) else ""


def is_phantom(value: str) -> bool:
    """Whether the name is left to nobody, as nobody can tell whether its last lease is over (R35)."""
    return value.startswith(_EXPIRED)


def readers_of(value: str | None) -> str:
    """For a text: the readers that have a name, if ``value`` says so (R33), or what else is no token; else ""."""
    return _SHARED.get(value, "") if value is not None else ""


def by_whom(value: str) -> str:
    """The holder that is in the way, for a text: its owner and a few digits, which tell two of its attempts apart."""
    if (readers := readers_of(value)) != "":
        return f"by {readers}"
    if is_phantom(value):
        return "by nobody: it is in doubt whether its last lease is over, until that must be"
    owner, released = owner_of(value), released_token(value)
    token = released or value
    who = f"{owner} ({token[:_SHOWN]}…)" if owner else token
    return f"released by {who}, and kept from others" if released else f"by {who}"
