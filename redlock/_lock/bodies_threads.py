"""The body of a term, for threads: it has to look at the term itself (R31)."""

from __future__ import annotations

import contextlib
import math
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from redlock import _clock, options
from redlock._lock.election import is_end

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.stop import Stop
    from redlock._lock.election_threads import Term

# A wait is cut into chunks of this many seconds: the clock of a queue stands still while the machine sleeps (R5).
_CHUNK = 1.0


class TermBody:
    """The body of a term.  Nothing can end it from outside."""

    __slots__ = ("_term",)

    def __init__(self, stop: Stop, term: Term) -> None:  # noqa: ARG002 - that of asyncio is cancelled by it
        self._term = term

    def begins(self) -> None:
        """Nothing watches it."""

    def end(self, error: BaseException | None) -> bool:
        """The body ended with ``error``.  True if that goes on: it is no effect of the end of the term."""
        return error is not None and not is_end(error, self._term)


def wait_until(
    stop: Stop, done: Callable[[], bool], timeout: float | None, most: Callable[[], float] = lambda: _CHUNK
) -> bool:
    """Wait until ``done``, for ``timeout`` seconds at most, and look again after ``most`` of them."""
    until = math.inf if timeout is None else _clock.now() + options.patience("timeout", timeout)
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
