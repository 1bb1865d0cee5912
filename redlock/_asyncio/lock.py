"""The lock, for asyncio."""

from __future__ import annotations

import asyncio
import functools
import inspect as introspection
import sys
import weakref
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from redlock import _clock
from redlock._asyncio.lease import AsyncLease
from redlock._asyncio.masters import AsyncMasters
from redlock._base import decorated
from redlock._base.links import report_failure
from redlock._base.lock import Entry, Inside, LockBase, always
from redlock._core.acquire import Grant, Refusal
from redlock.errors import ConfigurationError, LockLost, RedlockError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence
    from types import FrameType, TracebackType

    from tenacity.wait import wait_base

    from redlock._asyncio.masters import Bodies
    from redlock._core.effects import Op

P = ParamSpec("P")
R = TypeVar("R")


class Body(Inside[AsyncLease]):
    """What runs under ``async with``: it is cancelled when the lease is lost, as by `asyncio.timeout`."""

    __slots__ = ("_before", "_task", "cancelled")

    def __init__(self, lease: AsyncLease, entries: list[Entry], frame: FrameType) -> None:
        super().__init__(lease, entries, frame)
        task = _this_task()
        self.cancelled = False
        self._task = weakref.ref(task)      # where it is not bound the task may end long before the body
        self._before = task.cancelling()

    @property
    def task(self) -> asyncio.Task[Any] | None:
        return self._task()

    def lost(self) -> None:
        task = self.task
        self.cancelled = task is not None and task.cancel(f"the lease on {self.lease.name!r} was lost")

    async def over(self, error: BaseException | None) -> bool:
        """It has ended with ``error``.  Takes our cancellation back; True if ``error`` is not its doing.

        A cancellation that comes from somebody else, too, goes on (C13).
        """
        late: asyncio.CancelledError | None = None
        if not isinstance(error, asyncio.CancelledError):
            try:
                await asyncio.sleep(0)      # where ours strikes, if the body ended just before it did
            except asyncio.CancelledError as cancelled:
                late = cancelled
        if _this_task().uncancel() <= self._before:
            return error is not None and not isinstance(error, asyncio.CancelledError)
        if late is not None:
            raise late
        return True


