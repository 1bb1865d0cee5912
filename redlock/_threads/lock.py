"""The lock, for threads."""

from __future__ import annotations

import asyncio
import functools
import inspect as introspection
import sys
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from redlock import _clock
from redlock._base import decorated
from redlock._base.lock import Entry, Inside, LockBase
from redlock._core.acquire import Grant, Refusal
from redlock._threads.lease import Lease
from redlock._threads.masters import Masters
from redlock.errors import ConfigurationError, RedlockError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

P = ParamSpec("P")
R = TypeVar("R")


class MultiLock(LockBase[Masters, Lease]):
    """A lock on one name, or on several at once, granted by a majority of masters.

    While its `Lease` is valid nobody else holds the name, as long as clocks run at nearly the same
    rate.  It is not a barrier: a holder that was paused finds its lease lost at its next look, not
    before.  Where that would do harm, hand `Lease.fence` to what you write to.

    One object may be used by many threads; each holds for itself.
    """

    _masters_class = Masters
    _lease_class = Lease
    _holder = "thread"

    def _entries(self) -> list[Entry]:
        return self._masters._own.entries  # noqa: SLF001 - the two are one module in two files

    def _task(self) -> object:
        # All tasks of a loop are one thread; a second one must not enter what the first one holds.
        loop = asyncio._get_running_loop()  # noqa: SLF001 - a look that does not raise; current_task() would, mostly
        return None if loop is None else asyncio.current_task(loop)

    def _whose(self, lease: Lease) -> tuple[Callable[[], bool], Callable[[], object] | None]:
        tell = None if self._on_lost is None else functools.partial(self._on_lost, lease)
        return self._masters._own.alive, tell  # noqa: SLF001

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
        before = len(self._entries())
        outcome = None
        try:
            outcome = self._try(blocking=blocking, timeout=timeout)
            if isinstance(outcome, Lease):
                return outcome
        except BaseException:
            self._drop_unless(before, outcome)
            raise
        if outcome.kind != "held":
            raise self._unreachable(outcome)
        return None

    def _try(self, *, blocking: bool, timeout: float | None) -> Lease | Refusal:
        won: list[Grant] = []
        lease = None
        began = _clock.now()
        op = self._acquisition(won, blocking=blocking, timeout=timeout)
        entries = self._entries()
        again = self._reentered(entries)
        if again is not None:
            return again
        try:
            outcome = self._masters._run(op)  # noqa: SLF001
            self._tried(outcome, began)
            if isinstance(outcome, Grant):
                lease = self._lease_of(outcome)
                self._entered(lease, entries)
                self._keep(lease)
                return lease
        except BaseException:
            for grant in won:       # interrupted between the grant and our caller (R11)
                if lease is not None:
                    self._left(lease, entries)
                self._release(lease or self._lease_of(grant))
            raise
        return outcome

    def _keep(self, lease: Lease) -> None:
        self._masters._keep(self._keeping_of(lease))  # noqa: SLF001

    def _drop_unless(self, before: int, got: Lease | Refusal | None) -> None:
        """Interrupted on the last steps back to our caller: nobody will release what nobody got (R11)."""
        entries = self._entries()
        if not self._bound and isinstance(got, Lease) and self._left(got, entries):
            self._release(got)
        while len(entries) > before:
            lease = self._mine
            if lease is None:
                break
            if self._left(lease, entries):
                self._release(lease)

    def release(self) -> None:
        """Give the lock back, on every master that can be reached.

        It is over when this is called, whatever happens then: masters that do not answer are owed the
        release and get it as soon as they do.

        Raises:
            NotHeld: this thread does not hold it.
            LockLost: it was no longer ours; somebody else may have had it.
        """
        entries = self._entries()
        self._give_back(self._held(entries), entries)

    def _give_back(self, lease: Lease, entries: list[Entry]) -> None:
        depth = len(entries) - 1
        try:
            last = self._left(lease, entries)
            ours = self._release(lease) if last else not lease.lost
        except BaseException:       # interrupted, perhaps before anything was done (R11)
            if len(entries) > depth:
                self._left(lease, entries)
            if not self._still_entered(lease, entries):
                self._release(lease)
                self._gave_back_so_far(lease)
            raise
        self._gave_back(lease, ours=ours, last=last)

    def _release(self, lease: Lease) -> bool:
        return self._masters._run(self._release_of(lease))  # noqa: SLF001

    def extend(self, ttl: float | None = None) -> Lease:
        """Set the TTL anew, counted from now; it does not add.  None: the lock's TTL.

        Raises:
            NotHeld: this thread does not hold it.
            NotExtended: too few masters answered.  The lease is valid for what it had, so this can be
                tried again (after a shorter ``ttl``: for that).
            LockLost: it had ended, or a majority of masters says so now.
        """
        lease = self._held(self._entries())
        self._extended(lease, self._masters._run(self._extension_of(lease, ttl)))  # noqa: SLF001
        self._keep_what_was_resumed()
        return lease

    # -- looking -------------------------------------------------------------------------------------

    def locked(self) -> bool:
        """Whether a majority of masters has a holder, whoever it is.  Of several names: of any.

        Raises:
            QuorumUnreachable: too few masters answered to know.
        """
        masters = self._masters
        return any(
            self._is_locked(*masters._run(masters._inspection(name)))  # noqa: SLF001
            for name in self._plan.names
        )

    def close(self) -> None:
        """Close the masters, if this lock made them for itself."""
        if self._private:
            self._masters.close()

    # -- with, and as a decorator --------------------------------------------------------------------

    def __enter__(self) -> Lease:
        """Acquire; raises `NotAcquired` where `acquire` returns None."""
        # The same steps as in `acquire`, not a call of it or of a helper: every frame on the way back to the
        # caller is one more place for a Ctrl-C to strike after the grant (R11).
        before = len(self._entries())
        outcome = inside = None
        try:
            outcome = self._try(blocking=True, timeout=None)
            if isinstance(outcome, Lease):
                inside = Inside(outcome, self._entries(), sys._getframe(1))  # noqa: SLF001 - see `_leaving`
                self._goes_in(inside)
                return outcome
        except BaseException:
            self._is_left(inside)
            self._drop_unless(before, outcome)
            raise
        raise self._not_acquired(outcome) if outcome.kind == "held" else self._unreachable(outcome)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            inside = self._leaving(sys._getframe(1), closed=kind is GeneratorExit)  # noqa: SLF001 - see there
            depth = 0 if inside is None else len(inside.entries) - 1
        except BaseException:       # interrupted at our very first step
            inside = self._leaving(sys._getframe(1), closed=kind is GeneratorExit)  # noqa: SLF001
            if inside is not None:
                self._drop(inside, len(inside.entries) - 1)
            raise
        try:
            if inside is None and kind is GeneratorExit:
                return      # what is thrown away was left before
            self._is_left(inside)
            inside = self._still(inside)
            self._give_back(inside.lease, inside.entries)
        except RedlockError as failed:
            if error is None:
                raise
            error.add_note(f"besides, {failed.message}")    # never hide the body's error
        except BaseException:
            if inside is not None:
                self._drop(inside, depth)
            raise

    def _drop(self, inside: Inside[Lease], depth: int) -> None:
        """Interrupted while it was left (R11)."""
        self._is_left(inside)
        if len(inside.entries) > depth:
            self._left(inside.lease, inside.entries)
        if not self._still_entered(inside.lease, inside.entries):
            self._release(inside.lease)

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
