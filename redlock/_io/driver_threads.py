"""Runs operations in the caller's thread: carries out what they yield, and resumes them with what happens."""

from __future__ import annotations

import atexit
import contextlib
import weakref
from collections import deque
from typing import TYPE_CHECKING, TypeVar

from redlock._core.operation import OperationBase
from redlock._io import process
from redlock._io.connections_threads import Connections
from redlock._io.housekeeper_threads import Housekeeper
from redlock._io.waiter import Waiter
from redlock.errors import RedlockError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redlock._connect import Endpoint
    from redlock._core.effects import Op
    from redlock._io.deployment import Deployment

T = TypeVar("T")


class Operation(Waiter, OperationBase[T, Connections]):
    """An operation that the thread of its caller drives to its end."""

    def __init__(self, op: Op[T], connections: Connections) -> None:
        self.events = deque()
        self._op, self._host = op, connections
        self._connections = connections

    _await = Waiter.wait

    def _failed(self, error: BaseException) -> bool:  # noqa: ARG002 - it is raised as it is
        return True

    def abandon(self) -> None:
        """It was interrupted, perhaps where the engine could not end it.  A second time does no harm."""
        self._end()

    def _end(self) -> None:
        self.stop_waiting()
        connections = self._host
        connections.operations.discard(self)
        if self.subscription is not None or connections.dozing:
            connections.finish(self)


class Driver:
    """Runs the operations of one `Masters` in one process, from the first one until `close`."""

    def __init__(self, endpoints: Sequence[Endpoint], deployment: Deployment, connect_timeout: float) -> None:
        settings = deployment.settings
        self._connections = Connections(endpoints, settings.voters, settings.node_timeout)
        self._housekeeper = Housekeeper(self._connections, deployment, connect_timeout)
        self._node_timeout = settings.node_timeout
        self.keep = self._housekeeper.renewer.add
        self._ready = False
        self._closed = False
        self.stop = self._housekeeper.end  # does not wait: the garbage collector calls it
        self.troubles = self._connections.troubles
        _DRIVERS.add(self)

    def run(self, op: Op[T]) -> T:
        """Drive ``op`` to its end, and return its result.

        Any exception that interrupts us, a KeyboardInterrupt most of all, is thrown into the operation at the point
        where it waits.  The operation cleans up and raises it again (R11).
        """
        operation = Operation(op, self._connections)
        try:
            if not self._ready:
                self._get_ready()
            operation.start()
        except BaseException:
            self._ready = False  # an interruption may have torn connections
            operation.abandon()
            raise
        return operation.result

    def _get_ready(self) -> None:
        """Wait for the connections (R2), before the first operation and after an interruption."""
        self._housekeeper.start()
        self._housekeeper.wait_until_ready()
        self._ready = True

    def deliver_owed(self) -> None:
        """Send the releases that are owed, for at most `node_timeout` (R11)."""
        if not self._closed:
            self._housekeeper.deliver_owed(self._node_timeout)

    def close(self) -> None:
        """End the operations under way, send what is owed, then leave no thread and no socket.  May be called twice."""
        try:
            self._connections.begin_to_close()
            self.deliver_owed()
        finally:
            self._closed = True
            self._housekeeper.end()
            self._housekeeper.join()

    def disown(self) -> None:
        """In a forked child: the sockets are the parent's.  Takes no lock: a thread of the parent may have held it."""
        self._closed = True
        self._connections.disown()
        _DRIVERS.discard(self)


# The drivers that may still owe a release when the interpreter exits.
_DRIVERS: weakref.WeakSet[Driver] = weakref.WeakSet()


def _at_exit() -> None:
    process.look()
    for driver in list(_DRIVERS):
        with contextlib.suppress(RedlockError):  # another thread has closed it meanwhile
            driver.deliver_owed()


def _in_child() -> None:
    for driver in list(_DRIVERS):
        driver.disown()


atexit.register(_at_exit)
process.in_child(_in_child)
