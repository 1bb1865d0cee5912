"""Waking those who were served one after the other."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redlock._threads.waiter import Waiter


class WakeChain:
    """Who was served wakes when the one before it in here is done, or sleeps again.

    Threads of Python take turns anyway.  Those who are woken all at once fight for the interpreter's lock,
    with whoever leads as well, and each of them loses it again and again.

    If one never passes it on, interrupted in just the wrong moment, whoever leads does before it reads
    again; and nobody relies on it for longer than its patience.
    """

    __slots__ = ("reader", "served")

    def __init__(self) -> None:
        self.reader: Waiter | None = None  # it reads for all, and wakes the first one when it has
        self.served: deque[Waiter] = deque()

    def pass_on(self, by: Waiter) -> None:
        """Wake the next one, of those who sleep, which is to wake the one after it.  Nothing if ``by`` is not to wake anybody."""
        if not by.wakes_next:
            return
        by.wakes_next = False
        served = self.served
        while served:
            try:
                waiter = served.popleft()
            except IndexError:  # another thread was faster
                return
            if waiter is by:
                continue
            waiter.wakes_next = True
            if waiter.wake():
                return
            waiter.wakes_next = False
