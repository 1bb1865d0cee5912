"""One transaction of one database: what `Fenced` asks of it, whatever library speaks to the database."""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

from redlock.fenced._order import Ended, FenceRefused
from redlock.fenced._sql import dialect_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# A savepoint ends with its transaction, in every database.  One that was set after the rows were raised and is there at
# the end shows that it is one transaction, and that the database still takes it.  Also considered: to ask the driver
# for its state.  But each has another way, and a body that commits and then writes is in a transaction as well.
_MARK: Final = "redlock_fence"
_BROKEN: Final = (
    "fenced({name!r}) committed nothing at its end: the transaction that it began is over or has failed.  A body must "
    "not commit, roll back or close the session, nor run what commits by itself (CREATE TABLE in MySQL, executescript "
    "in SQLite), nor go on after an error that ended the transaction"
)


class Store(ABC):
    """One transaction.  ``kind``: that of the database, as `dialect_of` knows it."""

    def __init__(self, kind: str) -> None:
        self._dialect = dialect_of(kind)
        self._before: Sequence[Any] = ()  # the bounds of the session before

    # -- what a library adds -------------------------------------------------------------------------

    @abstractmethod
    def check(self) -> None:
        """Check that no transaction is open.  Raises ConfigurationError."""

    @abstractmethod
    def _begin(self) -> None: ...

    @abstractmethod
    def _execute(self, sql: str, parameters: Mapping[str, object]) -> int:
        """Run ``sql``, in which a parameter is written ``:name``.  Returns the number of rows that it changed."""

    @abstractmethod
    def _look(self, sql: str, parameters: Mapping[str, object]) -> Sequence[Any]:
        """The one row of a query."""

    @abstractmethod
    def _commit(self) -> None: ...

    @abstractmethod
    def _rollback(self) -> Ended: ...

    # -- what `Fenced` asks --------------------------------------------------------------------------

    def begin(self, left: float) -> None:
        """Begin; a statement, and a pause between two, may take ``left`` seconds where the database can see to that.

        A process that is frozen in the middle then keeps no row from a successor for longer.
        """
        self._begin()
        dialect = self._dialect
        if dialect.kept is not None:
            self._before = self._look(dialect.kept, {})
        if dialect.bounds is not None:
            ms = max(1, math.floor(left * 1000))
            self._execute(dialect.bounds, {"ms": str(ms) if dialect.kept is None else ms})

    def raise_fence(self, name: str, fence: int, owner: str) -> None:
        """Raise the row of ``name``.  Raises FenceRefused if a greater fence is there."""
        dialect = self._dialect
        rows = self._execute(dialect.raises, {"name": name, "fence": fence, "owner": owner})
        if dialect.looks is not None:
            (stored,) = self._look(dialect.looks, {"name": name})
            rows = int(stored) == fence
        if not rows:
            raise FenceRefused.of(name, fence)

    def body_begins(self) -> None:
        """All rows are raised."""
        try:
            self._execute(f"SAVEPOINT {_MARK}", {})
        except Exception as error:
            error.add_note(
                "fenced(...) needs a session or a connection that does not commit each statement (AUTOCOMMIT)"
            )
            raise

    def body_ends(self, name: str) -> None:
        """Raise what the database says unless this is the transaction in which the rows were raised, unharmed."""
        try:
            self._execute(f"RELEASE SAVEPOINT {_MARK}", {})
        except Exception as error:
            error.add_note(_BROKEN.format(name=name))
            raise

    def commit(self) -> None:
        self._unbound()
        self._commit()

    def rollback(self) -> Ended:
        with contextlib.suppress(Exception):  # the connection may be gone
            self._unbound()
        return self._rollback()

    def _unbound(self) -> None:
        """Set the bounds of the session back while the connection is ours: a pool may have it afterwards."""
        before, self._before = self._before, ()
        if before and self._dialect.unbounds is not None:
            self._execute(self._dialect.unbounds, {f"before_{n}": value for n, value in enumerate(before)})
