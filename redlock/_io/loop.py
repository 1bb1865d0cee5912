"""The event loop that runs in this thread."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# The running loop, or None.  The documented function raises instead, which costs as much as a whole release.
running_loop: Callable[[], asyncio.AbstractEventLoop | None] = asyncio._get_running_loop  # noqa: SLF001 - see above
