"""Elections, for threads (R31)."""

from __future__ import annotations

import contextlib
import math
import signal
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from redlock import _clock
from redlock._base import decorated
from redlock._base.election import Candidate, ElectionBase, TermBase, advance, is_end
from redlock._base.signals import Signals
from redlock._core.election import Campaign, Lead, Pause, Resign, SayStopped
from redlock._core.stop import Stopped
from redlock._threads.lease import Lease
from redlock._threads.lock import MultiLock
from redlock._threads.masters import Masters
from redlock.errors import LockLost, NotHeld

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType
    from typing import Literal, Self

    from redlock._core.election import Step
    from redlock._core.inspect import LockStatus
    from redlock._core.stop import Stop

# A wait is cut into chunks of so many seconds: the clock of a queue stands still while the machine sleeps (R5).
_CHUNK = 1.0


class ThreadCandidate(Candidate[Masters, Lease], MultiLock):
    """The lock of an `Election`."""


class Term(TermBase[ThreadCandidate, Lease]):
    __doc__ = TermBase.__doc__

    def wait_lost(self, timeout: float | None = None) -> bool:
        """Wait until the term is lost.  True if it is; False if it ended otherwise, or ``timeout`` has passed.

        Args:
            timeout: seconds; None: no limit.
        """
        return self._lease.wait_lost(timeout)

    def wait_stop(self, timeout: float | None = None) -> bool:
        """Sleep for ``timeout`` seconds, and no longer than the body may go on.  True if it should end now.

        Args:
            timeout: seconds; None: no limit.
        """
        return _wait(self._stop, lambda: self.should_stop, timeout, self._lease.remaining)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """The body has ended: give the lock back.  What only says that the term is over is raised no further."""
        failed = self._resign()
        ends = error is None or is_end(error, self)
        if failed is not None:
            if ends or not isinstance(failed, Exception):  # a Ctrl-C is never a note
                raise failed
            error.add_note(f"besides, {failed}")  # type: ignore[union-attr]
        return ends

    def _resign(self) -> BaseException | None:
        """Give the lock back, unless that was done.  Returns what is wrong; a lost lease is not."""
        if self._over:
            return None
        self._over = True
        try:
            self._candidate.release()
        except (LockLost, NotHeld):  # lost, or a forked child has come here
            return None
        except BaseException as error:  # noqa: BLE001 - returned
            return error
        return None


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

        The body is the ``with``: the lock is given back at its end.  A term that is lost raises nothing there.  An
        exception of the body ends the loop.  In a process that the body has forked the loop ends as well.

        Raises:
            QuorumUnreachable: so many masters refuse for a reason that waiting cannot cure (a wrong password) that no
                majority is left.  Other outages are waited for.
            RedlockError: the masters were closed, or this object is in use already.
        """
        steps = self._begin()
        try:
            result: Any = None
            while True:
                step, error = advance(steps, result)
                if step is None:
                    break
                if isinstance(step, Lead):
                    yield step.term
                    result = None
                else:
                    result = self._perform(step)
        finally:
            self._end()
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

        ``lead`` runs in this thread, and nothing can end it from outside: it should look at `Term.should_stop`, or
        sleep in `Term.wait_stop`.  If it goes on after its term was lost, another one leads beside it; its fence,
        `Term.number`, is what protects from that.  When it returns, the lock is given back, and the next campaign
        begins.

        Args:
            lead: the body of each term.
            on_stopped: called with the term, once for each ``lead`` that was begun, when that has ended.  If the term
                was not lost, it is still valid.
            on_new_leader: called with the owner (R27) of another leader that was seen.  That is a look, which may be
                stale, and terms may be missed.  It must not block, nor use these masters.
            signals: they stop the election, if this is the main thread.  A second signal does what it did before.
            on_error: ``"raise"`` ends the election with what ``lead`` raised.  ``"retry"`` logs it, gives the lock
                back, and campaigns again after a growing random pause of up to 30 s.

        Raises:
            QuorumUnreachable, RedlockError: as `terms`.
            ConfigurationError: an argument cannot be right.
        """
        for function in (lead, on_stopped, on_new_leader):
            if function is not None:
                decorated.check_called(function, "an AsyncElection")
        with Signals(signals, self.stop):
            steps = self._begin(on_error)
            self._on_new_leader = on_new_leader
            try:
                result: Any = None
                while True:
                    step, error = advance(steps, result)
                    if step is None:
                        break
                    if isinstance(step, Lead):
                        result = _raised_by(lead, step.term)
                    elif isinstance(step, SayStopped):
                        result = None if on_stopped is None or self._forked else _raised_by(on_stopped, step.term)
                    else:
                        result = self._perform(step)
            finally:
                self._end()
            if error is not None:
                raise error

    def status(self) -> LockStatus:
        """Who leads now (`LockStatus.owner`), and for how many seconds yet.

        A look, which may be stale.  `LockStatus.fence` is the number of the term, or greater: a candidate that was
        refused may have left its own at a master that was late.

        Raises:
            QuorumUnreachable: too few masters answered to know.
        """
        return self._masters.status(self._name)

    def _say_leader(self, owner: str) -> None:
        if self._on_new_leader is not None:
            self._on_new_leader(owner)

    def _perform(self, step: Step) -> Term | BaseException | None:
        if isinstance(step, Campaign):
            return None if self._forked else self._campaign()
        if isinstance(step, Resign):
            return _raised_by(_leave, step.term)
        if isinstance(step, Pause):
            self._report(step)
            _wait(self._stop, self._stop.requested, step.seconds)
        return None

    def _campaign(self) -> Term | None:
        candidate: ThreadCandidate = self._candidate()
        try:
            lease = candidate.acquire()
        except Stopped:
            return None
        assert lease is not None  # noqa: S101 - it waits for ever
        return self._elected(Term(self._stop, candidate, lease))


def _leave(term: Term) -> None:
    with term:  # the end of it gives the lock back
        pass


def _raised_by(function: Callable[[Term], object], term: Term) -> BaseException | None:
    try:
        function(term)
    except BaseException as error:  # noqa: BLE001 - raised at the end of the run
        return None if is_end(error, term) else error
    return None


def _wait(
    stop: Stop, done: Callable[[], bool], timeout: float | None, most: Callable[[], float] = lambda: _CHUNK
) -> bool:
    """Wait until ``done``, for ``timeout`` seconds at most, and look again after ``most`` of them."""
    until = math.inf if timeout is None else _clock.now() + timeout
    woken: SimpleQueue[None] = SimpleQueue()  # a signal handler may put into it
    stop.wakes(woken, lambda: woken.put(None))
    try:
        while not done():
            left = until - _clock.now()
            if left <= 0:
                return False
            with contextlib.suppress(Empty):
                woken.get(timeout=max(0.0, min(left, most(), _CHUNK)))
        return True
    finally:
        stop.forget(woken)
