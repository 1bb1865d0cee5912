"""Runs operations in the caller's thread: carries out what they yield, and resumes them with what happens.

What no caller does, one thread does for each `Masters`: it connects in the background, reads late answers, sends owed
releases, and renews leases.  It sleeps while all masters are up and have answered and no lease is due.

When that thread ends it ends the renewals under way.  The garbage collector would end them in any thread, in the
middle of anything.  It may still run two things of ours: a generator that is thrown away, and the end of a pipe.
Neither takes a lock, and each changes one thing in one step.

Also considered: a thread for each master (a hand-over costs more than the round trip), one thread for all I/O (two
hand-overs a round), a pool of redis-py clients (three times slower, and no order between an acquire and its release).
"""

from __future__ import annotations

import contextlib
import heapq
import math
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

from redlock import _clock
from redlock._core.operation import OperationBase, SteppedOperation
from redlock._core.outcomes import NEVER
from redlock._io.background import LONGEST_NAP, Background, glances
from redlock._io.connections import CLOSED, TICK
from redlock._io.connections_threads import Connections
from redlock._io.report import report_failure
from redlock._io.runtime import DRIVERS
from redlock._io.waiter import Waiter
from redlock._thread import start
from redlock.errors import RedlockError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redlock._connect import Endpoint
    from redlock._core.effects import LocalEffect, Op, Send
    from redlock._core.extend import Extension
    from redlock._core.local_queue import Place
    from redlock._core.renewals import Renewal, Task
    from redlock._io.connection import Connection
    from redlock._io.deployment import Deployment
    from redlock._io.port import Made

T = TypeVar("T")

_LOOK: Any = None  # an event without a meaning: it only ends a wait


class Operation(Waiter, OperationBase[T, Connections]):
    """An operation that the thread of its caller drives to its end."""

    def __init__(self, op: Op[T], connections: Connections) -> None:
        self.events = deque()
        self._op, self._host = op, connections
        self._connections = connections

    _await = Waiter.wait

    def _failed(self, error: BaseException) -> bool:  # noqa: ARG002 - it is raised as it is
        return True

    def abandon(self) -> None:
        """It was interrupted, perhaps where the engine could not end it.  A second time does no harm."""
        self._end()

    def _end(self) -> None:
        self.stop_waiting()
        connections = self._host
        connections.operations.discard(self)
        if self.subscription is not None or connections.dozing:
            connections.finish(self)


class RenewalOperation(SteppedOperation["dict[Renewal, Extension]", "Driver"]):
    """One operation under way that extends one lease or many."""

    def __init__(self, op: Task, driver: Driver, renewals: list[Renewal]) -> None:
        super().__init__(op, driver)
        self._renewals = renewals

    def _wait(self, now: float) -> None:  # noqa: ARG002
        self._host.set_alarm(self)

    def _ended(self, result: dict[Renewal, Extension]) -> None:  # noqa: ARG002 - the leases have it already
        self._host.background.renewer.ended(self._renewals)

    def _failed(self, error: BaseException) -> bool:
        self._host.background.renewer.ended(self._renewals, error)
        return False


