"""The clocks of this process (R5)."""

from __future__ import annotations

import sys
import time
from functools import partial

# Seconds that never step and go on while the machine sleeps.  On Linux that is not what
# time.monotonic() reads; on macOS CLOCK_MONOTONIC is, and time.monotonic() is another one.
now = partial(time.clock_gettime, time.CLOCK_BOOTTIME if sys.platform == "linux" else time.CLOCK_MONOTONIC)


def wall_us() -> int:
    """Microseconds since 1970: only ever a proposal for a fencing token (R16), never a measure of time."""
    return time.time_ns() // 1000
