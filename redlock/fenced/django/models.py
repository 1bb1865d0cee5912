"""The table of fences, for routers and for the admin."""

from __future__ import annotations

from typing import Any

from django.db import models

from redlock.fenced._sql import TABLE


class NameField(models.CharField):  # type: ignore[misc]
    """The name of a lock.  On MySQL and MariaDB the column has bytes, for a collation would take two names for one."""

    def from_db_value(self, value: Any, *_: object) -> Any:
        return value.decode() if isinstance(value, bytes) else value


class Fence(models.Model):  # type: ignore[misc]
    """The greatest fence that has begun a transaction, for one name.  `fenced` alone writes it.

    The migration makes the table with the statement of `redlock.fenced.schema`.  ``TransactionTestCase`` empties it.
    """

    name = NameField(max_length=512, primary_key=True)
    fence = models.BigIntegerField()
    owner = models.CharField(max_length=255)
    raised_at = models.DateTimeField()

    class Meta:
        db_table = TABLE

    def __str__(self) -> str:
        return f"{self.name}: {self.fence}"
