"""The errors of the library: each class calls for one reaction.

    RedlockError
    ├── ConfigurationError   (ValueError)    a given value is wrong; nothing was sent
    ├── LockUnavailable                      the lock was not acquired, for one of two reasons:
    │   ├── NotAcquired                      busy: another client has it
    │   └── QuorumUnreachable                broken: too few masters took part, an outage
    ├── NotExtended          (TimeoutError)  no majority answered; the lease keeps its validity
    ├── NotHeld              (RuntimeError)  the caller does not hold the lock that it releases or extends
    ├── WouldDeadlock        (RuntimeError)  the caller already holds the lock that it asks for
    └── LockLost                             the lease ended before its holder was done

Most classes also derive from a builtin class, shown in brackets, that a caller may already catch. All errors can be
pickled. None contains a password.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Outcome: TypeAlias = Literal["granted", "held", "free", "error", "timeout", "quarantined", "pending"]
Unheard: TypeAlias = Literal["error", "timeout"]  # outcomes without an answer to the request
Kind: TypeAlias = Literal["held", "nobody", "crowded"]
Reason: TypeAlias = Literal["expired", "taken", "unreachable", "max_hold"]


class Part(NamedTuple):
    """What an outcome says of its master.

    Attributes:
        took: ``voted``; or ``absent``: its vote does not count, and no majority can be made with it (C2); or
            ``nothing yet``.
        heard: it has carried out the request.  Else it may have done so: its answer may be lost.
    """

    took: Literal["voted", "absent", "nothing yet"]
    heard: bool


# The only such table. Counting, `redlock-run`, a status and the texts of errors use it. `_core/outcomes.py` decides
# which outcome a failure has; while a connection is made, `_connect.classify` does.
OUTCOMES: dict[Outcome, Part] = {
    "granted": Part("voted", heard=True),
    "held": Part("voted", heard=True),
    "free": Part("voted", heard=True),
    "error": Part("absent", heard=False),
    "timeout": Part("absent", heard=False),
    "quarantined": Part("absent", heard=True),  # it answers, and may have forgotten what others hold (R21, R43)
    "pending": Part("nothing yet", heard=False),
}


@dataclass(frozen=True, slots=True)
class Vote:
    """What one master said in one round (R3).

    Attributes:
        master: host and port, or the path of a socket.
        outcome: ``granted``. Or ``held``: another client holds the lock, or ours does not any more. Or ``free``: only
            in a `LockStatus`. Or ``error``, or ``timeout``. Or ``quarantined``: the master restarted and may have
            forgotten locks (R21), or its clock runs too fast (R43). Or ``pending``: the round was decided without it.
        latency: seconds until its answer. None: no answer came.
        reason: explains every outcome except a plain grant.
    """

    master: str
    outcome: Outcome
    latency: float | None = None
    reason: str = ""

    def __str__(self) -> str:
        took = "" if self.latency is None else f" after {self.latency * 1000:.1f} ms"
        reason = printable(self.reason)
        return f"{self.master}  {self.outcome}{took}{': ' if reason else ''}{reason}"


def unheard(votes: Iterable[Vote]) -> list[Vote]:
    """Those of masters that may not have done what the request asked for."""
    return [vote for vote in votes if not OUTCOMES[vote.outcome].heard]


def printable(text: str) -> str:
    """``text`` on one line, with control characters escaped.

    It may quote what a stranger wrote into a key. That must not forge a line, or change its colour.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class RedlockError(Exception):
    """The base of all errors of this library.

    Attributes:
        name: the name of the lock that the error is about, or "" if it is about none.
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
    error.args = (message,)  # TimeoutError sets it in __init__, which is not called here
    error.__dict__.update(state)
    return error


class ConfigurationError(RedlockError, ValueError):
    """A given value is wrong. The text shows the value, unless it may be a password, and says what is allowed."""


class LockUnavailable(RedlockError):  # noqa: N818 - its name says what happened
    """The lock was not acquired. Catch `NotAcquired` where it is busy, `QuorumUnreachable` where masters are broken.

    Neither of the two is the other. No key is left on masters that can be reached.
    """


class NotAcquired(LockUnavailable):
    """The lock is busy: no majority granted it in time, and enough masters took part. Try again, or tell your caller.

    Attributes:
        kind: ``held``: another client has the lock. ``nobody``: several asked for it at the same moment, time and
            again, and none got a majority: no client has it, so try again (C3). ``crowded``: `max_waiters` of this
            process wait for it already (R40).
    """

    def __init__(self, message: str, *, name: str = "", votes: Sequence[Vote] = (), kind: Kind = "held") -> None:
        super().__init__(message, name=name, votes=votes)
        self.kind: Kind = kind


class QuorumUnreachable(LockUnavailable):
    """Too few masters took part, or too late: an outage, or a wrong password. Whether the lock is free is not known."""


class NotExtended(RedlockError, TimeoutError):  # noqa: N818
    """Too few masters answered an extension. The lease keeps the validity that it had (R13)."""


class NotHeld(RedlockError, RuntimeError):  # noqa: N818
    """The caller does not hold this lock, so there is nothing to release or extend."""


class WouldDeadlock(RedlockError, RuntimeError):  # noqa: N818
    """The caller, or another task of its thread, already holds the lock. The caller would wait for itself."""


class LockLost(RedlockError):  # noqa: N818
    """The lease ended before its holder was done. Others may already hold the lock.

    What was done is done, and what is under way may be done yet. Of a fenced transaction nothing was written.

    Attributes:
        reason: ``expired``: its time has passed. ``taken``: another client has the lock. ``unreachable``: it could not
            be renewed. ``max_hold``: it was held for `max_hold`.
    """

    _token = ""  # of that lease: names may be alike under two prefixes

    def __init__(self, message: str, *, name: str = "", votes: Sequence[Vote] = (), reason: Reason = "expired") -> None:
        super().__init__(message, name=name, votes=votes)
        self.reason: Reason = reason
