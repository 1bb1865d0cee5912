"""A transaction of Django: ``atomic(durable=True)``, so it is one, and no savepoint of another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import connections, router, transaction

from redlock import ConfigurationError
from redlock.fenced._order import Ended
from redlock.fenced._sql import PLACE
from redlock.fenced._store import Store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def alias_of(using: str | None) -> str:
    """The database whose table of fences counts."""
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
        self._committed = False

    def check(self) -> None:
        if is_open(self._alias):
            raise ConfigurationError(
                f"a transaction is open on the database {self._alias!r}: fenced(...) begins and commits its own, so it "
                "has no place inside of atomic(); with ATOMIC_REQUESTS the view needs "
                "@transaction.non_atomic_requests"
            )

    def _begin(self) -> None:
        self._committed = False
        self._atomic = transaction.atomic(using=self._alias, durable=True)
        self._atomic.__enter__()
        transaction.on_commit(self._done, using=self._alias)  # the first one: others may raise

    def _done(self) -> None:
        self._committed = True

    def _execute(self, sql: str, parameters: Mapping[str, object]) -> int:
        with self._connection.cursor() as cursor:
            cursor.execute(PLACE.sub(r"%(\1)s", sql), parameters)
            return int(cursor.rowcount)

    def _look(self, sql: str, parameters: Mapping[str, object]) -> Sequence[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(PLACE.sub(r"%(\1)s", sql), parameters)
            return tuple(cursor.fetchone())

    def _commit(self) -> None:
        atomic, self._atomic = self._atomic, None
        atomic.__exit__(None, None, None)

    def _rollback(self) -> Ended:
        if self._atomic is not None:
            transaction.set_rollback(True, using=self._alias)
            self._commit()
            return Ended.UNDONE
        if self._committed:  # what raised was hung behind the commit
            return Ended.DONE
        # Django closes a connection whose rollback failed.
        return Ended.UNKNOWN if self._connection.connection is None else Ended.UNDONE


def is_open(alias: str) -> bool:
    """Whether a transaction is open on this database in which another one would be a part."""
    connection = connections[alias]
    if not connection.in_atomic_block:
        return not connection.get_autocommit() if connection.connection is not None else False
    try:
        with transaction.atomic(using=alias, durable=True):  # only Django knows which belong to its own tests
            return False
    except RuntimeError:
        return True
