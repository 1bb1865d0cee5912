"""A held lock, for threads."""

from __future__ import annotations

import contextlib
import threading

from redlock import _clock
from redlock._base.forklock import ForkLock
from redlock._base.lease import LeaseBase
from redlock._core.lease import LeaseState

# In the chunks of a wait: the timeout of an Event stands still while the machine sleeps (R5).
_CHUNK = 1.0


class ThreadLeaseState(LeaseState):
    """Lets threads wait for its end."""

    __slots__ = ("_ended",)

    def wait_lost(self, timeout: float | None) -> bool:
        until = None if timeout is None else _clock.now() + timeout
        while True:
            ended = self._ended_event()  # first: what changes from now on is not missed
            if self.lost or self.released:
                return self.lost
            now = _clock.now()
            if until is not None and now >= until:
                return False
            ends_at = self.ends_at  # never, before an extension has confirmed one that was handed over
            left = min(ends_at, ends_at if until is None else until) - now
            ended.wait(max(0.0, min(left, _CHUNK)))
            if not self.mine():
                return False

    def _ended_event(self) -> threading.Event:
        with _making.lock:
            event: threading.Event | None = getattr(self, "_ended", None)
            if event is None:  # few leases are ever waited for
                self._ended = event = threading.Event()
        return event

    @staticmethod
    def guard() -> threading.Lock:
        """The renewer extends in its thread while the holder may do so in its own.

        One mutex for all leases: it is held for microseconds.
        """
        return _state.lock

    def changed(self) -> None:
        super().changed()
        event: threading.Event | None = getattr(self, "_ended", None)
        if event is not None:
            with contextlib.suppress(AttributeError):
                del self._ended  # whoever waits looks again, and waits for the next change
            event.set()


class Lease(LeaseBase[ThreadLeaseState]):
    __doc__ = LeaseBase.__doc__
    __slots__ = ()

    def wait_lost(self, timeout: float | None = None) -> bool:
        """Wait until this lease is lost; True if it is, False if it was released or ``timeout`` has passed.

        Args:
            timeout: seconds, None: as long as it lasts.  A lease that is extended lasts longer.
        """
        return self._state.wait_lost(timeout)


_making = ForkLock()
_state = ForkLock()
