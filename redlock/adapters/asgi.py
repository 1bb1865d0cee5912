"""A leader in a web application on asyncio, for as long as its lifespan lasts: FastAPI, Starlette and others.

It knows no framework, and needs no extra.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

from redlock import ConfigurationError, RedlockError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from redlock import AsyncElection, AsyncTerm

__all__ = ["leading"]

_log = logging.getLogger("redlock")
_AGAIN = 30.0  # seconds between campaigns that fail at once


@contextlib.asynccontextmanager
async def leading(
    election: AsyncElection, lead: Callable[[AsyncTerm], Awaitable[object]], **options: Any
) -> AsyncIterator[None]:
    """Be a candidate while the ``async with`` lasts: ``lead(term)`` is awaited in a task of its own in each term.

    At the end the election is stopped, ``lead`` is cancelled and awaited, and the lock is given back at once: the next
    leader does not wait for a TTL.  If ``lead`` ignores the cancellation, the end waits for it, and the lock is kept.
    Signals are left alone, for they belong to the server.

    What ``lead`` raises is logged, and does not reach the application: the next campaign begins after a growing random
    pause of up to 30 s (``on_error="retry"``).  Where no campaign is possible (a wrong password on a majority of the
    masters), that is logged every 30 s, and tried again.

    Args:
        election: a new one; after the end it has stopped for good.
        lead: the body of each term, a coroutine function, as for `AsyncElection.run`.
        options: ``on_stopped`` and ``on_new_leader``, as for `AsyncElection.run`.

    Raises:
        ConfigurationError: at the beginning: an argument cannot be right.
    """
    ended = asyncio.Event()
    task = asyncio.create_task(_campaigns(election, lead, options, ended), name=f"redlock-leader {election.name}")
    try:
        await asyncio.sleep(0)  # now the task has checked the arguments
        if task.done():
            await task
        yield
    finally:
        ended.set()
        election.stop()
        await task


async def _campaigns(
    election: AsyncElection,
    lead: Callable[[AsyncTerm], Awaitable[object]],
    options: dict[str, Any],
    ended: asyncio.Event,
) -> None:
    while not ended.is_set():
        try:
            await election.run(lead, signals=(), on_error="retry", **options)
        except ConfigurationError:
            raise
        except RedlockError:
            _log.exception("no campaign for %r is possible; trying again in %g s", election.name, _AGAIN)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN):
                    await ended.wait()
        else:
            return  # it was stopped; or ``lead`` has forked, and this is the child
