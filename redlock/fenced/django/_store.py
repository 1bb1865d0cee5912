"""A transaction of Django: ``atomic(durable=True)``, so it is one, and no savepoint of another."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from django.db import connections, router, transaction

from redlock import ConfigurationError
from redlock.fenced._dbapi import in_step, in_transaction
from redlock.fenced._sql import PLACE
from redlock.fenced._store import Store, sqlite_begins_by_itself

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def alias_of(using: str | None) -> str:
    """The database whose table of fences is used."""
    if using is not None:
        return using
    from redlock.fenced.django.models import Fence  # noqa: PLC0415 - models can be imported once all apps are there

    return str(router.db_for_write(Fence))


class DjangoStore(Store):
    """One transaction of the database ``alias``."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._connection = connections[alias]
        vendor = self._connection.vendor
        super().__init__("mariadb" if vendor == "mysql" and self._connection.mysql_is_mariadb else vendor)
        self._atomic: Any = None
        self._driver: Any = None  # the driver's connection inside of Django's

    def check(self) -> None:
        connection = self._connection
        try:
            with connection.wrap_database_errors:
                by_hand = not connection.in_atomic_block and in_transaction(connection.connection)
        except BaseException:
            self._throw_away()
            raise
        if by_hand or is_open(self._alias):
            raise ConfigurationError(
                f"a transaction is open on the database {self._alias!r}: fenced(...) begins and commits its own, so it "
                "has no place inside of atomic(); with ATOMIC_REQUESTS the view needs "
                "@transaction.non_atomic_requests"
            )

    def _begin(self) -> None:
        outermost = not self._connection.in_atomic_block  # else it is in a test of Django
        self._atomic = transaction.atomic(using=self._alias, durable=True)
        self._atomic.__enter__()
        transaction.on_commit(self._committed, using=self._alias)  # the first one: others may raise
        self._driver = self._connection.connection
        if self._dialect.begins is not None and outermost:
            sqlite_begins_by_itself(self._driver)  # Django sets this back, at the end of the outermost `atomic()`

    def _committed(self) -> None:
        self._done = True
        self._set_back()

    def _execute(self, sql: str, parameters: Mapping[str, object]) -> int:
        with self._connection.cursor() as cursor:
            cursor.execute(PLACE.sub(r"%(\1)s", sql), parameters)
            return int(cursor.rowcount)

    def _look(self, sql: str, parameters: Mapping[str, object]) -> Sequence[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(PLACE.sub(r"%(\1)s", sql), parameters)
            return tuple(cursor.fetchone())

    def _commit(self) -> None:
        self._sends()
        self._end()

    def _end(self) -> None:
        atomic, self._atomic = self._atomic, None
        atomic.__exit__(None, None, None)

    def _rollback(self) -> bool:
        if self._atomic is not None:
            transaction.set_rollback(True, using=self._alias)
            with contextlib.suppress(Exception):
                self._end()
        # Django connects anew where a connection was lost.
        connection = self._connection
        return (
            connection.connection is self._driver
            and in_step(self._driver)
            and (not self._sent or bool(connection.is_usable()))
        )

    def _throw_away(self) -> None:
        with contextlib.suppress(Exception):
            self._connection.close()


def is_open(alias: str) -> bool:
    """Whether a transaction is open on this database, so that another one would be a part of it."""
    connection = connections[alias]
    if not connection.in_atomic_block:
        return not connection.get_autocommit() if connection.connection is not None else False
    try:
        with transaction.atomic(using=alias, durable=True):  # only Django knows which belong to its own tests
            return False
    except RuntimeError:
        return True
