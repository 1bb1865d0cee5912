"""Waits of tasks for what changes in another place: a lease, a term, an election."""

from __future__ import annotations

import asyncio
import contextlib
import math

# > from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from redlock import options
from redlock._system import clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.stop import Watchers


async def wait_until(
    watchers: Watchers,
    done: Callable[[], bool],
    timeout: float | None,  # noqa: ASYNC109 - as for threads
    most: Callable[[], float] = lambda: clock.NAP,
) -> bool:
    """Wait until ``done``, for ``timeout`` seconds at most, and look again after ``most`` of them."""
    until = math.inf if timeout is None else clock.now() + options.patience("timeout", timeout)
    # asyncio only
    loop = asyncio.get_running_loop()
    woken = asyncio.Event()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(woken.set)

    watchers.subscribe(woken, wake)
    # threads instead
    # > woken: SimpleQueue[None] = SimpleQueue()  # a signal handler may put into it
    # > watchers.subscribe(woken, lambda: woken.put(None))
    # both again
    try:
        while not done():
            left = until - clock.now()
            if left <= 0:
                return False
            pause = max(0.0, min(left, most(), clock.NAP))
            # asyncio only
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await woken.wait()
            woken.clear()
            # threads instead
            # > with contextlib.suppress(Empty):
            # >     woken.get(timeout=pause)
            # both again
        return True
    finally:
        watchers.unsubscribe(woken)
