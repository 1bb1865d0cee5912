"""What an observer is told: plain records, made only if there is one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from redlock.errors import Reason, Vote


@dataclass(frozen=True, slots=True)
class LockAcquired:
    """A majority granted it, ``seconds`` after it was asked for; standing in line and connecting count."""

    name: str
    token: str
    fence: int | None
    attempts: int
    seconds: float
    votes: tuple[Vote, ...]


@dataclass(frozen=True, slots=True)
class LockRefused:
    """An acquire gave up: ``held`` by somebody else, or the masters were ``unreachable`` or too ``slow``.

    ``unusable``: they are there, and something that is not a lock stands at the keys of this name; see ``votes``.
    """

    name: str
    kind: Literal["held", "unreachable", "slow", "unusable"]
    attempts: int
    seconds: float
    votes: tuple[Vote, ...]


@dataclass(frozen=True, slots=True)
class LeaseExtended:
    """By its holder or by its renewer: valid for another ``remaining`` seconds."""

    name: str
    token: str
    fence: int | None
    remaining: float
    votes: tuple[Vote, ...]


@dataclass(frozen=True, slots=True)
class LockReleased:
    """By its holder, in time; it was ``held`` for so many seconds, as far as this process was its holder.

    ``votes`` are the answers so far; masters that have not answered are owed the release.
    """

    name: str
    token: str
    fence: int | None
    held: float
    votes: tuple[Vote, ...] = ()


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """It ended before its holder was done; see `LockLost.reason`.  It was ``held`` for so many seconds."""

    name: str
    token: str
    fence: int | None
    reason: Reason
    held: float


@dataclass(frozen=True, slots=True)
class MasterDown:
    """No connection to it can be made."""

    master: str
    reason: str


@dataclass(frozen=True, slots=True)
class MasterUp:
    """It is connected; its vote counts in ``quarantined`` seconds, 0 if it does now (R21)."""

    master: str
    quarantined: float


@dataclass(frozen=True, slots=True)
class QuorumLost:
    """An attempt found too few masters that took part.  Once, until `QuorumBack`."""

    votes: tuple[Vote, ...]


@dataclass(frozen=True, slots=True)
class QuorumBack:
    """An attempt found enough of them again."""


Event: TypeAlias = (
    LockAcquired
    | LockRefused
    | LeaseExtended
    | LockReleased
    | LeaseLost
    | MasterDown
    | MasterUp
    | QuorumLost
    | QuorumBack
)
