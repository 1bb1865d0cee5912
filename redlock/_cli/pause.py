"""Pauses in which a signal counts soon, at the latest after half a second.

`time.sleep` alone may miss one. A signal that arrives just before the system call interrupts nothing, and its handler
in Python runs only when the sleep is over. Pauses here are as long as a minute.
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
