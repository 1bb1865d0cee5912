"""Does what no task does: it connects in the background, and sends owed releases."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import TYPE_CHECKING

from redlock import _clock
from redlock._core.outcomes import Failure
from redlock._io import process
from redlock._io.connections import TICK
from redlock._io.connections_async import Connections
from redlock._io.housekeeper import HousekeeperBase
from redlock._io.operation_async import LATE
from redlock._io.report import report

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    from redlock._io.housekeeper import Made
    from redlock._io.report import Reports
    from redlock._io.stream import Stream


class Housekeeper(HousekeeperBase[Connections]):
    """Keeps the connections of one event loop up, with one timer of it at most."""

    _guard = contextlib.nullcontext()

    def _set_up(self) -> None:
        self.ready = asyncio.Event()  # operations may begin (R2)
        self._looks: Iterator[float] | None = None  # until then
        self._loop = self._connections.loop
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._connections.look_after = self.wake

    def start(self) -> None:
        """Connect to all masters, unless that has begun."""
        if self._looks is None and not self.ready.is_set():
            self.wake()  # first: after an interruption here the next call does it again
            self._looks = self.looks_until_ready(_clock.now())

    def wake(self, due: float = -math.inf) -> None:
        """Have the chores done at ``due``, or as soon as possible after it; earlier if another call asked for that."""
        now = _clock.now()
        due = max(due, now)
        # A timer that is overdue is not to come: it was interrupted.
        if now - TICK < self._timer_at <= due or self._over or self._loop.is_closed():
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(due - now + LATE if due > now else 0.0, self._go_around)
        self._timer_at = due

    def _go_around(self) -> None:
        self._timer, self._timer_at = None, math.inf
        process.look()
        if self._over:
            return
        now, pause = _clock.now(), TICK  # so that a failure that repeats does not spin
        reports: Reports = []
        try:
            pause = self.chores(now, reports)
            if self._looks is not None and not self.ready.is_set():
                left = next(self._looks, 0.0)
                if left:
                    pause = min(pause, left)
                else:
                    self.ready.set()
        finally:
            self.wake(now + pause)
        report(reports, self._observer)

    def _hand_over(self, thread: threading.Thread, stream: Stream, made: Made) -> None:
        if not isinstance(made, Failure):
            self._connections.keep(made[0])
        with contextlib.suppress(RuntimeError):  # the loop was closed; the connections close the socket
            self._loop.call_soon_threadsafe(self._finish, thread, stream, made)

    def abort(self) -> None:
        """Do nothing more, and end the attempts to connect."""
        self._ending = True
        if not self._loop.is_closed():  # else no task waits that could be woken
            self.ready.set()
        if self._timer is not None:
            self._timer.cancel()
        self.abort_connectors()

    async def end(self) -> None:
        """After `abort`: wait until no thread is connecting."""
        for pause in self.looks_until_joined():
            await asyncio.sleep(pause)
