"""Runs operations in the caller's thread: carries out what they yield, and resumes them with what happens.

The rest one thread does for each `Masters`: it connects in the background, reads late answers, sends owed
releases, and renews leases.  It sleeps while all masters are up and have answered and no lease is due.

When that thread ends it ends the renewals under way.  The garbage collector would end them in any thread, in the
middle of anything.  The collector may still end a generator that is thrown away, and a pipe. Neither takes a lock,
and each changes one thing in one step.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import select
import sys
import threading
import time
from collections import deque
from functools import partial
from threading import Lock, RLock, get_ident
from typing import TYPE_CHECKING, Any, TypeVar

from redlock._core.operation import OperationBase, SteppedOperation
from redlock._core.outcomes import NEVER
from redlock._io import process
from redlock._io.background import Background, pauses
from redlock._io.connections import CLOSED, INSIDE, TICK, Inside
from redlock._io.host_threads import ThreadHost
from redlock._io.process import brief
from redlock._io.report import report_failure
from redlock._io.runtime import DRIVERS, without_masters
from redlock._io.waiter import Waiter
from redlock._system import clock
from redlock._system.thread import start
from redlock.errors import ConfigurationError, RedlockError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redlock._connect import Endpoint
    from redlock._core.effects import Op, Send
    from redlock._core.renewals import Renewal, Task
    from redlock._io.deployment import Deployment
    from redlock._io.port import Made
    from redlock._io.stream import Connection

T = TypeVar("T")

_WAKE_UP: Any = None  # an event that only ends a wait


class Operation(Waiter, OperationBase[T, ThreadHost]):
    """An operation that the thread of its caller drives to its end."""

    def __init__(self, op: Op[T], host: ThreadHost) -> None:
        self.events = deque()
        self._op, self._host = op, host

    _await = Waiter.wait

    def abandon(self, error: BaseException) -> None:
        """It was interrupted, perhaps where the engine could not end it: a second Ctrl-C struck there (R11)."""
        if self._host.polling == get_ident():
            self._host.polling = 0
        try:
            if self._op.gi_frame is not None:  # type: ignore[attr-defined]
                self._struck = self._struck or (None if isinstance(error, Exception) else error)
                self._drive(self._op.throw, error)
        finally:
            self._conclude(error)

    def _conclude(self, error: BaseException | None) -> bool:  # noqa: ARG002 - `Driver.run` raises it
        self.stop_waiting()
        host = self._host
        host.operations.discard(self)
        if self.subscription is not None or host.dozing:
            host.finish(self)
        return True


class RenewalOperation(SteppedOperation[Any, "Driver"]):
    """One operation under way that extends one lease or many."""

    def __init__(self, op: Task, driver: Driver, renewals: list[Renewal]) -> None:
        super().__init__(op, driver)
        self._renewals = renewals

    def _wait(self, now: float) -> None:  # noqa: ARG002
        self._host.set_alarm(self)

    def _conclude(self, error: BaseException | None) -> bool:
        super()._conclude(error)
        if self.subscription is not None:
            self._host.unlisten(self)
        self._host.background.renewer.ended(self._renewals, error)
        return False


def check_python() -> None:
    """Check that the modules that threads wait with were not patched since we were imported."""
    if sys.platform != "win32" and not hasattr(select, "poll"):
        raise ConfigurationError(
            "select.poll is gone, and Masters wait with it (eventlet.monkey_patch() takes it away): "
            "allowed are threads, processes and gevent"
        )
    if Lock is not threading.Lock:
        raise ConfigurationError(
            "threading.Lock was replaced after redlock was imported (gevent.monkey.patch_all() does that), so a thread "
            "that waits would stop all others: patch first of all, before any import"
        )


class Driver:
    """Runs the operations of one `Masters` in one process: the `Port` of its background, and the host of renewals."""

    check = staticmethod(check_python)
    where: Callable[[], object] = bool  # one driver for all threads, whatever loop runs in one
    without_masters = staticmethod(without_masters)
    over = False
    successor: Any = None
    here = True
    stopped = BaseException  # even sys.exit()

    def __init__(self, endpoints: Sequence[Endpoint], deployment: Deployment, connect_timeout: float) -> None:
        check_python()  # again: masters may be made before a worker patches
        settings = deployment.settings
        self.host = host = ThreadHost(endpoints, settings)
        self._connections = host.connections
        self.perform_local = host.perform_local
        self.background = Background(self._connections, self, deployment, connect_timeout)
        self._node_timeout = settings.node_timeout
        self.keep = self.background.renewer.add
        self._ready = False
        self._gone = False
        self._closer: threading.Thread | None = None
        self.troubles = self._connections.troubles
        self._thread: threading.Thread | None = None  # of the background
        self.operations: set[RenewalOperation] = set()
        self.waiter = Waiter(host)  # for the answers to all of them
        self._awaits = False  # it waits for answers, and the waker alone does not wake it
        self._calls: deque[Callable[[], object]] = deque()
        self._alarms: list[tuple[float, int, RenewalOperation]] = []
        self._number = 0
        DRIVERS.add(self)
        process.survivors.add(self)

    def run(self, op: Op[T]) -> T:
        """Drive ``op`` to its end.  An exception that interrupts us is thrown into it (R11).  Raises `Inside`."""
        host = self.host
        if host.mutex._is_owned() or brief.lock._is_owned() or (host.polling and self._polls()):  # noqa: SLF001
            raise Inside(INSIDE)
        operation = Operation(op, host)
        try:
            if not self._ready:
                self._get_ready()
            operation.start()
        except BaseException as error:
            self._ready = False  # an interruption may have torn connections
            operation.abandon(error)
            raise
        return operation.result

    post = run

    @property
    def inside(self) -> bool:
        """Whether the calling thread holds a lock of ours: it was interrupted, and must not wait for itself."""
        return bool(self.host.mutex._is_owned()) or brief.is_mine  # noqa: SLF001

    def _polls(self) -> bool:
        """Whether an operation of this thread sits in poll(), and was not torn there before it could note its end."""
        return self.host.polling == get_ident() and self.host.leader in self.host.operations

    def _get_ready(self) -> None:
        """Wait for the connections, before the first operation and after an interruption (R2).

        A `threading.Condition` would need no pauses.  But a Ctrl-C in its `wait` can come before it has the mutex
        back; then the `with` around it would release a mutex that it does not have, or that another thread has.
        """
        with self.host.mutex:
            if self._thread is None and not self.background.ending:
                thread = threading.Thread(target=self._go_around, name="redlock-background", daemon=True)
                start(thread)
                self._thread = thread
        waiting = self.background.until_ready(clock.now())
        self.host.mend()
        for left, pause in zip(waiting, pauses(), strict=False):
            if self._connections.closing:
                break
            time.sleep(min(left, pause))
        self._ready = True

    # -- the port: any thread may call these -------------------------------------------------------------

    @staticmethod
    def now() -> float:
        return clock.now()

    def tick_at(self, at: float = NEVER) -> None:  # noqa: ARG002 - it sees itself what is due
        self.host.waker.wake()
        if self._awaits:
            self.waiter.events.append(_WAKE_UP)
            self.waiter.wake()

    def call_soon(self, call: Callable[[], object]) -> None:
        self._calls.append(call)
        self.tick_at()

    def hand_over(self, made: Made, finish: Callable[[], None]) -> None:  # noqa: ARG002 - `finish` takes the mutex
        finish()

    # -- the thread of the background ------------------------------------------------------------------

    def _go_around(self) -> None:
        with self.host.mutex:  # an interrupted `_get_ready` may not have noted this thread
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
                self.work()  # losses that were found before the end are reported
            finally:
                self.host.close()
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
            self._await_answers(min(until, clock.now() + TICK, self._alarms[0][0] if self._alarms else math.inf))
        else:
            self.waiter.stop_waiting()
            self._doze(until)

    def work(self) -> None:
        """Step the operations that have events, and make the calls that were left to us."""
        while self._calls:
            try:
                self._calls[0]()
            finally:  # not before: the end of the interpreter waits for it
                self._calls.popleft()
        now = clock.now()
        while self._alarms and self._alarms[0][0] <= now:
            _, _, operation = heapq.heappop(self._alarms)
            operation.on_alarm()

    def _await_answers(self, until: float) -> None:
        if not self._awaits:
            return  # the operations began just now: go around once more, see there
        self.waiter.wait(until)
        # Our waiter still leads, but may first be busy with a user's callback.
        self.waiter.let_others_run()
        self.waiter.events.clear()

    def _doze(self, until: float) -> None:
        host = self.host
        timeout = max(0.0, min(until - clock.now(), clock.NAP)) * 1000 + 1
        ready = host.hang_ups.poll(None if until == math.inf else timeout)
        with host.mutex:
            host.dozing = False
            self._connections.read_ready(ready, clock.now())

    def read_late(self, connection: Connection, now: float) -> bool:
        if connection.pipeline.idle:
            return False
        if not self.host.polling or connection.poisoned:  # else a caller is reading anyway
            self._connections.read(connection, now)
        return True  # also if it is idle now: dozing at once, we would be woken by each operation

    def rest(self, now: float, until: float) -> None:
        host = self.host
        if host.asked or self._connections.corked:  # what the operations sent, in one packet for each master
            host.write_asked()
        host.dozing = until > now + TICK and not self.operations

    # -- for operations that renew ---------------------------------------------------------------------

    def start(self, task: Task, renewals: list[Renewal]) -> None:
        RenewalOperation(task, self, renewals).start()

    def send(self, request: Send, operation: Any) -> None:
        self.host.cork(request, operation)

    def unlisten(self, operation: Any) -> None:
        with self.host.mutex:
            self._connections.unlisten(operation)

    def read_and_close(self, request: Send | None) -> None:
        """The leading thread has read.  From now on ``request`` gets no more answers."""
        if request is not None:
            self.host.close_round(request)

    def step_soon(self, operation: Any) -> None:
        self._calls.append(operation.step)
        if len(self._calls) == 1:  # else the thread was woken before
            self.tick_at()

    def set_alarm(self, operation: RenewalOperation) -> None:
        self._number += 1
        heapq.heappush(self._alarms, (operation.until, self._number, operation))

    def deliver_owed(self) -> None:
        """Give the masters that are owed a release `node_timeout` to answer it (R11)."""
        if self._connections.closed:
            return
        until = clock.now() + self._node_timeout
        waiter = Waiter(self.host)
        self.host.flush()  # requests that an interrupted leading thread has left
        for task in self.background.renewer.to_give_back() if not self.background.ending else ():  # not if dropped
            self.post(task)
        with self.host.mutex:
            self._connections.hurry()
        self.call_soon(bool)  # after it, the background has written the releases that it had begun
        try:
            while clock.now() < until and (self._busy or self._owes()):
                with contextlib.suppress(RedlockError):  # the background of a close that was interrupted closes them
                    waiter.wait(min(until, clock.now() + TICK / 10))
        finally:
            waiter.stop_waiting()

    def deliver_at_exit(self) -> None:
        until = clock.now() + self._node_timeout
        # After these two calls the background has looked once for lost leases, and has reported them.
        self.call_soon(partial(self.call_soon, bool))
        with contextlib.suppress(RedlockError):  # another thread has closed it
            self.deliver_owed()
        for pause in pauses():
            if not self._busy or clock.now() >= until:
                break
            time.sleep(pause)

    @property
    def _busy(self) -> bool:
        """Whether calls that were left to the background are still to be made, and we are not inside one of them."""
        thread = self._thread
        if self._connections.closed:
            return False
        return bool(self._calls) and thread not in (None, threading.current_thread()) and thread.is_alive()

    def _owes(self) -> bool:
        connections = self._connections
        with self.host.mutex:
            return bool(connections.corked or connections.owe() or (connections.closing and self.host.operations))

    def stop(self) -> None:
        """End the thread of the background.  Takes no lock and does not wait: the garbage collector may call it."""
        self.background.ending = True
        self.host.waker.wake()

    @staticmethod
    def close_all(drivers: Sequence[Driver], before: Sequence[Driver]) -> None:
        """Close them.  ``before``: another thread began to close these before us."""
        for driver in drivers:
            driver.close()
        for driver in before:
            driver.wait_until_closed()

    def close(self) -> None:
        """End the operations under way, send what is owed, then leave no thread and no socket."""
        try:
            self._closer = threading.current_thread()
            self._close()
            self._gone = True
        finally:
            self._closer = None

    def wait_until_closed(self) -> None:
        """Another thread closes it; if that was interrupted, this one does (R11)."""
        for pause in pauses():
            if threading.current_thread() in (self._closer, self._thread):  # an observer or a signal handler calls this
                return
            if self._gone and (self._thread is None or not self._thread.is_alive()):
                return
            if self._closer is None and not self._gone:
                self.close()
            time.sleep(pause)

    def _close(self) -> None:
        try:
            self.host.begin_to_close()
            self.deliver_owed()
        finally:
            self.stop()
            if self._thread is None:
                self.host.close()
            # Not where a finalizer closes them in the middle of a change of leases: the thread ends behind that.
            elif not (self._thread is threading.current_thread() or self.background.renewer.mutex.is_mine):
                self._thread.join()
                for pause in self.background.until_joined():
                    time.sleep(pause)

    def stay_alone(self) -> None:
        """See `process.survivors`.  This thread does not wait for that of the background, nor for one that reads."""
        self.host.mutex, self.host.leader = RLock(), None
        self._thread, self._gone = threading.current_thread(), True

    def disown(self) -> None:
        """In a forked child: the sockets are the parent's.  Takes no lock: a thread of the parent may have held it."""
        self.host.disown()
        DRIVERS.discard(self)
