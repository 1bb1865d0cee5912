"""Fenced transactions: the lock, the commit and the release in the right order (R39).

::

    from redlock.fenced import fenced

    with fenced(masters.lock("account:7"), session) as lease:
        account = session.get(Account, 7)
        account.balance -= 20

The lock keeps two holders apart. If one of them was frozen while its lease ran out, the database does: a transaction
with a smaller fence commits before the row is raised to a greater one, or not at all, whatever clocks do.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, overload

from redlock import AsyncLease, AsyncMultiLock, AsyncTerm, ConfigurationError
from redlock.fenced._open import OpenTransactions, ReleasedBeforeCommit
from redlock.fenced._order import CommitUnknown, FenceRefused, PausedTooLong
from redlock.fenced._sql import schema
from redlock.fenced._tasks import AsyncFenced
from redlock.fenced._threads import Fenced

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock import Lease, MultiLock, Term
    from redlock.fenced._store import Store

__all__ = [
    "AsyncFenced",
    "CommitUnknown",
    "FenceRefused",
    "Fenced",
    "OpenTransactions",
    "PausedTooLong",
    "ReleasedBeforeCommit",
    "fenced",
    "schema",
]


@overload
def fenced(lock: MultiLock | Lease | Term, session: Any) -> Fenced: ...


@overload
def fenced(lock: AsyncMultiLock | AsyncLease | AsyncTerm, session: Any) -> AsyncFenced: ...


def fenced(lock: Any, session: Any) -> Fenced | AsyncFenced:
    """Run a transaction under ``lock``: acquire, begin, raise the fence, body, commit, release, in this order.

    The database has a table of fences (`schema`).  Its row of the name is raised first, and refuses a fence that is
    smaller than the one it has.  It stays locked until the commit, so a successor waits for this transaction.  A body
    that raises, a refused row and a lost lease roll back.  A statement, and a pause between two, may take as long as
    the lease had left when the transaction began, where the database can see to that: PostgreSQL and MariaDB can.

    A body must not end the transaction itself.  Later writes are rolled back, and the end of the ``with`` raises.
    **Two
    things are written all the same, and reported afterwards: what came before a second statement that commits, and
    in SQLite what ``executescript``, ``CREATE`` and ``WITH … INSERT`` do there, each by itself.**

    Args:
        lock: a lock of one name or several, or slots; it is acquired and released.  Or a `Lease` or a `Term` that is
            held already.  Not a shared one, and none without fencing.
        session: a session or a connection of SQLAlchemy 2, with a lock of asyncio an ``AsyncSession`` or an
            ``AsyncConnection``; or a connection of psycopg, PyMySQL or sqlite3.  No transaction may be open on it, nor
            on a connection that a session is bound to.  Objects that a session has are expired, and read again.

    Raises:
        ConfigurationError: a session of another kind, or of a database that is not known.

    Entering and leaving raise more: see `Fenced`.
    """
    if isinstance(lock, (AsyncMultiLock, AsyncLease, AsyncTerm)):
        return AsyncFenced(lock, *_awaited_store_of(session))
    return Fenced(lock, _store_of(session), _here)


def _here(function: Callable[..., Any], *arguments: object) -> Any:
    return function(*arguments)


def _store_of(session: Any) -> Store:
    if "sqlalchemy" in sys.modules:  # else no session of SQLAlchemy has it
        from sqlalchemy import Connection  # noqa: PLC0415 - only programs that have it come here
        from sqlalchemy.orm import Session, scoped_session  # noqa: PLC0415

        from redlock.fenced._sqlalchemy import SQLAlchemyStore  # noqa: PLC0415

        if isinstance(session, scoped_session):
            session = session()
        if isinstance(session, (Session, Connection)):
            return SQLAlchemyStore(session)
    from redlock.fenced._dbapi import DBAPIStore  # noqa: PLC0415

    return DBAPIStore(session)


def _awaited_store_of(session: Any) -> tuple[Store, Callable[..., Any]]:
    if "sqlalchemy" in sys.modules:
        from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session  # noqa: PLC0415

        from redlock.fenced._sqlalchemy import SQLAlchemyStore  # noqa: PLC0415

        if isinstance(session, async_scoped_session):
            session = session()
        if isinstance(session, AsyncSession):
            return SQLAlchemyStore(session.sync_session), _through(session)
        if isinstance(session, AsyncConnection):
            if session.sync_connection is None:
                raise ConfigurationError("this AsyncConnection was not started: await connection.start() first")
            return SQLAlchemyStore(session.sync_connection), _through(session)
    raise ConfigurationError(
        f"a lock of asyncio with {type(session).__name__}: allowed are AsyncSession and AsyncConnection of SQLAlchemy"
    )


def _through(session: Any) -> Callable[..., Any]:
    async def run(function: Callable[..., Any], *arguments: object) -> Any:
        return await session.run_sync(lambda _: function(*arguments))

    return run
