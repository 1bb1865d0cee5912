"""Renews the leases of one event loop, with one timer for all of them, and none while no lease is held."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from redlock import _clock
from redlock._asyncio.operation import LATE, Operation
from redlock._base.connections import report_failure
from redlock._base.loop import running_loop
from redlock._core.release import leave_line
from redlock._core.renewals import Schedule, failed_to_keep, tasks

if TYPE_CHECKING:
    import asyncio

    from redlock._asyncio.connections import Connections
    from redlock._core.renewals import Renewal

# A timer of a loop stands still while the machine sleeps, and the clock of rule R5 does not.  Look at that clock at
# least so often, in seconds.
_LONGEST_NAP = 1.0


class Renewer:
    """Renews leases, and tells of those that are lost (R15).  Only the loop's thread may use it."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._loop = connections.loop
        self._schedule = Schedule()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = math.inf
        self.closing = False  # operations are broken off now: their failures are not logged

    def add(self, renewal: Renewal) -> None:
        renewal.lease.on_change = partial(self._changed, renewal)
        too_many = self._schedule.add(renewal)
        if too_many:
            self._see_off(self._schedule.take_in()[1])
        if too_many or renewal.soonest < self._alarm_at:
            self._set_alarm(renewal.soonest)

    def stop(self) -> None:
        """The connections are closed: nothing is renewed any more, and no loss is told."""
        self._schedule = Schedule()
        if self._alarm is not None:
            self._alarm.cancel()

    def _changed(self, renewal: Renewal, left_behind: bool) -> None:
        """The lease ended, or its times changed.  ``left_behind``: a holder is gone, and the collector tells us."""
        if left_behind:
            try:
                self._loop.call_soon_threadsafe(self._look_at, renewal)
            except RuntimeError:  # the loop is closed, so `_look_at` would never run
                for hold in renewal.lease.holds[:1] if renewal.abandoned else ():
                    hold.driver.post(renewal.give_back())
        elif running_loop() is self._loop:
            if renewal.changed():
                self._put_back(renewal)
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
                self._connections.pass_by(effect)
        if renewal.changed():
            self._put_back(renewal)

    def _put_back(self, *renewals: Renewal) -> None:
        self._see_off(self._schedule.put(renewals)[1])
        self._set_alarm(self._schedule.next())

    def _see_off(self, over: list[Renewal]) -> None:
        """Drop the renewals whose leases are ``over``; tell of those that were lost."""
        for renewal in over:
            if renewal.lease.lost:
                for effect in leave_line(renewal.lease):  # others in line need not wait for the former holder (R23)
                    self._connections.pass_by(effect)
                self._loop.call_soon(self._tell, renewal)  # later: our caller is in the middle of something

    def _tell(self, renewal: Renewal) -> None:
        try:
            renewal.tell()
        except Exception:  # noqa: BLE001 - from a user's callback; others have to be told, too
            report_failure(f"on_lost of {renewal.lease!r} failed")

    def _set_alarm(self, due: float) -> None:
        """Set the alarm for the lease that is due first.  It is never put off: most leases are released long before."""
        if due >= self._alarm_at or self._connections.closed:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        now = _clock.now()
        self._alarm_at = due = min(due, now + _LONGEST_NAP)
        self._alarm = self._loop.call_later(max(0.0, due - now) + LATE, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm, self._alarm_at = None, math.inf
        now = _clock.now()
        self._see_off(self._schedule.take_in()[1])
        self._work(self._schedule.take(now), now)

    def _look_at(self, renewal: Renewal) -> None:
        """Look whether anybody still holds the lease of ``renewal``."""
        self._see_off(self._schedule.take_in()[1])
        if not (renewal.over or self._connections.closed):
            self._work([renewal], _clock.now())

    def _work(self, due: list[Renewal], now: float) -> None:
        # All in one tick, so that their requests leave in one packet for each master.
        started, rest = tasks(due, now)
        for task, renewals in started:
            operation = Operation(task, self._connections)
            operation.start()
            operation.ended.add_done_callback(partial(self._done, renewals))
            self._schedule.lend(renewals)
        self._put_back(*rest)

    def _done(self, renewals: list[Renewal], ended: asyncio.Future[Any]) -> None:
        if not ended.cancelled() and ended.exception() is not None and not (self.closing or self._connections.closed):
            report_failure(failed_to_keep(renewals), ended.exception())
        if not self._connections.closed:
            self._put_back(*renewals)
        renewals.clear()
