"""Renews the leases of one client: what threads and event loops have in common."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from redlock._core.release import leave_line
from redlock._core.renewals import tasks
from redlock._core.schedule import MANY, Schedule
from redlock._io.obituaries import read_obituaries
from redlock._io.report import report_failure

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from redlock._core.effects import Leave
    from redlock._core.renewals import Renewal, Task

_NOBODY_ELSE = nullcontext()
_EVER = sys.float_info.max  # later than any lease is due


class RenewerBase(ABC):
    """Renews leases, and tells of those that are lost (R15).

    It wakes up when a lease is due.  Releasing a lease does not reset that time: most leases are released long before
    they are due, and resetting costs more than one useless wake-up.
    """

    def __init__(self) -> None:
        self._schedule = Schedule()
        self._wakes_at = math.inf
        self._ends_all = False  # whether `_work` is to look at all leases

    # -- what a subclass adds ------------------------------------------------------------------------

    @abstractmethod
    def _wake(self, at: float) -> None:
        """Call `_work` at ``at``."""

    @abstractmethod
    def _start(self, task: Task, renewals: list[Renewal]) -> None:
        """Run ``task``, and `put_back` its renewals when it is over."""

    @abstractmethod
    def _look_soon(self, renewal: Renewal) -> None:
        """Look whether anybody still holds the lease of ``renewal``.  Takes no lock: the collector calls this."""

    @abstractmethod
    def _pass_by(self, effect: Leave) -> None:
        """Carry out ``effect``."""

    @abstractmethod
    def _tell_soon(self, renewal: Renewal) -> None:
        """Call `_tell`, but not now: our caller is in the middle of something."""

    def _guard(self) -> AbstractContextManager[object]:
        """Held while the schedule is changed."""
        return _NOBODY_ELSE

    # ------------------------------------------------------------------------------------------------

    def add(self, renewal: Renewal) -> None:
        """Renew a new lease from now on."""
        renewal.lease.on_change = partial(self._changed, renewal)
        queue = self._schedule.queue
        queue.append(renewal)
        if len(queue) > MANY:
            # Here: the thread that renews may be busy with a user's callback.
            self.put_back(*self._schedule.newcomers())
        elif renewal.soonest < self._wakes_at:
            self._wake_for(renewal.soonest)

    def give_way(self, now: float) -> None:
        """No vote counts any more, for others use other masters: end all leases (R34)."""
        if not self._schedule.empty:
            self._ends_all = True
            self._wake_for(now)

    def _changed(self, renewal: Renewal, left_behind: bool) -> None:
        """The lease ended, or its times changed.  ``left_behind``: a holder is gone, and the collector tells us."""
        if left_behind:
            self._look_soon(renewal)
        elif renewal.moment is not None or not renewal.lease.released:  # else it is queued, and found over there
            self.put_back(renewal)

    def put_back(self, *renewals: Renewal) -> None:
        """Schedule ``renewals`` anew."""
        with self._guard():
            over = self._schedule.put(renewals)
            first = self._schedule.next()
        self._see_off(over)
        if first < self._wakes_at:
            self._wake_for(first)

    def _wake_for(self, at: float) -> None:
        with self._guard():
            sooner = at < self._wakes_at
            self._wakes_at = min(at, self._wakes_at)
        if sooner:
            self._wake(at)

    def _see_off(self, over: list[Renewal]) -> None:
        """Drop the renewals whose leases are ``over``; tell of those that were lost."""
        for renewal in over:
            if renewal.lease.lost:
                for effect in leave_line(renewal.lease):  # others in line need not wait for the former holder (R23)
                    self._pass_by(effect)
                self._tell_soon(renewal)

    def _work(self, now: float, *besides: Renewal) -> None:
        """Do what is due, and look at the renewals ``besides``, whose holders are gone."""
        try:
            read_obituaries()  # those that nobody could read when they came
        except Exception:  # noqa: BLE001 - all leases depend on us
            report_failure("looking who is gone failed")
        with self._guard():
            over = self._schedule.put(self._schedule.newcomers())
            due = self._schedule.take(_EVER if self._ends_all else now)
            self._ends_all = False
        self._see_off(over)
        due += [renewal for renewal in dict.fromkeys(besides) if renewal not in due]
        for task, renewals in tasks(due, now):
            self._start(task, renewals)
        self.put_back(*due)  # those under way are due at their ends (P6)

    @staticmethod
    def _tell(renewal: Renewal, stopped: type[BaseException] = Exception) -> None:
        """Tell of a loss.  ``stopped``: what a user's callback raises goes no further, for others have to be told."""
        try:
            renewal.tell()
        except stopped:
            report_failure(f"on_lost of {renewal.lease!r} failed")
