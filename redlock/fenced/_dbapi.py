"""Plain connections: of sqlite3, psycopg and PyMySQL.  Each says in its own way whether it is in a transaction."""

from __future__ import annotations

import contextlib
import inspect
from typing import TYPE_CHECKING, Any, cast

from redlock import ConfigurationError
from redlock.fenced._sql import PLACE
from redlock.fenced._store import Store, for_now, sqlite_begins_by_itself

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_IDLE, _UNKNOWN = 0, 4  # of psycopg's TransactionStatus; unknown: the connection is closed
_IN_TRANSACTION = 1  # SERVER_STATUS_IN_TRANS, a bit of what a MySQL server says with each answer


class DBAPIStore(Store):
    """A transaction of one connection, which must be in none when it begins."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._library = _library(connection)
        super().__init__(_kind(connection, self._library))

    def check(self) -> None:
        if self._library == "sqlite3" and getattr(self._connection, "autocommit", None) is False:  # Python 3.12
            raise ConfigurationError(
                "a connection of sqlite3 with autocommit=False is always in a transaction, which may have read "
                "before the lock was acquired: connect without it"
            )
        with self._heard():
            pass
        if in_transaction(self._connection):
            raise ConfigurationError(
                f"a transaction is open on this connection of {self._library}: commit it, or roll it back, before "
                "fenced(...); acquire the lock before the transaction begins"
            )

    def _heard(self) -> contextlib.AbstractContextManager[object]:
        """In a pipeline of psycopg answers come when it is synchronized: here at the end."""
        if self._library == "psycopg" and self._connection.info.pipeline_status:
            return cast("contextlib.AbstractContextManager[object]", self._connection.pipeline())
        return contextlib.nullcontext()

    def _begin(self) -> None:
        if self._dialect.begins is not None:
            self._run(self._dialect.begins, {})
            self._back.append(sqlite_begins_by_itself(self._connection))
        elif self._library == "psycopg" and self._connection.autocommit:
            self._back.append(for_now(self._connection, autocommit=False))  # it begins with the first statement

    def _execute(self, sql: str, parameters: Mapping[str, object]) -> int:
        return int(self._run(sql, parameters).rowcount)

    def _look(self, sql: str, parameters: Mapping[str, object]) -> Sequence[Any]:
        return cast("Sequence[Any]", self._run(sql, parameters).fetchone())

    def _run(self, sql: str, parameters: Mapping[str, object]) -> Any:
        cursor = self._cursor()
        if self._library != "sqlite3":
            sql = PLACE.sub(r"%(\1)s", sql)
        with self._heard():
            cursor.execute(sql, parameters)
        return cursor

    def _cursor(self) -> Any:
        """A cursor whose rows are tuples, whatever row factory a program has set."""
        if self._library == "psycopg":
            from psycopg.rows import tuple_row  # noqa: PLC0415 - only its connections come here

            return self._connection.cursor(row_factory=tuple_row)
        if self._library == "pymysql":
            from pymysql.cursors import Cursor  # noqa: PLC0415 - only its connections come here

            return self._connection.cursor(Cursor)
        cursor = self._connection.cursor()
        cursor.row_factory = None
        return cursor

    def _commit(self) -> None:
        self._sends()
        if self._library == "sqlite3":
            self._run("COMMIT", {})  # with autocommit=True, of Python 3.12, its methods do nothing
        else:
            self._connection.commit()

    def _rollback(self) -> bool:
        connection = self._connection
        with contextlib.suppress(Exception):
            if self._library != "sqlite3":
                connection.rollback()
            elif in_transaction(connection):
                self._run("ROLLBACK", {})
            return in_step(connection) and not in_transaction(connection) and not getattr(connection, "closed", False)
        return False

    def _throw_away(self) -> None:
        with contextlib.suppress(Exception):
            self._connection.close()


def in_transaction(connection: Any) -> bool:
    """Whether a connection of sqlite3, psycopg or PyMySQL is in a transaction; one of another library: False."""
    if hasattr(connection, "in_transaction"):
        return bool(connection.in_transaction)
    if hasattr(connection, "server_status"):  # of PyMySQL, as of the last answer, but for answers to a SELECT
        try:
            connection.query("DO 0")
        except BaseException as error:
            if not isinstance(error, Exception):
                connection.close()  # the answer would be taken for that to the next query
            raise
        return bool(connection.server_status & _IN_TRANSACTION)
    info = getattr(connection, "info", None)
    return getattr(info, "transaction_status", _IDLE) not in (_IDLE, _UNKNOWN)


def in_step(connection: Any) -> bool:
    """Whether an answer belongs to its query.

    PyMySQL takes an answer that a Ctrl-C has left unread for that to the next query.
    """
    if not hasattr(connection, "server_status"):
        return True
    from pymysql.cursors import Cursor  # noqa: PLC0415 - only its connections come here

    with contextlib.suppress(Exception), connection.cursor(Cursor) as cursor:
        cursor.execute("SELECT CONNECTION_ID()")
        return bool(int(cursor.fetchone()[0]) == connection.thread_id())
    return False


def _library(connection: Any) -> str:
    """The library of ``connection``; it may have a class of the program's own.  Raises ConfigurationError."""
    if hasattr(connection, "cursor") and not inspect.iscoroutinefunction(connection.commit):
        for kind in type(connection).__mro__:
            library = kind.__module__.partition(".")[0]
            if library in ("psycopg", "pymysql", "sqlite3"):
                return library
    kind = type(connection)
    raise ConfigurationError(
        f"an object of {kind.__module__}.{kind.__qualname__}: allowed are connections of psycopg, PyMySQL and sqlite3, "
        "and the sessions and connections of SQLAlchemy, which knows the others"
    )


def _kind(connection: Any, library: str) -> str:
    if library == "pymysql":
        return "mariadb" if "mariadb" in connection.get_server_info().lower() else "mysql"
    return "postgresql" if library == "psycopg" else "sqlite"
