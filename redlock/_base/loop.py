"""The event loop that runs in this thread."""

from __future__ import annotations

import asyncio


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The running loop, or None.  The documented function raises instead, which costs as much as a whole release."""
    return asyncio._get_running_loop()  # noqa: SLF001 - the fast way
