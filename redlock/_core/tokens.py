"""What a token says of its owner (R27).

A token of ours is 40 hexadecimal digits.  If it has an owner, a colon and the owner follow.  Masters and clients
compare the whole token.  The owner is a hint for people, and proves nothing: anybody can write any token.
"""

from __future__ import annotations

import re

from redlock import options

_SHOWN = 8  # digits in a text; people compare no more
_OURS = re.compile(r"[0-9a-f]{40}:(.+)", re.DOTALL)


def owner_of(token: str | None) -> str:
    """The owner in ``token``, which can be printed; "" if there is none, as in the tokens of other libraries."""
    found = None if token is None else _OURS.fullmatch(token)
    return found[1] if found and options.is_owner(found[1]) else ""


def whose(token: str) -> str:
    """``token`` for a text: with an owner, that and a few digits, which tell two attempts of it apart."""
    owner = owner_of(token)
    return f"{owner} ({token[:_SHOWN]}…)" if owner else token
