"""The clock of leases (R5). `Lease.valid_until` is a time of this clock."""

from __future__ import annotations

import sys
import time
from functools import partial

CLOCK = time.CLOCK_BOOTTIME if sys.platform == "linux" else time.CLOCK_MONOTONIC
now = partial(time.clock_gettime, CLOCK)
