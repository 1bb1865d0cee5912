"""One operation under way in one thread: its inbox, and how to wake it."""

from __future__ import annotations

import contextlib
from collections import deque
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redlock._core.effects import Event
    from redlock._core.listen import Ear
    from redlock._threads.relay import Relay


class Waiter:
    """Where the answers for one operation arrive.

    Its thread either reads for everybody (it leads) or sleeps in `sleep` until whoever leads has an
    answer for it, or hands the lead over (it follows).
    """

    __slots__ = ("_relay", "_signal", "ear", "events", "has_relay")

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self.events: deque[Event] = deque()
        self.ear: Ear | None = None
        self.has_relay = False  # and is to pass it on
        self._signal: Lock | None = None  # most operations never follow

    def prepare(self) -> None:
        """Before it can be found by `wake`: from now on a wake-up is not missed."""
        if self._signal is None:
            self._signal = Lock()
        self._signal.acquire(blocking=False)

    def sleep(self, seconds: float) -> bool:
        """Until `wake`, or for so long; True if nobody woke us."""
        assert self._signal is not None  # noqa: S101 - prepare() came first
        return not self._signal.acquire(timeout=seconds)

    def put(self, event: Event) -> None:
        """It happened."""
        self.events.append(event)
        relay = self._relay
        if relay.reader is None:
            self.wake()
        elif relay.reader is not self:
            relay.served.append(self)

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
