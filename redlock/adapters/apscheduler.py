"""APScheduler 3: the scheduler runs where the leader is.  Needs the extra ``apscheduler``.

The body of a term is the scheduler and its jobs.  It begins with the start of the scheduler, or with its `resume`.  It
ends when the scheduler is paused and the last job that it had begun has ended: so R31 keeps the lock until then, and a
job never meets a job of the next leader unless its term was lost.

Private state of APScheduler is read from where version 3 keeps it: `_process_jobs`, which every scheduler
calls when jobs may be due, the stores of jobs, and how many jobs each executor has running.
"""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from redlock import ConfigurationError

try:
    from apscheduler.jobstores.memory import MemoryJobStore
    from apscheduler.schedulers.asyncio import AsyncIOScheduler
    from apscheduler.schedulers.background import BackgroundScheduler
except ImportError as error:
    raise ImportError(
        "redlock.adapters.apscheduler needs APScheduler 3: pip install 'apscheduler<4'",
        name="apscheduler",
    ) from error

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from redlock import AsyncTerm, Term

__all__ = ["AsyncWhileLeading", "WhileLeading"]

_LOOK = 0.05  # seconds between two looks whether a job still runs


class _Led:
    """A scheduler that processes jobs during a term only."""

    _allowed: tuple[type[Any], ...]

    def __init__(self, scheduler: Any) -> None:
        if not isinstance(scheduler, self._allowed):
            allowed = " or ".join(one.__name__ for one in self._allowed)
            raise ConfigurationError(f"scheduler is a {type(scheduler).__name__}: allowed is a {allowed}")
        if "_process_jobs" in vars(scheduler):
            raise ConfigurationError(f"this {type(scheduler).__name__} is led already")
        self._scheduler = scheduler
        self._term: Term | AsyncTerm | None = None
        self._processing = threading.Lock()  # held while jobs are begun
        self._process = scheduler._process_jobs  # noqa: SLF001
        scheduler._process_jobs = self._process_in_term  # noqa: SLF001

    def _process_in_term(self) -> float | None:
        """In place of `_process_jobs`: no job begins after the end of the term, also right after this process was
        frozen, when the scheduler may be the first of its threads to go on.
        """
        with self._processing:
            if self._term is None or not self._term.valid:
                return None  # wait until it is woken, as a paused scheduler does
            seconds: float | None = self._process()
            return seconds

    def _begin(self, term: Term | AsyncTerm) -> None:
        if self._scheduler.running:
            self._scheduler.pause()
            self._skip_missed()
            self._term = term
            self._scheduler.resume()
        else:
            self._term = term
            self._scheduler.start()

    def _pause(self) -> None:
        with self._processing:  # when it has ended, `_busy` knows of each job that it has begun
            self._term = None
        if self._scheduler.running:
            self._scheduler.pause()

    def _skip_missed(self) -> None:
        """Skip runs that were due before the term: the leader of that time may have done them.

        A store in memory does not know that.
        """
        now = datetime.now(self._scheduler.timezone)
        for alias, store in list(self._scheduler._jobstores.items()):  # noqa: SLF001
            for job in self._scheduler.get_jobs(alias) if isinstance(store, MemoryJobStore) else ():
                if job.next_run_time is not None and job.next_run_time < now:
                    due = job.trigger.get_next_fire_time(None, now)
                    if due is None or due < now:
                        job.remove()
                    else:
                        job.modify(next_run_time=due)

    @property
    def _busy(self) -> bool:
        executors = list(self._scheduler._executors.values())  # noqa: SLF001
        return any(count for executor in executors for count in list(executor._instances.values()))  # noqa: SLF001

    def _shut_down(self) -> None:
        if self._scheduler.running:
            self._scheduler.shutdown()

    def _let_go(self) -> None:
        del self._scheduler._process_jobs  # noqa: SLF001 - now the method of its class applies again


class WhileLeading(_Led):
    """The body of an election that runs a `BackgroundScheduler`::

        with WhileLeading(scheduler) as lead:
            election.run(lead)

    Its jobs begin while this process leads, and at no other time.  In the first term the scheduler is started.  When a
    term is lost or the election is stopped, it is paused at once, and each later term resumes it.

    Jobs that run go on: nothing can end them from outside.  The lock is given back, and the next campaign begins, when
    they have ended.  So a job that asks `Election.term` gets the term in which it was begun, or None after its end.

    Jobs in memory begin anew in each term: what was due before is skipped, and a date that has passed is removed.  Jobs
    in a store that the candidates share go on where the leader before left off, and ``misfire_grace_time`` decides
    about those that are late.

    At the end of the ``with`` the scheduler is shut down.

    Raises:
        ConfigurationError: the scheduler is another one, or is led already.
    """

    _allowed = (BackgroundScheduler,)

    def __call__(self, term: Term) -> None:
        try:
            self._begin(term)
            term.wait_stop()
        finally:
            self._pause()
            while self._busy:
                time.sleep(_LOOK)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shut_down()
        self._let_go()


class AsyncWhileLeading(_Led):
    """The body of an asynchronous election that runs an `AsyncIOScheduler`, or a `BackgroundScheduler`::

        async with AsyncWhileLeading(scheduler) as lead:
            await election.run(lead)

    The rest is as for `WhileLeading`.  Coroutines of jobs are not cancelled with the term, but awaited.
    """

    _allowed = (AsyncIOScheduler, BackgroundScheduler)

    async def __call__(self, term: AsyncTerm) -> None:
        try:
            self._begin(term)
            await asyncio.get_running_loop().create_future()  # until it is cancelled
        finally:
            self._pause()
            while self._busy:  # noqa: ASYNC110 - a job does not report its end
                await asyncio.sleep(_LOOK)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shut_down()
        while self._scheduler.running:  # noqa: ASYNC110 - that of asyncio shuts down in a callback of the loop
            await asyncio.sleep(0)
        self._let_go()
