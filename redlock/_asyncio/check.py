"""A check of the masters, for asyncio: threads ask them, and a task of the loop takes the lock."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

from redlock import _clock
from redlock._health.checkup import PATIENCE
from redlock._health.records import Health, Probe
from redlock.errors import RedlockError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from redlock._asyncio.masters import AsyncMasters


async def check(masters: AsyncMasters, timeout: float, *, probe: bool) -> Health:  # noqa: ASYNC109 - it bounds threads
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Health] = loop.create_future()
    probes: list[Future[Probe]] = []

    def probing(_: float) -> Probe:
        probes.append(asyncio.run_coroutine_threadsafe(_probe(masters), loop))
        try:
            return probes[0].result()
        except CancelledError:      # below: nobody looks at it any more
            return Probe(ok=False, seconds=0.0, error="cancelled")

    checkup = masters._checkup(timeout, probing if probe else None)  # noqa: SLF001

    def tell(health: Health | BaseException) -> None:
        if done.done():     # nobody waits any more
            return
        if isinstance(health, BaseException):
            done.set_exception(health)
        else:
            done.set_result(health)

    def run() -> None:
        health: Health | BaseException
        try:
            health = checkup.run()
        except BaseException as error:  # noqa: BLE001 - whoever waits has to hear of it
            health = error
        with contextlib.suppress(RuntimeError):     # the loop was closed meanwhile
            loop.call_soon_threadsafe(tell, health)

    threading.Thread(target=run, name="redlock-check", daemon=True).start()
    try:
        return await done
    finally:
        checkup.stop()
        for one in probes:
            one.cancel()    # late, or nobody waits: it rolls back (R11)


async def _probe(masters: AsyncMasters) -> Probe:
    """The same as `redlock._health.checkup.probe`."""
    begun = _clock.now()
    fence, error = None, None
    try:
        lock = masters.lock(**masters._throw_away())  # noqa: SLF001
        lease = await lock.acquire(timeout=PATIENCE)
        if lease is None:
            error = "somebody else holds a name that nobody can know"
        else:
            try:
                fence = lease.fence
                await lock.extend()
            finally:
                await lock.release()
    except RedlockError as failed:
        error = failed.message
    return Probe(ok=error is None, seconds=round(_clock.now() - begun, 6), fence=fence, error=error)
