"""The calls of aioredlock (0.7): seconds, an error where another client has the lock, ``async with await``.

Behind them is this library: a restarted master does not vote, no key is left behind, and `Lock.valid` looks
at the clock each time.

- A lock without ``lock_timeout`` is renewed until it is given back; one with a ``lock_timeout`` is not.
- `Aioredlock.lock` waits for as long as its pauses between attempts may take.  A release wakes it.
- `Aioredlock.unlock`, and the end of an ``async with``, raise `LockError` if the lock had ended before.

Other than before: a token of one's own (``lock_identifier``) is refused, as each attempt has a new one (R8), and so are
Sentinel, two databases of one server, and a timeout of less than three times `node_timeout`.  In an outage `is_locked`
raises `LockError`, where it said False.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import redis.asyncio

from redlock import AsyncMasters, ConfigurationError, LockLost, NotExtended, NotHeld, QuorumUnreachable, RedlockError
from redlock.compat import _instead

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping
    from types import TracebackType
    from typing import Self

    from redlock import AsyncLease, AsyncMultiLock

_LOG = logging.getLogger("redlock")
# What aioredis wanted to know of its pool.
_OF_POOLS: Final = frozenset(
    ("minsize", "maxsize", "encoding", "timeout", "create_connection_timeout", "parser", "loop", "pool_cls")
)


class AioredlockError(Exception):
    """The base of the errors."""


class LockError(AioredlockError):
    """The lock was not granted, not extended, or not given back."""


class LockAcquiringError(LockError):
    """Another client has the lock, or it had ended before it was given back."""


class LockRuntimeError(LockError):
    """Too few masters took part: an outage."""


class Lock:
    """A lock that was granted; ``async with`` gives it back.

    Attributes:
        lock_manager: whose it is.
        resource: its name.
        id: its token.
        lock_timeout: seconds; None: it is renewed.
        lease: the `AsyncLease` behind it, which also has the fencing token.
    """

    def __init__(
        self, lock_manager: Aioredlock, lock: AsyncMultiLock, lease: AsyncLease, lock_timeout: float | None
    ) -> None:
        self.lock_manager = lock_manager
        self.resource = lease.name
        self.id = lease.token
        self.lock_timeout = lock_timeout
        self.lease = lease
        self._lock = lock

    @property
    def valid(self) -> bool:
        """Whether no other client can have it now."""
        return self.lease.valid

    async def extend(self, lock_timeout: float | None = None) -> None:
        """`Aioredlock.extend`."""
        if not self.valid:
            raise RuntimeError("Lock is not valid")
        if lock_timeout is not None:
            _positive(lock_timeout, "Lock timeout")
        try:
            await self._lock.extend(lock_timeout)
        except NotExtended as outage:
            raise LockRuntimeError(str(outage)) from outage
        except (LockLost, NotHeld) as ended:
            raise LockAcquiringError(str(ended)) from ended

    async def release(self) -> None:
        """`Aioredlock.unlock`."""
        try:
            await self._lock.release()
        except NotHeld:
            pass  # it was given back before
        except RedlockError as ended:
            raise LockAcquiringError(str(ended)) from ended

    async def is_locked(self) -> bool:
        """`Aioredlock.is_locked`."""
        return await _is_locked(self._lock)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.release()
        except LockError as failed:
            if error is None:
                raise
            error.add_note(f"besides, {failed}")  # never hide the body's error


class Aioredlock:
    """A lock manager on N independent masters.

    Args:
        redis_connections: addresses, pairs of host and port, dictionaries with host, port, db and password, or clients
            of `redis.asyncio`.
        retry_count: how many attempts there were.
        retry_delay_min: seconds; it has no effect.
        retry_delay_max: the longest pause between attempts, in seconds.
        internal_lock_timeout: the TTL of a lock that is renewed, in seconds.
        options: as of `AsyncMasters`. ``prefix`` is empty by default.  If a timeout is longer than a minute, give
            ``max_ttl`` in every client.

    Attributes:
        masters: the `AsyncMasters` behind it, for lines that are already written anew.

    Raises:
        ValueError: a value cannot be right; it is a `ConfigurationError` if `AsyncMasters` says so.
    """

    def __init__(
        self,
        redis_connections: Iterable[Any] = ({"host": "localhost", "port": 6379},),
        retry_count: int = 3,
        retry_delay_min: float = 0.1,
        retry_delay_max: float = 0.3,
        internal_lock_timeout: float = 10.0,
        **options: Any,
    ) -> None:
        self.retry_count = int(retry_count)
        if self.retry_count < 1:
            raise ValueError("Retry count must be greater or equal 1.")
        self.retry_delay_min, self.retry_delay_max = float(retry_delay_min), float(retry_delay_max)
        if min(self.retry_delay_min, self.retry_delay_max) <= 0:
            raise ValueError("Retry delay must be greater than 0 seconds.")
        self.internal_lock_timeout = _positive(internal_lock_timeout, "Internal lock_timeout")
        options.setdefault("prefix", "")
        self.masters = AsyncMasters([_master(one) for one in redis_connections], **options)
        self._locks: dict[str, Lock] = {}  # by token
        _instead.write('masters = AsyncMasters(["redis://…", …], prefix="")', for_="Aioredlock(…)")

    # The calls are no coroutine functions: the warning is for the line that calls, and not for the one that awaits.

    def lock(
        self, resource: str, lock_timeout: float | None = None, lock_identifier: str | None = None
    ) -> Coroutine[Any, Any, Lock]:
        """Take the lock ``resource``.

        Args:
            resource: its name.
            lock_timeout: seconds for which it lasts, and it is not renewed.  None: it is renewed.
            lock_identifier: None; anything else is a ValueError.

        Raises:
            LockAcquiringError: another client has it.
            LockRuntimeError: too few masters took part.
            ValueError: the timeout is shorter or longer than the masters allow.
        """
        kept = "" if lock_timeout is None else ", auto_extend=False"
        _instead.write(
            f"async with masters.lock(resource, ttl={lock_timeout or self.internal_lock_timeout:g}{kept}, "
            f"timeout={self._patience:g}) as lease:",
            for_="Aioredlock.lock",
        )
        return self._take(resource, lock_timeout, lock_identifier)

    def extend(self, lock: Lock, lock_timeout: float | None = None) -> Coroutine[Any, Any, None]:
        """Set the TTL of ``lock`` anew, counted from now.  ``lock_timeout``: seconds; None: as before.

        Raises:
            RuntimeError: the lock is not valid any more.
            LockError: it was denied, or too few masters answered.  In the latter case it keeps its validity.
        """
        _instead.write("await lock.extend()", for_="Aioredlock.extend")
        return lock.extend(lock_timeout)

    def unlock(self, lock: Lock) -> Coroutine[Any, Any, None]:
        """Give ``lock`` back.

        Raises:
            LockAcquiringError: it had ended before; others may have had it since.
        """
        _instead.write("await lock.release()", for_="Aioredlock.unlock")
        return lock.release()

    def is_locked(self, resource_or_lock: str | Lock) -> Coroutine[Any, Any, bool]:
        """Whether a majority of the masters has a holder for it.

        Raises:
            LockRuntimeError: too few masters answered to know.
            TypeError: it is neither a name nor a lock.
        """
        _instead.write("await masters.lock(resource).locked()", for_="Aioredlock.is_locked")
        if not isinstance(resource_or_lock, (str, Lock)):
            raise TypeError(f"a lock or its name is needed, not {type(resource_or_lock).__name__}")
        if isinstance(resource_or_lock, Lock):
            return resource_or_lock.is_locked()
        return _is_locked(self.masters.lock(resource_or_lock, ttl=self.masters.max_ttl, guard=0))

    def get_lock(self, resource: str, lock_identifier: str) -> Coroutine[Any, Any, Lock]:
        """The lock of another process, by its name and its ``id``.  It is extended, and not renewed.

        Raises:
            LockError: it is not held with this token, or too few masters answered.
        """
        _instead.write(
            "lock = masters.resume(resource, token=token, fence=fence); lease = await lock.acquire()",
            for_="Aioredlock.get_lock",
        )
        return self._resume(resource, lock_identifier)

    async def get_active_locks(self) -> list[Lock]:
        """The locks of this manager that are valid now, as the clock says."""
        return [lock for lock in self._locks.values() if lock.valid]

    async def destroy(self) -> None:
        """Give all valid locks back, and close the masters."""
        for lock in await self.get_active_locks():
            try:
                await lock.release()
            except LockError:
                _LOG.exception("%r was not released", lock.resource)
        await self.masters.close()

    @property
    def _patience(self) -> float:
        return (self.retry_count - 1) * self.retry_delay_max

    async def _take(self, resource: str, lock_timeout: float | None, lock_identifier: str | None) -> Lock:
        if lock_identifier is not None:
            raise ValueError("lock_identifier: each attempt has a token of its own (R8); read that of a lock at its id")
        if lock_timeout is not None:
            _positive(lock_timeout, "Lock timeout")
        for known in [one.id for one in self._locks.values() if not one.valid]:
            self._locks.pop(known, None)
        lock = self.masters.lock(
            resource, ttl=lock_timeout or self.internal_lock_timeout, auto_extend=lock_timeout is None, bound=False
        )
        try:
            lease = await lock.acquire(timeout=self._patience)
        except QuorumUnreachable as outage:
            raise LockRuntimeError(str(outage)) from outage
        if lease is None:
            raise LockAcquiringError(f"another client has {resource!r}")
        self._locks[lease.token] = taken = Lock(self, lock, lease, lock_timeout)
        return taken

    async def _resume(self, resource: str, lock_identifier: str) -> Lock:
        ttl = self.internal_lock_timeout
        try:
            fence = (await self.masters.status(resource)).fence
            lock = self.masters.resume(
                resource, token=lock_identifier, fence=fence, ttl=ttl, auto_extend=False, bound=False
            )
            lease = await lock.acquire()
            assert lease is not None  # noqa: S101 - for the type checker
        except QuorumUnreachable as outage:
            raise LockRuntimeError(str(outage)) from outage
        except (LockLost, ConfigurationError) as ended:  # the last: no lease has such a token
            raise LockAcquiringError(str(ended)) from ended
        self._locks[lease.token] = taken = Lock(self, lock, lease, ttl)
        return taken


async def _is_locked(lock: AsyncMultiLock) -> bool:
    try:
        return await lock.locked()
    except QuorumUnreachable as outage:
        raise LockRuntimeError(str(outage)) from outage


def _positive(seconds: float, what: str) -> float:
    if seconds <= 0:
        raise ValueError(f"{what} must be greater than 0 seconds.")
    return float(seconds)


def _master(given: Any) -> object:
    """What `AsyncMasters` takes, for what aioredis took."""
    if isinstance(given, str):
        if given.startswith("/"):
            return redis.asyncio.Redis(unix_socket_path=str(Path(given)))
        return redis.asyncio.Redis.from_url(given)
    if isinstance(given, (tuple, list)):
        host, port = given
        return redis.asyncio.Redis(host=host, port=port)
    return _of_settings(given) if isinstance(given, dict) else given


def _of_settings(given: Mapping[str, Any]) -> object:
    settings = {name: value for name, value in given.items() if name not in _OF_POOLS}
    if not isinstance(settings.get("ssl", False), bool):
        raise ConfigurationError("ssl: an SSLContext cannot be read: write rediss://HOST:PORT?ssl_ca_certs=FILE")
    try:
        return redis.asyncio.Redis(**settings)
    except TypeError as error:
        raise ConfigurationError(f"a master as a dictionary is refused: {error}") from None
