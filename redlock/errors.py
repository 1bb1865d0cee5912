"""What can go wrong, as few classes as there are different things to do about it.

    RedlockError
    ├── ConfigurationError   (ValueError)    a value that was given is wrong; nothing was sent
    ├── NotAcquired          (TimeoutError)  somebody else holds it
    │   └── QuorumUnreachable                too few masters answered: an outage, not contention
    ├── NotExtended          (TimeoutError)  no majority answered; the lease keeps what it had
    ├── NotHeld              (RuntimeError)  released or extended by one who does not hold it
    ├── WouldDeadlock        (RuntimeError)  the caller already holds what it asks for
    └── LockLost                             the lease ended before its holder was done

Each also is the builtin that a caller may already catch.  All can be pickled, and none
contains a password.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Outcome: TypeAlias = Literal["granted", "held", "free", "error", "timeout", "quarantined", "pending"]
Reason: TypeAlias = Literal["expired", "taken", "unreachable", "max_hold"]


@dataclass(frozen=True, slots=True)
class Vote:
    """What one master said in one round (R3).

    ``outcome`` is ``granted``; ``held`` (by somebody else, or no longer by us); ``free`` (only in a
    `LockStatus`); ``error``; ``timeout``; ``quarantined`` (it restarted and may have forgotten locks,
    R21); or ``pending``: the round was decided before it answered.  ``latency`` is in seconds and None
    where no answer came.  ``reason`` explains every outcome but a plain grant.
    """

    master: str
    outcome: Outcome
    latency: float | None = None
    reason: str = ""

    def __str__(self) -> str:
        took = "" if self.latency is None else f" after {self.latency * 1000:.1f} ms"
        reason = printable(self.reason)
        return f"{self.master}  {self.outcome}{took}{': ' if reason else ''}{reason}"


def printable(text: str) -> str:
    """``text`` on one line: it may quote what a stranger wrote into a key, and must not forge a line, or colour it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class RedlockError(Exception):
    """Base of all errors of this library.

    Attributes:
        name: the lock it is about, "" where it is about none.
        votes: what each master said, in the order in which the masters were configured.
    """

    def __init__(self, message: str, *, name: str = "", votes: Sequence[Vote] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.name = name
        self.votes = tuple(votes)

    def __str__(self) -> str:
        if not self.votes:
            return self.message
        width = max(len(vote.master) for vote in self.votes)
        lines = (f"  {vote.master:<{width}}{str(vote).removeprefix(vote.master)}" for vote in self.votes)
        return "\n".join((self.message, *lines))

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.__dict__)


def _rebuild(kind: type[RedlockError], message: str, state: dict[str, object]) -> RedlockError:
    error = kind.__new__(kind, message)
    error.args = (message,)  # OSError sets it in __init__, which is not run
    error.__dict__.update(state)
    return error


class ConfigurationError(RedlockError, ValueError):
    """A value that was given is wrong.  The text has the value and what is allowed."""


class NotAcquired(RedlockError, TimeoutError):  # noqa: N818 - named for what happened, as TimeoutError's kin
    """No majority granted the lock in time.  Nothing is left behind on masters that can be reached."""


class QuorumUnreachable(NotAcquired):
    """Too few masters took part to decide.  This is an outage (or a wrong password), not contention."""


class NotExtended(RedlockError, TimeoutError):  # noqa: N818
    """Too few masters answered an extension.  The lease stays valid for what it had (R13)."""


class NotHeld(RedlockError, RuntimeError):  # noqa: N818
    """The caller does not hold this lock, so there is nothing to release or extend."""


class WouldDeadlock(RedlockError, RuntimeError):  # noqa: N818
    """The caller, or another task of its thread, holds what it asks for and would wait for itself."""


class LockLost(RedlockError):  # noqa: N818
    """The lease ended before its holder was done: others may hold the lock already.

    ``reason`` is ``expired`` (its time ran out), ``taken`` (somebody else has it), ``unreachable``
    (it could not be renewed) or ``max_hold``.
    """

    def __init__(self, message: str, *, name: str = "", votes: Sequence[Vote] = (), reason: Reason = "expired") -> None:
        super().__init__(message, name=name, votes=votes)
        self.reason: Reason = reason
