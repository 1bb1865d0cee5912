"""What people write themselves with redis-py: SET NX on every master in parallel, DEL if it is ours.

    … pool          one thread for each master
    … single        no quorum: redis-py's own `Lock` on the first master

All masters are waited for, with the settings that redis-py has of its own; one that fails has not voted.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import redis

from benchmarks.workers import serve, threads

if TYPE_CHECKING:
    from collections.abc import Callable

UNLOCK = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
PAUSE = 0.1  # seconds between two tries, what redis-py's own lock sleeps


class Pool:
    def __init__(self, masters: list[redis.Redis], pool: ThreadPoolExecutor, name: str) -> None:
        self._masters = masters
        self._unlock = [master.register_script(UNLOCK) for master in masters]
        self._pool = pool
        self._name = name
        self._token = ""
        self.acquire = self.attempt

    def attempt(self) -> bool:
        self._token = secrets.token_hex(20)
        answers = self._pool.map(self._set, self._masters)
        if sum(map(bool, answers)) > len(self._masters) // 2:
            return True
        self.release()
        return False

    def _set(self, master: redis.Redis) -> Any:
        with contextlib.suppress(redis.RedisError):
            return master.set(self._name, self._token, nx=True, px=int(serve.ttl() * 1000))
        return False

    def release(self) -> None:
        list(self._pool.map(self._delete, self._unlock))

    def _delete(self, script: Any) -> None:
        with contextlib.suppress(redis.RedisError):
            script(keys=[self._name], args=[self._token])

    def wait(self, until: float) -> bool:
        while time.monotonic() < until:
            if self.attempt():
                return True
            time.sleep(PAUSE)
        return False


class Single:
    def __init__(self, master: redis.Redis, name: str) -> None:
        lock = master.lock(name, timeout=serve.ttl(), thread_local=False)
        self._lock = lock
        self.acquire: Callable[[], Any] = lock.acquire
        self.release: Callable[[], Any] = lock.release

    def attempt(self) -> bool:
        return bool(self._lock.acquire(blocking=False))

    def wait(self, until: float) -> bool:
        return bool(self._lock.acquire(blocking_timeout=max(0.0, until - time.monotonic())))


def main() -> None:
    masters = [redis.Redis.from_url(url) for url in serve.urls()]
    pool = ThreadPoolExecutor(64)
    make: Callable[[str], threads.Handle]
    if serve.options() == ["single"]:

        def make(name: str) -> threads.Handle:
            return Single(masters[0], name)
    else:

        def make(name: str) -> threads.Handle:
            return Pool(masters, pool, name)

    load = threads.Load(make)
    serve.serve(load)


if __name__ == "__main__":
    main()
