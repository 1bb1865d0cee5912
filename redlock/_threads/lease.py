"""A held lock, for threads."""

from __future__ import annotations

import contextlib
import threading

from redlock import _clock
from redlock._base.forklock import ForkLock
from redlock._core.lease import LeaseState


class Lease(LeaseState):
    __doc__ = LeaseState.__doc__
    __slots__ = ("_ended",)

    # In the chunks of a wait: the timeout of an Event stands still while the machine sleeps (R5).
    _CHUNK = 1.0

    def wait_lost(self, timeout: float | None = None) -> bool:
        """Wait until this lease is lost; True if it is, False if it was released or ``timeout`` has passed.

        Args:
            timeout: seconds, None: as long as it lasts.  A lease that is extended lasts longer.
        """
        until = None if timeout is None else _clock.now() + timeout
        while True:
            ended = self._ended_event()  # first: what changes from now on is not missed
            if self.lost or self._released:
                return self.lost
            now = _clock.now()
            if until is not None and now >= until:
                return False
            ends_at = self._ends_at  # never, before an extension has confirmed one that was handed over
            left = min(ends_at, ends_at if until is None else until) - now
            ended.wait(max(0.0, min(left, self._CHUNK)))
            if not self._mine():
                return False

    def _ended_event(self) -> threading.Event:
        with _making.lock:
            event: threading.Event | None = getattr(self, "_ended", None)
            if event is None:  # few leases are ever waited for
                self._ended = event = threading.Event()
        return event

    @staticmethod
    def _guard() -> threading.Lock:
        """The keeper extends in its thread while the holder may do so in its own.

        One mutex for all leases: it is held for microseconds.
        """
        return _state.lock

    def _changed(self) -> None:
        super()._changed()
        event: threading.Event | None = getattr(self, "_ended", None)
        if event is not None:
            with contextlib.suppress(AttributeError):
                del self._ended  # whoever waits looks again, and waits for the next change
            event.set()


_making = ForkLock()
_state = ForkLock()