class AsyncMultiLock(LockBase[AsyncMasters, AsyncLease]):
    """A lock on one name, or on several at once, granted by a majority of masters.

    While its `AsyncLease` is valid nobody else holds the name, as long as clocks run at nearly the same
    rate.  It is not a barrier: a holder whose event loop was blocked finds its lease lost at its next
    look, not before.  Where that would do harm, hand `AsyncLease.fence` to what you write to.

    One object may be used by many tasks; each holds for itself.  A task that is cancelled while it
    acquires leaves no key behind, and one that is cancelled while it releases has released.
    """

    _masters_class = AsyncMasters
    _lease_class = AsyncLease
    _holder = "task"
    if sys.version_info < (3, 12):
        _elsewhere = " (asyncio.wait_for makes one before Python 3.12: use acquire(timeout=...) or asyncio.timeout)"

    def __init__(
        self,
        name: str | Sequence[str],
        masters: AsyncMasters | Iterable[object],
        *,
        ttl: float = 30.0,
        timeout: float = -1.0,
        auto_extend: bool = True,
        max_hold: float | None = None,
        min_validity: float | None = None,
        fencing: bool = True,
        bound: bool = True,
        retry: wait_base | None = None,
        token: str | None = None,
        fence: int | None = None,
        on_lost: Callable[[AsyncLease], object] | None = None,
        cancel_on_loss: bool = True,
    ) -> None:
        """The options are those of `MultiLock`, and one more.

        ``cancel_on_loss``: cancel the body of an ``async with`` when its lease is lost; the statement then
        raises `LockLost`.  False: the body goes on, and learns it from the lease.  ``on_lost`` may be a
        coroutine function, and is called on the loop.
        """
        super().__init__(
            name, masters, ttl=ttl, timeout=timeout, auto_extend=auto_extend, max_hold=max_hold,
            min_validity=min_validity, fencing=fencing, bound=bound, retry=retry, token=token, fence=fence,
            on_lost=on_lost,
        )  # fmt: skip
        self._cancel_on_loss = bool(cancel_on_loss)

    def _entries(self) -> list[Entry]:
        try:
            task = asyncio.current_task()
        except RuntimeError:        # no loop runs here
            task = None
        if task is None:
            return []
        own = self._masters._own  # noqa: SLF001 - the two are one module in two files
        entries = own.get(task)
        if entries is None:
            own[task] = entries = []
        return entries

    def _whose(self, lease: AsyncLease) -> tuple[Callable[[], bool], Callable[[], object] | None]:
        tells = self._on_lost is not None or self._cancel_on_loss
        if not (tells or self._bound):      # then it need not be a task that calls this
            return always, None
        task, tell = weakref.ref(_this_task()), None
        if tells:
            # Not a method of ours: the keeper would keep us, and our masters, from being dropped.
            bodies = self._masters._bodies  # noqa: SLF001
            tell = functools.partial(_tell, self._on_lost, bodies, self._cancel_on_loss, lease, task)
        return functools.partial(_is_alive, task), tell

    # -- taking and giving back ----------------------------------------------------------------------

    async def acquire(self, blocking: bool = True, timeout: float | None = None) -> AsyncLease | None:  # noqa: ASYNC109
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
            WouldDeadlock: this task holds some of the names together with others, or without them.
            ConfigurationError: ``blocking=False`` with a ``timeout``, or a ``blocking`` that is neither True nor False.
        """
        outcome = None
        try:
            outcome = await self._try(blocking=blocking, timeout=timeout)
            if isinstance(outcome, AsyncLease):
                return outcome
        except BaseException:
            self._take_back(outcome)
            raise
        if outcome.kind != "held":
            raise self._unreachable(outcome)
        return None

    async def _try(self, *, blocking: bool, timeout: float | None) -> AsyncLease | Refusal:  # noqa: ASYNC109
        won: list[Grant] = []
        lease = None
        began = _clock.now()
        op = self._acquisition(won, blocking=blocking, timeout=timeout)
        entries = self._entries()
        again = self._reentered(entries)
        if again is not None:
            return again

        def undo() -> Op[bool] | None:
            """Of what was granted and reaches nobody (R11)."""
            return self._release_of(self._lease_of(won.pop())) if won else None

        try:
            outcome = await self._masters._run(op, undo)  # noqa: SLF001
            self._tried(outcome, began)
            if isinstance(outcome, Grant):
                lease = self._lease_of(outcome)
                self._entered(lease, entries)
                self._keep(lease)
                return lease
        except BaseException:
            if lease is not None:       # by a signal handler, between the grant and our caller (R11)
                self._left(lease, entries)
            for grant in won:           # those that `undo` has not seen
                self._masters._post(self._release_of(lease or self._lease_of(grant)))  # noqa: SLF001
            raise
        return outcome

    def _take_back(self, got: AsyncLease | Refusal | None) -> None:
        """Interrupted on the last steps back to our caller: nobody will release what nobody got (R11)."""
        if isinstance(got, AsyncLease) and self._left(got, self._entries()):
            self._masters._post(self._release_of(got))  # noqa: SLF001

    def _keep(self, lease: AsyncLease) -> None:
        self._masters._keep(self._keeping_of(lease))  # noqa: SLF001

    async def release(self) -> None:
        """Give the lock back, on every master that can be reached.

        It is over when this is called, whatever happens then, a cancellation as well: masters that do not
        answer are owed the release and get it as soon as they do.

        Raises:
            NotHeld: this task does not hold it.
            LockLost: it was no longer ours; somebody else may have had it.
        """
        entries = self._entries()
        await self._give_back(self._held(entries), entries)

    async def _give_back(self, lease: AsyncLease, entries: list[Entry]) -> None:
        last = self._left(lease, entries)
        try:
            ours = await self._masters._run(self._release_of(lease)) if last else not lease.lost  # noqa: SLF001
        except BaseException:
            if not lease._over:  # noqa: SLF001 - interrupted before anything was sent (R11)
                self._masters._post(self._release_of(lease))  # noqa: SLF001
            self._gave_back_so_far(lease)
            raise
        self._gave_back(lease, ours=ours, last=last)

    async def extend(self, ttl: float | None = None) -> AsyncLease:
        """Set the TTL anew, counted from now; it does not add.  None: the lock's TTL.

        Raises:
            NotHeld: this task does not hold it.
            NotExtended: too few masters answered.  The lease is valid for what it had, so this can be
                tried again (after a shorter ``ttl``: for that).
            LockLost: it had ended, or a majority of masters says so now.
        """
        lease = self._held(self._entries())
        self._extended(lease, await self._masters._run(self._extension_of(lease, ttl)))  # noqa: SLF001
        self._keep_what_was_resumed()
        return lease

    # -- looking -------------------------------------------------------------------------------------

    async def locked(self) -> bool:
        """Whether a majority of masters has a holder, whoever it is.  Of several names: of any.

        Raises:
            QuorumUnreachable: too few masters answered to know.
        """
        masters = self._masters
        for name in self._plan.names:
            if self._is_locked(*await masters._run(masters._inspection(name))):  # noqa: SLF001
                return True
        return False

    async def close(self) -> None:
        """Close the masters, if this lock made them for itself."""
        if self._private:
            await self._masters.close()

    # -- async with, and as a decorator --------------------------------------------------------------

    async def __aenter__(self) -> AsyncLease:
        """Acquire; raises `NotAcquired` where `acquire` returns None."""
        outcome = inside = None
        try:
            outcome = await self._try(blocking=True, timeout=None)
            if isinstance(outcome, AsyncLease):
                kind = Body if self._cancel_on_loss else Inside
                inside = kind(outcome, self._entries(), sys._getframe(1))  # noqa: SLF001 - see `_leaving`
                self._goes_in(inside)
                return outcome
        except BaseException:
            self._is_left(inside)
            self._take_back(outcome)
            raise
        raise self._not_acquired(outcome) if outcome.kind == "held" else self._unreachable(outcome)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        closed = kind is GeneratorExit
        inside = self._leaving(sys._getframe(1), closed=closed)  # noqa: SLF001 - see there
        self._is_left(inside)
        failed = None
        try:
            held = self._still(inside)
            if not closed:
                await self._give_back(held.lease, held.entries)
            elif self._left(held.lease, held.entries):      # the coroutine is thrown away, and must not wait
                self._masters._post(self._release_of(held.lease))  # noqa: SLF001
                self._gave_back_so_far(held.lease)
        except RedlockError as why:
            failed = why
        if closed:
            return
        if isinstance(inside, Body) and inside.cancelled and inside.task is _this_task() and not await inside.over(error):
            lost = failed if isinstance(failed, LockLost) else inside.lease.loss()
            if failed is not None and failed is not lost:
                lost.add_note(f"besides, {failed.message}")
            raise lost from error
        if failed is None:
            return
        if error is None:
            raise failed
        error.add_note(f"besides, {failed.message}")    # never hide the body's error

    def _goes_in(self, inside: Inside[AsyncLease]) -> None:
        super()._goes_in(inside)
        if isinstance(inside, Body):
            self._masters._bodies.setdefault(_this_task(), []).append(inside)  # noqa: SLF001

    def _is_left(self, inside: Inside[AsyncLease] | None) -> None:
        super()._is_left(inside)
        if isinstance(inside, Body) and inside.task is not None:
            bodies = self._masters._bodies.get(inside.task, [])  # noqa: SLF001
            if inside in bodies:
                bodies.remove(inside)

    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        """As a decorator: every call of the coroutine function holds the lock, or of an object whose ``__call__`` is one."""
        decorated.check(function)
        if not decorated.runs_as(function, introspection.iscoroutinefunction):
            raise ConfigurationError(
                f"{decorated.shown(function)} is no coroutine function: "
                "only what is awaited as a whole can run under an AsyncMultiLock"
            )

        @functools.wraps(function)
        async def locked(*args: P.args, **kwargs: P.kwargs) -> R:
            async with self:
                return await function(*args, **kwargs)

        return locked


def _is_alive(reference: weakref.ref[asyncio.Task[Any]]) -> bool:
    task = reference()
    return task is not None and not task.done()


def _tell(
    on_lost: Callable[[AsyncLease], object] | None,
    bodies: Bodies,     # of all locks of these masters
    cancel: bool,
    lease: AsyncLease,
    reference: weakref.ref[asyncio.Task[Any]],
) -> None:
    """On the loop: the lease is lost."""
    task = reference()
    for body in reversed(bodies.get(task, ()) if task is not None else ()):
        if body.lease is lease and cancel:
            body.lost()     # the innermost: its `LockLost` goes on through those around it
            break
    if on_lost is None:
        return
    told = on_lost(lease)
    if introspection.iscoroutine(told):
        telling = asyncio.get_running_loop().create_task(told)
        _TELLING.add(telling)       # a loop itself holds its tasks by weak references
        telling.add_done_callback(_has_told)


def _has_told(telling: asyncio.Task[Any]) -> None:
    _TELLING.discard(telling)
    if not telling.cancelled() and (error := telling.exception()) is not None:
        report_failure("on_lost failed", error)


_TELLING: set[asyncio.Task[Any]] = set()


def _this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - whatever awaits us is one
    return task
