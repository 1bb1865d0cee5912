"""One operation under way in one thread: its inbox, and how to wake it."""

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
    """Where the answers for one operation arrive.

    Its thread either reads for everybody (it leads) or sleeps in `sleep` until whoever leads has an
    answer for it, or hands the lead over (it follows).
    """

    __slots__ = ("_signal", "_wake_chain", "events", "subscription", "wakes_next")

    def __init__(self, wake_chain: WakeChain) -> None:
        self._wake_chain = wake_chain
        self.events: deque[Event] = deque()
        self.subscription: Subscription | None = None
        self.wakes_next = False  # it was served, and is to wake the next one
        self._signal: Lock | None = None  # most operations never follow

    def prepare_to_sleep(self) -> None:
        """Before it can be found by `wake`: from now on a wake-up is not missed."""
        if self._signal is None:
            self._signal = Lock()
        self._signal.acquire(blocking=False)

    def sleep(self, seconds: float) -> bool:
        """Until `wake`, or for so long; True if nobody woke us."""
        assert self._signal is not None  # noqa: S101 - prepare_to_sleep() came first
        return not self._signal.acquire(timeout=seconds)

    def put(self, event: Event) -> None:
        """It happened."""
        self.events.append(event)
        wake_chain = self._wake_chain
        if wake_chain.reader is None:
            self.wake()
        elif wake_chain.reader is not self:
            wake_chain.served.append(self)

    def wake(self) -> bool:
        """Let it look at its events; False: it does so anyway."""
        signal = self._signal
        if signal is not None and signal.locked():
            with contextlib.suppress(RuntimeError):  # somebody else woke it just now
                signal.release()
                return True
        return False

    def stay_awake(self) -> None:
        """It will not sleep any more, unless it prepares for it."""
        self._signal = None
