# Made from redlock/_lock/election_async.py by tools/unasync.py: change that file, then run `make faces`.
"""Elections, for threads (R31)."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, Literal, Self

from redlock._core.election import Campaign, Lead, Pause, Resign, SayStopped, Step, unfinished
from redlock._core.stop import Stopped
from redlock._lock import decorated
from redlock._lock.election import Candidate, ElectionBase, Running, Steps, TermBase, advance, only_says_over
from redlock._lock.holds import Entered, ExitMethod, beginning
from redlock._lock.lease_threads import Lease, wait_until
from redlock._lock.lock_threads import MultiLock
from redlock._lock.masters_threads import Masters
from redlock._lock.signals import Signals
from redlock.errors import LockLost, NotHeld

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from redlock._core.inspect import LockStatus


class ThreadCandidate(Candidate[Masters, Lease], MultiLock):
    """The lock of an `Election`."""


class Term(TermBase[ThreadCandidate, Lease]):
    __doc__ = TermBase.__doc__

    def wait_lost(self, timeout: float | None = None) -> bool:
        """Wait until the term is lost or ends, ``timeout`` seconds at most (None: no limit).  True if it is lost."""
        return self._lease.wait_lost(timeout)

    def wait_stop(self, timeout: float | None = None) -> bool:
        """Sleep for ``timeout`` seconds (None: no limit), and no longer than the body may go on.  True: it should end.

        A body of asyncio is cancelled in that moment by itself.
        """
        return wait_until(self._stop, lambda: self.should_stop, timeout, self._lease.remaining)

    def __enter__(self) -> Self:
        """Begin the body.

        Raises:
            RedlockError: it has begun before, or the term has ended because its loop was left.
        """
        self._begin_body(beginning(self))
        return self

    def _exit(
        self, entered: Entered, kind: type[BaseException] | None, error: BaseException | None, _trace: object
    ) -> bool:
        """The body has ended: give the lock back.  An error that says only that the term has ended is swallowed."""
        try:
            try:
                goes_on = self._finish_body(error)
            finally:
                failed = _released(self._candidate)
        finally:
            entered.anchor = None  # else a kept exception would keep this frame, and so the hold
        if failed is not None:
            if not goes_on or not isinstance(failed, Exception):  # neither a cancellation nor a Ctrl-C is a note
                raise failed
            error.add_note(f"besides, {failed}")  # type: ignore[union-attr]
        return not goes_on

    if TYPE_CHECKING:

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> bool: ...

    else:
        __exit__ = ExitMethod(_exit)

    def _finish_body(self, error: BaseException | None) -> bool:
        """The body ended with ``error``. True if the error goes on: it was not caused by the end of the term.

        A second time does no harm: an exception may have struck the first one.
        """
        return error is not None and not only_says_over(error, self)


class Election(ElectionBase[Masters, ThreadCandidate, Term]):
    __doc__ = ElectionBase.__doc__

    _candidate_class = ThreadCandidate
    _on_new_leader: Callable[[str], object] | None = None

    def terms(self) -> Iterator[Term]:
        """Wait to be elected, again after each term, until `stop`::

            for term in election.terms():
                with term:
                    while not term.should_stop:
                        work(fence=term.number)
                        term.wait_stop(1.0)

        The body is the ``with``: the lock is given back at its end.  When the term is lost or the election is
        stopped, asyncio cancels the body, and a thread has to look; nothing is raised then.  Another exception of the
        body ends the loop, and so does a fork in the child.  A term that was not entered ends when its loop is left.

        Raises:
            QuorumUnreachable: no majority is left without the masters that refuse for a reason that waiting cannot cure
                (a wrong password).  It waits through other outages.
            WouldDeadlock: this thread holds the lock of that name, or leads in another election of it.
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
                    result = self._perform(running, step)
        finally:
            self._end_run(running)
        if error is not None:
            raise error

    def run(
        self,
        lead: Callable[[Term], object],
        on_stopped: Callable[[Term], object] | None = None,
        on_new_leader: Callable[[str], object] | None = None,
        signals: Iterable[int] = (signal.SIGTERM, signal.SIGINT),
        on_error: Literal["raise", "retry"] = "raise",
    ) -> None:
        """Call ``lead(term)`` in each term, until `stop` or one of ``signals``.

        ``lead`` should end when its term is lost, and when the election is stopped.  asyncio cancels it then; a thread
        has to look at `Term.should_stop`, or sleep in `Term.wait_stop`.  If it goes on, it may meet the next
        leader; its fence, `Term.number`, protects from that.  When it has ended, the next campaign begins.

        Args:
            lead: the body of each term, a function.
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
                self._run(Running(lead, on_stopped), on_new_leader, on_error)
        finally:
            handlers.restore()  # again: an exception may have struck the end of the `with`

    def _run(self, running: Running, on_new_leader: Callable[[str], object] | None, on_error: str) -> None:
        try:
            steps = self._begin_run(running, on_error)
            self._on_new_leader = on_new_leader
            try:
                error = self._carry_out(running, steps)
            except BaseException as interruption:  # noqa: BLE001 - raised at the end
                error = self._carry_out(running, unfinished(running, interruption))
        finally:
            self._end_run(running)
        if error is not None:
            raise error

    def _carry_out(self, running: Running, steps: Steps) -> BaseException | None:
        result: Any = None
        while True:
            step, error = advance(steps, result)
            if step is None:
                return error
            if isinstance(step, Lead):
                result = self._lead(running, step.term)
            elif isinstance(step, SayStopped):
                result = self._say_stopped(running, step.term)
            else:
                result = self._perform(running, step)

    def _lead(self, running: Running, term: Term) -> BaseException | None:
        error: BaseException | None = None
        term._begin_body()  # noqa: SLF001 - the two are one module
        try:
            running.begun = term
            running.lead(term)
        except BaseException as raised:  # noqa: BLE001 - raised at the end of the run
            error = raised
        return None if only_says_over(error, term) else error

    def _say_stopped(self, running: Running, term: Term) -> BaseException | None:
        if running.on_stopped is None or running.begun is None or not running.here():
            return None
        running.begun = None
        try:
            running.on_stopped(term)
        except BaseException as error:  # noqa: BLE001 - raised at the end of the run
            return None if only_says_over(error, term) else error
        return None

    def status(self) -> LockStatus:
        """Who leads now (`LockStatus.owner`), and for how many seconds yet.

        A look, which may be stale.  `LockStatus.fence` is the number of the term, or greater: a candidate that was
        refused may have left its own at a master that was late.

        Raises:
            QuorumUnreachable: too few masters answered to know.
        """
        return self._masters.status(self._name)

    def observe(self) -> Iterator[LockStatus]:
        """Who leads, now and whenever that changes (`LockStatus.owner`): `Masters.watch` of this election's name.

        The caller need not be a candidate.
        """
        return self._masters.watch(self._name)

    def _check_lead(self, lead: object) -> None:
        decorated.check_called(lead, "an AsyncElection")

    def _say_leader(self, owner: str) -> None:
        if self._on_new_leader is not None:
            self._on_new_leader(owner)

    def _perform(self, running: Running, step: Step) -> Term | BaseException | None:
        if isinstance(step, Campaign):
            return self._campaign(running) if running.here() else None
        if isinstance(step, Resign):
            error = _released(running.stands)
            running.stands = None if error is None else running.stands
            return error
        if isinstance(step, Pause):
            self._report(step)
            wait_until(self._stop, self._stop.requested, step.seconds)
        return None

    def _campaign(self, running: Running) -> Term | None:
        running.stands = candidate = self._candidate()
        try:
            lease = candidate.acquire()
        except Stopped:
            return None
        assert lease is not None  # noqa: S101 - it waits for ever
        return self._elected(Term(self._stop, candidate, lease))


def _released(candidate: ThreadCandidate | None) -> BaseException | None:
    """Give the lock back, unless that was done. Returns an error; a lost lease is none."""
    try:
        if candidate is not None:
            candidate.release()
    except (LockLost, NotHeld):  # lost, given back before, or a forked child has come here
        return None
    except BaseException as error:  # noqa: BLE001 - returned
        return error
    return None
