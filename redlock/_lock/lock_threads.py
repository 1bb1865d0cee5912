# Made from redlock/_lock/lock_async.py by tools/unasync.py: change that file, then run `make faces`.
"""The lock, for threads."""

from __future__ import annotations

import asyncio
import functools
import threading
from threading import Lock
from typing import TYPE_CHECKING, ParamSpec, TypeVar, Unpack

from redlock._core.kernel.ballot import Refusal
from redlock._io.connections import Inside
from redlock._io.driver_threads import check_python
from redlock._io.runtime import running_loop
from redlock._lock import decorated
from redlock._lock.holds import Entered, ExitMethod, Hold, WithExit, beginning
from redlock._lock.holds_threads import ThreadHold, ThreadLeaseState
from redlock._lock.keywords import hide_unknown, unexpected
from redlock._lock.lease_threads import Lease
from redlock._lock.lock import LockBase
from redlock._lock.masters_threads import Masters
from redlock._lock.refused import is_locked
from redlock._lock.typed import LockOptions, NoOptions
from redlock._system import clock
from redlock.errors import RedlockError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from redlock._core.lease import LeaseState
    from redlock._io.driver_threads import Driver
    from redlock._io.runtime import Runtime

P = ParamSpec("P")
R = TypeVar("R")


class _LockOptions(LockOptions, total=False):
    on_lost: Callable[[Lease], object] | None


class MultiLockOptions(_LockOptions, total=False):
    """The options of `MultiLock`, for type checkers."""


class MultiLock(LockBase[Masters, Lease]):
    """A lock on one name, or on several at once, granted by a majority of masters.

    While its `Lease` is valid no other client holds the name, as long as clocks run at nearly the same rate.  It
    is not a barrier: a holder that was paused, or blocked, learns of a lost lease only when it checks the lease again.
    Where that would do harm, pass `Lease.fence` to what you write to.

    Many threads may use one object; each of them holds the lock for itself.  An acquire that is interrupted leaves no
    key behind.  A release that is interrupted has released.
    """

    _masters_class = Masters
    _lease_class = Lease
    _state_class = ThreadLeaseState
    _runtime: Runtime[Driver]
    _holder = "thread"

    def _new_hold(self, with_exit: Callable[[], WithExit | None] | None = None) -> Hold[Lease]:
        if Lock is not threading.Lock:  # since these masters were used
            check_python()
        loop = running_loop()  # else current_task() would raise
        task = None if loop is None else asyncio.current_task(loop)  # see holds.py
        return ThreadHold(self._me, self._own.holds, with_exit, self._anchor, self._spec.max_hold, task)

    @hide_unknown
    def acquire(
        self,
        blocking: bool = True,
        timeout: float | None = None,
        **unknown: Unpack[NoOptions],
    ) -> Lease | None:
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
            WouldDeadlock: this thread holds some of the names, but not exactly these.
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
            outcome = self._runtime.run(self._acquire_op(hold, deadline, began))
            self._conclude_acquire(hold, outcome, began)
            if not isinstance(outcome, Refusal):
                return hold.lease
        except BaseException:  # our caller never gets it
            self._abandon(hold)
            raise
        if outcome.kind != "held":
            raise self._refusal_error(outcome)
        return None

    def release(self) -> None:
        """Release the lock on every master that can be reached.

        The lease ends with this call, even if it fails.  A master that is away gets the release when it is back.

        Raises:
            NotHeld: this thread does not hold it.
            LockLost: the lease had been lost; others may have held the lock since.
        """
        self._release(self._current_hold())

    def _release(self, hold: Hold[Lease]) -> None:
        try:
            how = self._runtime.run(self._release_op(hold))
        except Inside:
            how = self._leave_behind(hold)
        except RecursionError:  # perhaps nothing was sent, also not in the cleanup
            self._abandon_elsewhere(hold)
            raise
        except BaseException:  # interrupted, perhaps before anything was done
            self._abandon(hold)
            raise
        self._conclude_release(hold.state, how)

    def extend(self, ttl: float | None = None) -> Lease:
        """Set the TTL anew, counted from now; the old one is not added.  ``ttl``: seconds; None: the lock's TTL.

        Raises:
            NotHeld: this thread does not hold it.
            NotExtended: too few masters answered.  The lease keeps the validity that it had, so try again.  After a
                try with a shorter ``ttl`` it has only the validity of the shorter one (C6).
            LockLost: the lease had ended, or a majority of masters denied it now.
            ConfigurationError: the ``ttl`` cannot be right.
        """
        hold = self._current_hold()
        self._conclude_extension(hold.state, self._runtime.run(self._extend_op(hold, ttl)))
        return hold.lease

    def _downgrade(self, state: LeaseState) -> None:
        extension = self._runtime.run(self._downgrade_op(state))
        if extension is not None:
            self._conclude_extension(state, extension)

    def locked(self) -> bool:
        """Whether a majority of masters has a holder for the name, or for any of several names.

        Raises:
            QuorumUnreachable: too few masters answered to know.
        """
        status_op = self._runtime.deployment.status_op
        return any(is_locked(*self._runtime.run(status_op(name))) for name in self._spec.names)

    def close(self) -> None:
        """Close the masters, if this lock made them for itself; else do nothing."""
        if self._private:
            self._masters.close()

    def __enter__(self) -> Lease:
        """Acquire, and wait as `acquire` does; raises `NotAcquired` where `acquire` returns None."""
        hold, began = self._new_hold(beginning(self)), clock.now()
        try:
            outcome = self._runtime.run(self._acquire_op(hold, self._deadline(began), began))
            self._conclude_acquire(hold, outcome, began)
            if not isinstance(outcome, Refusal):
                return hold.lease
        except BaseException:  # a stack keeps the end of its `with` for as long as this error
            self._abandon(hold)
            raise
        raise self._refusal_error(outcome)

    def _exit(
        self, entered: Entered, kind: type[BaseException] | None, error: BaseException | None, _trace: object
    ) -> None:
        """End a ``with``, or do what `__exit__` does when it is called by hand."""
        hold: Hold[Lease] | None = entered.hold
        failed = None
        try:
            hold = hold or self._latest_by_hand()
            self._check(hold)
            self._release(hold)
        except RedlockError as why:
            failed = why
        finally:
            entered.anchor = None  # else a stack keeps the error, the error this frame, and the frame the hold
        if failed is None:
            return
        if error is None:
            raise failed
        error.add_note(f"besides, {failed.message}")  # never hide the body's error

    if TYPE_CHECKING:

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None: ...

    else:
        __exit__ = ExitMethod(_exit)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Use the lock as a decorator: every call of ``function`` holds it.

        Raises:
            ConfigurationError: ``function`` cannot be called, or its body would run after the release.
        """
        decorated.check_called(function, "an AsyncMultiLock")

        @functools.wraps(function)
        def locked(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return function(*args, **kwargs)

        return locked
