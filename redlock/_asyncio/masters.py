"""The masters of one deployment, for asyncio.

Each event loop has connections of its own, also two loops in two threads.  The connections of a closed loop are
closed when the next loop comes, when the masters are dropped, or at the interpreter's exit, which first gives owed
releases `node_timeout`.  A lease that was acquired on a closed loop and is thrown away later is released over the
connections of the latest loop.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload

from redlock._asyncio.driver import Driver
from redlock._base import process
from redlock._base.connections import CLOSED
from redlock._base.loop import running_loop
from redlock._base.masters import MastersBase, was_free, without_masters
from redlock._core.inspect import known
from redlock.errors import RedlockError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
    from types import TracebackType
    from typing import Self, Unpack

    from redlock._asyncio.election import AsyncElection
    from redlock._asyncio.lease import AsyncLease
    from redlock._asyncio.lock import AsyncMultiLock, AsyncMultiLockOptions
    from redlock._asyncio.slots import AsyncSlots, AsyncSlotsOptions
    from redlock._base.holds import Holder
    from redlock._base.naming import Naming
    from redlock._base.typed import ElectionOptions
    from redlock._core.effects import Op
    from redlock._core.inspect import LockStatus
    from redlock._core.listing import Listing
    from redlock._core.renewals import Renewal
    from redlock._health.records import Health

B = TypeVar("B")
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class AsyncMasters(MastersBase):
    """N independent Redis masters, one connection to each, shared by all locks and tasks of an event loop.

    Nothing is sent before the first operation.  That begins to connect, which goes on in the background.  Several
    event loops may use one object, one after the other or at once in several threads.  Each loop has connections of
    its own.  `close` closes them; those of a closed loop are closed when another loop comes.  After a fork the child
    makes connections of its own, and neither holds nor releases what its parent holds.
    """

    def _set_up(self) -> None:
        self._drivers: dict[asyncio.AbstractEventLoop, Driver] = {}
        # Drivers of closed loops, as long as leases of theirs are held.
        self._past: weakref.WeakSet[Driver] = weakref.WeakSet()
        # The holds of each task.
        self._own: weakref.WeakKeyDictionary[asyncio.Task[Any], Holder[AsyncLease]] = weakref.WeakKeyDictionary()
        self._closing: dict[asyncio.AbstractEventLoop, asyncio.Event] = {}
        self._process = process.mark
        # If they are dropped without close(), nothing may go on for them.
        weakref.finalize(self, _stop, self._drivers).atexit = False

    def lock(self, name: str | Sequence[str], **options: Unpack[AsyncMultiLockOptions]) -> AsyncMultiLock:
        """Make a lock: the same as ``AsyncMultiLock(name, masters, **options)``."""
        from redlock._asyncio.lock import AsyncMultiLock  # noqa: PLC0415 - the two modules need each other

        return AsyncMultiLock(name, self, **options)

    @overload
    def locked(
        self, name: Naming, *, on_busy: Literal["raise", "wait"] = "raise", **options: Unpack[AsyncMultiLockOptions]
    ) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R]]]: ...

    @overload
    def locked(
        self, name: Naming, *, on_busy: Literal["skip"], busy: None = None, **options: Unpack[AsyncMultiLockOptions]
    ) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R | None]]]: ...

    @overload
    def locked(
        self, name: Naming, *, on_busy: Literal["skip"], busy: B, **options: Unpack[AsyncMultiLockOptions]
    ) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R | B]]]: ...

    def locked(
        self,
        name: Naming,
        *,
        on_busy: Literal["raise", "skip", "wait"] = "raise",
        busy: Any = None,
        **options: Unpack[AsyncMultiLockOptions],
    ) -> Callable[..., Any]:
        """Decorate functions of which each call holds a lock that is named by its arguments (R30).

        A template is filled in with the arguments of the call, defaults included: ``"invoice:{invoice.id}"``.  A
        function in place of it is called with the same arguments, and returns a name or several.  Each call makes a
        lock of its own.  `lock` as a decorator takes its name as it is.

        Args:
            name: the template, or the function.  No value may be empty or None, or have control characters or braces.
            on_busy: what a call does if somebody else has the lock.  ``"raise"`` raises `NotAcquired`.  ``"skip"``
                returns ``busy``, and the function is not called.  ``"wait"`` waits for ever.
            busy: see ``on_busy``.
            options: those of `AsyncMultiLock`, without ``token`` and ``fence``.  ``timeout``: after so many
                seconds it is busy, 0 unless given; not with ``"wait"``.

        Raises:
            ConfigurationError: an option cannot be right.  Where a function is decorated: the template names no
                argument, or one that the function does not have, or the function cannot be decorated
                (`AsyncMultiLock.__call__`).  Where it is called: a value that makes no name.
        """
        from redlock._asyncio.locked import decorator  # noqa: PLC0415 - few programs use it

        return decorator(self, name, on_busy, busy, options)

    def slots(self, name: str, *, limit: int, **options: Unpack[AsyncSlotsOptions]) -> AsyncSlots:
        """Make slots (R32), at most ``limit`` holders at once: ``AsyncSlots(name, masters, limit=limit, …)``."""
        from redlock._asyncio.slots import AsyncSlots  # noqa: PLC0415 - few programs have slots

        return AsyncSlots(name, self, limit=limit, **options)

    def leader(self, name: str, **options: Unpack[ElectionOptions]) -> AsyncElection:
        """One candidate of the election ``name`` (R31); see `AsyncElection` for the options.  Nothing is sent."""
        from redlock._asyncio.election import AsyncElection  # noqa: PLC0415 - few programs elect

        return AsyncElection(name, self, **options)

    async def status(self, name: str) -> LockStatus:
        """Who holds ``name`` now, for how many seconds yet, and its fence.

        It takes at most `node_timeout`.  The very first operation on a loop also waits for connections to the
        masters, at most `connect_timeout` (R2).

        Raises:
            QuorumUnreachable: too few masters answered to know; its votes are what they said.
        """
        return known(*await self._run(self._deployment.inspection(name)))

    def locks(self, match: str = "*") -> AsyncIterator[LockStatus]:
        """All locks that are held, as `status` shows each of them (R29).  ``match``: a pattern for their names.

        The pattern knows ``*``, ``?``, ``[a-z]`` and a backslash before what is meant literally.

        It is a look, and no snapshot: each name is looked at by itself, a moment after it was found.  What is taken or
        given back meanwhile may be there or not; what is held all the time is there, once.  They come in no order.  A
        name that only a minority has is there as well, without a token; see its votes.

        Each master walks through all keys of its database, in small steps that hold nobody up: with a million keys that
        takes seconds.  The user needs the right to ``SCAN`` (``+scan``).  Names of locks that end with ``}:fence`` are
        left out: they look like fence keys.

        Raises:
            ConfigurationError: ``match`` is no pattern.
            QuorumUnreachable: while it goes on: too few masters answer, or allow it.
        """
        return self._listed(self._deployment.listing(match))

    async def _listed(self, listing: Listing) -> AsyncIterator[LockStatus]:
        while (found := await self._run(listing.more())) is not None:
            for status in found:
                yield status

    async def wait_free(self, name: str | Sequence[str], timeout: float = -1.0) -> bool:  # noqa: ASYNC109 - C19
        """Wait until ``name`` is free, and take nothing.

        True: a majority of masters had no holder for the name, each at some moment between the call and the return.  So
        no lease lasted for all of that time.  It says no more: somebody else may have taken the lock by now.  False:
        it was not seen to be free before the timeout.

        A release wakes it.  Only if messages are lost it takes longer, by five seconds at most.  Of several names all
        have to be free when it looks.  Who holds a name does not see it free.

        Args:
            name: one name, or a sequence of names.
            timeout: seconds; negative waits for ever, 0 looks once.  The last look comes at the end of that time, and
                takes at most `node_timeout` for each name.  The very first operation also waits for connections, as
                that of a `status`.

        Raises:
            QuorumUnreachable: too few masters answered the last look.  Or so many refuse for a reason that waiting
                cannot cure (a wrong password) that no majority is left.
            ConfigurationError: a name or the timeout cannot be right.
            RedlockError: the masters were closed.
        """
        return was_free(*await self._run(self._deployment.waiting_free(name, timeout)))

    async def check(self, *, timeout: float = 3.0, probe: bool = True) -> Health:  # noqa: ASYNC109 - C19
        """Whether a quorum is there, and whether it is safe: what `redlock-check` prints.

        It asks all masters at once, over connections of its own, and acquires and releases a lock on a throw-away
        name.  What is wrong with the masters is not raised: it is in the result.

        Args:
            timeout: the most seconds that it takes, however many masters hang.
            probe: False: no lock is taken, and nothing at all is written.
        """
        from redlock._asyncio.check import check  # noqa: PLC0415 - few programs ever check

        return await check(self, timeout, probe=probe)

    async def close(self) -> None:
        """Close all connections, and leave no thread and no socket.

        First the operations under way end, and owed releases are sent for at most `node_timeout`.  A task that is
        acquiring gets a `RedlockError`, and leaves no key behind.  Leases that are held are not released: their keys
        expire with their TTL.  Other loops on which this object was used close their connections as soon as they run.
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
        elif loop in self._closing:  # another task began to close them before us
            await self._closing[loop].wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- for the locks -------------------------------------------------------------------------------

    async def _run(self, op: Op[T]) -> T:
        if self._closed:
            return without_masters(op)
        return await self._driver().run(op)

    def _post(self, op: Op[Any], driver: Driver | None = None) -> None:
        """Carry out what ``op`` sends, without waiting for answers.  With a ``driver`` any thread may call this."""
        (driver or self._driver()).post(op)

    def _known_driver(self) -> Driver | None:
        """The driver of the running loop.  None: no loop runs, it has none, or the masters were closed just now."""
        loop = running_loop()
        return None if loop is None else self._drivers.get(loop)

    def _keep(self, renewal: Renewal) -> None:
        driver = self._known_driver()
        if driver is not None:  # else the masters were closed just now: nothing is renewed any more
            driver.renewer.add(renewal)

    def _driver(self) -> Driver:
        """The driver of the running loop, made if there is none."""
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
                self._deployment.settings.voters,
                loop,
                node_timeout=self._deployment.settings.node_timeout,
                connect_timeout=self._connect_timeout,
                prefix=self._deployment.prefix,
                max_ttl=self.max_ttl,
                observer=self._observer,
            )
            over = [self._drivers.pop(known) for known in list(self._drivers) if known.is_closed()]
            self._past.update(over)
            for before in self._past:  # a lease of theirs may be thrown away only now (P7)
                before.heir = driver
            for before in over:
                before.stop()
            self._drivers[loop] = driver
            return driver


def _stop(drivers: dict[asyncio.AbstractEventLoop, Driver]) -> None:
    for driver in list(drivers.values()):
        driver.stop()
