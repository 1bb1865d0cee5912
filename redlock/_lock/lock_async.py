"""The lock, for asyncio."""

from __future__ import annotations

# > import asyncio
import functools
import sys

# > import threading
# > from threading import Lock
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack

from redlock import options
from redlock._core.kernel.ballot import Refusal

# > from redlock._io.connections import Inside
# > from redlock._io.driver_threads import check_python
# > from redlock._io.runtime import running_loop
from redlock._lock import decorated
from redlock._lock.holds import Entered, ExitMethod, Hold, WithExit, beginning
from redlock._lock.holds_async import Body, TaskHold, TaskLeaseState
from redlock._lock.keywords import hide_unknown, shows_options_of, unexpected
from redlock._lock.lease_async import AsyncLease
from redlock._lock.lock import LockBase
from redlock._lock.masters_async import AsyncMasters
from redlock._lock.refused import is_locked
from redlock._lock.typed import LockOptions, NoOptions
from redlock._system import clock
from redlock.errors import LockLost, RedlockError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence
    from types import TracebackType

    from redlock._core.lease import LeaseState
    from redlock._io.driver_async import Driver
    from redlock._io.runtime import Runtime

P = ParamSpec("P")
R = TypeVar("R")


class _LockOptions(LockOptions, total=False):
    on_lost: Callable[[AsyncLease], object] | None


class AsyncMultiLockOptions(_LockOptions, total=False):
    """The options of `AsyncMultiLock`, for type checkers."""

    cancel_on_loss: bool  # asyncio only


