"""Finds the trap that `fenced` is there for: a lock that is given back while a transaction is open."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import warnings
import weakref
from typing import TYPE_CHECKING, Any

from redlock import LockReleased

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock import Event


class ReleasedBeforeCommit(RuntimeWarning):
    """A lock was released while a transaction was open.  The next holder reads what was there before it."""

    @classmethod
    def warn(cls, name: str, what: str) -> None:
        """Say that the lock ``name`` was given back too early.  ``what``: the transaction that is open."""
        warnings.warn(
            f"the lock {name!r} was released while {what}: commit before the release, or use redlock.fenced",
            cls,
            stacklevel=3,
        )


class OpenTransactions:
    """An observer that warns if a lock is given back while a transaction of ``engine`` is open in the same task::

        masters = Masters(urls, observer=OpenTransactions(engine))

    It looks at transactions that the same thread, or the same task of asyncio, has begun.  A transaction that only
    reads is one, too.

    Args:
        engine: an ``Engine`` of SQLAlchemy, or the ``sync_engine`` of an ``AsyncEngine``.
        then: another observer, which is called with each event.
    """

    def __init__(self, engine: Any, then: Callable[[Event], object] | None = None) -> None:
        from sqlalchemy import event  # noqa: PLC0415 - only an engine leads here

        self._then = then
        # By connection: the task or thread that has begun.  A program that drops a connection gives it back to its
        # pool.
        self._open: weakref.WeakKeyDictionary[Any, object] = weakref.WeakKeyDictionary()
        event.listen(engine, "begin", self._begun)
        for end in ("commit", "rollback"):
            event.listen(engine, end, self._ended)

    def _begun(self, connection: Any) -> None:
        self._open[connection] = _here()

    def _ended(self, connection: Any) -> None:
        self._open.pop(connection, None)

    def __call__(self, event: Event) -> None:
        if isinstance(event, LockReleased) and _here() in list(self._open.values()):
            ReleasedBeforeCommit.warn(event.name, "a transaction was open")
        if self._then is not None:
            self._then(event)


def _here() -> object:
    """The task of asyncio, or the thread, that runs this; weakly, for a task refers to its connections."""
    with contextlib.suppress(RuntimeError):  # no loop runs in this thread
        if task := asyncio.current_task():
            return weakref.ref(task)
    return weakref.ref(threading.current_thread())  # another thread may get its number later
