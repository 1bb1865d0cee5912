"""What policies add to a refusal, each a record of its own."""

from __future__ import annotations

from typing import Any, NamedTuple

from redlock._core.outcomes import NEVER


class Waited(NamedTuple):
    """What a refused operation has waited for."""

    attempts: int = 1
    since: float = NEVER  # when a majority took part last, as far as is known
    crowd: int = 0  # how many of this process wait in line, if no more may
    before: tuple[Any, ...] = ()  # the refusals of the latest attempts before this one, for an observer


class Doubt(NamedTuple):
    """What a refused attempt knows of leases that are on record and may have ended (`confirm.ballot`)."""

    holder: str = ""  # the token that is on record most often
    soon: float = 0.0  # seconds after which it is tried again, once: a key that is in the way ends then; 0: none does
