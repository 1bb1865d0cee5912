"""The masters of one deployment, as the locks of this process see them."""

from __future__ import annotations

import os
import secrets
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from redlock import _clock, _connect, options
from redlock._core import inspect, wire
from redlock._core.electorate import Electorate
from redlock._core.fencing import FenceClock
from redlock._core.terms import Terms
from redlock._threads.driver import Driver
from redlock._threads.forklock import ForkLock
from redlock.errors import ConfigurationError, QuorumUnreachable, RedlockError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType
    from typing import Self

    from redlock._core.effects import Op
    from redlock._core.inspect import LockStatus
    from redlock._core.quorum import Tally
    from redlock._threads.lock import MultiLock

T = TypeVar("T")

TOKEN_BYTES = 20        # of every attempt's token (R8)


class Masters:
    """N independent Redis masters, one connection to each, shared by all locks and threads.

    Connecting begins with the first operation and goes on in the background; nothing is sent before.
    Safe to use from many threads, and after a fork: the child makes connections of its own, and
    neither holds nor releases what its parent holds.

    Args:
        masters: URLs (``redis://``, ``rediss://``, ``unix://``) or clients of redis-py, of which only
            the connection settings are read.  At least one, none twice.
        node_timeout: a master's share of an attempt, in seconds; at most a third of any TTL (R7).
        connect_timeout: seconds for connecting to a master, and for the first operation to wait for it.
        drift_factor: how far the rates of clocks may differ (R6): 0.01 is 1 %.
        max_ttl: the longest TTL that any lock may have, the same in every client: so long a restarted
            master may not vote (R21).
        restart_guard: False lets a master vote right after its start.  For a brand-new deployment and
            for tests: a master that forgot its locks in a restart then gives them away twice.
        prefix: of every key.  ``""`` shares locks with redsync, node-redlock and redlock-py.
        fence_ttl: seconds for which masters remember the fence of a name after its last use (R20).

    Raises:
        ConfigurationError: for a value that cannot be right; the text has it and what is allowed.
    """

    def __init__(
        self,
        masters: Iterable[object],
        *,
        node_timeout: float = 0.25,
        connect_timeout: float = 2.0,
        drift_factor: float = 0.01,
        max_ttl: float = 60.0,
        restart_guard: bool = True,
        prefix: str = "redlock:",
        fence_ttl: float = 3600.0,
    ) -> None:
        self._endpoints = _endpoints(masters)
        max_ttl = options.seconds("max_ttl", max_ttl)
        node_timeout = options.seconds(
            "node_timeout", node_timeout, at_most=max_ttl / 3, why="a third of max_ttl at most (R7)"
        )
        self._connect_timeout = options.seconds("connect_timeout", connect_timeout)
        fence_ttl = options.seconds("fence_ttl", fence_ttl)
        if fence_ttl < max_ttl:
            raise ConfigurationError(
                f"fence_ttl={fence_ttl!r}: allowed is at least max_ttl ({max_ttl:g} s), "
                "or a lock could outlive the fence that protects from its holder"
            )
        options.prefix(prefix)
        self.max_ttl = max_ttl
        self._prefix = prefix
        names = tuple(target.name for target in self._endpoints)
        self._terms = Terms(
            masters=names,
            node_timeout=node_timeout,
            drift_factor=options.fraction("drift_factor", drift_factor, below=0.5),
            fence_ttl=fence_ttl,
            electorate=Electorate(names, max_ttl, guard=bool(restart_guard)),
            fences=FenceClock(_clock.wall_us),
            token=_fresh_token,
        )
        self._driver: Driver | None = None
        self._pid = 0
        self._closed = False
        self._making = ForkLock()

    @classmethod
    def from_env(cls, variable: str = "REDLOCK_MASTERS", **options: Any) -> Self:
        """Masters from the comma-separated URLs in an environment variable.

        A comma inside a password is written ``%2C``.
        """
        value = os.environ.get(variable, "")
        urls = [url.strip() for url in value.split(",") if url.strip()]
        if not urls:
            raise ConfigurationError(
                f"the environment variable {variable} is {'empty' if variable in os.environ else 'not set'}: "
                "give it the comma-separated URLs of the masters"
            )
        return cls(urls, **options)

    def lock(self, name: str | Sequence[str], **options: Any) -> MultiLock:
        """The same as ``MultiLock(name, masters, **options)``."""
        from redlock._threads.lock import MultiLock  # noqa: PLC0415 - each knows the other

        return MultiLock(name, self, **options)

    def status(self, name: str) -> LockStatus:
        """Who holds ``name`` now, for how long, and its fence.  Takes at most `node_timeout`.

        Raises:
            QuorumUnreachable: too few masters answered to know; its votes are what they said.
        """
        status, tally = self._look(name)
        if tally.unreachable:
            raise QuorumUnreachable(
                f"nobody can tell who holds {name!r}: {tally.explain()}", name=name, votes=status.votes
            )
        return status

    def close(self) -> None:
        """Send what is owed, for at most `node_timeout`, then leave no thread and no socket.

        Leases that are held are not released: their keys go when their TTL does.
        """
        with self._making.lock:
            self._closed = True
            driver, self._driver = self._driver, None
            mine = self._pid == os.getpid()
        if driver is not None and mine:
            driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(self._terms.masters)}>"

    # -- for the locks -------------------------------------------------------------------------------

    def _run(self, op: Op[T]) -> T:
        driver = self._driver
        if driver is None or self._pid != os.getpid():
            driver = self._make_driver()
        return driver.run(op)

    def _make_driver(self) -> Driver:
        with self._making.lock:
            if self._closed:
                raise RedlockError("these Masters were closed")
            driver, mine = self._driver, self._pid == os.getpid()
            if driver is None or not mine:
                driver = self._driver = Driver(
                    self._endpoints,
                    self._terms.electorate,
                    node_timeout=self._terms.node_timeout,
                    connect_timeout=self._connect_timeout,
                    prefix=self._prefix,
                    max_ttl=self.max_ttl,
                )
                self._pid = os.getpid()
                # Dropped without close(): no thread may go on for masters that nobody can reach.
                weakref.finalize(self, driver.stop).atexit = False
            return driver

    def _look(self, name: str) -> tuple[LockStatus, Tally]:
        (checked,) = options.names([name])
        return self._run(inspect.inspect(self._terms, checked, self._prefix + checked))

    def _keys(self, names: tuple[str, ...], *, fencing: bool) -> wire.Keys:
        return wire.keys_for(self._prefix, names, fencing=fencing)


def _fresh_token() -> str:
    return secrets.token_hex(TOKEN_BYTES)


def _endpoints(masters: Iterable[object]) -> tuple[_connect.Endpoint, ...]:
    if isinstance(masters, (str, bytes)) or not hasattr(masters, "__iter__"):
        raise ConfigurationError(
            f"masters is a {type(masters).__name__}: allowed is a list of URLs or of redis.Redis objects"
        )
    endpoints = tuple(_connect.endpoint(master) for master in masters)
    if not endpoints:
        raise ConfigurationError("masters is empty: at least one is needed, five are usual")
    known: dict[object, int] = {}
    for index, target in enumerate(endpoints):
        first = known.setdefault(target.identity, index)
        if first != index:
            raise ConfigurationError(
                f"masters[{first}] and masters[{index}] are the same server, {target.name}: one server has "
                "one vote, whatever the database or the user"
            )
    return endpoints


def private_or_shared(masters: object) -> tuple[Masters, bool]:
    """The `Masters` of a lock, and whether it owns them."""
    if isinstance(masters, Masters):
        return masters, False
    return Masters(masters), True  # type: ignore[arg-type]  # checked by `_endpoints`
