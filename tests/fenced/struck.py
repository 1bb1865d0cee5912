"""A connection of sqlite3, and a lock, that a test can end before or after any statement."""

from __future__ import annotations

import asyncio
import sqlite3
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from redlock import AsyncMultiLock, LockLost
from tests.fenced import banks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Struck(sqlite3.Connection):
    """Calls ``strike(statement, "before" or "after")`` around each one, in whatever thread that runs."""

    strike: Callable[[str, str], object] = staticmethod(lambda sql, when: None)

    def around(self, sql: str, run: Callable[[], Any]) -> Any:
        self.strike(sql, "before")
        result = run()
        self.strike(sql, "after")
        return result

    def cursor(self, factory: Any = None) -> Any:
        return super().cursor(factory or _Cursor)

    def commit(self) -> None:
        self.around("COMMIT", super().commit)

    def rollback(self) -> None:
        self.around("ROLLBACK", super().rollback)

    def lose(self) -> None:
        """The connection is lost: what was not committed is rolled back, and an answer never comes."""
        super().rollback()
        self.close()
        self.execute("SELECT 1")  # raises


class _Cursor(sqlite3.Cursor):
    def execute(self, sql: str, *arguments: Any) -> Any:
        connection: Any = self.connection
        return connection.around(sql, lambda: super(_Cursor, self).execute(sql, *arguments))


class _Lock:
    """It can be lost at once.  What `fenced` asks of a lock and of its lease, and nothing else."""

    def __init__(self, fence: int = 7) -> None:
        self.lease = SimpleNamespace(
            name="account:7", names=("account:7",), fence=fence, owner="me", shared=False, ensure=self._ensure,
            valid=True, _state=SimpleNamespace(names=("account:7",), keys=("redlock:account:7",)),
        )  # fmt: skip
        self.lease.remaining = lambda: 60.0
        self.lost = self.free = False

    def _ensure(self) -> None:
        if self.lost:
            raise LockLost("lost", name="account:7")

    def __enter__(self) -> SimpleNamespace:
        return self.lease

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.free = True
        if error is None:
            self._ensure()


def lock(fence: int = 7) -> Any:
    return _Lock(fence)


class _AwaitedLock(_Lock, AsyncMultiLock):
    """Whoever ends its lease cancels the task."""

    lease: Any = None

    async def __aenter__(self) -> Any:
        return self.__enter__()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.lost and isinstance(error, asyncio.CancelledError):
            task: Any = asyncio.current_task()
            task.uncancel()
            error = None
        self.__exit__(kind, error, trace)


def awaited_lock() -> Any:
    return _AwaitedLock()


def bank_in(folder: Path, **options: Any) -> banks.Bank:
    """An account whose sessions are of connections that can be struck."""

    def connect() -> Struck:
        return sqlite3.connect(folder / "bank", timeout=1, factory=Struck, check_same_thread=False, **options)

    bank = banks.Bank("sqlite", connect)
    with bank.session() as session:
        bank.run(session, "PRAGMA journal_mode = WAL")  # what a lost connection was reading keeps no writer out
    return bank
