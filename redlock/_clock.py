"""The clocks of this process (R5)."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

if sys.platform == "linux":

    def now(_read: Callable[[int], float] = time.clock_gettime, _id: int = time.CLOCK_BOOTTIME) -> float:
        """Seconds that never step and go on while the machine sleeps."""
        return _read(_id)

else:
    # On macOS CLOCK_MONOTONIC goes on while the machine sleeps, unlike time.monotonic().
    def now(_read: Callable[[int], float] = time.clock_gettime, _id: int = time.CLOCK_MONOTONIC) -> float:
        """Seconds that never step and go on while the machine sleeps."""
        return _read(_id)


def wall_us() -> int:
    """Microseconds since 1970: only ever a proposal for a fencing token (R16), never a measure of time."""
    return time.time_ns() // 1000
