"""The lock, for threads."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect as introspection
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from redlock import _clock
from redlock._base import decorated
from redlock._base.holds import AtTheEnd, Hold, beginning
from redlock._base.lock import LockBase, to_be_told
from redlock._base.loop import running_loop
from redlock._base.typed import LockOptions
from redlock._core.acquire import Grant, Refusal
from redlock._core.release import abandon
from redlock._threads.lease import Lease, ThreadLeaseState
from redlock._threads.masters import Masters
from redlock.errors import ConfigurationError, RedlockError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from redlock._base.holds import Entered, Leaving
    from redlock._core.lease import LeaseState

P = ParamSpec("P")
R = TypeVar("R")


class MultiLockOptions(LockOptions, total=False):
    """Those of `MultiLock`, for type checkers."""

    on_lost: Callable[[Lease], object] | None


class MultiLock(LockBase[Masters, Lease]):
    """A lock on one name, or on several at once, granted by a majority of masters.

    While its `Lease` is valid nobody else holds the name, as long as clocks run at nearly the same
    rate.  It is not a barrier: a holder that was paused finds its lease lost at its next look, not
    before.  Where that would do harm, hand `Lease.fence` to what you write to.

    One object may be used by many threads; each holds for itself.
    """

    _masters_class = Masters
    _lease_class = Lease
    _state_class = ThreadLeaseState
    _holder = "thread"

    def _set_up(self) -> None:
        self._own = self._masters._own  # noqa: SLF001 - see `LockBase`
        self._run = self._masters._run  # noqa: SLF001

    def _caller(self) -> list[Hold[Lease]]:
        return self._own.holds if self._bound else self._holds

    def _task(self) -> object:
        # All tasks of a loop are one thread; a second one must not enter what the first one holds.
        loop = running_loop()  # else current_task() would raise
        return None if loop is None else asyncio.current_task(loop)

    def _alive(self) -> Callable[[], bool]:
        return self._own.alive

    @staticmethod
    def _tell(on_lost: Callable[[Lease], object] | None, lease: Lease, state: LeaseState) -> None:
        with contextlib.ExitStack() as all_of_them:  # also if one raises
            for told in reversed(to_be_told(on_lost, state)):
                all_of_them.callback(told, lease)

    def _abandon(self, state: LeaseState) -> None:
        self._run(abandon(self._spec, state))

    # -- taking and giving back ----------------------------------------------------------------------

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> Lease | None:
        """Take the lock; None if somebody else held it all the time.

        Args:
            blocking: False tries once, and not at all if others of this process are in front (C3).
            timeout: seconds to wait; negative waits for ever, 0 tries once, None: the lock's own.
                An attempt that is under way at the deadline is finished, which takes at most
                `node_timeout`; the very first one waits for the masters to be connected, at most
                `connect_timeout` (R2).

        Raises:
            QuorumUnreachable: too few masters took part in the last attempt, or so many refuse for
                a reason that waiting cannot cure (a wrong password) that there is no majority.
            WouldDeadlock: this thread holds some of the names together with others, or without them; or it holds
                them in another asyncio task than this one, or outside of its tasks.
            ConfigurationError: ``blocking=False`` with a ``timeout``, or a ``blocking`` that is neither True nor False.
        """
        mine: list[Hold[Lease]] = []
        try:
            outcome = self._try(mine, blocking=blocking, timeout=timeout)
            if isinstance(outcome, Lease):
                return outcome
        except BaseException:
            self._drop(mine)
            raise
        if outcome.kind != "held":
            raise self._unreachable(outcome)
        return None

    def _try(
        self, mine: list[Hold[Lease]], *, blocking: bool, timeout: float | None, leaving: Leaving | None = None
    ) -> Lease | Refusal:
        """``mine``: what was entered; for the caller, if this is interrupted (R11)."""
        won: list[Grant] = []
        began = _clock.now()
        op = self._acquisition(won, blocking=blocking, timeout=timeout)
        again = self._reentered(mine, leaving)
        if again is not None:
            return again
        try:
            outcome = self._run(op)
            self._tried(outcome, began)
            if isinstance(outcome, Grant):
                self._lease = lease = self._lease_of(outcome)
                self._keep(self._renewal_of(self._entered(mine, lease, leaving)))
                return lease
        except BaseException:
            for grant in () if mine else won:  # interrupted between the grant and our caller
                self._release(self._state_of(grant))
            raise
        return outcome

    def _drop(self, mine: list[Hold[Lease]]) -> None:
        """Interrupted on the way back to who called us, or in a release: nobody will give back what nobody has (R11)."""
        for hold in mine:
            if hold.leave():
                self._release(hold.state)
                self._gave_back_so_far(hold.state)

    def release(self) -> None:
        """Give the lock back, on every master that can be reached.

        It is over when this is called, whatever happens then: masters that do not answer are owed the
        release and get it as soon as they do.

        Raises:
            NotHeld: this thread does not hold it.
            LockLost: it was no longer ours; somebody else may have had it.
        """
        self._give_back(self._held())

    def _give_back(self, hold: Hold[Lease]) -> None:
        state = hold.state
        try:
            last = hold.leave()
            ours = self._release(state) if last else not state.lost
        except BaseException:  # interrupted, perhaps before anything was done
            self._drop([hold])
            raise
        self._gave_back(state, ours=ours, last=last)

    def _release(self, state: LeaseState) -> bool:
        return self._run(self._release_of(state))

    def extend(self, ttl: float | None = None) -> Lease:
        """Set the TTL anew, counted from now; it does not add.  None: the lock's TTL.

        Raises:
            NotHeld: this thread does not hold it.
            NotExtended: too few masters answered.  The lease is valid for what it had, so this can be
                tried again (after a shorter ``ttl``: for that).
            LockLost: it had ended, or a majority of masters says so now.
        """
        hold = self._held()
        self._extended(hold.state, self._run(self._extension_of(hold.state, ttl)))
        self._keep_what_was_resumed()
        return hold.lease

    # -- looking -------------------------------------------------------------------------------------

    def locked(self) -> bool:
        """Whether a majority of masters has a holder, whoever it is.  Of several names: of any.

        Raises:
            QuorumUnreachable: too few masters answered to know.
        """
        inspection = self._masters._inspection  # noqa: SLF001 - see `LockBase`
        return any(self._is_locked(*self._run(inspection(name))) for name in self._spec.names)

    def close(self) -> None:
        """Close the masters, if this lock made them for itself."""
        if self._private:
            self._masters.close()

    # -- with, and as a decorator --------------------------------------------------------------------

    def __enter__(self) -> Lease:
        """Acquire; raises `NotAcquired` where `acquire` returns None."""
        # The same steps as in `acquire`, not a call of it or of a helper: every frame on the way back to the
        # caller is one more place for a Ctrl-C to strike after the grant (R11).
        mine: list[Hold[Lease]] = []
        try:
            outcome = self._try(mine, blocking=True, timeout=None, leaving=beginning(self))
            if isinstance(outcome, Lease):
                return outcome
        except BaseException:
            self._drop(mine)
            raise
        raise self._not_acquired(outcome) if outcome.kind == "held" else self._unreachable(outcome)

    def _leave(
        self,
        entered: Entered,
        kind: type[BaseException] | None,  # noqa: ARG002 - what `__exit__` is given
        error: BaseException | None,
        trace: TracebackType | None,  # noqa: ARG002
    ) -> None:
        """The end of a ``with``, or `__exit__` called by hand."""
        hold: Hold[Lease] | None = entered.hold
        try:
            hold = hold or self._latest_by_hand()
            self._check(hold)
            self._give_back(hold)
        except RedlockError as failed:
            if error is None:
                raise
            error.add_note(f"besides, {failed.message}")  # never hide the body's error
        except BaseException:
            if hold is not None:
                self._drop([hold])
            raise

    if TYPE_CHECKING:

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None: ...

    else:
        __exit__ = AtTheEnd(_leave)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """As a decorator: every call of ``function`` holds the lock."""
        decorated.check(function)
        for kind, is_one in _RUNS_LATER:
            if decorated.runs_as(function, is_one):
                raise ConfigurationError(f"{decorated.shown(function)} is {kind}: its body would run after the release")

        @functools.wraps(function)
        def locked(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return function(*args, **kwargs)

        return locked


_RUNS_LATER = (
    ("a coroutine function, which takes an AsyncMultiLock", introspection.iscoroutinefunction),
    ("a generator function", introspection.isgeneratorfunction),
    ("an asynchronous generator function", introspection.isasyncgenfunction),
)
