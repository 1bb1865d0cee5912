"""Renews the leases of one `Masters`, all of them in the housekeeper's thread."""

from __future__ import annotations

import heapq
import math
from collections import deque
from typing import TYPE_CHECKING, Any

from redlock import _clock
from redlock._core.operation import SteppedOperation
from redlock._core.renewals import failed_to_keep
from redlock._io.forklock import ForkLock
from redlock._io.renewer import RenewerBase
from redlock._io.report import report_failure
from redlock._io.waiter import Waiter

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from redlock._core.effects import Leave, LocalEffect, Send
    from redlock._core.extend import Extension
    from redlock._core.renewals import Renewal, Task
    from redlock._io.connections_threads import Connections


class RenewalOperation(SteppedOperation["dict[Renewal, Extension]", "Renewer"]):
    """One operation under way that extends one lease or many."""

    def __init__(self, op: Task, renewer: Renewer, renewals: list[Renewal]) -> None:
        super().__init__(op, renewer)
        self._renewals = renewals

    def _wait(self, now: float) -> None:  # noqa: ARG002
        self._host.set_alarm(self)

    def _ended(self, result: dict[Renewal, Extension]) -> None:  # noqa: ARG002 - the leases have it already
        self._host.put_back(*self._renewals)

    def _failed(self, error: BaseException) -> bool:
        if not self._host.connections.closed:
            self._host.put_back(*self._renewals)
            report_failure(failed_to_keep(self._renewals), error)
        return False


class Renewer(RenewerBase):
    """Leases are added by any thread, and looked after by one, in `work`."""

    def __init__(self, connections: Connections, wake_thread: Callable[[], None]) -> None:
        super().__init__()
        self.connections = connections
        self.operations: set[RenewalOperation] = set()
        self.waiter = Waiter(connections)  # for the answers to all operations
        self._wake_thread = wake_thread  # has the housekeeper's thread call `work` now
        self._mutex = ForkLock()  # guards the schedule
        self._ready: deque[RenewalOperation] = deque()
        self._alarms: list[tuple[float, int, RenewalOperation]] = []
        self._number = 0
        self._lost: deque[Renewal] = deque()  # lost leases that were not told yet
        self._left_behind: deque[Renewal] = deque()  # whose holder is gone: does anybody still hold them?

    # -- from any thread -----------------------------------------------------------------------------

    def _guard(self) -> threading.Lock:
        return self._mutex.lock

    def _wake(self, at: float) -> None:  # noqa: ARG002 - `work` returns it
        self._wake_thread()

    def _look_soon(self, renewal: Renewal) -> None:
        self._left_behind.append(renewal)
        self._wake_thread()

    def _pass_by(self, effect: Leave) -> None:
        self.connections.perform_local(effect, self.waiter)

    def _tell_soon(self, renewal: Renewal) -> None:
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
        self._work(now, *(self._left_behind.popleft() for _ in range(len(self._left_behind))))
        self.connections.flush()  # what the operations sent, in one packet for each master
        self.tell_losses()
        if not self._set_wake_time(now) or self._ready or self._lost or self._left_behind:
            return now
        return min(self._wakes_at, self._alarms[0][0] if self._alarms else math.inf)

    def tell_losses(self) -> None:
        while self._lost:
            self._tell(self._lost.popleft(), BaseException)  # even sys.exit()

    def _start(self, task: Task, renewals: list[Renewal]) -> None:
        RenewalOperation(task, self, renewals).start()

    def _set_wake_time(self, now: float) -> bool:
        """Set it to when the next lease is due.  False: leases were added by threads that saw the old time."""
        with self._mutex.lock:
            stays = self._wakes_at if self._wakes_at > now else math.inf
            self._wakes_at = min(self._schedule.next(), stays)
            return not self._schedule.queue  # a lease that is added from now on sees the new time

    # -- for its operations --------------------------------------------------------------------------

    @staticmethod
    def now() -> float:
        return _clock.now()

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
