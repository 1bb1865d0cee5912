"""Renews the leases of one event loop, with one timer for all of them, and none while no lease is held."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from redlock import _clock
from redlock._core.release import leave_line
from redlock._core.renewals import failed_to_keep
from redlock._core.schedule import Schedule
from redlock._io.loop import running_loop
from redlock._io.operation_async import LATE, Operation
from redlock._io.renewer import RenewerBase
from redlock._io.report import report_failure

if TYPE_CHECKING:
    import asyncio

    from redlock._core.effects import Leave
    from redlock._core.renewals import Renewal, Task
    from redlock._io.connections_async import Connections

# A timer of a loop stands still while the machine sleeps, and the clock of rule R5 does not.  Look at that clock at
# least so often, in seconds.
_LONGEST_NAP = 1.0


class Renewer(RenewerBase):
    """Only the loop's thread may use it."""

    def __init__(self, connections: Connections) -> None:
        super().__init__()
        self._connections = connections
        self._loop = connections.loop
        self._alarm: asyncio.TimerHandle | None = None
        self.closing = False  # operations are broken off now: their failures are not logged

    def stop(self) -> None:
        """The connections are closed: nothing is renewed any more, and no loss is told."""
        self._schedule = Schedule()
        if self._alarm is not None:
            self._alarm.cancel()

    def _look_soon(self, renewal: Renewal) -> None:
        try:
            self._loop.call_soon_threadsafe(self._look_at, renewal)
        except RuntimeError:  # the loop is closed, so `_look_at` would never run
            for hold in renewal.lease.holds[:1] if renewal.abandoned else ():
                hold.driver.post(renewal.give_back())

    def _changed(self, renewal: Renewal, left_behind: bool) -> None:
        if left_behind or running_loop() is self._loop:
            super()._changed(renewal, left_behind)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._changed_elsewhere, renewal)

    def _changed_elsewhere(self, renewal: Renewal) -> None:
        """The lease changed on another event loop, whose local queue and connections are not ours.

        If the lease ended there, send its release here as well, behind all that may still set its keys (R10), and let
        others in line pass (R23).
        """
        if renewal.over and not self._connections.closed:
            Operation(renewal.give_up(), self._connections).start()
            for effect in leave_line(renewal.lease):
                self._pass_by(effect)
        super()._changed(renewal, left_behind=False)

    def _pass_by(self, effect: Leave) -> None:
        self._connections.leave(effect.place)

    def _tell_soon(self, renewal: Renewal) -> None:
        self._loop.call_soon(self._tell, renewal)

    def _wake(self, at: float) -> None:
        if self._connections.closed:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        nap = min(max(0.0, at - _clock.now()), _LONGEST_NAP)
        self._alarm = self._loop.call_later(nap + LATE, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm, self._wakes_at = None, math.inf
        self._work(_clock.now())

    def _look_at(self, renewal: Renewal) -> None:
        """Look whether anybody still holds the lease of ``renewal``."""
        if not self._connections.closed:
            self._work(_clock.now(), renewal)

    def _start(self, task: Task, renewals: list[Renewal]) -> None:
        # All that are due start in one tick, so that their requests leave in one packet for each master.
        operation = Operation(task, self._connections)
        operation.start()
        operation.ended.add_done_callback(partial(self._done, renewals))

    def _done(self, renewals: list[Renewal], ended: asyncio.Future[Any]) -> None:
        if not ended.cancelled() and ended.exception() is not None and not (self.closing or self._connections.closed):
            report_failure(failed_to_keep(renewals), ended.exception())
        if not self._connections.closed:
            self.put_back(*renewals)
