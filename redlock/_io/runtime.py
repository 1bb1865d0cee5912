"""What is behind a `Masters`, for the objects that are made of it: locks, slots and elections.

`Masters` and `AsyncMasters` are faces: their methods are for users.  Here is the rest: which driver runs an operation,
and what a closed or forked one does instead.  Threads have one driver in each process.

Each event loop has one of its own, with its connections, also two loops in two threads.  The connections of a closed
loop are closed when the next loop comes, when the masters are dropped, or at the interpreter's exit, which first gives
owed releases `node_timeout`.  A lease of a closed loop that is thrown away later is released over the latest loop.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import weakref
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from redlock._connect import NO_DESCRIPTOR, Endpoint, out_of_descriptors
from redlock._io import process
from redlock._io.connections import CLOSED, INSIDE, Inside
from redlock._io.process import ForkLock
from redlock._io.report import report_failure
from redlock._system.dropped import when_dropped
from redlock.errors import QuorumUnreachable, RedlockError, Vote

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from redlock._core.effects import Op
    from redlock._io import driver_async, driver_threads
    from redlock._io.deployment import Deployment

T = TypeVar("T")
# The loop that runs in this thread, or None.  The documented function raises, which costs as much as a whole release.
running_loop: Callable[[], asyncio.AbstractEventLoop | None] = asyncio._get_running_loop  # noqa: SLF001 - see above
AnyDriver = TypeVar("AnyDriver", bound="driver_async.Driver | driver_threads.Driver")


class Runtime(Generic[AnyDriver]):
    """Runs the operations of one `Masters`: with a driver of its own in each process, and on each event loop."""

    def __init__(
        self, kind: type[AnyDriver], endpoints: Sequence[Endpoint], deployment: Deployment, connect_timeout: float
    ) -> None:
        kind.check()
        self.endpoints = endpoints
        self.deployment = deployment
        self.connect_timeout = connect_timeout
        self.own: Any = None  # the holds of each caller, for the locks
        self.closed = False
        self.drivers: dict[object, AnyDriver] = {}  # by event loop, or one for all threads, as `where` says
        self._past: weakref.WeakSet[AnyDriver] = weakref.WeakSet()  # of closed loops, while leases of theirs are held
        self._closing: list[AnyDriver] = []
        self.making = ForkLock()  # held while one is made
        self._kind = kind
        self.where = kind.where
        when_dropped(self, _stop, self.drivers)  # without close(): nothing may go on
        _RUNTIMES.add(self)

    @overload
    def run(self: Runtime[driver_threads.Driver], op: Op[T]) -> T: ...

    @overload
    def run(self: Runtime[driver_async.Driver], op: Op[T]) -> Coroutine[Any, Any, T]: ...

    def run(self, op: Op[Any]) -> Any:
        if not process.usual[0]:
            process.notice()
        driver = self.drivers.get(self.where())
        if driver is None:
            if self.closed:
                return self._kind.without_masters(op)
            driver = self.driver()
        return driver.run(op)

    def post(self, op: Op[Any], driver: AnyDriver | None = None) -> None:
        """Send what ``op`` sends, and wait for no answers.  Any thread may call this with a ``driver``."""
        (driver or self.driver()).post(op)

    def troubles(self) -> Callable[[], list[str]]:
        """A function for any thread: see `Connections.troubles`, of this process or of the running event loop."""
        where = self.where()
        return lambda: [] if (driver := self.drivers.get(where)) is None else driver.troubles()

    def driver(self) -> AnyDriver:
        """The driver of this process, or of the running loop, made if there is none."""
        process.check()
        return self.drivers.get(self.where()) or self._make_driver()

    def check_outside(self) -> None:
        """Raises `Inside` if the calling thread is in the middle of one of our steps, and was interrupted there."""
        if self.making.is_mine or any(driver.inside for driver in list(self.drivers.values())):
            raise Inside(INSIDE)

    def _make_driver(self) -> AnyDriver:
        self.check_outside()
        with self.making.lock:
            if self.closed:
                raise RedlockError(CLOSED)
            where = self.where()
            driver = self.drivers.get(where)
            if driver is None:
                try:
                    driver = self._kind(self.endpoints, self.deployment, self.connect_timeout)
                except OSError as error:
                    raise self._without_descriptors(error) from error
                over = [self.drivers.pop(one) for one, its in list(self.drivers.items()) if its.over]
                self._past.update(over)
                for before in self._past:  # leases of closed loops may be thrown away only now (P7)
                    before.successor = driver
                for before in over:
                    before.stop()
                self.drivers[where] = driver
            return driver

    def _without_descriptors(self, error: OSError) -> QuorumUnreachable:
        """The error if no driver can be made: an outage. The next operation tries again."""
        reason = NO_DESCRIPTOR if out_of_descriptors(error) else f"{error}"
        votes = [Vote(master, "error", None, "not asked") for master in self.deployment.settings.masters]
        return QuorumUnreachable(f"no master can be asked: {reason}", votes=votes)

    def close(self) -> Any:
        """See `Masters.close`, and `AsyncMasters.close`, which awaits what this returns."""
        process.check()
        self.check_outside()
        with self.making.lock:
            self.closed = True
            drivers: list[Any] = list(self.drivers.values())
            before: list[Any] = self._closing[:]
            self._closing += drivers
            self.drivers.clear()
        return self._kind.close_all(drivers, before)

    def disown(self) -> None:
        """In a forked child: the drivers are the parent's.  The next operation makes another one."""
        for driver in [*self.drivers.values(), *self._past]:
            driver.disown()
        self.drivers.clear()
        self._past.clear()
        self._closing.clear()


_RUNTIMES: weakref.WeakSet[Runtime[Any]] = weakref.WeakSet()
# The drivers that may still owe a release when the interpreter exits, also those whose masters are gone.
DRIVERS: weakref.WeakSet[Any] = weakref.WeakSet()


def _stop(drivers: dict[object, Any]) -> None:
    process.check()
    for driver in list(drivers.values()):
        driver.stop()


def _in_child() -> None:
    for runtime in list(_RUNTIMES):
        runtime.disown()
    for driver in list(DRIVERS):  # those that are left
        driver.disown()


def _at_exit() -> None:
    process.check()
    drivers: list[Any] | None = None
    while drivers is None:
        with contextlib.suppress(RuntimeError):  # another thread has added a driver meanwhile
            drivers = list(DRIVERS)
    for driver in drivers:
        try:
            driver.deliver_at_exit()
        except Exception:  # noqa: BLE001 - the other drivers owe releases, too
            report_failure("sending owed releases at exit failed")


atexit.register(_at_exit)
process.in_child(_in_child)


def without_masters(op: Op[T]) -> T:
    """Run ``op`` although the masters were closed.  Raises RedlockError if the operation sends anything."""
    try:
        op.send(None)
        while True:  # until it gives up; a Ctrl-C that interrupted it is not lost (R11)
            op.throw(RedlockError(CLOSED))
    except StopIteration as stop:
        result: T = stop.value
        return result
