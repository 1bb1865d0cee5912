"""The body of a term, for asyncio: it is cancelled when the term is lost, and when the election is stopped (R31).

It runs in the task that asked for the term, and that cancellation ends at the term.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from typing import TYPE_CHECKING

from redlock._lock.election import Running, only_says_over
from redlock._lock.holds_async import Cancelling, this_task

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redlock._core.stop import Stop
    from redlock._lock.election_async import AsyncTerm


class TermBody(Cancelling):
    """The body of a term, cancelled once it should end."""

    __slots__ = ("_loop", "_over", "_stop", "_term")

    def __init__(self, stop: Stop, term: AsyncTerm) -> None:
        self.start_body()
        self._loop = asyncio.get_running_loop()
        self._stop = stop
        self._term = term
        self._over = False

    def start(self) -> None:
        self._stop.subscribe(self, self._wake)
        self._check_term()

    async def finish(self, error: BaseException | None) -> bool:
        """The body ended with ``error``. True if the error goes on: it was not caused by the end of the term."""
        self._stop.unsubscribe(self)
        self._over = True
        if self.cancelled:
            if isinstance(error, GeneratorExit):
                self.uncancel()
            elif self.is_ours and not await self.finish_body(error):
                return False
        return error is not None and not only_says_over(error, self._term)

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._check_term)

    def _check_term(self) -> None:
        term = self._term
        if not self._over and not self.cancelled and term.should_stop:
            why = "was lost" if term.lost else "ends: the election was stopped"
            self.cancel_body(f"term {term.number} of {term.name!r} {why}")


def say_at_once(running: Running) -> None:
    """Call `on_stopped`, if a body was begun.  It cannot be awaited."""
    term, running.begun = running.begun, None
    if running.on_stopped is not None and term is not None and running.here():
        answer = running.on_stopped(term)
        if inspect.iscoroutine(answer):
            answer.close()


def passes(error: BaseException, before: int) -> bool:
    """Whether ``error`` of a body may pass.  A cancellation of something inside of the body may, too.

    ``before``: how often our own task was to be cancelled when the run began.  If it is now, nothing passes.
    """
    return this_task().cancelling() <= before and isinstance(error, Exception | asyncio.CancelledError)


def obedient(lead: Callable[[AsyncTerm], Awaitable[object]], before: int) -> Callable[[AsyncTerm], Awaitable[object]]:
    """``lead``; if it has swallowed a cancellation of its task, that is raised at its end, and ends the run (C13).

    A body that is cancelled because its term has ended may swallow that; it is taken back where the body ends.
    """

    async def body(term: AsyncTerm) -> None:
        try:
            await lead(term)
        except GeneratorExit as error:
            error.of_body = True  # type: ignore[attr-defined]  # a run that is thrown away sees another one
            raise
        if this_task().cancelling() > before:
            raise asyncio.CancelledError

    return body
