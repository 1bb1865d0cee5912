"""Sessions and connections of SQLAlchemy 2, synchronous or not."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, event, text
from sqlalchemy.exc import DBAPIError, UnboundExecutionError
from sqlalchemy.orm import Session

from redlock import ConfigurationError
from redlock.fenced._dbapi import in_step
from redlock.fenced._sql import dialect_of
from redlock.fenced._store import Store, sqlite_begins_by_itself

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Engine


class SQLAlchemyStore(Store):
    """A transaction of a `Session` or a `Connection`, which must be in none when it begins.

    ``AsyncSession`` and ``AsyncConnection`` have one of these inside, and run what is done here with ``run_sync``.
    """

    def __init__(self, target: Session | Connection) -> None:
        self._target = target
        self._held: Connection | None = None
        self._listeners: list[tuple[Any, str, Any]] = []
        super().__init__(self._bind().dialect.name)

    def _bind(self) -> Engine | Connection:
        if not isinstance(self._target, Session):
            return self._target
        try:
            return self._target.get_bind()
        except UnboundExecutionError:
            raise ConfigurationError(
                "this Session has no bind of its own, as with binds=..., so the database of its fences is not known: "
                "make it with bind=engine as well, that of the database in which the body writes"
            ) from None

    def check(self) -> None:
        bind = self._bind()
        for what in (self._target, *([bind] if isinstance(bind, Connection) else [])):
            if what.in_transaction():
                raise ConfigurationError(
                    f"a transaction is open on this {type(what).__name__}: commit it, or roll it back, before "
                    "fenced(...); acquire the lock before the transaction begins"
                )
        if isinstance(self._target, Session) and self._target.twophase:
            raise ConfigurationError(
                "this Session has twophase=True, and between the two phases neither the lease nor the database can end "
                "its transaction: use one without it"
            )

    def _open(self) -> None:
        target = self._target
        target.begin()
        if isinstance(target, Session):
            target.expire_all()  # with expire_on_commit=False it would show what was there before the lock
        self._held = held = self._connection()
        if getattr(held.dialect, "is_mariadb", False):  # it knows that once it has been connected
            self._dialect = dialect_of("mariadb")
        self._listen(held, "commit", self._sends)  # behind each flush and hook of a session
        self._listen(held, "rollback", self._undo)
        if isinstance(target, Session):
            self._listen(target, "after_commit", self._committed, insert=True)

    def _listen(self, target: Any, name: str, function: Any, **options: Any) -> None:
        event.listen(target, name, function, **options)
        self._listeners.append((target, name, function))

    def _begin(self) -> None:
        """Begin.  SQLAlchemy leaves that to the driver, and with AUTOCOMMIT each statement would be committed."""
        if self._dialect.begins is None:
            return
        try:
            self._execute(self._dialect.begins, {})
        except DBAPIError as error:  # a program has begun by itself, as SQLAlchemy advises for SQLite
            if "within a transaction" not in str(error):
                raise
        self._back.append(sqlite_begins_by_itself(self._connected().connection.dbapi_connection))

    def body_begins(self) -> None:
        super().body_begins()
        # Where the body has ended the transaction, its next statement begins another one, and none may run there.
        # An event that raises in the begin itself would leave a connection that never begins by itself again.
        if isinstance(self._target, Session):
            root = self._target.get_transaction()
            self._listen(self._target, "after_begin", partial(self._begins_anew, root))
        else:
            self._listen(self._target, "begin", partial(self._begins_anew, None))

    def _begins_anew(self, root: object, target: Any, *others: Any) -> None:
        if root is None or target.get_transaction() is not root:
            self._held = held = (target, *others)[-1]
            if not event.contains(held, "before_cursor_execute", self._refuse):
                self._listen(held, "before_cursor_execute", self._refuse)

    def _refuse(self, *told: Any) -> None:
        if "SAVEPOINT" not in told[2]:  # the statement; the savepoint of `body_ends` comes here as well
            self.body_ends()

    def _connection(self) -> Connection:
        return self._target.connection() if isinstance(self._target, Session) else self._target

    def _connected(self) -> Connection:
        assert self._held is not None  # noqa: S101 - it was opened
        return self._held

    def _execute(self, sql: str, parameters: Mapping[str, object]) -> int:
        return int(self._connection().execute(text(sql), parameters).rowcount)

    def _look(self, sql: str, parameters: Mapping[str, object]) -> Sequence[Any]:
        return tuple(self._connection().execute(text(sql), parameters).one())

    def _say(self, sql: str) -> None:
        driver = self._connected().connection  # SQLAlchemy itself would begin a transaction
        with contextlib.closing(driver.cursor()) as cursor:
            cursor.execute(sql)

    def _commit(self) -> None:
        self._target.commit()
        self._stop()

    def _committed(self, _: Session) -> None:
        """Its connection goes back to the pool after that, if no hook of the program raises."""
        self._set_back()

    def _undo(self, *_: object) -> bool:
        """Roll back, and set back: a session gives its connection away after that."""
        heard = False
        try:
            with contextlib.suppress(Exception):
                driver = self._connected().connection
                driver.rollback()
                heard = in_step(driver.dbapi_connection)
        finally:
            if not heard:
                self._throw_away()
        if heard:
            self._set_back()
        return heard

    def _throw_away(self) -> None:
        with contextlib.suppress(Exception):  # it was closed
            self._connected().invalidate()

    def _rollback(self) -> bool:
        self._stop()
        held, target = self._held, self._target
        if self._sent and held is not None and held.get_transaction() is None:
            self._done = True  # a hook behind the commit raised
            if target.in_transaction():
                self._set_back()
                target.close()
            return True
        heard = self._undo()  # SQLAlchemy sends none after a COMMIT that has failed
        with contextlib.suppress(Exception):
            target.rollback()
        return heard

    def abandon(self) -> None:
        self._stop("rollback", "after_commit")

    def _stop(self, *kept: str) -> None:
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            if listener[1] not in kept:
                event.remove(*listener)
