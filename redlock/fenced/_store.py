"""One transaction of one database: what `Fenced` asks of it, whatever library speaks to the database.

What is asked of each of them:

- Is a transaction open?  sqlite3 says it (``in_transaction``), and psycopg, once a pipeline has been heard.  PyMySQL
  drops the state that the server sends with a SELECT, so the server is asked again.  SQLAlchemy: the session, and the
  connection that it is bound to.  Django: an ``atomic()`` that is none of its own tests, autocommit that is off, and
  its driver.
- Was the row raised?  If exactly one was changed, or if it has our fence: the number of rows of some drivers says
  nothing (psycopg in a pipeline: -1; MySQL: three ways).
- Was the COMMIT sent?  From the call of the driver on.  SQLAlchemy calls it behind each flush and hook of a session:
  the event ``commit`` of its connection comes right before it.  Django calls it at the end of ``atomic()``.
- Was it answered?  If the call returns.  Also if it raises, and the same connection answers the rollback after it:
  then the database has refused it.

The lease is checked last before the COMMIT. An error before that is raised as it is, and nothing was written.

A connection in autocommit mode commits no statement from the begin to the end: statements after a COMMIT of the body,
after a statement that commits, or after an error that rolled back, are in another transaction, which is rolled back.
sqlite3 is the exception: there ``executescript``, CREATE and WITH … INSERT commit by themselves then.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from redlock import ConfigurationError
from redlock.fenced._order import Ended, FenceRefused, PausedTooLong
from redlock.fenced._sql import dialect_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

# A savepoint ends with its transaction, in every database.  One that was set after the rows were raised and is there at
# the end shows that it is one transaction, and that the database still takes it.  Also considered: to ask the driver
# for its state.  But each has another way, and a body that commits and then writes is in a transaction as well.
_MARK: Final = "redlock_fence"
_BROKEN: Final = (
    "fenced({name!r}) committed nothing at its end: the transaction that it began is over or has failed.  Only what "
    "the body committed itself, or by a statement that commits, is written.  A body must "
    "not commit, roll back or close the session, nor run what commits by itself (CREATE TABLE in MySQL, executescript "
    "in SQLite), nor go on after an error that ended the transaction, nor pause for longer than the database allows"
)


class Store(ABC):
    """One transaction.  ``kind``: of the database, as `dialect_of` knows it."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._dialect = dialect_of(kind)
        self._name = ""  # of the lock
        self._back: list[Callable[[], object]] = []  # set back the settings that were made for this transaction
        self._ensure: Callable[[], object] | None = None  # given with the order to commit
        self._began = 0.0
        self._pause = math.inf  # the longest that the database allows
        self._gone = False  # the connection, before the COMMIT was sent
        self._sent = False  # the COMMIT
        self._done = False  # it was answered

    # -- what a library adds -------------------------------------------------------------------------

    @abstractmethod
    def check(self) -> None:
        """Check that no transaction is open.  Raises ConfigurationError."""

    def _open(self) -> None:  # noqa: B027 - most have one already
        """Have a connection."""

    @abstractmethod
    def _begin(self) -> None: ...

    @abstractmethod
    def _execute(self, sql: str, parameters: Mapping[str, object]) -> int:
        """Run ``sql``, in which a parameter is written ``:name``.  Returns the number of rows that it changed."""

    @abstractmethod
    def _look(self, sql: str, parameters: Mapping[str, object]) -> Sequence[Any]:
        """The one row of a query."""

    def _say(self, sql: str) -> None:
        """Run ``sql`` outside of the transaction."""
        self._execute(sql, {})

    @abstractmethod
    def _commit(self) -> None:
        """Commit, with a call of `_sends` when nothing else is left."""

    @abstractmethod
    def _rollback(self) -> bool:
        """Whether the database has said that no transaction is open.  An answer to the commit does not say so."""

    @abstractmethod
    def _throw_away(self) -> None:
        """Close the connection: its database then rolls back, and no later user finds what was left on it."""

    # -- what `Fenced` asks --------------------------------------------------------------------------

    def begin(self, name: str, left: float) -> None:
        """Begin; a statement, and a pause between two, may take ``left`` seconds where the database can see to that.

        A process that is frozen in the middle then keeps no row from a successor for longer.
        """
        self._name = name
        self._open()
        dialect = self._dialect
        if dialect.before is not None and dialect.unbounds is not None:
            self._back.append(partial(self._say, dialect.unbounds.format(*self._look(dialect.before, {}))))
        self._begin()
        if dialect.bounds is not None:
            ms = max(1, math.floor(left * 1000))
            self._began, self._pause = time.monotonic(), ms / 1000 if dialect.pauses else math.inf
            self._execute(dialect.bounds, {"ms": str(ms) if dialect.before is None else ms})

    def raise_fence(self, row: str, name: str, fence: int, owner: str) -> None:
        """Raise the ``row`` of the lock ``name``.  Raises FenceRefused if a greater fence is there."""
        dialect = self._dialect
        key, by = (row.encode(), owner.encode()) if dialect.octets else (row, owner)
        try:
            rows = self._execute(dialect.raises, {"name": key, "fence": fence, "owner": by})
        except Exception as error:
            if any(map(_is_no_table, _causes(error))):
                raise ConfigurationError(
                    "the table of fences is not in this database: have a migration run what redlock.fenced.schema("
                    f"{self._kind!r}) returns; in Django: manage.py migrate, with redlock.fenced.django installed"
                ) from error
            raise
        if rows != 1 or not dialect.counts:  # one row means yes; any other number says nothing
            (stored,) = self._look(dialect.looks, {"name": key})
            if int(stored) != fence:
                raise FenceRefused.of(name, fence, int(stored))

    def body_begins(self) -> None:
        """All rows are raised."""
        try:
            self._execute(f"SAVEPOINT {_MARK}", {})
        except Exception as error:
            if any(_code(cause) == "25P01" for cause in _causes(error)):  # no transaction is open
                error.add_note(
                    "fenced(...) needs a session or a connection that does not commit each statement (AUTOCOMMIT)"
                )
            raise

    def body_ends(self) -> None:
        """Raise what the database says unless this is the transaction in which the rows were raised, unharmed."""
        try:
            self._execute(f"RELEASE SAVEPOINT {_MARK}", {})
        except Exception as error:
            error.add_note(_BROKEN.format(name=self._name))
            raise

    def commit(self, ensure: Callable[[], object]) -> None:
        """Commit, unless ``ensure`` raises.  It is called when nothing is left but the COMMIT."""
        self._ensure = ensure
        self._commit()
        self._done = True
        self._set_back()  # not before: until the COMMIT the bounds end a transaction that is frozen

    def _sends(self, *_: object) -> None:
        if self._ensure is not None:  # else it is a commit of the body's own
            self._ensure()
            self._sent = True

    def rollback(self) -> Ended:
        heard = False
        try:
            heard = self._rollback()
        finally:
            if not heard and not self._done:  # it may be open, after a Ctrl-C in the middle of a statement
                self._back.clear()
                self._throw_away()
        self._gone = not heard and not self._sent
        self._set_back()
        if self._done:
            return Ended.DONE
        return Ended.UNDONE if heard or not self._sent else Ended.UNKNOWN

    def abandon(self) -> None:  # noqa: B027 - nothing to do but for sessions of asyncio
        """When the program ends the transaction itself, only set the session back."""

    def told(self, error: BaseException | None) -> BaseException | None:
        """``error``; or `PausedTooLong`, if a database has raised it that may have ended a transaction in a pause."""
        took = time.monotonic() - self._began
        if error is None or not self._gone or took < self._pause or not _of_a_database(error):
            return error
        told = PausedTooLong.of(self._name, took, self._pause)
        told.__cause__ = error
        return told

    def _set_back(self) -> None:
        """Set the session back before the connection goes back to a pool."""
        try:
            while self._back:
                self._back.pop()()
        except BaseException as error:
            self._back.clear()
            self._throw_away()
            if not isinstance(error, Exception):
                raise


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """``error``, and what a library of another layer has wrapped into it."""
    while error is not None:
        yield error
        error = error.__cause__


def _code(error: BaseException) -> object:
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)


def _is_no_table(error: BaseException) -> bool:
    return _code(error) == "42P01" or error.args[:1] == (1146,) or "no such table" in str(error)


def _of_a_database(error: BaseException) -> bool:
    """By the names that PEP 249 has for its errors; SQLAlchemy and Django have them, too."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"DatabaseError", "InterfaceError", "DBAPIError"})


def for_now(connection: Any, **values: object) -> Callable[[], None]:
    """Set attributes of a connection.  Returns what sets them back."""
    before = {name: getattr(connection, name) for name in values}

    def set_all(values: Mapping[str, object]) -> None:
        for name, value in values.items():
            setattr(connection, name, value)

    set_all(values)
    return partial(set_all, before)


def sqlite_begins_by_itself(connection: Any) -> Callable[[], None]:
    """A statement that changes rows outside of a transaction begins one, until what this returns is called."""
    if getattr(connection, "autocommit", None) is True:  # of Python 3.12; -1: as before
        return for_now(connection, autocommit=-1, isolation_level="IMMEDIATE")
    return for_now(connection, isolation_level="IMMEDIATE")
