"""A check of the masters, for asyncio: threads ask the masters, and a task of the loop acquires the lock."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

from redlock._health.checkup import PATIENCE
from redlock._health.result import Probe
from redlock._system import clock
from redlock._system.thread import start
from redlock.errors import RedlockError

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._health.checkup import Checkup
    from redlock._health.result import Health
    from redlock._lock.lock_async import AsyncMultiLock


async def check(
    make: Callable[[Callable[[float], Probe] | None], Checkup],
    lock: Callable[[], AsyncMultiLock] | None,
    timeout: float,  # noqa: ASYNC109 - it bounds threads
) -> Health:
    """Run the check that ``make`` makes.  ``lock``: makes a lock to acquire and release; None: none is tried."""
    probing = None if lock is None else _Probing(lock, asyncio.get_running_loop(), timeout)
    checkup = make(probing)
    done: Future[Health] = Future()
    done.set_running_or_notify_cancel()  # a caller that waits no more does not cancel it

    def run() -> None:
        try:
            done.set_result(checkup.run())
        except BaseException as error:  # noqa: BLE001 - the waiting task gets it
            done.set_exception(error)

    start(threading.Thread(target=run, name="redlock-check", daemon=True))
    try:
        return await asyncio.wrap_future(done)
    finally:
        checkup.stop()
        if probing is not None:
            probing.end()


class _Probing:
    """The probe of one check: a thread waits for a task of the loop that tries the lock."""

    def __init__(self, lock: Callable[[], AsyncMultiLock], loop: asyncio.AbstractEventLoop, timeout: float) -> None:
        self._lock = lock
        self._loop = loop
        self._timeout = timeout
        self._over = False
        self._task: asyncio.Task[Probe] | None = None
        self._done: queue.SimpleQueue[asyncio.Task[Probe] | None] = queue.SimpleQueue()

    def __call__(self, _: float) -> Probe:
        """Run the probe.  Called in the thread of the check, not in the thread of the loop."""
        task = None
        with contextlib.suppress(RuntimeError, queue.Empty):  # the loop is closed, or closes now
            self._loop.call_soon_threadsafe(self._begin)
            task = self._done.get(timeout=self._timeout)
        if task is None or task.cancelled():  # its result is not wanted any more
            return Probe(ok=False, seconds=0.0, error="cancelled")
        return task.result()

    def _begin(self) -> None:
        if not self._over:
            self._task = self._loop.create_task(_probe(self._lock))
            self._task.add_done_callback(self._done.put)

    def end(self) -> None:
        """The check is late, or its caller has gone: the probe rolls back (R11), or does not begin."""
        self._over = True
        self._done.put(None)
        if self._task is not None and not self._loop.is_closed():
            self._task.cancel()


async def _probe(make: Callable[[], AsyncMultiLock]) -> Probe:
    """The asyncio version of `redlock._health.checkup.probe`."""
    begun = clock.now()
    fence, error = None, None
    try:
        lock = make()
        lease = await lock.acquire(timeout=PATIENCE)
        if lease is None:
            error = "another client holds the random name of the check"
        else:
            try:
                fence = lease.fence
                await lock.extend()
            finally:
                await lock.release()
    except RedlockError as failed:
        error = failed.message
    return Probe(ok=error is None, seconds=round(clock.now() - begun, 6), fence=fence, error=error)
