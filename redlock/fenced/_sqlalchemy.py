"""Sessions and connections of SQLAlchemy 2, synchronous or not."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from sqlalchemy import event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from redlock import ConfigurationError
from redlock.fenced._order import Ended
from redlock.fenced._store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import Connection


class SQLAlchemyStore(Store):
    """A transaction of a `Session` or a `Connection`, which must be in none when it begins.

    ``AsyncSession`` and ``AsyncConnection`` have one of these inside, and run what is done here with ``run_sync``.
    """

    def __init__(self, target: Session | Connection) -> None:
        self._target = target
        bind = target.get_bind() if isinstance(target, Session) else target.engine
        kind = bind.dialect.name
        if kind == "mysql" and getattr(bind.dialect, "is_mariadb", False):
            kind = "mariadb"
        super().__init__(kind)
        self._ended = Ended.UNDONE  # what a rollback will find

    def check(self) -> None:
        if self._target.in_transaction():
            raise ConfigurationError(
                f"a transaction is open on this {type(self._target).__name__}: commit it, or roll it back, before "
                "fenced(...); the lock has to be had before the transaction begins"
            )

    def _begin(self) -> None:
        """Begin.  SQLAlchemy leaves that to the driver, and with AUTOCOMMIT each statement would be committed."""
        self._target.begin()
        if self._dialect.begins is not None:
            try:
                self._execute(self._dialect.begins, {})
            except DBAPIError as error:  # a program has begun by itself, as SQLAlchemy advises for SQLite
                if "within a transaction" not in str(error):
                    raise

    def _connection(self) -> Connection:
        return self._target.connection() if isinstance(self._target, Session) else self._target

    def _execute(self, sql: str, parameters: Mapping[str, object]) -> int:
        return int(self._connection().execute(text(sql), parameters).rowcount)

    def _look(self, sql: str, parameters: Mapping[str, object]) -> Sequence[Any]:
        return tuple(self._connection().execute(text(sql), parameters).one())

    def _commit(self) -> None:
        with self._noting_the_commit():
            try:
                self._target.commit()
            except DBAPIError as error:
                if error.connection_invalidated:
                    self._ended = Ended.UNKNOWN
                raise

    @contextlib.contextmanager
    def _noting_the_commit(self) -> Iterator[None]:
        """What a program has hung behind the commit of a session may raise when that is done."""
        if not isinstance(self._target, Session):
            yield
            return
        event.listen(self._target, "after_commit", self._committed, insert=True)
        try:
            yield
        finally:
            event.remove(self._target, "after_commit", self._committed)

    def _committed(self, _: Session) -> None:
        self._ended = Ended.DONE

    def _rollback(self) -> Ended:
        try:
            self._target.rollback()
        except DBAPIError:
            return Ended.UNKNOWN if self._ended is Ended.UNDONE else self._ended
        return self._ended