class AsyncMultiLock(LockBase[AsyncMasters, AsyncLease]):
    """A lock on one name, or on several at once, granted by a majority of masters.

    While its `AsyncLease` is valid no other client holds the name, as long as clocks run at nearly the same rate.  It
    is not a barrier: a holder that was paused, or blocked, learns of a lost lease only when it checks the lease again.
    Where that would do harm, pass `AsyncLease.fence` to what you write to.

    Many tasks may use one object; each of them holds the lock for itself.  An acquire that is interrupted leaves no
    key behind.  A release that is interrupted has released.
    """

    _masters_class = AsyncMasters
    _lease_class = AsyncLease
    _state_class = TaskLeaseState
    _runtime: Runtime[Driver]
    _holder = "task"
    # asyncio only
    if sys.version_info < (3, 12):
        _elsewhere = " (asyncio.wait_for makes one before Python 3.12: use acquire(timeout=...) or asyncio.timeout)"

    @shows_options_of(LockBase.__init__)
    def __init__(
        self,
        name: str | Sequence[str],
        masters: AsyncMasters | Iterable[object],
        *,
        cancel_on_loss: bool = True,
        **of_lock: Unpack[_LockOptions],
    ) -> None:
        """Check the options: as of `MultiLock`, and one more. Nothing is sent.

        ``cancel_on_loss``: cancel the body of an ``async with`` when its lease is lost; the statement then raises
        `LockLost`.  False: the body goes on, and only the lease shows the loss.

        ``on_lost`` may be a coroutine function here, and is called on the event loop.

        Raises:
            ConfigurationError: a value cannot be right; the text names it and what is allowed.
            TypeError: there is no such option; the text says what it is called here.
        """
        super().__init__(name, masters, **of_lock)
        self._cancel_on_loss = options.flag("cancel_on_loss", cancel_on_loss)

    # both again
    def _new_hold(self, with_exit: Callable[[], WithExit | None] | None = None) -> Hold[AsyncLease]:
        # asyncio only
        kind = TaskHold if with_exit is None or not self._cancel_on_loss else Body
        return kind(self._me, self._own.holds, with_exit, self._anchor, self._spec.max_hold)
        # threads instead
        # > if Lock is not threading.Lock:  # since these masters were used
        # >     check_python()
        # > loop = running_loop()  # else current_task() would raise
        # > task = None if loop is None else asyncio.current_task(loop)  # see holds.py
        # > return ThreadHold(self._me, self._own.holds, with_exit, self._anchor, self._spec.max_hold, task)
        # both again

    @hide_unknown
    async def acquire(
        self,
        blocking: bool = True,
        timeout: float | None = None,  # noqa: ASYNC109
        **unknown: Unpack[NoOptions],
    ) -> AsyncLease | None:
        """Take the lock.  Returns the lease, or None if other clients held it all the time, or competed for it.

        Args:
            blocking: False tries once, and not at all if others in this process wait in line (C3).
            timeout: seconds to wait; negative waits for ever, 0 tries once, None is the lock's own timeout.  An
                attempt that is under way at the deadline is finished, which takes at most `node_timeout`.  If masters
                grant it to several at that moment, it is tried again, up to four times: at most 19 `node_timeout`
                (C3).  The very first operation also waits for connections, at most `connect_timeout` (R2).

        Raises:
            QuorumUnreachable: too few masters took part in the last attempt.  Or, if it waits for ever, in all attempts
                for as long as the `outage_timeout` of the masters (R38).  Or no majority is left without those that
                refuse for a reason that waiting cannot cure (a wrong password).
            WouldDeadlock: this task holds some of the names, but not exactly these.
            ConfigurationError: ``blocking=False`` with a ``timeout``; a ``blocking`` that is neither True nor False;
                a ``timeout`` that cannot be right.
            RedlockError: the masters were closed.
            TypeError: there is no such argument; the text says what it is called here.
        """
        if unknown:
            raise unexpected("acquire", unknown, self.acquire)
        hold, began = self._new_hold(), clock.now()
        try:
            deadline = self._deadline(began, timeout, blocking=blocking)
            outcome = await self._runtime.run(self._acquire_op(hold, deadline, began))
            self._conclude_acquire(hold, outcome, began)
            if not isinstance(outcome, Refusal):
                return hold.lease
        except BaseException:  # our caller never gets it
            self._abandon(hold)
            raise
        if outcome.kind != "held":
            raise self._refusal_error(outcome)
        return None

    async def release(self) -> None:
        """Release the lock on every master that can be reached.

        The lease ends with this call, even if it fails.  A master that is away gets the release when it is back.

        Raises:
            NotHeld: this task does not hold it.
            LockLost: the lease had been lost; others may have held the lock since.
        """
        await self._release(self._current_hold())

    async def _release(self, hold: Hold[AsyncLease]) -> None:
        try:
            how = await self._runtime.run(self._release_op(hold))
        # threads instead
        # > except Inside:
        # >     how = self._leave_behind(hold)
        # both again
        except RecursionError:  # perhaps nothing was sent, also not in the cleanup
            self._abandon_elsewhere(hold)
            raise
        except BaseException:  # interrupted, perhaps before anything was done
            self._abandon(hold)
            raise
        self._conclude_release(hold.state, how)

    async def extend(self, ttl: float | None = None) -> AsyncLease:
        """Set the TTL anew, counted from now; the old one is not added.  ``ttl``: seconds; None: the lock's TTL.

        Raises:
            NotHeld: this task does not hold it.
            NotExtended: too few masters answered.  The lease keeps the validity that it had, so try again.  After a
                try with a shorter ``ttl`` it has only the validity of the shorter one (C6).
            LockLost: the lease had ended, or a majority of masters denied it now.
            ConfigurationError: the ``ttl`` cannot be right.
        """
        hold = self._current_hold()
        self._conclude_extension(hold.state, await self._runtime.run(self._extend_op(hold, ttl)))
        return hold.lease

    async def _downgrade(self, state: LeaseState) -> None:
        extension = await self._runtime.run(self._downgrade_op(state))
        if extension is not None:
            self._conclude_extension(state, extension)

    async def locked(self) -> bool:
        """Whether a majority of masters has a holder for the name, or for any of several names.

        Raises:
            QuorumUnreachable: too few masters answered to know.
        """
        status_op = self._runtime.deployment.status_op
        for name in self._spec.names:
            if is_locked(*await self._runtime.run(status_op(name))):
                return True
        return False

    async def close(self) -> None:
        """Close the masters, if this lock made them for itself; else do nothing."""
        if self._private:
            await self._masters.close()

    async def __aenter__(self) -> AsyncLease:
        """Acquire, and wait as `acquire` does; raises `NotAcquired` where `acquire` returns None."""
        hold, began = self._new_hold(beginning(self)), clock.now()
        try:
            outcome = await self._runtime.run(self._acquire_op(hold, self._deadline(began), began))
            self._conclude_acquire(hold, outcome, began)
            if not isinstance(outcome, Refusal):
                return hold.lease
        except BaseException:  # a stack keeps the end of its `with` for as long as this error
            self._abandon(hold)
            raise
        raise self._refusal_error(outcome)

    async def _exit(
        self, entered: Entered, kind: type[BaseException] | None, error: BaseException | None, _trace: object
    ) -> None:
        """End an ``async with``, or do what `__aexit__` does when it is called by hand."""
        hold: Hold[AsyncLease] | None = entered.hold
        failed = None
        try:
            hold = hold or self._latest_by_hand()
            self._check(hold)
            # asyncio only
            if kind is GeneratorExit:  # the coroutine is thrown away, and must not wait
                self._abandon(hold)
            else:
                await self._release(hold)
            # threads instead
            # > self._release(hold)
            # both again
        except RedlockError as why:
            failed = why
        finally:
            entered.anchor = None  # else a stack keeps the error, the error this frame, and the frame the hold
        # asyncio only
        if kind is GeneratorExit:
            if isinstance(hold, Body):
                hold.uncancel()
            return
        if isinstance(hold, Body) and hold.cancelled and hold.is_ours and not await hold.finish_body(error):
            lost = failed if isinstance(failed, LockLost) else hold.lease.loss()
            if failed is not None and failed is not lost:
                lost.add_note(f"besides, {failed.message}")
            raise lost from error
        # both again
        if failed is None:
            return
        if error is None:
            raise failed
        error.add_note(f"besides, {failed.message}")  # never hide the body's error

    if TYPE_CHECKING:

        async def __aexit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None: ...

    else:
        __aexit__ = ExitMethod(_exit)

    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        """Use the lock as a decorator: every call of ``function`` holds it.

        Raises:
            ConfigurationError: ``function`` cannot be called, or its body would run after the release.
        """
        decorated.check_awaited(function)  # > decorated.check_called(function, "an AsyncMultiLock")

        @functools.wraps(function)
        async def locked(*args: P.args, **kwargs: P.kwargs) -> R:
            async with self:
                return await function(*args, **kwargs)

        return locked
