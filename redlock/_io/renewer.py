"""Renews the leases of one client (R15)."""

from __future__ import annotations

import contextlib
import math
import sys
import weakref
from collections import deque
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any

from redlock._core.kernel.release import leave_line
from redlock._core.renewals import HeldBy, Renewal, Task, failed_to_keep, tasks
from redlock._core.schedule import MANY, Schedule
from redlock._io.process import ForkLock
from redlock._io.report import report_failure

if TYPE_CHECKING:
    from redlock._core.lease import LeaseState
    from redlock._core.settings import LockSpec, MastersSettings
    from redlock._io.connections import Connections
    from redlock._io.port import Port

_EVER = sys.float_info.max  # later than any lease is due


class Renewer:
    """Renews leases, and reports lost ones (R15).

    It wakes up when a lease is due.  Releasing a lease does not reset that time: most leases are released long before
    they are due, and resetting costs more than one useless wake-up.
    """

    def __init__(self, port: Port, connections: Connections) -> None:
        self._port = port
        self._connections = connections
        self._schedule = Schedule()
        self.mutex = ForkLock()  # guards the schedule: any thread may add and change leases
        self.wakes_at = math.inf
        self._all_due = False  # whether `work` is to take all leases as due
        self._told = self._changed
        self.closing = False  # operations are broken off now: no failure is logged, and no lease given back

    # -- from any thread -----------------------------------------------------------------------------

    def add(self, settings: MastersSettings, spec: LockSpec, lease: LeaseState, held_by: HeldBy, at: float) -> Renewal:
        renewal = Renewal(settings, spec, lease, held_by, at)
        lease.on_change = MethodType(self._told, renewal)  # one object for each lease; a `partial` takes three
        queue = self._schedule.queue
        queue[renewal] = None
        if len(queue) > MANY:
            # Here: the thread that renews may be busy with a user's callback.
            self.put_back(*self._schedule.newcomers())
        elif renewal.soonest < self.wakes_at:
            self._tick_at(renewal.soonest)
        return renewal

    def give_way(self, now: float) -> None:
        """No vote counts any more, as other clients use other masters: end all leases (R34)."""
        if not self._schedule.empty:
            self._all_due = True
            self._tick_at(now)

    def stop(self) -> None:
        """The connections are closed: nothing is renewed any more, and no loss is reported."""
        self._schedule = Schedule()

    def to_give_back(self) -> list[Task]:
        """Gives back abandoned leases.  Python is exiting: the thread that was to do so may not run any more (P7)."""
        with self.mutex.lock:
            return [renewal.give_back() for renewal in self._schedule.all() if renewal.abandoned]

    def put_back(self, *renewals: Renewal) -> None:
        if self.mutex.is_mine:  # a finalizer or a signal handler comes back in the middle
            self._schedule.queue.update(dict.fromkeys(renewals))
            self._port.tick_at()
            return
        with self.mutex.lock:
            over = self._schedule.put(renewals)
            first = self._schedule.next()
        self._drop(over)
        if first < self.wakes_at:
            self._tick_at(first)

    def _changed(self, renewal: Renewal, holder_gone: bool) -> None:
        """The lease ended, or its times changed.  ``holder_gone``: a holder is gone, as the collector says."""
        if holder_gone:
            self._check_soon(renewal)
        elif not self._port.here:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._port.call_soon(partial(self._changed_elsewhere, renewal))
        elif renewal.moment is not None or not renewal.lease.released:
            self.put_back(renewal)
        else:
            self._schedule.queue.pop(renewal, None)

    def _changed_elsewhere(self, renewal: Renewal) -> None:
        """The lease changed on another event loop, whose local queue and connections are not ours.

        If it ended there, send its release here as well, behind requests that may set its keys (R10); wake the line.
        """
        if renewal.over and not self._connections.closed:
            self._port.start(renewal.give_up(), [renewal])
            self._let_others_pass(renewal)
        self._changed(renewal, holder_gone=False)

    def _check_soon(self, renewal: Renewal) -> None:
        """Look whether the lease of ``renewal`` still has a holder.  Takes no lock: the collector calls this."""
        try:
            self._port.call_soon(partial(self._check_now, renewal))
        except RuntimeError:  # the loop is closed, so `_check_now` would never run
            for hold in renewal.lease.holds[:1] if renewal.abandoned else ():
                hold.driver.post(renewal.give_back())

    def _tick_at(self, at: float) -> None:
        with self.mutex.lock:
            sooner = at < self.wakes_at
            self.wakes_at = min(at, self.wakes_at)
        if sooner:
            self._port.tick_at(at)

    # -- where the background is ---------------------------------------------------------------------

    @property
    def holding(self) -> bool:
        return not self._schedule.empty

    def work(self, now: float, *besides: Renewal) -> float:
        """Do what is due, and what the renewals ``besides`` need, whose holders are gone.

        Returns when there is more to do; infinity: when a lease is added.
        """
        try:
            read_obituaries()  # notes that could not be read when they came
        except Exception:  # noqa: BLE001 - all leases depend on us
            report_failure("looking for holders that are gone failed")
        with self.mutex.lock:
            over = self._schedule.put(self._schedule.newcomers())
            due = self._schedule.pop_due(_EVER if self._all_due else now)
            self._all_due = False
        self._drop(over)
        due += [renewal for renewal in dict.fromkeys(besides) if renewal not in due]
        for task, renewals in tasks(due, now):
            self._port.start(task, renewals)
        self.put_back(*due)  # leases with an operation under way are due at their ends (P6)
        with self.mutex.lock:
            stays = self.wakes_at if self.wakes_at > now else math.inf
            self.wakes_at = min(self._schedule.next(), stays)
            # From now on a lease that is added is compared with the new time; those in the queue were with the old one.
            return now if self._schedule.queue else self.wakes_at

    def ended(self, renewals: list[Renewal], error: BaseException | None = None) -> None:
        """The operation that `Port.start` has begun has ended, with ``error`` if it failed or `close` refused it."""
        if not self._connections.closed:
            self.put_back(*renewals)
            if error is not None and not (self.closing or self._connections.closing):
                report_failure(failed_to_keep(renewals), error)

    def _check_now(self, renewal: Renewal) -> None:
        if not (self._connections.closed or self.closing) and (at := self.work(self._port.now(), renewal)) < math.inf:
            self._port.tick_at(at)

    def _drop(self, over: list[Renewal]) -> None:
        """Drop the renewals whose leases are ``over``, and report lost ones."""
        for renewal in over:
            if renewal.lease.lost:
                self._let_others_pass(renewal)
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._port.call_soon(partial(self._report_loss, renewal))  # not now: our caller is in the middle
                if renewal.begin_guard():
                    self.put_back(renewal)

    def _let_others_pass(self, renewal: Renewal) -> None:
        for effect in leave_line(renewal.lease):  # others in line need not wait for the former holder (R23)
            self._connections.leave(effect.place)

    def _report_loss(self, renewal: Renewal) -> None:
        """Report a loss.  An error of a user's callback that `Port.stopped` names is logged; others go on."""
        try:
            renewal.report_loss()
        except self._port.stopped:
            report_failure(f"on_lost of {renewal.lease!r} failed")


