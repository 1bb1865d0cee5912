"""The clock of this process (R5)."""

from __future__ import annotations

import sys
import time
from functools import partial

# Seconds of a clock that never steps, and that goes on while the machine sleeps. On Linux that is CLOCK_BOOTTIME, on
# macOS CLOCK_MONOTONIC. time.monotonic() reads another clock on both. On Windows no lock is taken.
if sys.platform == "win32":
    now = time.monotonic
else:
    now = partial(time.clock_gettime, time.CLOCK_BOOTTIME if sys.platform == "linux" else time.CLOCK_MONOTONIC)

# The longest wait without a look at `now`, in seconds: the timer of a wait is stopped while the machine sleeps.
NAP = 1.0
