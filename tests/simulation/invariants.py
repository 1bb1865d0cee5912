"""The invariants by name, and what keys and attempts are to their judge (`bench/judge.py`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from redlock import scripts

if TYPE_CHECKING:
    from tests.bench.judge import Hold
    from tests.simulation.master import Key, Master

MILLISECOND = 0.001
TINY = 1e-9
LOOKS = (scripts.STATUS, scripts.LOOK, scripts.SCAN)


def _of(*verbs: str) -> tuple[scripts.Script, ...]:
    return tuple(script for script in scripts.ALL if script.verb in verbs)


ACQUIRES, OCCUPIES, EXTENDS, RENEWS = _of("acquire"), _of("occupy"), _of("extend"), _of("renew")
REPAIRS, RELEASES = _of("repair"), _of("release", "vacate")
RELEASED = "released:"  # in front of a token: nobody may have the name yet
EXPIRED = "expired:"  # in front of a token: nobody can tell whether its last lease is over (R35)
NO_LOCK = (":fence", ":grant", ":tickets")  # keys that end so stand beside that of a lock

# The invariants by name; `Violation.invariant` is one of them.
P1 = "P1 exclusive"
P2 = "P2 fenced"
P3 = "P3 freed"
P5 = "P5 quarantined"
P6 = "P6 told in time"
P7 = "P7 clean"
P8 = "P8 foreign"
R2 = "R2 no longer than needed"
R12 = "R12 stays lost"
R13 = "R13 not given up"
R36 = "R36 guarded"
R32 = "R32 at most"
R28 = "R28 at least"
AGREEMENT = "R34 one works on"
R28_END = "R28 no longer"
C7 = "C7 not held for longer"
LIVE = "live"


# A lock key; or a reader in the set that is there (R33).
Where: TypeAlias = "tuple[str, str | None]"


def find(master: Master, where: Where) -> Key | None:
    name, reader = where
    if reader is not None:
        return dict(readers(master, name)).get(where)
    key = master.find(name)
    return None if key is None or key.members is not None else key


def readers(master: Master, name: str) -> list[tuple[Where, Key]]:
    """The readers of a name that have not ended; not the marks of writers."""
    key = master.find(name)
    if key is None or key.members is None:
        return []
    return [((name, token), one) for token, one in key.members.items() if (one.expires or 0) > master.now_ms]


PREFIX = "redlock:"


class Violation(AssertionError):  # noqa: N818 - what pytest shows first is its name
    """A promise was broken."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


@dataclass(eq=False)
class Attempt:
    """One acquire round with one token, and whatever became of it: the owner of keys."""

    number: int
    client: Any
    names: tuple[str, ...]
    token: str
    longest: float  # the longest TTL asked for, seconds
    sent_at: float = 0.0  # true time
    over: bool = False  # it failed, or its lease was released
    released_on: set[tuple[int, str]] = field(default_factory=set)  # masters that carried out its release, and its key
    owed_until: float = float("inf")  # true time until which its release is owed (R10)
    denied_on: set[int] = field(default_factory=set)  # masters that said the key is not its own
    hold: Hold | None = None  # what was granted for it
    gave: dict[int, int] = field(default_factory=dict)  # by master: which slot it gave (R32)

    def __repr__(self) -> str:
        return f"{self.client.name}#{self.number}"
