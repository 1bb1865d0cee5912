"""A leader in a web application on asyncio, for as long as its lifespan lasts: FastAPI, Starlette and others.

It knows no framework, and needs no extra.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from redlock import AsyncElection, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from redlock import AsyncTerm

__all__ = ["leading"]

_log = logging.getLogger("redlock")
_AGAIN = 30.0  # seconds between campaigns that fail at once


@contextlib.asynccontextmanager
async def leading(
    election: AsyncElection,
    lead: Callable[[AsyncTerm], Awaitable[object]],
    on_stopped: Callable[[AsyncTerm], object] | None = None,
    on_new_leader: Callable[[str], object] | None = None,
) -> AsyncIterator[None]:
    """Be a candidate while the ``async with`` lasts: ``lead(term)`` is awaited in a task of its own in each term.

    At the end the election is stopped, ``lead`` is cancelled and awaited, and the lock is given back at once: the next
    leader does not wait for a TTL.  If ``lead`` ignores the cancellation, the end waits for it, and the lock is kept.
    Signals are left alone, because they belong to the server.

    What ``lead`` raises is logged, and does not reach the application: the next campaign begins after a growing random
    pause of up to 30 s (``on_error="retry"``).  So is a cancellation from elsewhere: of something that
    ``lead`` awaited.  Where no campaign is possible (a wrong password on a majority of the
    masters), that is logged every 30 s, and tried again.

    Args:
        election: a new one; after the end it has stopped for good.
        lead: the body of each term, a coroutine function, as for `AsyncElection.run`.
        on_stopped: as for `AsyncElection.run`.
        on_new_leader: as for `AsyncElection.run`.

    Raises:
        ConfigurationError: at the beginning: an argument cannot be right.
    """
    if not isinstance(election, AsyncElection):
        raise ConfigurationError(
            f"election is a {type(election).__name__}: allowed is an AsyncElection, of AsyncMasters.leader"
        )
    election._check(lead, on_stopped, on_new_leader)  # noqa: SLF001 - now: in its task it would be lost
    ended = asyncio.Event()
    task = asyncio.create_task(
        _campaigns(election, lead, on_stopped, on_new_leader, ended), name=f"redlock-leader {election.name}"
    )
    try:
        yield
    finally:
        ended.set()
        election.stop()
        await task


async def _campaigns(
    election: AsyncElection,
    lead: Callable[[AsyncTerm], Awaitable[object]],
    on_stopped: Callable[[AsyncTerm], object] | None,
    on_new_leader: Callable[[str], object] | None,
    ended: asyncio.Event,
) -> None:
    while not ended.is_set():
        try:
            await election.run(lead, on_stopped, on_new_leader, signals=(), on_error="retry")
        except asyncio.CancelledError:
            if not ended.is_set():
                _log.warning("the candidate for %r was cancelled, and is out of the election", election.name)
            raise
        except Exception:  # noqa: BLE001 - it would be lost, and the candidate would be gone
            _log.exception("no campaign for %r is possible; trying again in %g s", election.name, _AGAIN)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN):
                    await ended.wait()
        else:
            return  # it was stopped; or ``lead`` has forked, and this is the child
