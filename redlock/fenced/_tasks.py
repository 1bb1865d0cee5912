"""Fenced transactions, for asyncio."""

from __future__ import annotations

import asyncio  # asyncio only
import contextlib
import inspect  # asyncio only
import sys  # asyncio only
from typing import TYPE_CHECKING, Any

from redlock import AsyncLease, AsyncTerm, ConfigurationError
from redlock.fenced._order import CommitUnknown, Release, Step, fence_of, rows_of, transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import TracebackType

    from redlock import AsyncMultiLock
    from redlock.fenced._store import Store


class AsyncFenced:
    """What `fenced` returns: ``async with`` runs one transaction.  It can be entered once.

    ``run``: runs a method of ``store`` where the connection is.
    """

    def __init__(self, lock: AsyncMultiLock | AsyncLease | AsyncTerm, store: Store, run: Callable[..., Any]) -> None:
        self._lock = lock
        self._store = store
        self._run = run
        self._lease: AsyncLease | None = None
        self._stack = contextlib.AsyncExitStack()
        self._steps: Generator[Step | Release, Any, BaseException | None] | None = None

    async def __aenter__(self) -> AsyncLease:
        """Acquire the lock, begin, and raise the row of each of its names.

        Raises:
            NotAcquired, QuorumUnreachable: as ``async with`` of the lock does, and all its other errors.
            FenceRefused: a newer holder has begun a transaction; this one was rolled back.
            ConfigurationError: a transaction is open on the session, or the lock has no fencing token.
        """
        if self._steps is not None:
            raise ConfigurationError("this fenced(...) was entered before: make a new one for each transaction")
        await self._run(self._store.check)
        self._steps = transaction(self._unknown)
        error = self._store.told(await self._go_on(None))
        if error is not None:
            raise error
        assert self._lease is not None  # noqa: S101 - the body begins
        return self._lease

    async def __aexit__(
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
        # asyncio only
        if kind is GeneratorExit and not sys._getframe(1).f_code.co_flags & inspect.CO_ASYNC_GENERATOR:  # noqa: SLF001
            # The coroutine is thrown away, and must not wait, as a generator may: the owner of the session ends it.
            self._steps = None
            self._store.abandon()
            await self._stack.__aexit__(kind, error, trace)
            return
        # both again
        ended = self._store.told(await self._go_on(error))
        if ended is not None and ended is not error:
            raise ended

    async def _go_on(self, result: Any) -> BaseException | None:
        """Carry out steps up to the body, or to the end.  ``result``: of the step before.  Returns what ended it."""
        steps = self._steps
        assert steps is not None  # noqa: S101 - it was entered
        try:
            while True:
                step = steps.send(result)
                if step is Step.BODY:
                    return None
                try:
                    result = await self._do(step)
                except BaseException as raised:  # noqa: BLE001 - the order knows what follows
                    result = raised
        except StopIteration as end:
            ended: BaseException | None = end.value
            return ended

    async def _do(self, step: Step | Release) -> Any:
        store = self._store
        if isinstance(step, Release):
            error = step.error
            await self._stack.__aexit__(type(error) if error else None, error, error.__traceback__ if error else None)
            return None
        if step is Step.ACQUIRE:
            await self._acquire()
            return None
        lease = self._lease
        assert lease is not None  # noqa: S101 - all else comes later
        if step is Step.BEGIN:
            return await self._run(store.begin, lease.name, lease.remaining())
        if step is Step.RAISE:
            fence = fence_of(lease)
            for row, name in rows_of(lease):
                await self._run(store.raise_fence, row, name, fence, lease.owner)
            return await self._run(store.body_begins)
        if step is Step.ENSURE:
            lease.ensure()  # first: the database may have ended the transaction because the lease has ended
            return await self._run(store.body_ends)
        if step is Step.COMMIT:
            return await self._to_its_end(store.commit, lease.ensure)  # > return self._run(store.commit, lease.ensure)
        return await self._to_its_end(store.rollback)  # > return self._run(store.rollback)

    # asyncio only
    async def _to_its_end(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Commit or roll back.  The end of a lease or a term, which cancels the body, does not cancel this.

        After a commit the cancellation goes on: its sender takes it back.  A rollback has an error already.
        """
        work = asyncio.ensure_future(self._run(function, *arguments))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            assert self._lease is not None  # noqa: S101 - it was had
            if self._lease.valid and not getattr(self._lock, "should_stop", False):  # it comes from outside (C13)
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
                raise
            result = await work
            if arguments:
                raise
            return result

    # both again
    async def _acquire(self) -> None:
        lock = self._lock
        if isinstance(lock, AsyncTerm):
            lock = lock.lease
        if isinstance(lock, AsyncLease):  # it is held already, and its holder gives it back
            lock.ensure()
            self._lease = lock
        else:
            self._lease = await self._stack.enter_async_context(lock)

    def _unknown(self) -> CommitUnknown:
        lease = self._lease
        assert lease is not None  # noqa: S101 - there was a commit
        return CommitUnknown.of(lease.name, fence_of(lease))
