"""One operation under way in one thread: its events, and how to wake it."""

from __future__ import annotations

import contextlib
from collections import deque
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redlock._core.effects import Event
    from redlock._core.subscriptions import Subscription
    from redlock._threads.wake_chain import WakeChain


class Waiter:
    """Where the events of one operation arrive.

    Its thread leads or follows.  The leading thread reads from all masters for all threads.  A following one sleeps
    in `sleep` until the leading thread has an event for it, or hands it the lead.
    """

    subscription: Subscription | None = None
    wakes_next = False  # it has to wake the next one in the chain
    _signal: Lock | None = None  # made on demand: most operations never follow

    def __init__(self, wake_chain: WakeChain) -> None:
        self._wake_chain = wake_chain
        self.events: deque[Event] = deque()

    def prepare_to_sleep(self) -> None:
        """Call this before `wake` can find the waiter: from now on no wake-up is missed."""
        if self._signal is None:
            self._signal = Lock()
        self._signal.acquire(blocking=False)

    def sleep(self, seconds: float) -> bool:
        """Sleep until `wake`, for ``seconds`` at most.  True if nobody woke us."""
        assert self._signal is not None  # noqa: S101 - prepare_to_sleep() came first
        return not self._signal.acquire(timeout=seconds)

    def put(self, event: Event) -> None:
        """Add ``event``.  Wake the thread, or put it on the wake chain."""
        self.events.append(event)
        wake_chain = self._wake_chain
        if wake_chain.reader is None:
            self.wake()
        elif wake_chain.reader is not self:
            wake_chain.served.append(self)

    def wake(self) -> bool:
        """Wake the thread to look at its events.  False: it is awake, and will look anyway."""
        signal = self._signal
        if signal is not None and signal.locked():
            with contextlib.suppress(RuntimeError):  # another thread woke it just now
                signal.release()
                return True
        return False

    def stay_awake(self) -> None:
        """It will not sleep again without `prepare_to_sleep`."""
        self._signal = None