class Watched:
    """Goes when its `Anchor` goes, and is watched for that."""

    __slots__ = ("__weakref__",)


class Obituary(weakref.ref[Any]):
    """Notes that the object which would give the lease ``state`` back has gone: the lease may have no holder.

    The collector, or whatever drops the last reference, calls back in the middle of anything; a signal handler may
    raise in there, and Python swallows that.  So the note is taken by a function without any Python in it, and cannot
    get lost. ``reader`` informs the renewer. It is called next, and may be cut short: then any renewer reads the note
    in its next round, once a second while it has leases.
    """

    __slots__ = ("reader", "state", "times")

    state: LeaseState
    reader: weakref.ref[Any]
    times: int  # how often it was read


_OBITUARIES: deque[Obituary] = deque()
_OFTEN_ENOUGH = 3  # a note that cannot be read must not hold up the others
_note = _OBITUARIES.append


def watch(then: Watched, state: LeaseState) -> Obituary:
    reader = weakref.ref(then, read_obituaries)
    obituary = Obituary(then, _note)  # the latest reference is called first
    obituary.state, obituary.reader, obituary.times = state, reader, 0
    return obituary


def read_obituaries(_: object = None) -> None:
    """Tell the renewer of each lease that was left behind.  May be cut short anywhere, and called in any thread."""
    while _OBITUARIES:
        obituary = _OBITUARIES[0]
        obituary.times += 1
        if obituary.times <= _OFTEN_ENOUGH:
            obituary.state.holder_gone()
        with contextlib.suppress(ValueError):  # another thread has read it as well
            _OBITUARIES.remove(obituary)
