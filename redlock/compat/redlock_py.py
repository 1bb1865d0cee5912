"""The calls of redlock-py (1.0): milliseconds, False where another client has the lock, else a named tuple.

Behind them is this library: all masters are asked at once, each has a time limit, a restarted master does
not vote, no key is left behind, and a dead minority is no error.

- `Redlock.lock` waits as long as there were pauses between its attempts.  A release wakes it.
- The lock is not renewed, and its end is not reported: it lasts for its TTL, as before.
- A lock that is not given back lasts for its TTL, even if the tuple is dropped.
- In an outage `lock` returns False, as before, and a warning is logged.

Other than before: a TTL is at least three times `node_timeout` and at most `max_ttl`; two databases of one server are
refused, and so are clients for Sentinel.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import redis

from redlock import ConfigurationError, LockLost, Masters, NotHeld, QuorumUnreachable
from redlock.compat import _instead

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from redlock import MultiLock

_LOG = logging.getLogger("redlock")


class Lock(NamedTuple):
    """A lock that was granted.

    Attributes:
        validity: for how many milliseconds it was valid when it was granted.
        resource: its name.
        key: its token, in bytes.
    """

    validity: int
    resource: str
    key: bytes


class CannotObtainLock(Exception):  # noqa: N818 - the names are theirs
    """Never raised.  It is here for programs that catch it."""


class MultipleRedlockException(Exception):  # noqa: N818
    """Never raised: a majority decides, and a minority that fails is no error.  It is here for programs that catch it.

    Attributes:
        errors: what it was made of.
    """

    def __init__(self, errors: Iterable[Exception], *args: object) -> None:
        super().__init__(*args)
        self.errors = list(errors)

    def __str__(self) -> str:
        return " :: ".join(str(error) for error in self.errors)


class Redlock:
    """A lock manager on N independent masters.

    Args:
        connection_list: URLs, clients of redis-py, or the arguments of `redis.Redis` as dictionaries.
        retry_count: how many attempts there were; 3.
        retry_delay: seconds between them; 0.2.
        options: as of `Masters`. ``prefix`` is empty by default.  If a TTL is longer than a minute, give
            ``max_ttl`` in every client.

    Attributes:
        masters: the `Masters` behind it, for lines that are already written anew.
        servers: a client of redis-py for each master.

    Raises:
        Warning: redis-py refuses a URL, or the arguments in a dictionary.
        ConfigurationError: as `Masters` says.
    """

    default_retry_count = 3
    default_retry_delay = 0.2

    def __init__(
        self,
        connection_list: Iterable[Any],
        retry_count: int | None = None,
        retry_delay: float | None = None,
        **options: Any,
    ) -> None:
        self.servers = [_client(given) for given in connection_list]
        options.setdefault("prefix", "")
        self.masters = Masters(self.servers, **options)
        self.quorum = len(self.servers) // 2 + 1
        self.retry_count = retry_count or self.default_retry_count
        self.retry_delay = retry_delay or self.default_retry_delay
        self._held: dict[tuple[str, bytes], MultiLock] = {}  # else they would be given back when the program drops them
        _instead.write('masters = Masters(["redis://…", …], prefix="")', for_="Redlock(…)")

    def lock(self, resource: str, ttl: int) -> Lock | Literal[False]:
        """Take the lock ``resource`` for ``ttl`` milliseconds.  False: another client has it, or there is no quorum.

        Raises:
            ValueError: the TTL is no int, or shorter or longer than the masters allow.
        """
        if not isinstance(ttl, int):
            raise ValueError(f"ttl {ttl} is not an integer")  # noqa: TRY004 - as theirs
        patience = (self.retry_count - 1) * self.retry_delay
        _instead.write(
            f"lock = masters.lock(resource, ttl={ttl / 1000:g}, auto_extend=False); "
            f"lease = lock.acquire(timeout={patience:g})  # None: another client has it",
            for_="Redlock.lock",
        )
        self._forget()
        lock = self.masters.lock(resource, ttl=ttl / 1000, auto_extend=False, bound=False)
        try:
            lease = lock.acquire(timeout=patience)
        except QuorumUnreachable as outage:
            _LOG.warning("%s", outage.message)
            return False
        if lease is None:
            return False
        taken = Lock(int(lease.remaining() * 1000), resource, lease.token.encode())
        self._held[taken.resource, taken.key] = lock
        return taken

    def unlock(self, lock: Lock) -> None:
        """Give the lock back, also one that another process was granted.  Nothing is said if it has ended before.

        Masters that do not answer are owed the release, and get it as soon as they can be reached.
        """
        _instead.write("lock.release()", for_="Redlock.unlock")
        held = self._held.pop((lock.resource, lock.key), None)
        try:
            if held is None:
                resumed = self.masters.resume(lock.resource, token=lock.key.decode(), ttl=self.masters.max_ttl, guard=0)
                with resumed:
                    pass
            else:
                held.release()
        except (
            LockLost,
            NotHeld,
            QuorumUnreachable,
            ConfigurationError,
        ) as ended:  # the last: no such token
            _LOG.warning("%s", ended.message)

    def _forget(self) -> None:
        """Forget locks that have ended without an `unlock`."""
        for known, lock in list(self._held.items()):
            if lock.lease is None or not lock.lease.valid:
                self._held.pop(known, None)


def _client(given: Any) -> Any:
    try:
        if isinstance(given, str):
            return redis.Redis.from_url(given)
        return redis.Redis(**given) if isinstance(given, dict) else given
    except Exception as error:  # noqa: BLE001 - each argument has its own error
        raise Warning(str(error)) from None
