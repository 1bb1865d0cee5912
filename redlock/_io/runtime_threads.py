"""What is behind a `Masters`, for threads: the driver of this process."""

from __future__ import annotations

import select
import sys
import threading
import weakref
from os import getpid
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeVar

from redlock._io import process
from redlock._io.connections import CLOSED
from redlock._io.driver_threads import Driver
from redlock._io.runtime import RuntimeBase, without_masters
from redlock.errors import ConfigurationError, RedlockError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redlock._connect import Endpoint
    from redlock._core.effects import Op
    from redlock._core.renewals import Renewal
    from redlock._io.deployment import Deployment

T = TypeVar("T")


def _check_python() -> None:
    """Check that nobody has put something else in the place of what threads wait with, since we were imported."""
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


class Runtime(RuntimeBase):
    """Runs operations in the threads of their callers."""

    known_driver: Final = None

    def __init__(self, endpoints: Sequence[Endpoint], deployment: Deployment, connect_timeout: float) -> None:
        _check_python()
        super().__init__(endpoints, deployment, connect_timeout)
        self.driver: Driver | None = None

    def run(self, op: Op[T]) -> T:
        if getpid() != process.pid:
            process.notice()
        driver = self.driver
        if driver is None:
            if self.closed:
                return without_masters(op)
            driver = self.make_driver()
        return driver.run(op)

    def post(self, op: Op[Any], driver: Any = None) -> None:  # noqa: ARG002 - asyncio has one for each loop
        self.run(op)

    def keep(self, renewal: Renewal) -> None:
        driver = self.driver
        if driver is not None:  # else the masters were closed just now: nothing is renewed any more
            driver.keep(renewal)

    def troubles(self) -> Callable[[], list[str]]:
        return lambda: [] if self.driver is None else self.driver.troubles()

    def make_driver(self) -> Driver:
        """The driver of this process, made if there is none."""
        with self.making.lock:
            if self.closed:
                raise RedlockError(CLOSED)
            driver = self.driver
            if driver is None:
                _check_python()  # again: masters may be made before a worker patches
                try:
                    driver = self.driver = Driver(self.endpoints, self.deployment, self.connect_timeout)
                except OSError as error:
                    raise self.without_descriptors(error) from error
                # If it is dropped without close(), no thread may go on for it.
                weakref.finalize(self, driver.stop).atexit = False
            return driver

    def close(self) -> None:
        """See `Masters.close`."""
        process.look()
        with self.making.lock:
            self.closed = True
            driver, self.driver = self.driver, None
        if driver is not None:
            driver.close()

    def disown(self) -> None:
        driver, self.driver = self.driver, None
        if driver is not None:
            driver.disown()
