"""What is behind a `Masters`, for the objects that are made of it: locks, slots and elections.

`Masters` and `AsyncMasters` are faces: their methods are for users.  Here is the rest: which driver runs an operation,
and what a closed or forked one does instead.  Each world has its subclass.
"""

from __future__ import annotations

import atexit
import weakref
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar

from redlock._connect import NO_DESCRIPTOR, out_of_descriptors
from redlock._io import process
from redlock._io.connections import CLOSED
from redlock._io.forklock import ForkLock
from redlock._io.report import report_failure
from redlock.errors import QuorumUnreachable, RedlockError, Vote

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redlock._connect import Endpoint
    from redlock._core.effects import Op
    from redlock._core.renewals import Renewal
    from redlock._io.deployment import Deployment

T = TypeVar("T")


class RuntimeBase(ABC):
    """Runs the operations of one `Masters`: with a driver of its own in each process, and on each event loop."""

    def __init__(self, endpoints: Sequence[Endpoint], deployment: Deployment, connect_timeout: float) -> None:
        self.endpoints = endpoints
        self.deployment = deployment
        self.connect_timeout = connect_timeout
        self.own: Any = None  # what each caller holds, for the locks
        self.closed = False
        self.making = ForkLock()  # held while one is made
        _RUNTIMES.add(self)

    @abstractmethod
    def disown(self) -> None:
        """In a forked child: the drivers are the parent's.  The next operation makes another one."""

    @abstractmethod
    def keep(self, renewal: Renewal) -> None:
        """Renew a lease from now on, and tell if it is lost."""

    @abstractmethod
    def post(self, op: Op[Any], driver: Any = None) -> None:
        """Carry out what ``op`` sends, without waiting for answers; by ``driver``, if there is one."""

    def without_descriptors(self, error: OSError) -> QuorumUnreachable:
        """The outage that it is if no driver can be made.  The next operation tries again."""
        reason = NO_DESCRIPTOR if out_of_descriptors(error) else f"{error}"
        masters = self.deployment.settings.masters
        votes = [Vote(master, "error", None, "not asked") for master in masters]
        return QuorumUnreachable(f"no master can be asked: {reason}", votes=votes)

    @abstractmethod
    def troubles(self) -> Callable[[], list[str]]:
        """A function that says what is wrong with the connections of this process, or of the running event loop.

        See `ConnectionsBase.troubles`; empty: there are none.  Any thread may call it.
        """

    @property
    @abstractmethod
    def known_driver(self) -> Any:
        """The driver that can carry out a release for a caller that cannot wait for it; None: any."""


_RUNTIMES: weakref.WeakSet[RuntimeBase] = weakref.WeakSet()
# The drivers that may still owe a release when the interpreter exits, also those whose masters are gone.
DRIVERS: weakref.WeakSet[Any] = weakref.WeakSet()


def _in_child() -> None:
    for runtime in list(_RUNTIMES):
        runtime.disown()
    for driver in list(DRIVERS):  # those that are left
        driver.disown()


def _at_exit() -> None:
    process.look()
    for driver in list(DRIVERS):
        try:
            driver.deliver_at_exit()
        except Exception:  # noqa: BLE001 - the other drivers owe releases, too
            report_failure("sending what is owed at the end failed")


atexit.register(_at_exit)
process.in_child(_in_child)


def without_masters(op: Op[T]) -> T:
    """Run ``op`` although the masters were closed.  Raises RedlockError if it asks anything of them."""
    try:
        op.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    op.close()
    raise RedlockError(CLOSED)
