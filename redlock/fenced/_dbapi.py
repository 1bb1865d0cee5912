"""Plain connections: of sqlite3, psycopg and PyMySQL.  Each says in its own way whether it is in a transaction."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from redlock import ConfigurationError
from redlock.fenced._order import Ended
from redlock.fenced._sql import PLACE
from redlock.fenced._store import Store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_IN_TRANSACTION = 1  # SERVER_STATUS_IN_TRANS, a bit of what a MySQL server says with each answer


class DBAPIStore(Store):
    """A transaction of one connection, which must be in none when it begins."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._library = type(connection).__module__.partition(".")[0]
        super().__init__(_kind(connection, self._library))

    def check(self) -> None:
        if self._is_open():
            raise ConfigurationError(
                f"a transaction is open on this connection of {self._library}: commit it, or roll it back, before "
                "fenced(...); the lock has to be had before the transaction begins"
            )

    def _is_open(self) -> bool:
        connection = self._connection
        if self._library == "sqlite3":
            return bool(connection.in_transaction)
        if self._library == "psycopg":
            return bool(connection.info.transaction_status)  # 0 is IDLE
        return bool(connection.server_status & _IN_TRANSACTION)

    def _begin(self) -> None:
        if self._library == "sqlite3":
            self._run("BEGIN IMMEDIATE", {})
        elif self._library == "pymysql":
            self._connection.begin()
        elif self._connection.autocommit:
            self._run("BEGIN", {})  # else psycopg begins with the first statement

    def _execute(self, sql: str, parameters: Mapping[str, object]) -> int:
        return int(self._run(sql, parameters).rowcount)

    def _look(self, sql: str, parameters: Mapping[str, object]) -> Sequence[Any]:
        row = self._run(sql, parameters).fetchone()
        # PyMySQL's DictCursor, psycopg's dict_row: in the order of the query
        return tuple(row.values()) if hasattr(row, "values") else tuple(row)

    def _run(self, sql: str, parameters: Mapping[str, object]) -> Any:
        cursor = self._connection.cursor()
        if self._library != "sqlite3":
            sql = PLACE.sub(r"%(\1)s", sql)
        cursor.execute(sql, parameters)
        return cursor

    def _commit(self) -> None:
        self._connection.commit()

    def _rollback(self) -> Ended:
        with contextlib.suppress(Exception):
            self._connection.rollback()
            if not self._is_open() and not getattr(self._connection, "closed", False):
                return Ended.UNDONE
        return Ended.UNKNOWN


def _kind(connection: Any, library: str) -> str:
    if library == "pymysql":
        return "mariadb" if "mariadb" in connection.get_server_info().lower() else "mysql"
    if library == "psycopg":
        return "postgresql"
    if library == "sqlite3":
        return "sqlite"
    raise ConfigurationError(
        f"a connection of {library}: allowed are those of psycopg, PyMySQL and sqlite3, and the sessions and "
        "connections of SQLAlchemy, which knows the others"
    )
