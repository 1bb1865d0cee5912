"""The events that an observer receives: plain records, made only if there is an observer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from redlock._core.tokens import owner_of

if TYPE_CHECKING:
    from redlock.errors import Reason, Vote


@dataclass(frozen=True, slots=True)
class _OfALease:
    """What the events of one lease have in common."""

    name: str
    token: str
    fence: int | None

    @property
    def owner(self) -> str:
        """The name of the holder, present or past; "" if the token has none (R27)."""
        return owner_of(self.token)


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """One request for a lock that was not granted, and was followed by another one; no event by itself.

    ``seconds`` after the call of `acquire` it was decided.  ``kind`` is as in `LockRefused`.
    """

    kind: Literal["held", "crowded", "unreachable", "slow", "unusable"]
    seconds: float
    votes: tuple[Vote, ...]


@dataclass(frozen=True, slots=True)
class LockAcquired(_OfALease):
    """A majority granted the lock.  ``seconds`` includes the time in line and the time to connect.

    ``failed`` are the attempts before the one that was granted, the latest 16 of them.  The lease is valid for
    ``remaining`` seconds, unless it is extended.  ``settled`` are the votes of a second round (R17).
    """

    attempts: int
    seconds: float
    votes: tuple[Vote, ...]
    failed: tuple[FailedAttempt, ...] = ()
    remaining: float = 0.0
    settled: tuple[Vote, ...] = ()


@dataclass(frozen=True, slots=True)
class LockRefused:
    """An acquire gave up: ``held`` by another client, or the masters were ``unreachable`` or too ``slow``.

    ``crowded``: as many of this process wait for it already as may (R40). ``unusable``: the keys of this name hold
    something that is no lock, see ``votes``. ``failed`` are the attempts before the last one, the latest 16 of them.
    If ``attempts`` is 0, nothing was sent: in an outage ``votes`` are those of an attempt ahead in line (C2).
    """

    name: str
    kind: Literal["held", "crowded", "unreachable", "slow", "unusable"]
    attempts: int
    seconds: float
    votes: tuple[Vote, ...]
    failed: tuple[FailedAttempt, ...] = ()


@dataclass(frozen=True, slots=True)
class WaitBegan:
    """An acquire was not granted at once, and waits: for its turn in this process, or for another one (R40).

    ``waiter`` is the number of this wait, which `WaitEnded` has as well.  An acquire that does not wait has neither,
    unless it asks behind another one of its process.
    """

    name: str
    waiter: int


@dataclass(frozen=True, slots=True)
class WaitEnded:
    """That wait has ended: granted, refused, cancelled or interrupted."""

    name: str
    waiter: int


@dataclass(frozen=True, slots=True)
class LeaseExtended(_OfALease):
    """The holder or the renewer extended a lease.  It is valid for another ``remaining`` seconds.

    ``renewed``: it was the renewer, in the background.  For ``bare_majority`` seconds since the last event of this
    lease no more than a bare majority was known to have its keys (R37).
    """

    remaining: float
    votes: tuple[Vote, ...]
    renewed: bool = False
    bare_majority: float = 0.0


@dataclass(frozen=True, slots=True)
class LockReleased(_OfALease):
    """The holder released its lock in time, or handed it over (C11).  This process was its holder for ``held`` seconds.

    ``votes`` are the answers so far; none to a hand-over.  Masters that have not answered are owed the release.
    ``bare_majority`` is as in `LeaseExtended`.
    """

    held: float
    votes: tuple[Vote, ...] = ()
    bare_majority: float = 0.0


@dataclass(frozen=True, slots=True)
class LeaseLost(_OfALease):
    """A lease ended before its holder was done; see `LockLost.reason`.  ``held``: for how many seconds it was.

    ``bare_majority`` is as in `LeaseExtended`.  For ``guard`` seconds after the lease the name stays taken (R36).
    """

    reason: Reason
    held: float
    bare_majority: float = 0.0
    guard: float = 0.0


@dataclass(frozen=True, slots=True)
class MasterDown:
    """No connection to this master can be made."""

    master: str
    reason: str


@dataclass(frozen=True, slots=True)
class MasterUp:
    """A master is connected.  Its vote counts in ``quarantined`` seconds; 0: it counts now (R21)."""

    master: str
    quarantined: float


@dataclass(frozen=True, slots=True)
class MasterClock:
    """The clock of a master surely runs too fast or too slow, or it did and is right again (R43).

    ``rate``: by how much it is faster than ours at least, 0.083 is 8.3 %; negative: slower; 0.0: it is right again.
    Its vote counts in ``quarantined`` seconds, as in `MasterUp`: infinity while it is fast, and 0 if it is slow.
    """

    master: str
    rate: float
    quarantined: float


@dataclass(frozen=True, slots=True)
class QuorumLost:
    """In an attempt too few masters took part.  It comes once, until `QuorumBack`."""

    votes: tuple[Vote, ...]


@dataclass(frozen=True, slots=True)
class QuorumBack:
    """In an attempt enough masters took part again."""


@dataclass(frozen=True, slots=True)
class MastersDisagree:
    """Other clients use masters that are incompatible with ours: each could hold one lock (R34).

    ``masters`` are ours, ``others`` the lists of the others, sorted.  ``refused``: this client gets no lock for that.
    """

    masters: tuple[str, ...]
    others: tuple[tuple[str, ...], ...]
    refused: bool


@dataclass(frozen=True, slots=True)
class MastersAgree:
    """No client is known any more whose masters are incompatible with ours."""


Event: TypeAlias = (
    LockAcquired | LockRefused | WaitBegan | WaitEnded | LeaseExtended | LockReleased | LeaseLost | MasterDown
    | MasterUp | MasterClock | QuorumLost | QuorumBack | MastersDisagree | MastersAgree
)  # fmt: skip
