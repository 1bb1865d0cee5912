"""Renews the leases of one `Masters`, all of them in the housekeeper's thread."""

from __future__ import annotations

import heapq
import math
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from redlock import _clock
from redlock._base.connections import report_failure
from redlock._base.forklock import ForkLock
from redlock._base.operation import OperationBase
from redlock._core.release import leave_line
from redlock._core.renewals import Schedule, failed_to_keep, tasks
from redlock._threads.waiter import Waiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.effects import LocalEffect, Send
    from redlock._core.extend import Extension
    from redlock._core.renewals import Renewal, Task
    from redlock._threads.connections import Connections


class RenewalOperation(OperationBase["list[Extension]", "Renewer"]):
    """One operation under way that extends one lease or many."""

    __slots__ = ("_renewals",)

    def __init__(self, op: Task, renewer: Renewer, renewals: list[Renewal]) -> None:
        super().__init__(op, renewer)
        self._renewals = renewals

    def _wait(self, now: float) -> None:  # noqa: ARG002
        self._host.set_alarm(self)

    def _ended(self, result: list[Extension]) -> None:  # noqa: ARG002 - the leases have it already
        self._host.put_back(*self._renewals)
        self._renewals.clear()

    def _failed(self, error: BaseException) -> None:
        if not self._host.connections.closed:
            self._host.put_back(*self._renewals)
            report_failure(failed_to_keep(self._renewals), error)
        self._renewals.clear()


class Renewer:
    """Renews leases, and tells of those that are lost (R15).

    Leases are added by any thread, and looked after by one, in `work`.
    """

    def __init__(self, connections: Connections, wake_thread: Callable[[], None]) -> None:
        self.connections = connections
        self.operations: set[RenewalOperation] = set()
        self.waiter = Waiter(connections.wake_chain)  # for the answers to all operations
        self._wake_thread = wake_thread  # has the housekeeper's thread call `work` now
        self._wakes_at = math.inf  # when that thread calls it by itself
        self._schedule = Schedule()
        self._mutex = ForkLock()  # guards the schedule
        self._ready: deque[RenewalOperation] = deque()
        self._alarms: list[tuple[float, int, RenewalOperation]] = []
        self._number = 0
        self._lost: deque[Renewal] = deque()  # lost leases that were not told yet
        self._left_behind: deque[Renewal] = deque()  # whose holder is gone: does anybody still hold them?

    # -- from any thread -----------------------------------------------------------------------------

    def add(self, renewal: Renewal) -> None:
        renewal.lease.on_change = partial(self._changed, renewal)
        too_many = self._schedule.add(renewal)
        if too_many or renewal.soonest < self._wakes_at:
            self._welcome(renewal, too_many=too_many)

    def _welcome(self, renewal: Renewal, *, too_many: bool) -> None:
        over: list[Renewal] = []
        with self._mutex.lock:
            first = renewal.soonest
            if too_many:  # here: the other thread may be busy with a user's callback
                first, over = self._schedule.take_in()
            sooner = first < self._wakes_at
            self._wakes_at = min(first, self._wakes_at)
        self._see_off(over)
        if sooner:
            self._wake_thread()

    def _changed(self, renewal: Renewal, left_behind: bool) -> None:
        """The lease ended, or its times changed.  ``left_behind``: a holder is gone, and the collector tells us."""
        if left_behind:
            self._left_behind.append(renewal)
            self._wake_thread()
        elif renewal.changed():
            self.put_back(renewal)

    def put_back(self, *renewals: Renewal) -> None:
        """Schedule renewals anew that are not new."""
        with self._mutex.lock:
            first, over = self._schedule.put(renewals)
            sooner = first < self._wakes_at
        self._see_off(over)
        if sooner:
            self._wake_thread()

    def _see_off(self, over: list[Renewal]) -> None:
        """Drop the renewals whose leases are ``over``; note those that were lost, to tell of them."""
        for renewal in over:
            if renewal.lease.lost:
                for effect in leave_line(renewal.lease):  # others in line need not wait for the former holder (R23)
                    self.connections.perform_local(effect, self.waiter)
                self._lost.append(renewal)
                self._wake_thread()

    # -- in the housekeeper's thread -----------------------------------------------------------------

    def work(self) -> float:
        """Do what is due.  Returns the time at which there is more to do."""
        while self._ready:
            self._ready.popleft().step()
        now = _clock.now()
        while self._alarms and self._alarms[0][0] <= now:
            _, _, operation = heapq.heappop(self._alarms)
            operation.on_alarm()
        with self._mutex.lock:
            _, over = self._schedule.take_in()
            due = self._schedule.take(now)
        while self._left_behind:
            renewal = self._left_behind.popleft()
            if renewal not in due and not renewal.over:
                due.append(renewal)
        self._see_off(over)
        if due:
            started, rest = tasks(due, now)
            for task, renewals in started:
                RenewalOperation(task, self, renewals).start()
                with self._mutex.lock:
                    self._schedule.lend(renewals)
            self.put_back(*rest)
        self.connections.flush()  # what the operations sent, in one packet for each master
        while self._lost:
            self._tell(self._lost.popleft())
        if not self._set_wake_time(now) or self._ready or self._lost or self._left_behind:
            return now
        return min(self._wakes_at, self._alarms[0][0] if self._alarms else math.inf)

    def _set_wake_time(self, now: float) -> bool:
        """Set it to when the next lease is due.  False: leases were added by threads that saw the old time."""
        with self._mutex.lock:
            # A time that is set already stays, although the lease that was due then may have been released.  Most
            # leases are released long before they are due, and to wake a thread for each of them costs more than the
            # lock does.
            stays = self._wakes_at if self._wakes_at > now else math.inf
            self._wakes_at = min(self._schedule.next(), stays)
            return not self._schedule.newcomers  # a lease that is added from now on sees the new time

    def _tell(self, renewal: Renewal) -> None:
        try:
            renewal.tell()
        except BaseException:  # noqa: BLE001 - a user's, even sys.exit(): others have to be told
            report_failure(f"on_lost of {renewal.lease!r} failed")

    # -- for its operations --------------------------------------------------------------------------

    def send(self, request: Send, operation: Any) -> None:
        self.connections.cork(request, operation)

    def perform_local(self, effect: LocalEffect, operation: Any) -> None:
        self.connections.perform_local(effect, operation)

    def last_look(self, request: Send | None) -> None:
        """The leading thread has read.  From now on ``request`` is told of no more answers."""
        if request is not None:
            self.connections.close_round(request)

    def wake(self, operation: Any) -> None:
        self._ready.append(operation)
        if len(self._ready) == 1:  # else the thread was woken before
            self._wake_thread()

    def set_alarm(self, operation: RenewalOperation) -> None:
        self._number += 1
        heapq.heappush(self._alarms, (operation.until, self._number, operation))
