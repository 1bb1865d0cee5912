# Made from redlock/fenced/_tasks.py by tools/unasync.py: change that file, then run `make faces`.
"""Fenced transactions, for threads."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from redlock import ConfigurationError, Lease, Term
from redlock.fenced._order import CommitUnknown, Release, Step, fence_of, rows_of, transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import TracebackType

    from redlock import MultiLock
    from redlock.fenced._store import Store


class Fenced:
    """What `fenced` returns: ``with`` runs one transaction.  It can be entered once.

    ``run``: runs a method of ``store`` where the connection is.
    """

    def __init__(self, lock: MultiLock | Lease | Term, store: Store, run: Callable[..., Any]) -> None:
        self._lock = lock
        self._store = store
        self._run = run
        self._lease: Lease | None = None
        self._stack = contextlib.ExitStack()
        self._steps: Generator[Step | Release, Any, BaseException | None] | None = None

    def __enter__(self) -> Lease:
        """Acquire the lock, begin, and raise the row of each of its names.

        Raises:
            NotAcquired, QuorumUnreachable: as ``with`` of the lock does, and all its other errors.
            FenceRefused: a newer holder has begun a transaction; this one was rolled back.
            ConfigurationError: a transaction is open on the session, or the lock has no fencing token.
        """
        if self._steps is not None:
            raise ConfigurationError("this fenced(...) was entered before: make a new one for each transaction")
        self._run(self._store.check)
        self._steps = transaction(self._unknown)
        error = self._store.told(self._go_on(None))
        if error is not None:
            raise error
        assert self._lease is not None  # noqa: S101 - the body begins
        return self._lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit if the body has ended well and the lease is valid, else roll back; then give the lock back.

        Raises:
            LockLost: the lease was lost before the commit was sent; nothing was written.
            CommitUnknown: the commit got no answer.
            PausedTooLong: the database ended the transaction in a pause of the body; nothing was written.
            Exception: what the database says, with a note, if the body has ended the transaction itself, or went on
                after an error that ended it; what was not committed by then was rolled back.  What a hook behind the
                commit raises, as it is; the commit is done.
        """
        ended = self._store.told(self._go_on(error))
        if ended is not None and ended is not error:
            raise ended

    def _go_on(self, result: Any) -> BaseException | None:
        """Carry out steps up to the body, or to the end.  ``result``: of the step before.  Returns what ended it."""
        steps = self._steps
        assert steps is not None  # noqa: S101 - it was entered
        try:
            while True:
                step = steps.send(result)
                if step is Step.BODY:
                    return None
                try:
                    result = self._do(step)
                except BaseException as raised:  # noqa: BLE001 - the order knows what follows
                    result = raised
        except StopIteration as end:
            ended: BaseException | None = end.value
            return ended

    def _do(self, step: Step | Release) -> Any:
        store = self._store
        if isinstance(step, Release):
            error = step.error
            self._stack.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)
            return None
        if step is Step.ACQUIRE:
            self._acquire()
            return None
        lease = self._lease
        assert lease is not None  # noqa: S101 - all else comes later
        if step is Step.BEGIN:
            return self._run(store.begin, lease.name, lease.remaining())
        if step is Step.RAISE:
            fence = fence_of(lease)
            for row, name in rows_of(lease):
                self._run(store.raise_fence, row, name, fence, lease.owner)
            return self._run(store.body_begins)
        if step is Step.ENSURE:
            lease.ensure()  # first: the database may have ended the transaction because the lease has ended
            return self._run(store.body_ends)
        if step is Step.COMMIT:
            return self._run(store.commit, lease.ensure)
        return self._run(store.rollback)

    def _acquire(self) -> None:
        lock = self._lock
        if isinstance(lock, Term):
            lock = lock.lease
        if isinstance(lock, Lease):  # it is held already, and its holder gives it back
            lock.ensure()
            self._lease = lock
        else:
            self._lease = self._stack.enter_context(lock)

    def _unknown(self) -> CommitUnknown:
        lease = self._lease
        assert lease is not None  # noqa: S101 - there was a commit
        return CommitUnknown.of(lease.name, fence_of(lease))
