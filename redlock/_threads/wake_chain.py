"""Wakes the threads that have their answers one after the other."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redlock._threads.waiter import Waiter


class WakeChain:
    """A queue of waiters with events.  A thread wakes the next one when it has finished or sleeps again.

    The threads of Python run in turns anyway.  If all were woken at once, they would fight for the interpreter's lock
    with each other and with the leading thread, and each would lose it again and again.

    An interruption may keep a thread from waking the next one.  Then the leading thread does so before it reads
    again.  And no thread sleeps for longer than its patience without a look of its own.
    """

    __slots__ = ("reader", "served")

    def __init__(self) -> None:
        self.reader: Waiter | None = None  # the thread that is reading; it wakes the first one afterwards
        self.served: deque[Waiter] = deque()

    def pass_on(self, by: Waiter) -> None:
        """Wake the next waiter that sleeps; that one has to wake the one after it.  Only if ``by`` has to."""
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
