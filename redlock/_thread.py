"""Starting a thread of ours, and what to say where Python starts none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redlock.errors import RedlockError

if TYPE_CHECKING:
    import threading


def start(thread: threading.Thread) -> None:
    """RedlockError: it cannot be started."""
    try:
        thread.start()
    except RuntimeError as error:
        raise RedlockError(why_not(error)[0]) from error


def why_not(error: RuntimeError) -> tuple[str, bool]:
    """What ``error``, of `threading.Thread.start`, means; True: no thread will be had later either."""
    # Python 3.12, as soon as the main thread has ended: when callbacks of atexit run.
    if "interpreter shutdown" in str(error):
        return (
            "Python is exiting and starts no thread any more, so nothing new can be connected: connect before that",
            True,
        )
    return f"no thread could be started: {error}", False
