"""A check of the masters, for asyncio: threads ask the masters, and a task of the loop acquires the lock."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING

from redlock._health.checkup import PATIENCE
from redlock._health.result import Health, Probe
from redlock._system import clock
from redlock._system.thread import start
from redlock.errors import RedlockError

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._health.checkup import Checkup
    from redlock._lock.lock_async import AsyncMultiLock


async def check(
    make: Callable[[Callable[[float], Probe] | None], Checkup],
    lock: Callable[[], AsyncMultiLock] | None,
    timeout: float,  # noqa: ASYNC109 - it bounds threads
) -> Health:
    """Run the check that ``make`` makes.  ``lock``: makes a lock to acquire and release; None: none is tried."""
    loop = asyncio.get_running_loop()
    over = False
    trials: list[Future[Probe]] = []

    def probe(_: float) -> Probe:
        """Called in a thread of the check, not in that of the loop."""
        trial = attempt()
        try:
            trials.append(asyncio.run_coroutine_threadsafe(trial, loop))
        except RuntimeError:  # the loop is closed
            trial.close()
        else:
            with contextlib.suppress(CancelledError, TimeoutError):
                return trials[0].result(timeout)
        return Probe(ok=False, seconds=0.0, error="cancelled")  # its result is not wanted any more

    async def attempt() -> Probe:
        if over or lock is None:
            raise asyncio.CancelledError
        return await _probe(lock)

    checkup = make(None if lock is None else probe)
    done: Future[Health] = Future()
    done.set_running_or_notify_cancel()  # its caller cannot cancel it any more

    def run() -> None:
        try:
            done.set_result(checkup.run())
        except BaseException as error:  # noqa: BLE001 - the waiting task gets it
            done.set_exception(error)

    start(threading.Thread(target=run, name="redlock-check", daemon=True))
    try:
        return await asyncio.wrap_future(done)
    finally:  # also if it is late, or its caller has gone: the probe rolls back (R11), or does not begin
        over = True
        checkup.stop()
        for trial in () if loop.is_closed() else trials:
            trial.cancel()


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
