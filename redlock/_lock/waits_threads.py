# Made from redlock/_lock/waits_async.py by tools/unasync.py: change that file, then run `make faces`.
"""Waits of threads for what changes in another place: a lease, a term, an election."""

from __future__ import annotations

import contextlib
import math
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from redlock import options
from redlock._system import clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.stop import Watchers


def wait_until(
    watchers: Watchers,
    done: Callable[[], bool],
    timeout: float | None,
    most: Callable[[], float] = lambda: clock.NAP,
) -> bool:
    """Wait until ``done``, for ``timeout`` seconds at most, and look again after ``most`` of them."""
    until = math.inf if timeout is None else clock.now() + options.patience("timeout", timeout)
    woken: SimpleQueue[None] = SimpleQueue()  # a signal handler may put into it
    watchers.subscribe(woken, lambda: woken.put(None))
    try:
        while not done():
            left = until - clock.now()
            if left <= 0:
                return False
            pause = max(0.0, min(left, most(), clock.NAP))
            with contextlib.suppress(Empty):
                woken.get(timeout=pause)
        return True
    finally:
        watchers.unsubscribe(woken)
