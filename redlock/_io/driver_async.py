"""Runs operations for the tasks of one event loop: carries out what they yield, and resumes them with what happens.

Callbacks of the loop step the operations.  If an answer decides a round, the callback of that socket steps the
generator.  The caller's task waits at one single await, and is woken once, at the end.  A cancellation finds it
there, and is thrown into the generator.  The generator cleans up by sending; it does not wait, so a second
cancellation cannot strike in the middle.  The library has no task of its own that could be destroyed with its loop,
or be gathered and cancelled by a user.

The background has one timer of the loop at most, also for all leases, and none while there is nothing to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeVar

from redlock._core.outcomes import NEVER, Failure
from redlock._io import process
from redlock._io.background import Background
from redlock._io.connections import CLOSED, TICK
from redlock._io.host_async import LATE, LoopHost, Operation
from redlock._io.report import report_failure
from redlock._io.runtime import DRIVERS, running_loop, without_masters
from redlock._system import clock
from redlock.errors import RedlockError

if sys.platform == "win32":
    from redlock._system import windows, windows as select
else:
    import select

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from redlock._connect import Endpoint
    from redlock._core.effects import Op
    from redlock._core.renewals import Renewal, Task
    from redlock._io.deployment import Deployment
    from redlock._io.port import Made
    from redlock._io.stream import Connection

T = TypeVar("T")

_TICKS = 10  # turns of the loop for tasks to be resumed whose operations have ended


class Driver:
    """Runs the operations of one `AsyncMasters` on one event loop.  It is the `Port` of its background."""

    where = staticmethod(running_loop)
    stopped: Final = Exception
    inside: Final = False  # a coroutine never runs inside a step of the loop
    check: Callable[[], object] = bool  # a loop needs no part of Python that may be patched

    @staticmethod
    async def without_masters(op: Op[T]) -> T:
        return without_masters(op)

    def __init__(self, endpoints: Sequence[Endpoint], deployment: Deployment, connect_timeout: float) -> None:
        if sys.platform == "win32":
            windows.check(asyncio.get_running_loop())
        settings = deployment.settings
        self.host = LoopHost(endpoints, settings, self.tick_at)
        self.loop = self.host.loop
        self.call_soon = self.loop.call_soon_threadsafe
        self._connections = self.host.connections
        self.background = Background(self._connections, self, deployment, connect_timeout)
        self.keep = self.background.renewer.add
        self._node_timeout = settings.node_timeout
        self.successor: Driver | None = None  # the driver of the latest loop, once ours was closed
        self._ended_at_once = False  # an operation ended without a wait in this turn of the loop
        self._thread = threading.get_ident()
        self._put_off: deque[Callable[[], None]] = deque()  # calls that wait for the loop to run
        self.troubles = self._connections.troubles
        self.ready = asyncio.Event()  # operations may begin (R2)
        self.gone = asyncio.Event()  # all of it was closed
        self._until_ready: Iterator[float] | None = None  # of the background; None: it has not begun to connect
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        DRIVERS.add(self)

    async def run(self, op: Op[T]) -> T:
        """Drive ``op`` to its end.  An exception at the await is thrown into it (R11), unless it has ended by then."""
        if not self.ready.is_set():
            self._connect()
            await self.ready.wait()
            process.check()
        operation = Operation(op, self.host)
        try:
            operation.start()
            if operation.future.done():
                await self._let_others_go_on()
            return await operation.future
        except GeneratorExit:  # thrown away, in any thread; its loop may be closed
            self._on_loop(functools.partial(self._abandon, operation, asyncio.CancelledError()))
            raise
        except BaseException as error:
            self._abandon(operation, error)
            raise

    async def _let_others_go_on(self) -> None:
        """End the turn of the loop at its second operation that ended at once: many of them would stop the loop."""
        if self._ended_at_once:
            await asyncio.sleep(0)
        else:
            self._ended_at_once = True
            self.loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._ended_at_once = False

    def post(self, op: Op[Any]) -> None:
        """Carry out what ``op`` sends before its first wait.  Any thread may call this."""
        if self.successor is None:
            self._on_loop(functools.partial(self._post, op))
        else:
            self.successor.post(op)

    def _post(self, op: Op[Any]) -> None:
        self._connect()
        operation = Operation(op, self.host)
        operation.start()
        self._abandon(operation, asyncio.CancelledError())
        self.host.flush()

    def _abandon(self, operation: Operation[Any], error: BaseException) -> None:
        """Break the operation off: no task waits for its result any more."""
        process.check()
        if not self.loop.is_closed():
            operation.future.cancel()
        if not operation.over:
            operation.interrupt(error)

    def _on_loop(self, what: Callable[[], None]) -> None:
        """Call ``what`` in the loop's thread; in this thread, perhaps the collector's, if the loop does not run."""
        process.check()
        running = running_loop() is self.loop and not isinstance(sys.exc_info()[1], GeneratorExit)
        idle = self._thread == threading.get_ident() and not self.loop.is_running()
        if running or idle or self.loop.is_closed():
            what()
            self.host.flush()  # the loop may never run again
            return
        self._put_off.append(what)
        with contextlib.suppress(RuntimeError):  # the loop was closed just now: `shut` catches up
            self.loop.call_soon_threadsafe(self._catch_up)

    def _catch_up(self) -> None:
        while self._put_off:
            self._put_off.popleft()()
        self.host.flush()

    def _connect(self) -> None:
        if self._until_ready is None and not self.ready.is_set():
            self.tick_at()  # first: after an interruption here the next call does it again
            self._until_ready = self.background.until_ready(clock.now())

    @staticmethod
    def now() -> float:
        return clock.now()

    @property
    def over(self) -> bool:
        return self.loop.is_closed()

    @property
    def here(self) -> bool:
        return running_loop() is self.loop

    def tick_at(self, at: float = NEVER) -> None:
        now = clock.now()
        # A call that is overdue was lost in an interruption, or the loop was blocked: its work is due now.
        at = now if self._timer_at <= now - TICK else max(at, now)
        if now - TICK < self._timer_at <= at or self.background.over or self.loop.is_closed():
            return
        if self._timer is not None:
            self._timer.cancel()
        if self.background.renewer.holding:
            at = min(at, now + clock.NAP)
        self._timer = self.loop.call_later(at - now + LATE if at > now else 0.0, self._go_around)
        self._timer_at = at

    def _go_around(self) -> None:
        self._timer, self._timer_at = None, math.inf
        process.check()
        if self.background.over:
            return
        try:
            self.background.renewer.wakes_at = math.inf  # a timer costs little: none for leases that were released
            self.background.tick()
            if self._until_ready is not None and not self.ready.is_set():
                left = next(self._until_ready, 0.0)
                if left:
                    self.tick_at(clock.now() + left)
                else:
                    self.ready.set()
        except BaseException:
            self.tick_at(clock.now() + TICK)  # not at once: a failure that repeats must not spin
            raise

    def rest(self, now: float, until: float) -> None:  # noqa: ARG002
        if until < math.inf:
            self.tick_at(until)

    def hand_over(self, made: Made, finish: Callable[[], None]) -> None:
        if not isinstance(made, Failure):
            self.host.keep(made[0])
        with contextlib.suppress(RuntimeError):  # the loop was closed; the connections close the socket
            self.loop.call_soon_threadsafe(finish)

    def start(self, task: Task, renewals: list[Renewal]) -> None:
        # All that are due start in one tick, so that their requests leave in one packet for each master.
        operation = Operation(task, self.host)
        operation.start()
        operation.future.add_done_callback(functools.partial(self._ended, renewals))

    def _ended(self, renewals: list[Renewal], ended: asyncio.Future[Any]) -> None:
        self.background.renewer.ended(renewals, None if ended.cancelled() else ended.exception())

    def read_late(self, connection: Connection, now: float) -> bool:  # noqa: ARG002 - the loop reads by itself
        return False

    @staticmethod
    async def close_all(drivers: Sequence[Driver], before: Sequence[Driver]) -> None:
        """Close the running loop's driver, and have the others closed.  ``before``: others began to close these."""
        loop = asyncio.get_running_loop()
        mine = None
        for driver in drivers:
            if driver.loop is loop:
                mine = driver
            else:
                driver.stop()
        if mine is not None:
            try:
                await mine.close()
            finally:
                mine.gone.set()
        for driver in before:
            if driver.loop is loop:
                await driver.gone.wait()

    async def close(self) -> None:
        """Send owed releases for at most `node_timeout` (R11), then leave no thread and no socket."""
        host, connections = self.host, self._connections
        self.background.renewer.closing = True
        try:
            for operation in list(host.operations):
                operation.interrupt(RedlockError(CLOSED))
            # A task that was cancelled right after its grant gives the lock back when it is resumed; an async
            # generator without an owner does so when the loop closes it.
            for _ in range(_TICKS):
                await asyncio.sleep(0)
            for task in self.background.renewer.to_give_back():
                self._post(task)
            connections.hurry()
            self.tick_at()
            until = clock.now() + self._node_timeout
            while connections.owe() and clock.now() < until:  # noqa: ASYNC110 - a few times at most
                await asyncio.sleep(min(TICK / 20, self._node_timeout / 20))
        finally:
            self.shut()
        for pause in self.background.until_joined():
            await asyncio.sleep(pause)

    def shut(self) -> None:
        """Close everything at once.  Call it in the loop's thread, or in any thread if the loop is closed."""
        process.check()
        DRIVERS.discard(self)
        try:
            try:
                self._catch_up()
            finally:
                self.host.shut()
        finally:
            background = self.background
            background.renewer.stop()
            background.ending = True
            if not self.loop.is_closed():  # else no task waits that could be woken
                self.ready.set()
            if self._timer is not None:
                self._timer.cancel()
            background.abort_connectors()

    def _shut_and_tell(self) -> None:
        try:
            self.shut()
        finally:
            self.gone.set()

    def stop(self) -> None:
        """Call `shut` from any thread.  It raises nothing: the caller may have more drivers to stop."""
        try:
            self.loop.call_soon_threadsafe(self._shut_and_tell)
        except RuntimeError:  # the loop is closed
            try:
                self.shut()
            except Exception:  # noqa: BLE001 - logged
                report_failure("closing the connections of an event loop that is closed failed")

    def deliver_at_exit(self) -> None:
        """The interpreter exits: give masters that are owed a release `node_timeout` to confirm it (R11)."""
        if self.loop.is_running():
            return
        connections = self._connections
        self._catch_up()
        for task in self.background.renewer.to_give_back():
            self._post(task)
        until = clock.now() + self._node_timeout
        while connections.owe() and clock.now() < until:
            poll = select.poll()
            for connection in connections.all:
                if connection.sock is not None:
                    poll.register(connection.fd, select.POLLIN)
            poll.poll(TICK * 100)
            self.host.read_all()
            for connection in connections.all:
                connections.send_owed(connection, clock.now())
        self.shut()

    def disown(self) -> None:
        """In a forked child: the sockets are the parent's, and so is what the loop watches."""
        DRIVERS.discard(self)
        self.host.disown()
