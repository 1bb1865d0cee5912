"""What is behind an `AsyncMasters`: the driver of each event loop.

Each event loop has connections of its own, also two loops in two threads.  The connections of a closed loop are
closed when the next loop comes, when the masters are dropped, or at the interpreter's exit, which first gives owed
releases `node_timeout`.  A lease that was acquired on a closed loop and is thrown away later is released over the
connections of the latest loop.
"""

from __future__ import annotations

import asyncio
import sys
import weakref
from os import getpid
from typing import TYPE_CHECKING, Any, TypeVar

from redlock._io import process
from redlock._io.connections import CLOSED
from redlock._io.driver_async import Driver
from redlock._io.loop import running_loop
from redlock._io.runtime import RuntimeBase, without_masters
from redlock.errors import RedlockError

if sys.platform == "win32":
    from redlock import _windows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redlock._connect import Endpoint
    from redlock._core.effects import Op
    from redlock._core.renewals import Renewal
    from redlock._io.deployment import Deployment

T = TypeVar("T")


class Runtime(RuntimeBase):
    """Runs operations on the loops of their callers."""

    def __init__(self, endpoints: Sequence[Endpoint], deployment: Deployment, connect_timeout: float) -> None:
        super().__init__(endpoints, deployment, connect_timeout)
        self.drivers: dict[asyncio.AbstractEventLoop, Driver] = {}
        # Drivers of closed loops, as long as leases of theirs are held.
        self._past: weakref.WeakSet[Driver] = weakref.WeakSet()
        self._closing: dict[asyncio.AbstractEventLoop, asyncio.Event] = {}
        # If it is dropped without close(), nothing may go on for it.
        weakref.finalize(self, _stop, self.drivers).atexit = False

    async def run(self, op: Op[T]) -> T:
        if getpid() != process.pid:
            process.notice()
        driver = self.drivers.get(running_loop())  # type: ignore[arg-type]  # None, if no loop runs, is no key
        if driver is None:
            if self.closed:
                return without_masters(op)
            driver = self.driver()
        return await driver.run(op)

    def post(self, op: Op[Any], driver: Any = None) -> None:
        """See `RuntimeBase`.  With a ``driver`` any thread may call this."""
        (driver or self.driver()).post(op)

    @property
    def known_driver(self) -> Driver | None:
        """The driver of the running loop.  None: no loop runs, it has none, or the masters were closed just now."""
        loop = running_loop()
        return None if loop is None else self.drivers.get(loop)

    def troubles(self) -> Callable[[], list[str]]:
        loop = asyncio.get_running_loop()

        def troubles() -> list[str]:
            driver = self.drivers.get(loop)
            return [] if driver is None else driver.troubles()

        return troubles

    def keep(self, renewal: Renewal) -> None:
        driver = self.known_driver
        if driver is not None:  # else the masters were closed just now: nothing is renewed any more
            driver.keep(renewal)

    def driver(self) -> Driver:
        """The driver of the running loop, made if there is none."""
        process.look()
        loop = asyncio.get_running_loop()
        if sys.platform == "win32":
            _windows.check(loop)
        return self.drivers.get(loop) or self._make_driver(loop)

    def _make_driver(self, loop: asyncio.AbstractEventLoop) -> Driver:
        with self.making.lock:
            if self.closed:
                raise RedlockError(CLOSED)
            try:
                driver = Driver(self.endpoints, self.deployment, self.connect_timeout, loop)
            except OSError as error:
                raise self.without_descriptors(error) from error
            over = [self.drivers.pop(known) for known in list(self.drivers) if known.is_closed()]
            self._past.update(over)
            for before in self._past:  # a lease of theirs may be thrown away only now (P7)
                before.heir = driver
            for before in over:
                before.stop()
            self.drivers[loop] = driver
            return driver

    async def close(self) -> None:
        """See `AsyncMasters.close`."""
        process.look()
        with self.making.lock:
            self.closed = True
            drivers = list(self.drivers.values())
            self.drivers.clear()
        loop = asyncio.get_running_loop()
        mine = None
        for driver in drivers:
            if driver.loop is loop:
                mine = driver
            else:
                driver.stop()
        if mine is not None:
            closing = self._closing.setdefault(loop, asyncio.Event())
            try:
                await mine.close()
            finally:
                closing.set()
        elif loop in self._closing:  # another task began to close them before us
            await self._closing[loop].wait()

    def disown(self) -> None:
        for driver in [*self.drivers.values(), *self._past]:
            driver.disown()
        self.drivers.clear()
        self._past.clear()
        self._closing.clear()


def _stop(drivers: dict[asyncio.AbstractEventLoop, Driver]) -> None:
    process.look()
    for driver in list(drivers.values()):
        driver.stop()
