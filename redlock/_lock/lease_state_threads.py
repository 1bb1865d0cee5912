"""The state of a lease that threads may wait for."""

from __future__ import annotations

import threading

from redlock import _clock, options
from redlock._core.lease import LeaseState
from redlock._io.forklock import ForkLock

# A wait is cut into chunks of this many seconds: the timeout of an Event stands still while the machine sleeps (R5).
_CHUNK = 1.0


class ThreadLeaseState(LeaseState):
    """Lets threads wait for the end of the lease."""

    _ended: threading.Event | None = None  # made on demand: few leases are waited for

    def wait_lost(self, timeout: float | None) -> bool:
        until = None if timeout is None else _clock.now() + options.patience("timeout", timeout)
        while self.mine():  # first of all: what follows takes a lock
            ended = self._ended_event()  # made first, so no later change is missed
            if self.lost or self.released:
                return self.lost
            now = _clock.now()
            if until is not None and now >= until:
                return False
            ends_at = self.ends_at  # infinite for a resumed lease before its first extension
            left = min(ends_at, ends_at if until is None else until) - now
            ended.wait(max(0.0, min(left, _CHUNK)))
        return False

    def _ended_event(self) -> threading.Event:
        with _making.lock:
            if self._ended is None:
                self._ended = threading.Event()
            return self._ended

    @staticmethod
    def guard() -> threading.Lock:
        """The mutex for extensions: the renewer may extend in its thread while the holder does so in another one.

        It is one mutex for all leases: it is held for microseconds.
        """
        return _state.lock

    def changed(self) -> None:
        super().changed()
        event = self._ended
        if event is not None:
            self._ended = None  # a waiting thread looks again, and makes a new one
            event.set()


_making = ForkLock()
_state = ForkLock()
