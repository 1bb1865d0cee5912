"""The statements for each kind of database: they raise a row, and limit how long a statement may take.

Each statement was tried on the database itself (`tests/fenced`).  A parameter is written ``:name``.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Final, NamedTuple

from redlock import ConfigurationError

TABLE: Final = "redlock_fence"
PLACE: Final = re.compile(r":(\w+)")  # of a parameter


class Dialect(NamedTuple):
    """The statements of one kind of database.

    Attributes:
        raises: makes or raises the row of ``:name``, and refuses a smaller ``:fence``.
        looks: shows the fence that the row has then.
        counts: whether the number of rows that ``raises`` changed proves it, too.
        octets: text is given as its bytes in UTF-8: a client with another character set would get another row.
        bounds: bounds the time of each statement, and of each pause between two, by ``:ms`` milliseconds, or by what
            the operator allows, if that is less.
        pauses: whether pauses are bounded, too.
        before: shows what the bounds, and autocommit, were before; None: they end with the transaction.
        unbounds: sets them back, with what ``before`` has shown as ``{0}``, ``{1}``, ….
        begins: begins a transaction, whatever the driver does by itself; None: the first statement does.
    """

    raises: str
    looks: str
    counts: bool = True
    octets: bool = False
    bounds: str | None = None
    pauses: bool = True
    before: str | None = None
    unbounds: str | None = None
    begins: str | None = None


# Of two that raise one row at once the second one waits for the transaction of the first, and compares then.  In
# REPEATABLE READ and above it gets a serialization failure instead, and nothing of it is done.
_UPSERT: Final = (
    "INSERT INTO redlock_fence (name, fence, owner, raised_at) VALUES (:name, :fence, :owner, CURRENT_TIMESTAMP) "
    "ON CONFLICT (name) DO UPDATE SET fence = excluded.fence, owner = excluded.owner, raised_at = excluded.raised_at "
    "WHERE redlock_fence.fence <= excluded.fence"
)
# MySQL has no WHERE there, and counts changed rows in three ways.  So the row, which is locked by then, is looked at.
_DUPLICATE: Final = (
    "INSERT INTO redlock_fence (name, fence, owner, raised_at) "
    "VALUES (:name, :fence, CONVERT(:owner USING utf8mb4), UTC_TIMESTAMP(6)) "
    "ON DUPLICATE KEY UPDATE owner = IF(fence <= VALUES(fence), VALUES(owner), owner), "
    "raised_at = IF(fence <= VALUES(fence), VALUES(raised_at), raised_at), "
    "fence = IF(fence <= VALUES(fence), VALUES(fence), fence)"  # last: the two before compare with the old one
)
_LOOK: Final = "SELECT fence FROM redlock_fence WHERE name = :name"
_LOCKED: Final = f"{_LOOK} FOR UPDATE"
_LIMIT: Final = (
    "set_config('{0}', CAST(FLOOR(LEAST(CAST(:ms AS numeric), "
    "NULLIF(1000 * EXTRACT(EPOCH FROM CAST(current_setting('{0}') AS interval)), 0))) AS text), true)"
)

DIALECTS: Final[dict[str, Dialect]] = {
    # Both end with the transaction: the last argument makes it a SET LOCAL.  A setting is shown with its unit.
    "postgresql": Dialect(
        _UPSERT,
        _LOOK,
        bounds=f"SELECT {_LIMIT.format('statement_timeout')}, {_LIMIT.format('idle_in_transaction_session_timeout')}",
    ),
    # These are of the session.  Without autocommit the first statement begins, and each one is in a transaction, also
    # behind a deadlock and behind what commits by itself, as START TRANSACTION does.  max_statement_time is in seconds,
    # and knows fractions; a pause is in whole seconds.  0 is no limit; of limits for a pause in a transaction that has
    # written, as this one has, the special one counts, else the other one, else that for all pauses.
    "mariadb": Dialect(
        _DUPLICATE,
        _LOCKED,
        counts=False,
        octets=True,
        bounds="SET SESSION autocommit = 0, "
        "SESSION max_statement_time = LEAST(:ms / 1000, COALESCE(NULLIF(@@max_statement_time, 0), :ms / 1000)), "
        "SESSION idle_write_transaction_timeout = LEAST(CEILING(:ms / 1000), COALESCE("
        "NULLIF(@@idle_write_transaction_timeout, 0), NULLIF(@@idle_transaction_timeout, 0), @@wait_timeout)), "
        "SESSION innodb_lock_wait_timeout = LEAST(CEILING(:ms / 1000), @@innodb_lock_wait_timeout)",
        before="SELECT @@autocommit, @@max_statement_time, @@idle_write_transaction_timeout, "
        "@@innodb_lock_wait_timeout",
        unbounds="SET SESSION autocommit = {0}, SESSION max_statement_time = {1}, "
        "SESSION idle_write_transaction_timeout = {2}, SESSION innodb_lock_wait_timeout = {3}",
    ),
    # MySQL bounds queries and waits for a row, but no pause inside a transaction.
    "mysql": Dialect(
        _DUPLICATE,
        _LOCKED,
        counts=False,
        octets=True,
        bounds="SET SESSION autocommit = 0, "
        "SESSION max_execution_time = LEAST(:ms, COALESCE(NULLIF(@@max_execution_time, 0), :ms)), "
        "SESSION innodb_lock_wait_timeout = LEAST(CEILING(:ms / 1000), @@innodb_lock_wait_timeout)",
        pauses=False,
        before="SELECT @@autocommit, @@max_execution_time, @@innodb_lock_wait_timeout",
        unbounds="SET SESSION autocommit = {0}, SESSION max_execution_time = {1}, "
        "SESSION innodb_lock_wait_timeout = {2}",
    ),
    # One writer at a time for the whole file, and no time limit; a program that waits for it has `timeout=`.
    "sqlite": Dialect(_UPSERT, _LOOK, begins="BEGIN IMMEDIATE"),
}


def dialect_of(name: str) -> Dialect:
    """The statements for a database of this kind.  Raises ConfigurationError."""
    try:
        return DIALECTS[name]
    except KeyError:
        raise ConfigurationError(
            f"a database of the kind {name!r}: allowed are {', '.join(DIALECTS)}; "
            "for another one raise the row by hand, see the page on fencing"
        ) from None


def schema(dialect: str) -> str:
    """The statement that makes the table of fences, if it is not there: ``"postgresql"``, ``"mysql"``, ``"sqlite"``.

    It can be run again at any time.  MariaDB has that of MySQL.

    Raises:
        ConfigurationError: a database of another kind.
    """
    dialect_of(dialect)
    name = "mysql" if dialect == "mariadb" else dialect
    return files("redlock.fenced").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
