"""Elections, for asyncio (R31)."""

from __future__ import annotations

import asyncio
import inspect
import signal
from typing import TYPE_CHECKING, Any, Literal, Self

from redlock._core.election import Campaign, Lead, Pause, Resign, SayStopped, Step, unfinished
from redlock._core.stop import Stopped
from redlock._lock import decorated
from redlock._lock.bodies_async import TermBody, obedient, passes, say_at_once
from redlock._lock.election import Candidate, ElectionBase, Running, Steps, TermBase, advance, only_says_over
from redlock._lock.holds import Entered, ExitMethod, beginning
from redlock._lock.holds_async import call, this_task
from redlock._lock.lease_async import AsyncLease, wait_until
from redlock._lock.lock_async import AsyncMultiLock
from redlock._lock.masters_async import AsyncMasters
from redlock._lock.signals import Signals
from redlock.errors import LockLost, NotHeld

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
    from types import TracebackType

    from redlock._core.inspect import LockStatus


class TaskCandidate(Candidate[AsyncMasters, AsyncLease], AsyncMultiLock):
    """The lock of an `AsyncElection`."""


class AsyncTerm(TermBase[TaskCandidate, AsyncLease]):
    __doc__ = TermBase.__doc__

    _body: TermBody | None = None  # asyncio only

    async def wait_lost(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - as for threads
        """Wait until the term is lost or ends, ``timeout`` seconds at most (None: no limit).  True if it is lost."""
        return await self._lease.wait_lost(timeout)

    async def wait_stop(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - as for threads
        """Sleep for ``timeout`` seconds (None: no limit), and no longer than the body may go on.  True: it should end.

        A body of asyncio is cancelled in that moment by itself.
        """
        return await wait_until(self._stop, lambda: self.should_stop, timeout, self._lease.remaining)

    async def __aenter__(self) -> Self:
        """Begin the body.

        Raises:
            RedlockError: it has begun before, or the term has ended because its loop was left.
        """
        self._begin_body(beginning(self))
        # asyncio only
        self._body = TermBody(self._stop, self)
        self._body.start()
        # both again
        return self

    async def _exit(
        self, entered: Entered, kind: type[BaseException] | None, error: BaseException | None, _trace: object
    ) -> bool:
        """The body has ended: give the lock back.  An error that says only that the term has ended is swallowed."""
        try:
            try:
                goes_on = await self._finish_body(error)
            finally:
                # asyncio only
                # A coroutine that is thrown away must not wait: the renewer gives the lock back.
                failed = None if kind is GeneratorExit else await _released(self._candidate)
                # threads instead
                # > failed = _released(self._candidate)
                # both again
        finally:
            entered.anchor = None  # else a kept exception would keep this frame, and so the hold
        if failed is not None:
            if not goes_on or not isinstance(failed, Exception):  # neither a cancellation nor a Ctrl-C is a note
                raise failed
            error.add_note(f"besides, {failed}")  # type: ignore[union-attr]
        return not goes_on

    if TYPE_CHECKING:

        async def __aexit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> bool: ...

    else:
        __aexit__ = ExitMethod(_exit)

    async def _finish_body(self, error: BaseException | None) -> bool:
        """The body ended with ``error``. True if the error goes on: it was not caused by the end of the term.

        A second time does no harm: an exception may have struck the first one.
        """
        # asyncio only
        goes_on = error is not None if self._body is None else await self._body.finish(error)
        self._body = None
        return goes_on
        # threads instead
        # > return error is not None and not only_says_over(error, self)
        # both again


class AsyncElection(ElectionBase[AsyncMasters, TaskCandidate, AsyncTerm]):
    __doc__ = ElectionBase.__doc__

    _candidate_class = TaskCandidate
    _on_new_leader: Callable[[str], object] | None = None

    async def terms(self) -> AsyncIterator[AsyncTerm]:
        """Wait to be elected, again after each term, until `stop`::

            async for term in election.terms():
                async with term:
                    while not term.should_stop:
                        await work(fence=term.number)
                        await term.wait_stop(1.0)

        The body is the ``async with``: the lock is given back at its end.  When the term is lost or the election is
        stopped, asyncio cancels the body, and a thread has to look; nothing is raised then.  Another exception of the
        body ends the loop, and so does a fork in the child.  A term that was not entered ends when its loop is left.

        Raises:
            QuorumUnreachable: no majority is left without the masters that refuse for a reason that waiting cannot cure
                (a wrong password).  It waits through other outages.
            WouldDeadlock: this task holds the lock of that name, or leads in another election of it.
            RedlockError: the masters were closed, or this object is in use already.
        """
        running = Running()
        try:
            steps = self._begin_run(running)
            result: Any = None
            while True:
                step, error = advance(steps, result)
                if step is None:
                    break
                if isinstance(step, Lead):
                    yield step.term
                    result = None
                else:
                    result = await self._perform(running, step)
        finally:
            self._end_run(running)
        if error is not None:
            raise error

    async def run(
        self,
        lead: Callable[[AsyncTerm], Awaitable[object]],
        on_stopped: Callable[[AsyncTerm], object] | None = None,
        on_new_leader: Callable[[str], object] | None = None,
        signals: Iterable[int] = (signal.SIGTERM, signal.SIGINT),
        on_error: Literal["raise", "retry"] = "raise",
    ) -> None:
        """Call ``lead(term)`` in each term, until `stop` or one of ``signals``.

        ``lead`` should end when its term is lost, and when the election is stopped.  asyncio cancels it then; a thread
        has to look at `AsyncTerm.should_stop`, or sleep in `AsyncTerm.wait_stop`.  If it goes on, it may meet the next
        leader; its fence, `AsyncTerm.number`, protects from that.  When it has ended, the next campaign begins.

        Args:
            lead: the body of each term, a coroutine function.
            on_stopped: called with the term, once for each ``lead`` that was begun, when that has ended.  If the term
                was not lost, it is still valid.  With asyncio it may be asynchronous, and is awaited.
            on_new_leader: called with the owner (R27) of another leader that was seen.  Terms may be missed.  It must
                not block, nor use these masters.  With asyncio it may be asynchronous, and is not awaited.
            signals: they stop the election, if this is the main thread.  A second signal does what it did before.
            on_error: ``"raise"`` ends the election with what ``lead`` raised.  ``"retry"`` logs it, gives the lock
                back, and campaigns again after a growing random pause of up to 30 s.

        Raises:
            QuorumUnreachable, WouldDeadlock, RedlockError: as `terms`.
            ConfigurationError: an argument cannot be right.
        """
        self._check(lead, on_stopped, on_new_leader)
        handlers = Signals(signals, self.stop)
        try:
            with handlers:
                await self._run(Running(lead, on_stopped), on_new_leader, on_error)
        finally:
            handlers.restore()  # again: an exception may have struck the end of the `with`

    async def _run(self, running: Running, on_new_leader: Callable[[str], object] | None, on_error: str) -> None:
        # asyncio only
        before = this_task().cancelling()
        running.lead = obedient(running.lead, before)
        # both again
        try:
            # asyncio only
            steps = self._begin_run(running, on_error, lambda error: passes(error, before))
            # threads instead
            # > steps = self._begin_run(running, on_error)
            # both again
            self._on_new_leader = on_new_leader
            try:
                error = await self._carry_out(running, steps)
            # asyncio only
            except GeneratorExit:  # the coroutine is thrown away, and must not wait
                say_at_once(running)
                raise
            # both again
            except BaseException as interruption:  # noqa: BLE001 - raised at the end
                error = await self._carry_out(running, unfinished(running, interruption))
        finally:
            self._end_run(running)
        if error is not None:
            raise error

    async def _carry_out(self, running: Running, steps: Steps) -> BaseException | None:
        result: Any = None
        while True:
            step, error = advance(steps, result)
            if step is None:
                return error
            if isinstance(step, Lead):
                result = await self._lead(running, step.term)
            elif isinstance(step, SayStopped):
                result = await self._say_stopped(running, step.term)
            else:
                result = await self._perform(running, step)

    async def _lead(self, running: Running, term: AsyncTerm) -> BaseException | None:
        error: BaseException | None = None
        term._begin_body()  # noqa: SLF001 - the two are one module
        term._body = body = TermBody(self._stop, term)  # noqa: SLF001  # asyncio only
        try:
            body.start()  # asyncio only
            running.begun = term
            await running.lead(term)
        # asyncio only
        except GeneratorExit as thrown_away:
            if not hasattr(thrown_away, "of_body"):
                await body.finish(thrown_away)  # without a wait: the coroutine must not wait
                raise
            error = thrown_away
        # both again
        except BaseException as raised:  # noqa: BLE001 - raised at the end of the run
            error = raised
        # asyncio only
        try:
            return error if await body.finish(error) else None
        except asyncio.CancelledError as late:
            return late
        # threads instead
        # > return None if only_says_over(error, term) else error
        # both again

    async def _say_stopped(self, running: Running, term: AsyncTerm) -> BaseException | None:
        # It has ended, unless an exception struck right behind it.  # asyncio only
        await term._finish_body(None)  # noqa: SLF001  # asyncio only
        if running.on_stopped is None or running.begun is None or not running.here():
            return None
        running.begun = None
        try:
            # asyncio only
            answer = running.on_stopped(term)
            if inspect.isawaitable(answer):
                await answer
        except GeneratorExit:
            raise
            # threads instead
            # > running.on_stopped(term)
        # both again
        except BaseException as error:  # noqa: BLE001 - raised at the end of the run
            return None if only_says_over(error, term) else error
        return None

    async def status(self) -> LockStatus:
        """Who leads now (`LockStatus.owner`), and for how many seconds yet.

        A look, which may be stale.  `LockStatus.fence` is the number of the term, or greater: a candidate that was
        refused may have left its own at a master that was late.

        Raises:
            QuorumUnreachable: too few masters answered to know.
        """
        return await self._masters.status(self._name)

    def observe(self) -> AsyncIterator[LockStatus]:
        """Who leads, now and whenever that changes (`LockStatus.owner`): `AsyncMasters.watch` of this election's name.

        The caller need not be a candidate.
        """
        return self._masters.watch(self._name)

    def _check_lead(self, lead: object) -> None:
        decorated.check_awaited(lead)  # > decorated.check_called(lead, "an AsyncElection")

    def _say_leader(self, owner: str) -> None:
        if self._on_new_leader is not None:
            call(self._on_new_leader, owner, "on_new_leader")  # > self._on_new_leader(owner)

    async def _perform(self, running: Running, step: Step) -> AsyncTerm | BaseException | None:
        if isinstance(step, Campaign):
            return await self._campaign(running) if running.here() else None
        if isinstance(step, Resign):
            error = await _released(running.stands)
            running.stands = None if error is None else running.stands
            return error
        if isinstance(step, Pause):
            self._report(step)
            await wait_until(self._stop, self._stop.requested, step.seconds)
        return None

    async def _campaign(self, running: Running) -> AsyncTerm | None:
        running.stands = candidate = self._candidate()
        try:
            lease = await candidate.acquire()
        except Stopped:
            return None
        assert lease is not None  # noqa: S101 - it waits for ever
        return self._elected(AsyncTerm(self._stop, candidate, lease))


async def _released(candidate: TaskCandidate | None) -> BaseException | None:
    """Give the lock back, unless that was done. Returns an error; a lost lease is none."""
    try:
        if candidate is not None:
            await candidate.release()
    except (LockLost, NotHeld):  # lost, given back before, or a forked child has come here
        return None
    except GeneratorExit:  # asyncio only
        raise  # asyncio only
    except BaseException as error:  # noqa: BLE001 - returned
        return error
    return None