class Driver:
    """Runs the operations of one `Masters` in one process, from the first one until `close`.

    It is the `Port` of its background, and the host of the operations that renew.
    """

    here = True
    stopped = BaseException  # even sys.exit()

    def __init__(self, endpoints: Sequence[Endpoint], deployment: Deployment, connect_timeout: float) -> None:
        settings = deployment.settings
        self._connections = Connections(endpoints, settings.voters, settings.node_timeout)
        self.guard = self._connections.mutex
        self.background = Background(self._connections, self, deployment, connect_timeout)
        self._node_timeout = settings.node_timeout
        self.keep = self.background.renewer.add
        self._ready = False
        self._closed = False
        self.troubles = self._connections.troubles
        # The thread of the background.
        self._thread: threading.Thread | None = None
        self.operations: set[RenewalOperation] = set()
        self.waiter = Waiter(self._connections)  # for the answers to all of them
        self._awaits = False  # it waits for answers, where the waker alone does not wake it
        self._calls: deque[Callable[[], object]] = deque()
        self._alarms: list[tuple[float, int, RenewalOperation]] = []
        self._number = 0
        DRIVERS.add(self)

    def run(self, op: Op[T]) -> T:
        """Drive ``op`` to its end, and return its result.

        Any exception that interrupts us, a KeyboardInterrupt most of all, is thrown into the operation at the point
        where it waits.  The operation cleans up and raises it again (R11).
        """
        operation = Operation(op, self._connections)
        try:
            if not self._ready:
                self._get_ready()
            operation.start()
        except BaseException:
            self._ready = False  # an interruption may have torn connections
            operation.abandon()
            raise
        return operation.result

    def _get_ready(self) -> None:
        """Wait for the connections, before the first operation and after an interruption (R2).

        A `threading.Condition` would need no looks.  But a Ctrl-C in its `wait` can come before it has the mutex
        back; then the `with` around it would release a mutex that it does not have, or that another thread has.
        """
        with self._connections.mutex:
            if self._thread is None and not self.background.ending:
                thread = threading.Thread(target=self._go_around, name="redlock-housekeeper", daemon=True)
                start(thread)
                self._thread = thread
        looks = self.background.looks_until_ready(_clock.now())
        self._connections.mend()
        for left, pause in zip(looks, glances(), strict=False):
            if self._connections.closing:
                break
            time.sleep(min(left, pause))
        self._ready = True

    # -- the port: any thread may call these -------------------------------------------------------------

    @staticmethod
    def now() -> float:
        return _clock.now()

    @property
    def closed(self) -> bool:
        return self._connections.closed

    def call_at(self, at: float = NEVER) -> None:  # noqa: ARG002 - it sees itself what is due
        self._connections.waker.wake()
        if self._awaits:
            self.waiter.events.append(_LOOK)
            self._connections.rouse(self.waiter)

    def call_soon(self, call: Callable[[], object]) -> None:
        self._calls.append(call)
        self.call_at()

    def hand_over(self, made: Made, finish: Callable[[], None]) -> None:  # noqa: ARG002 - `finish` takes the mutex
        finish()

    def pass_by(self, place: Place) -> None:
        self._connections.leave(place)

    # -- the thread of the background ------------------------------------------------------------------

    def _go_around(self) -> None:
        with self._connections.mutex:  # an interrupted `_get_ready` may not have noted us
            if self._thread is None:
                self._thread = threading.current_thread()
            ours = self._thread is threading.current_thread()
        if not ours:
            return
        try:
            while not self.background.ending:
                try:
                    self._once_around()
                except BaseException:  # noqa: BLE001 - from a user's callback; all leases depend on us
                    report_failure("looking after the masters failed")
                    time.sleep(TICK)  # so that a failure that repeats does not spin
        finally:
            try:
                self.background.renewer.closing = True
                self.work()  # losses that were found before the end are told
            finally:
                self._connections.close()
                self.background.abort_connectors()
                for operation in list(self.operations):  # here, not by the collector in any thread
                    operation.interrupt(RedlockError(CLOSED))

    def _once_around(self) -> None:
        # Set before the work: an event that comes during the work is either seen by it, or wakes us.
        self._awaits = bool(self.operations)
        self.work()
        until = self.background.tick()
        if self.background.ending:
            return
        if self.operations:
            self._await_answers(min(until, _clock.now() + TICK, self._alarms[0][0] if self._alarms else math.inf))
        else:
            self.waiter.stop_waiting()
            self._doze(until)

    def work(self) -> None:
        """Step the operations that have events, and make the calls that were left to us."""
        while self._calls:
            self._calls.popleft()()
        now = _clock.now()
        while self._alarms and self._alarms[0][0] <= now:
            _, _, operation = heapq.heappop(self._alarms)
            operation.on_alarm()

    def _await_answers(self, until: float) -> None:
        """Wait for answers to the requests of our operations."""
        if not self._awaits:
            return  # the operations began just now: go around once more, see there
        self.waiter.wait(until)
        # Our waiter still leads, but may first be busy with a user's callback.
        self.waiter.let_others_run()
        self.waiter.events.clear()

    def _doze(self, until: float) -> None:
        """Sleep until a connection breaks, or until we are woken."""
        connections = self._connections
        timeout = max(0.0, min(until - _clock.now(), LONGEST_NAP)) * 1000 + 1
        ready = connections.watch.poll(None if until == math.inf else timeout)
        with connections.mutex:
            connections.dozing = False
            now = _clock.now()
            for fd, _ in ready:
                if fd == connections.waker.fd:
                    connections.waker.drain()
                else:
                    connections.hung_up(fd, now)

    def read_late(self, connection: Connection, now: float) -> bool:
        if connection.pipeline.idle:
            return False
        self._connections.look(connection, now)
        return True  # also if it is idle now: dozing at once, we would be woken by each operation

    def rest(self, now: float, until: float) -> None:
        connections = self._connections
        if connections.asked or connections.corked:  # what the operations sent, in one packet for each master
            connections.write_asked()
        connections.dozing = until > now + TICK and not self.operations

    # -- for operations that renew ---------------------------------------------------------------------

    def start(self, task: Task, renewals: list[Renewal]) -> None:
        RenewalOperation(task, self, renewals).start()

    def send(self, request: Send, operation: Any) -> None:
        self._connections.cork(request, operation)

    def perform_local(self, effect: LocalEffect, operation: Any) -> None:
        self._connections.perform_local(effect, operation)

    def last_look(self, request: Send | None) -> None:
        """The leading thread has read.  From now on ``request`` is told of no more answers."""
        if request is not None:
            self._connections.close_round(request)

    def wake(self, operation: Any) -> None:
        self._calls.append(operation.step)
        if len(self._calls) == 1:  # else the thread was woken before
            self.call_at()

    def set_alarm(self, operation: RenewalOperation) -> None:
        self._number += 1
        heapq.heappush(self._alarms, (operation.until, self._number, operation))

    # -- the end -------------------------------------------------------------------------------------

    def deliver_owed(self) -> None:
        """Give the masters that are owed a release `node_timeout` to answer it (R11).

        When the `Masters` are closed, operations first have to roll back what they asked for.
        """
        if self._closed:
            return
        until = _clock.now() + self._node_timeout
        waiter = Waiter(self._connections)
        self._connections.flush()  # what an interrupted leading thread has left
        with self._connections.mutex:
            self._connections.hurry()
        self.call_at()
        try:
            while _clock.now() < until and self._owes():
                waiter.wait(min(until, _clock.now() + TICK / 10))
        finally:
            waiter.stop_waiting()

    def deliver_at_exit(self) -> None:
        with contextlib.suppress(RedlockError):  # another thread has closed it meanwhile
            self.deliver_owed()

    def _owes(self) -> bool:
        connections = self._connections
        with connections.mutex:
            return connections.owe() or (connections.closing and bool(connections.operations))

    def stop(self) -> None:
        """End the thread of the background.  Takes no lock and does not wait: the garbage collector may call it."""
        self.background.ending = True
        self._connections.waker.wake()

    def close(self) -> None:
        """End the operations under way, send what is owed, then leave no thread and no socket.  May be called twice."""
        try:
            self._connections.begin_to_close()
            self.deliver_owed()
        finally:
            self._closed = True
            self.stop()
            if self._thread is None:
                self._connections.close()
            elif self._thread is not threading.current_thread():
                self._thread.join()
                for pause in self.background.looks_until_joined():
                    time.sleep(pause)

    def disown(self) -> None:
        """In a forked child: the sockets are the parent's.  Takes no lock: a thread of the parent may have held it."""
        self._closed = True
        self._connections.disown()
        DRIVERS.discard(self)
