"""Keeps the leases of one event loop: one timer for all of them, and none while nothing is held."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from redlock import _clock
from redlock._asyncio.operation import LATE, Operation
from redlock._base.links import report_failure
from redlock._base.loop import running_loop
from redlock._core.keep import Roster, failed_to_keep, tasks
from redlock._core.release import aside

if TYPE_CHECKING:
    import asyncio

    from redlock._asyncio.links import Links
    from redlock._core.keep import Keeping

# A timer of a loop stands still while the machine sleeps, and the clock of rule R5 does not: look at
# least so often whether it has, in seconds.
_LONGEST_NAP = 1.0


class Keeper:
    """Renews, and says when a lease is lost.  Belongs to the thread of its loop."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._loop = links.loop
        self._roster = Roster()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = math.inf
        self.closing = False  # what is under way is broken off, and nobody has to hear of it

    def add(self, keeping: Keeping) -> None:
        keeping.lease.on_change = partial(self._changed, keeping)
        crowded = self._roster.add(keeping)
        if crowded:
            self._see_off(self._roster.take_in()[1])
        if crowded or keeping.soonest < self._alarm_at:
            self._set_alarm(keeping.soonest)

    def stop(self) -> None:
        """Its links are closed: nothing is renewed any more, and nobody is told."""
        self._roster = Roster()
        if self._alarm is not None:
            self._alarm.cancel()

    def _changed(self, keeping: Keeping, left_behind: bool) -> None:
        """Its lease has ended, or its time has moved; or a holder of it has gone, and the collector tells us."""
        if left_behind:
            try:
                self._loop.call_soon_threadsafe(self._look_at, keeping)
            except RuntimeError:  # the loop is closed: nobody looks any more
                for hold in keeping.lease.holds[:1] if keeping.abandoned else ():
                    hold.driver.post(keeping.give_back())
        elif running_loop() is self._loop:
            if keeping.changed():
                self._put_back(keeping)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._changed_elsewhere, keeping)

    def _changed_elsewhere(self, keeping: Keeping) -> None:
        """On another loop, whose line and connections are not ours.  If it is over there, what may set its keys stands
        before its release here (R10), and others pass (R23).
        """
        if keeping.over and not self._links.closed:
            Operation(keeping.give_up(), self._links).start()
            for effect in aside(keeping.lease):
                self._links.pass_by(effect)
        if keeping.changed():
            self._put_back(keeping)

    def _put_back(self, *keepings: Keeping) -> None:
        self._see_off(self._roster.put(keepings)[1])
        self._set_alarm(self._roster.next())

    def _see_off(self, over: list[Keeping]) -> None:
        """Those whose leases have ended."""
        for keeping in over:
            if keeping.lease.lost:
                for effect in aside(keeping.lease):  # others need not wait for who has lost it (R23)
                    self._links.pass_by(effect)
                self._loop.call_soon(self._tell, keeping)  # not in the middle of what found it out

    def _tell(self, keeping: Keeping) -> None:
        try:
            keeping.tell()
        except Exception:  # noqa: BLE001 - a user's; it must not keep others from being told
            report_failure(f"on_lost of {keeping.lease!r} failed")

    def _set_alarm(self, due: float) -> None:
        """For the first one that is due.  It is not taken back: most leases are released long before their time."""
        if due >= self._alarm_at or self._links.closed:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        now = _clock.now()
        self._alarm_at = due = min(due, now + _LONGEST_NAP)
        self._alarm = self._loop.call_later(max(0.0, due - now) + LATE, self._ring)

    def _ring(self) -> None:
        self._alarm, self._alarm_at = None, math.inf
        now = _clock.now()
        self._see_off(self._roster.take_in()[1])
        self._work(self._roster.take(now), now)

    def _look_at(self, keeping: Keeping) -> None:
        """Whether anybody holds it yet."""
        self._see_off(self._roster.take_in()[1])
        if not (keeping.over or self._links.closed):
            self._work([keeping], _clock.now())

    def _work(self, due: list[Keeping], now: float) -> None:
        # All in one tick, so that what they send leaves in one packet for each master.
        started, rest = tasks(due, now)
        for task, keepings in started:
            operation = Operation(task, self._links)
            operation.start()
            operation.ended.add_done_callback(partial(self._done, keepings))
            self._roster.lend(keepings)
        self._put_back(*rest)

    def _done(self, keepings: list[Keeping], ended: asyncio.Future[Any]) -> None:
        if not ended.cancelled() and ended.exception() is not None and not (self.closing or self._links.closed):
            report_failure(failed_to_keep(keepings), ended.exception())
        if not self._links.closed:
            self._put_back(*keepings)
        keepings.clear()
