"""The order of a fenced transaction (R39), as a generator: threads and tasks carry out its steps.

    acquire the lock, begin, raise the row of each name, body, look at the lease, commit, release

Each place in that order is there for a reason:

- The lock is had before the transaction begins, so the body never reads what it was before the lock.
- The row is raised before the body reads.  The transaction keeps the row's lock until the commit: a successor that
  raises the row waits for that, or makes this transaction fail. A fence that is compared last protects no read.
- A lost lease does not commit. Exclusion in the store rests on the row, and not on that.
- The lock is given back after the commit.  Otherwise the next holder reads what this one is about to change.

Broken variants exchange two of the steps, and scenes have to catch that (`tests/scenes/test_fenced.py`).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, NamedTuple

from redlock import ConfigurationError, LockLost, NotHeld, RedlockError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from redlock import AsyncLease, Lease


class FenceRefused(RedlockError):  # noqa: N818 - its name says what happened, as those of the other errors do
    """A greater fence is in the table: a newer holder of the name has begun its transaction.  Nothing was written.

    A clock that was ahead when that fence was made has the same effect, until that time has come: the text says by
    how much.

    Attributes:
        fence: the one that was refused.
    """

    fence: int

    @classmethod
    def of(cls, name: str, fence: int, stored: int) -> FenceRefused:
        error = cls(
            f"the transaction was refused: a newer holder of {name!r} has begun one (our fence is {fence}, and the "
            f"fence in the table is {(stored - fence) / 1e6:.1f} s ahead of it); if that is more than a lock is "
            "held, a clock "
            "was wrong: see the runbook, clocks",
            name=name,
        )
        error.fence = fence
        return error


class CommitUnknown(RedlockError):  # noqa: N818
    """The commit was sent, and its answer never came: the transaction is done, or it never will be.

    If the connection is lost before that, or the database refuses the commit, the database's own error is raised:
    nothing was written then.  After an answer none of this comes.

    All of it was written, or nothing, and this program cannot know which.  Under the lock, look in the database
    before you do the work again. Raising the row of the name waits for the transaction if that is still open, so
    afterwards it is written or never will be.

    Attributes:
        fence: of the transaction; the row of the name in the table of fences has it if the commit was done and no
            other transaction has begun since.
    """

    fence: int | None

    @classmethod
    def of(cls, name: str, fence: int | None) -> CommitUnknown:
        error = cls(
            f"the commit under {name!r} got no answer, so it may be done or not: look in the database before you "
            f"repeat it (fence {fence})",
            name=name,
        )
        error.fence = fence
        return error


class PausedTooLong(RedlockError):  # noqa: N818
    """The database ended the transaction in a pause: the body called another service, or the process was frozen.

    Nothing of the transaction was written.  Effects of the body elsewhere stay.  A pause between two statements may
    take as long as the lease had left when the transaction began, also if the lease is renewed: the row of the name
    is locked for as long.  Another try ends in the same way. Do the slow part between two transactions of one lease,
    outside of both.

    The error of the database is its ``__cause__``.
    """

    @classmethod
    def of(cls, name: str, took: float, allowed: float) -> PausedTooLong:
        return cls(
            f"the database ended the transaction under {name!r} and wrote nothing of it: its connection was gone "
            f"{took:.1f} s after the begin, and a pause between two statements may last {allowed:.1f} s, which is "
            "what the lease had left. Effects of the body elsewhere stay. Do the slow part between two "
            "fenced(lease, ...) of one lease, outside of both",
            name=name,
        )


class Step(enum.Enum):
    """What is to be done next."""

    ACQUIRE = "acquire"  # the lock
    BEGIN = "begin"  # a transaction, with the time that its statements may take
    RAISE = "raise"  # the row of each name; `FenceRefused` if a greater fence is there; then mark the transaction
    BODY = "body"
    ENSURE = "ensure"  # that the lease is valid, and the transaction the one that was marked
    COMMIT = "commit"
    ROLLBACK = "rollback"  # resumed with an `Ended`


class Release(NamedTuple):
    """Give the lock back, after ``error`` or after the commit."""

    error: BaseException | None


class Ended(enum.Enum):
    """What a rollback has found."""

    UNDONE = "undone"  # the database says so
    DONE = "done"  # it had been committed before the error
    UNKNOWN = "unknown"  # the connection is gone


WORK = (Step.BEGIN, Step.RAISE, Step.BODY, Step.ENSURE, Step.COMMIT)


def fence_of(lease: Lease | AsyncLease) -> int:
    """The fence to raise. Raises ConfigurationError if the lease has none, or one that cannot be compared."""
    if lease.shared:
        raise ConfigurationError(
            f"{lease.name!r} is shared with other readers, whose fences come in any order: take it without shared"
        )
    if lease.fence is None:
        raise ConfigurationError(f"{lease.name!r} has no fencing token: take the lock with fencing=True")
    return lease.fence


def rows_of(lease: Lease | AsyncLease) -> list[tuple[str, str]]:
    """The row of each name, and the name, in one order, so that two leases never wait for each other.

    A row has the key of its lock on the masters, for names may be alike under two prefixes; less the default prefix.
    """
    state = lease._state  # noqa: SLF001 - a lease does not show its keys
    return sorted(zip((key.removeprefix("redlock:") for key in state.keys), state.names, strict=True))


def transaction(unknown: Callable[[], CommitUnknown]) -> Generator[Step | Release, Any, BaseException | None]:
    """One fenced transaction.  Returns what ended it, or None.

    A step that raises is resumed with what it raised.  ``unknown``: makes the error of a commit without an answer.
    """
    error: BaseException | None = yield Step.ACQUIRE
    if error is not None:
        return error
    ended = Ended.DONE
    for step in WORK:
        error = yield step
        if error is not None:
            error, ended = yield from _undone(error, unknown if step is Step.COMMIT else None)
            break
    late: BaseException | None = yield Release(error)
    if ended is Ended.DONE and isinstance(late, (LockLost, NotHeld)):
        return None  # the commit came before: the store has kept the order, and the work is done
    told = late or error
    if told is not None and ended is Ended.DONE:
        told.add_note(f"the transaction under {unknown().name!r} was committed before that")
    return told


def _undone(
    error: BaseException, unknown: Callable[[], CommitUnknown] | None
) -> Generator[Step, Any, tuple[BaseException, Ended]]:
    """Roll back after ``error``.  Returns the error to raise.  ``unknown``: given if it came out of the commit."""
    ended = yield Step.ROLLBACK
    if isinstance(ended, BaseException):  # a Ctrl-C, or a driver that does not know that its connection is gone
        if isinstance(error, Exception) and not isinstance(ended, Exception):
            ended.__context__, error = error, ended
        ended = Ended.UNKNOWN
    if unknown is None or ended is Ended.DONE:
        return error, ended
    if not isinstance(error, Exception):  # the answer to the commit was not waited for
        error.add_note(unknown().message)
        return error, ended
    if ended is Ended.UNDONE:
        return error, ended
    told = unknown()
    told.__cause__ = error
    return told, ended
