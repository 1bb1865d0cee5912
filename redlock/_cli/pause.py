"""Pauses in which a signal counts soon, at the latest after half a second.

`time.sleep` may miss a signal. One that arrives just before the system call does not interrupt it, and its handler in
Python runs only at the end of the sleep. The pauses of the commands may last for minutes.
"""

from __future__ import annotations

import time
from typing import Final

_LOOK: Final = 0.5


def pause(seconds: float) -> None:
    """Sleep. A signal ends it with what its handler raises."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _LOOK))
