"""Starts a thread of the library, and explains why Python could not start one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from redlock.errors import RedlockError

if TYPE_CHECKING:
    import threading


def start(thread: threading.Thread) -> None:
    """Start ``thread``. RedlockError: it cannot be started."""
    try:
        begin(thread)
    except RuntimeError as error:
        raise RedlockError(why_not(error)[0]) from error


def begin(thread: threading.Thread) -> None:
    """`threading.Thread.start`, which waits for ever where Python 3.11 runs a `__del__` after everything else."""
    if sys.is_finalizing():
        raise RuntimeError("can't create new thread at interpreter shutdown")
    thread.start()


def why_not(error: RuntimeError) -> tuple[str, bool]:
    """The meaning of ``error``, raised by `threading.Thread.start`. True: no thread can be started later either."""
    # Python 3.12 raises this after the main thread has ended, for example in callbacks of atexit.
    if "interpreter shutdown" in str(error):
        return (
            "Python is exiting and starts no thread any more, so nothing new can be connected: connect before that",
            True,
        )
    return f"no thread could be started: {error}", False
