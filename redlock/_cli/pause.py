"""Pauses in which a signal takes effect soon, at the latest after half a second, and so does a reader that goes away.

`time.sleep` may miss a signal. One that arrives just before the system call does not interrupt it, and its handler in
Python runs only at the end of the sleep. The pauses of the commands may last for minutes.
"""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing import TextIO

_LOOK: Final = 0.5


def pause(seconds: float, read: TextIO | None = None) -> None:
    """Sleep. A signal ends it with what its handler raises.

    ``read``: BrokenPipeError is raised when what is printed there has no reader any more.
    """
    reader = select.poll()
    if read is not None:
        reader.register(read, 0)  # only what poll() always reports: an error, and a closed other end
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if reader.poll(min(left, _LOOK) * 1000):
            raise BrokenPipeError
