"""How late this machine is to run a thread whose time has come: on a busy one nothing of ours can be prompt."""

import threading
import time
from typing import TypeVar

T = TypeVar("T")
PROMPT = 0.05  # P6: how late a holder may be told, in seconds, by a machine that runs what is due
_PAUSE = 0.002


class Watch:
    """Sleeps for moments, and notes by how much it overslept at most, and in sum where that was much."""

    def __init__(self):
        self.overslept = self.in_all = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _run(self):
        while not self._over.is_set():
            before = time.monotonic()
            self._over.wait(_PAUSE)
            late = time.monotonic() - before - _PAUSE
            self.overslept = max(self.overslept, late)
            if late > PROMPT / 5:
                self.in_all += late

    @property
    def late(self):
        """What three threads, each woken by the one before, may have overslept, also bit by bit."""
        return 3 * self.overslept + self.in_all


def punctually(play, right):
    """What ``play()`` returns: of the first time when that was ``right``, or when this machine was not late meanwhile."""
    tries = 5
    while True:
        found = error = None
        with Watch() as watch:
            try:
                found = play()
            except Exception as raised:  # noqa: BLE001 - a lease may be lost
                error = raised
        tries -= 1
        if (error is None and right(found)) or watch.late < PROMPT / 2 or not tries:
            break
    if error is not None:
        raise error
    return found
