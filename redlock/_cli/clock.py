"""The clock of leases (rule R5), on which `Lease.valid_until` is."""

from __future__ import annotations

import sys
import time
from functools import partial

CLOCK = time.CLOCK_BOOTTIME if sys.platform == "linux" else time.CLOCK_MONOTONIC
now = partial(time.clock_gettime, CLOCK)
