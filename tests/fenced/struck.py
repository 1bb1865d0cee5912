"""A connection of sqlite3, and a lock, that a test can end before or after any statement."""

import asyncio
import sqlite3
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from redlock import AsyncMultiLock, LockLost
from tests.fenced import banks


class Struck(sqlite3.Connection):
    """Calls ``strike(statement, "before" or "after")`` around each one, in whatever thread that runs."""

    strike: Callable[[str, str], object] = staticmethod(lambda sql, when: None)

    def around(self, sql, run):
        self.strike(sql, "before")
        result = run()
        self.strike(sql, "after")
        return result

    def cursor(self, factory=None):
        return super().cursor(factory or _Cursor)

    def commit(self):
        self.around("COMMIT", super().commit)

    def rollback(self):
        self.around("ROLLBACK", super().rollback)

    def lose(self):
        """The connection is lost: what was not committed is rolled back, and an answer never comes."""
        super().rollback()
        self.close()
        self.execute("SELECT 1")  # raises


class _Cursor(sqlite3.Cursor):
    def execute(self, sql, *arguments):
        connection: Any = self.connection
        return connection.around(sql, lambda: super(_Cursor, self).execute(sql, *arguments))


class _Lock:
    """It can be lost at once.  What `fenced` asks of a lock and of its lease, and nothing else."""

    def __init__(self, fence=7):
        self.lease = SimpleNamespace(
            name="account:7", names=("account:7",), fence=fence, owner="me", shared=False, ensure=self._ensure,
            valid=True, _state=SimpleNamespace(names=("account:7",), keys=("redlock:account:7",)),
        )  # fmt: skip
        self.lease.remaining = lambda: 60.0
        self.lost = self.free = False

    def _ensure(self):
        if self.lost:
            raise LockLost("lost", name="account:7")

    def __enter__(self):
        return self.lease

    def __exit__(self, kind, error, trace):
        self.free = True
        if error is None:
            self._ensure()


def lock(fence=7):
    return _Lock(fence)


class _AwaitedLock(_Lock, AsyncMultiLock):
    """Whoever ends its lease cancels the task."""

    lease: Any = None

    async def __aenter__(self):
        return self.__enter__()

    async def __aexit__(self, kind, error, trace):
        if self.lost and isinstance(error, asyncio.CancelledError):
            task: Any = asyncio.current_task()
            task.uncancel()
            error = None
        self.__exit__(kind, error, trace)


def awaited_lock():
    return _AwaitedLock()


def bank_in(folder, **options):
    """An account whose sessions are of connections that can be struck."""

    def connect():
        return sqlite3.connect(folder / "bank", timeout=1, factory=Struck, check_same_thread=False, **options)

    bank = banks.Bank("sqlite", connect)
    with bank.session() as session:
        bank.run(session, "PRAGMA journal_mode = WAL")  # what a lost connection was reading keeps no writer out
    return bank
