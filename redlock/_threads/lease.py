"""A held lock, for threads."""

from __future__ import annotations

import threading

from redlock import _clock
from redlock._base.forklock import ForkLock
from redlock._base.lease import LeaseBase
from redlock._core.lease import LeaseState

# A wait is cut into chunks of so many seconds: the timeout of an Event stands still while the machine sleeps (R5).
_CHUNK = 1.0


class ThreadLeaseState(LeaseState):
    """Lets threads wait for the end of the lease."""

    _ended: threading.Event | None = None  # made on demand: few leases are waited for

    def wait_lost(self, timeout: float | None) -> bool:
        until = None if timeout is None else _clock.now() + timeout
        while True:
            ended = self._ended_event()  # made first, so no later change is missed
            if self.lost or self.released:
                return self.lost
            now = _clock.now()
            if until is not None and now >= until:
                return False
            ends_at = self.ends_at  # infinite for a resumed lease before its first extension
            left = min(ends_at, ends_at if until is None else until) - now
            ended.wait(max(0.0, min(left, _CHUNK)))
            if not self.mine():
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


class Lease(LeaseBase[ThreadLeaseState]):
    __doc__ = LeaseBase.__doc__
    __slots__ = ()

    def downgrade(self) -> None:
        """Share the lock with readers from now on (R33), without a moment in which somebody else may write.

        From this call on it is only the shared lock that this lease promises, whatever the masters answer.  The fence
        stays.  Of a lease that is shared already, nothing changes.  There is no way back but a release.

        Raises:
            NotHeld: this thread does not hold it.
            NotExtended: too few masters answered.  The lease is shared all the same, and keeps its validity;
                the next renewal tells the masters, and only then readers get in.
            LockLost: the lease had ended, or a majority of masters denied it now.
            WouldDeadlock: it was entered more than once: the outer one counts on having it alone.
            ConfigurationError: it has a ``hold_at_least``, or is a slot.
        """
        self._lock()._downgrade(self._state)  # noqa: SLF001 - a lease is a face of its lock

    def wait_lost(self, timeout: float | None = None) -> bool:
        """Wait until this lease is lost.  True if it is; False if it was released or ``timeout`` has passed.

        Args:
            timeout: seconds; None: no limit.  An extension of the lease makes the wait longer, too.
        """
        return self._state.wait_lost(timeout)


_making = ForkLock()
_state = ForkLock()
