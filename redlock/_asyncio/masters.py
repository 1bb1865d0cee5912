"""The masters of one deployment, for asyncio.

Each loop has connections of its own, also two loops in two threads.  Those of a loop that was closed are closed
when the next loop comes, when the masters are dropped, or by the interpreter at its exit, which first gives
owed releases `node_timeout`.  What was acquired on such a loop and is thrown away later is given back over the
connections of the latest loop.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from redlock._asyncio.driver import Driver
from redlock._base import process
from redlock._base.connections import CLOSED
from redlock._base.loop import running_loop
from redlock._base.masters import MastersBase, known
from redlock.errors import RedlockError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self, Unpack

    from redlock._asyncio.lease import AsyncLease
    from redlock._asyncio.lock import AsyncMultiLock, AsyncMultiLockOptions
    from redlock._base.holds import Hold
    from redlock._core.effects import Op
    from redlock._core.inspect import LockStatus
    from redlock._core.renewals import Renewal
    from redlock._health.records import Health

T = TypeVar("T")


class AsyncMasters(MastersBase):
    """N independent Redis masters, one connection to each, shared by all locks and tasks of an event loop.

    Connecting begins with the first operation and goes on in the background; nothing is sent before.
    One object may be used on several event loops, one after the other or at once in several threads: each
    has connections of its own, which are closed by `close`, or when their loop was closed and another one
    comes.  After a fork the child makes connections of its own, and neither holds nor releases what its
    parent holds.
    """

    def _set_up(self) -> None:
        self._drivers: dict[asyncio.AbstractEventLoop, Driver] = {}
        self._past: weakref.WeakSet[Driver] = (
            weakref.WeakSet()
        )  # whose loops were closed, and somebody holds a lease of theirs
        # What each task holds.
        self._own: weakref.WeakKeyDictionary[asyncio.Task[Any], list[Hold[AsyncLease]]] = weakref.WeakKeyDictionary()
        self._closing: dict[asyncio.AbstractEventLoop, asyncio.Event] = {}
        self._process = process.mark
        # Dropped without close(): nothing may go on for masters that nobody can reach.
        weakref.finalize(self, _stop, self._drivers).atexit = False

    def lock(self, name: str | Sequence[str], **options: Unpack[AsyncMultiLockOptions]) -> AsyncMultiLock:
        """The same as ``AsyncMultiLock(name, masters, **options)``."""
        from redlock._asyncio.lock import AsyncMultiLock  # noqa: PLC0415 - each knows the other

        return AsyncMultiLock(name, self, **options)

    async def status(self, name: str) -> LockStatus:
        """Who holds ``name`` now, for how long, and its fence.

        Takes at most `node_timeout`; as the very first operation it waits for the masters to be connected,
        at most `connect_timeout` (R2).

        Raises:
            QuorumUnreachable: too few masters answered to know; its votes are what they said.
        """
        return known(*await self._run(self._inspection(name)))

    async def check(self, *, timeout: float = 3.0, probe: bool = True) -> Health:  # noqa: ASYNC109 - C19
        """Whether a quorum is there, and whether it is safe: what `redlock-check` prints.

        Asks every master over a connection of its own, all at once, and takes and gives back a lock on a
        throw-away name.  Nothing that is wrong with the masters is raised: it is in what is returned.

        Args:
            timeout: seconds that it takes at most, however many masters hang.
            probe: False: no lock is taken, and nothing at all is written.
        """
        from redlock._asyncio.check import check  # noqa: PLC0415 - few programs ever check

        return await check(self, timeout, probe=probe)

    async def close(self) -> None:
        """End what is under way, send what is owed, for at most `node_timeout`, then leave no thread and no socket.

        Who is acquiring gets a `RedlockError`, and leaves no key behind.  Leases that are held are not released: their keys
        go when their TTL does.  Other loops that this was used on close their connections as soon as they run.
        """
        with self._making.lock:
            self._closed = True
            drivers = list(self._drivers.values())
            self._drivers.clear()
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
        elif loop in self._closing:  # by another task, which has begun before us
            await self._closing[loop].wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- for the locks -------------------------------------------------------------------------------

    async def _run(self, op: Op[T], undo: Callable[[], Op[Any] | None] = lambda: None) -> T:
        return await self._driver().run(op, undo)

    def _post(self, op: Op[Any], driver: Driver | None = None) -> None:
        """Carry out what ``op`` sends, without waiting for an answer; with a ``driver``, from whatever thread."""
        (driver or self._driver()).post(op)

    def _known_driver(self) -> Driver | None:
        """That of the running loop; None: there is none, or these were closed just now."""
        loop = running_loop()
        return None if loop is None else self._drivers.get(loop)

    def _keep(self, renewal: Renewal) -> None:
        driver = self._known_driver()
        if driver is not None:  # else these were closed just now, and nothing is renewed any more
            driver.renewer.add(renewal)

    def _driver(self) -> Driver:
        """That of the running loop."""
        loop = asyncio.get_running_loop()
        driver = self._drivers.get(loop)
        if driver is None or self._process is not process.mark:
            driver = self._make_driver(loop)
        return driver

    def _make_driver(self, loop: asyncio.AbstractEventLoop) -> Driver:
        with self._making.lock:
            if self._closed:
                raise RedlockError(CLOSED)
            if self._process is not process.mark:
                self._drivers.clear()  # they were disowned
                self._past.clear()
                self._process = process.mark
            driver = Driver(
                self._endpoints,
                self._settings.voters,
                loop,
                node_timeout=self._settings.node_timeout,
                connect_timeout=self._connect_timeout,
                prefix=self._prefix,
                max_ttl=self.max_ttl,
                observer=self._observer,
            )
            over = [self._drivers.pop(known) for known in list(self._drivers) if known.is_closed()]
            self._past.update(over)
            for before in self._past:  # what they have acquired may be thrown away only now (P7)
                before.heir = driver
            for before in over:
                before.stop()
            self._drivers[loop] = driver
            return driver


def _stop(drivers: dict[asyncio.AbstractEventLoop, Driver]) -> None:
    for driver in list(drivers.values()):
        driver.stop()
