"""Does what no caller does: it connects in the background, reads late answers, sends owed releases, and renews leases.

Each `Masters` has one such thread.  It sleeps while all masters are up and have answered and no lease is due.

When the thread ends it ends the renewals under way.  The garbage collector would end them in any thread, in the
middle of anything.  It may still run two things of ours: a generator that is thrown away, and the end of a pipe.
Neither takes a lock, and each changes one thing in one step.

Also considered: a thread for each master (a hand-over costs more than the round trip), one thread for all I/O (two
hand-overs a round), a pool of redis-py clients (three times slower, and no order between an acquire and its release).
"""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, Any

from redlock import _clock
from redlock._io.connections import CLOSED, TICK
from redlock._io.connections_threads import Connections
from redlock._io.housekeeper import HousekeeperBase, glances
from redlock._io.renewer_threads import Renewer
from redlock._io.report import report, report_failure
from redlock._io.waiter import Waiter
from redlock._thread import start
from redlock.errors import RedlockError

if TYPE_CHECKING:
    from redlock._io.connection import Connection
    from redlock._io.report import Reports

# A timeout of poll() stands still while the machine sleeps, and the clock of rule R5 does not.  With leases to renew,
# look at that clock at least so often, in seconds.
_LONGEST_NAP = 1.0
_LOOK: Any = None  # an event without a meaning: it only ends a wait


class Housekeeper(HousekeeperBase[Connections]):
    """Keeps the connections of one `Masters` up.  Its thread also runs the `Renewer`."""

    renewer: Renewer

    def _set_up(self) -> None:
        self._guard = self._connections.mutex
        self.renewer = Renewer(self._connections, self.wake)
        self._awaits = False  # it waits for answers, where the waker alone does not wake it
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, if it does not run yet; it connects to all masters.  RedlockError: it cannot start."""
        with self._connections.mutex:
            if self._thread is None and not self._ending:
                thread = threading.Thread(target=self._run, name="redlock-housekeeper", daemon=True)
                start(thread)
                self._thread = thread

    def wait_until_ready(self) -> None:
        """Wait for the connections, before the first operation and after an interruption (R2).

        A `threading.Condition` would need no looks.  But a Ctrl-C in its `wait` can come before it has the mutex
        back; then the `with` around it would release a mutex that it does not have, or that another thread has.
        """
        looks = self.looks_until_ready(_clock.now())
        self._connections.mend()
        for left, pause in zip(looks, glances(), strict=False):
            if self._connections.closing:
                return
            time.sleep(min(left, pause))

    def deliver_owed(self, seconds: float) -> None:
        """Give the masters that are owed a release ``seconds`` to answer it (R11).

        When the `Masters` are closed, operations first have to roll back what they asked for.
        """
        until = _clock.now() + seconds
        waiter = Waiter(self._connections)
        self._connections.flush()  # what an interrupted leading thread has left
        with self._connections.mutex:
            self._connections.hurry()
        self.wake()
        try:
            while _clock.now() < until and self._owes():
                waiter.wait(min(until, _clock.now() + TICK / 10))
        finally:
            waiter.stop_waiting()

    def _owes(self) -> bool:
        connections = self._connections
        with connections.mutex:
            return connections.owe() or (connections.closing and bool(connections.operations))

    def end(self) -> None:
        """Stop the thread.  Takes no lock, so the garbage collector may call it."""
        self._ending = True
        self._connections.waker.wake()

    def join(self) -> None:
        """After `end`: wait until no thread and no socket is left."""
        if self._thread is None:
            self._connections.close()
        elif self._thread is not threading.current_thread():
            self._thread.join()
            for pause in self.looks_until_joined():
                time.sleep(pause)

    # -- the thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        with self._connections.mutex:  # an interrupted `start` may not have noted us
            if self._thread is None:
                self._thread = threading.current_thread()
            ours = self._thread is threading.current_thread()
        if not ours:
            return
        try:
            while not self._ending:
                try:
                    self._once_around()
                except BaseException:  # noqa: BLE001 - from a user's callback; all leases depend on us
                    report_failure("looking after the masters failed")
                    time.sleep(TICK)  # so that a failure that repeats does not spin
        finally:
            self.renewer.tell_losses()  # those that were found before the end
            self._connections.close()
            self.abort_connectors()
            for operation in list(self.renewer.operations):  # here, not by the collector in any thread
                operation.interrupt(RedlockError(CLOSED))

    def wake(self) -> None:
        self._connections.waker.wake()
        if self._awaits:
            self.renewer.waiter.events.append(_LOOK)
            self._connections.wake(self.renewer.waiter)

    def _once_around(self) -> None:
        connections, renewer = self._connections, self.renewer
        # Set before the work: an event that comes during the work is either seen by it, or wakes us.
        self._awaits = bool(renewer.operations)
        due = renewer.work()
        reports: Reports = []
        with connections.mutex:
            now = _clock.now()  # in here, as where a thread leads: no answer is older than its request
            timeout = min(self.chores(now, reports), due - now)
            connections.dozing = timeout > TICK and not renewer.operations
        report(reports, self._observer)
        if self._ending:
            return
        if renewer.operations:
            self._await_answers(now + min(timeout, TICK))
        else:
            renewer.waiter.stop_waiting()
            self._doze(None if timeout == math.inf else max(0.0, timeout))

    def _await_answers(self, until: float) -> None:
        """Wait for answers to the renewer's requests."""
        if not self._awaits:
            return  # the operations began just now: go around once more, see there
        self.renewer.waiter.wait(until)
        # The renewer's waiter still leads, but may first be busy with a user's callback.
        self.renewer.waiter.let_others_run()
        self.renewer.waiter.events.clear()

    def _doze(self, timeout: float | None) -> None:
        """Sleep until a connection breaks, or until we are woken."""
        connections = self._connections
        ready = connections.watch.poll(None if timeout is None else min(timeout, _LONGEST_NAP) * 1000 + 1)
        with connections.mutex:
            connections.dozing = False
            now = _clock.now()
            for fd, _ in ready:
                if fd == connections.waker.fd:
                    connections.waker.drain()
                else:
                    connections.hung_up(fd, now)

    def _read_late(self, connection: Connection, now: float) -> bool:
        if connection.pipeline.idle:
            return False
        self._connections.look(connection, now)
        return True  # also if it is idle now: dozing at once, we would be woken by each operation
