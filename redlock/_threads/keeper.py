"""Keeps the leases of one `Masters`: one thread for all of them, which is that of the housekeeper."""

from __future__ import annotations

import heapq
import math
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from redlock import _clock
from redlock._base.forklock import ForkLock
from redlock._base.links import report_failure
from redlock._base.operation import OperationBase
from redlock._core.keep import Roster, failed_to_keep, tasks
from redlock._core.release import aside
from redlock._threads.waiter import Waiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.effects import Aside, Send
    from redlock._core.extend import Extension
    from redlock._core.keep import Keeping, Task
    from redlock._threads.links import Links


class Kept(OperationBase["list[Extension]", "Keeper"]):
    """A renewal under way, of one lease or of many."""

    __slots__ = ("_keepings",)

    def __init__(self, op: Task, keeper: Keeper, keepings: list[Keeping]) -> None:
        super().__init__(op, keeper)
        self._keepings = keepings

    def _wait(self, now: float) -> None:  # noqa: ARG002
        self._host.set_alarm(self)

    def _ended(self, result: list[Extension]) -> None:  # noqa: ARG002 - the leases know
        self._host.put_back(*self._keepings)
        self._keepings.clear()

    def _failed(self, error: BaseException) -> None:
        if not self._host.links.closed:
            self._host.put_back(*self._keepings)
            report_failure(failed_to_keep(self._keepings), error)
        self._keepings.clear()


class Keeper:
    """Renews, and says when a lease is lost.

    Leases come from any thread and are looked after in one, by `work`.
    """

    def __init__(self, links: Links, nudge: Callable[[], None]) -> None:
        self.links = links
        self.operations: set[Kept] = set()
        self.waiter = Waiter(links.relay)  # for the answers to all of them
        self._nudge = nudge  # the thread that works is to come back to `work` now
        self._wakes_at = math.inf  # when it does so by itself
        self._roster = Roster()
        self._mutex = ForkLock()  # of the roster
        self._ready: deque[Kept] = deque()
        self._alarms: list[tuple[float, int, Kept]] = []
        self._number = 0
        self._lost: deque[Keeping] = deque()  # and not told yet
        self._left_behind: deque[Keeping] = deque()  # to be looked at, whether anybody holds them yet

    # -- from any thread -----------------------------------------------------------------------------

    def add(self, keeping: Keeping) -> None:
        keeping.lease.on_change = partial(self._changed, keeping)
        crowded = self._roster.add(keeping)
        if crowded or keeping.soonest < self._wakes_at:
            self._welcome(keeping, crowded=crowded)

    def _welcome(self, keeping: Keeping, *, crowded: bool) -> None:
        over: list[Keeping] = []
        with self._mutex.lock:
            first = keeping.soonest
            if crowded:  # here and not by the one who works, which may be busy with somebody's callback
                first, over = self._roster.take_in()
            sooner = first < self._wakes_at
            self._wakes_at = min(first, self._wakes_at)
        self._see_off(over)
        if sooner:
            self._nudge()

    def _changed(self, keeping: Keeping, left_behind: bool) -> None:
        """Its lease has ended, or its time has moved; or a holder of it has gone, and the collector tells us."""
        if left_behind:
            self._left_behind.append(keeping)
            self._nudge()
        elif keeping.changed():
            self.put_back(keeping)

    def put_back(self, *keepings: Keeping) -> None:
        """The same, of several that are no newcomers."""
        with self._mutex.lock:
            first, over = self._roster.put(keepings)
            sooner = first < self._wakes_at
        self._see_off(over)
        if sooner:
            self._nudge()

    def _see_off(self, over: list[Keeping]) -> None:
        """Those whose leases have ended."""
        for keeping in over:
            if keeping.lease.lost:
                for effect in aside(keeping.lease):  # others need not wait for who has lost it (R23)
                    self.links.aside(effect, self.waiter)
                self._lost.append(keeping)
                self._nudge()

    # -- in the thread that works --------------------------------------------------------------------

    def work(self) -> float:
        """Do what is due; returns when there is more."""
        while self._ready:
            self._ready.popleft().step()
        now = _clock.now()
        while self._alarms and self._alarms[0][0] <= now:
            _, _, operation = heapq.heappop(self._alarms)
            operation.ring()
        with self._mutex.lock:
            _, over = self._roster.take_in()
            due = self._roster.take(now)
        while self._left_behind:
            keeping = self._left_behind.popleft()
            if keeping not in due and not keeping.over:
                due.append(keeping)
        self._see_off(over)
        if due:
            started, rest = tasks(due, now)
            for task, keepings in started:
                Kept(task, self, keepings).start()
                with self._mutex.lock:
                    self._roster.lend(keepings)
            self.put_back(*rest)
        self.links.flush()  # what they sent, in one packet for each master
        while self._lost:
            self._tell(self._lost.popleft())
        if not self._rest(now) or self._ready or self._lost or self._left_behind:
            return now
        return min(self._wakes_at, self._alarms[0][0] if self._alarms else math.inf)

    def _rest(self, now: float) -> bool:
        """Until the first one is due; False: there are newcomers, who may have thought that it is sooner."""
        with self._mutex.lock:
            # A time that is set already stays, though who was due then may have been released: most leases
            # are, long before, and a thread that is woken for each of them costs more than the lock does.
            stays = self._wakes_at if self._wakes_at > now else math.inf
            self._wakes_at = min(self._roster.next(), stays)
            return not self._roster.newcomers  # who comes from now on has seen it

    def _tell(self, keeping: Keeping) -> None:
        try:
            keeping.tell()
        except BaseException:  # noqa: BLE001 - a user's, also its sys.exit(): others have to be told as well
            report_failure(f"on_lost of {keeping.lease!r} failed")

    # -- for its operations --------------------------------------------------------------------------

    def send(self, request: Send, operation: Any) -> None:
        self.links.cork(request, operation)

    def aside(self, effect: Aside, operation: Any) -> None:
        self.links.aside(effect, operation)

    def last_look(self, request: Send | None) -> None:
        """Whoever leads has read; from now on it counts nothing more for ``request``."""
        if request is not None:
            self.links.close_round(request)

    def step_soon(self, operation: Any) -> None:
        self._ready.append(operation)
        if len(self._ready) == 1:  # else that is known
            self._nudge()

    def set_alarm(self, operation: Kept) -> None:
        self._number += 1
        heapq.heappush(self._alarms, (operation.until, self._number, operation))
