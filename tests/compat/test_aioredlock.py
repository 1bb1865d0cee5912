"""`redlock.compat.aioredlock`: the calls of aioredlock, as its README shows them, on real masters."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import warnings
from typing import Any

import pytest
import redis.asyncio

from redlock import AsyncMasters, ConfigurationError
from redlock.compat.aioredlock import Aioredlock, Lock, LockAcquiringError, LockError, LockRuntimeError
from tests.servers.look import eventually

pytestmark = pytest.mark.filterwarnings("ignore:.*there for the way over:DeprecationWarning")


def on_a_loop(scene):
    """``scene(manager, other, servers)``: two managers on the same masters."""

    @functools.wraps(scene)
    def test(redlock_servers):
        async def play():
            manager = Aioredlock([("127.0.0.1", port) for port in redlock_servers.ports], restart_guard=False)
            other = Aioredlock(redlock_servers.urls, retry_count=1, restart_guard=False)
            try:
                await scene(manager, other, redlock_servers)
            finally:
                await manager.destroy()
                await other.destroy()

        asyncio.run(asyncio.wait_for(play(), 90))

    del test.__wrapped__  # pytest reads its arguments there
    return test


@on_a_loop
async def test_as_its_readme_shows(manager, other, servers):
    assert not await manager.is_locked("resource_name")
    lock = await manager.lock("resource_name", lock_timeout=10)
    assert lock.valid
    assert isinstance(lock, Lock)
    assert (lock.resource, lock.lock_manager, lock.lock_timeout) == ("resource_name", manager, 10)
    assert [servers.client(i).get("resource_name") for i in range(5)].count(lock.id.encode()) >= 3
    assert await other.is_locked("resource_name")
    assert await manager.is_locked(lock)
    assert await lock.is_locked()
    await manager.extend(lock, lock_timeout=20)
    assert lock.lease.remaining() > 15
    await lock.extend()
    assert lock.lease.remaining() < 15
    await manager.unlock(lock)
    assert not lock.valid
    assert not await manager.is_locked("resource_name")
    await manager.unlock(lock)  # once more is no error


@on_a_loop
async def test_async_with(manager, other, servers):
    async with await manager.lock("resource_name") as lock:
        assert lock.valid is True
        assert lock.lease.fence > 0
        assert await manager.get_active_locks() == [lock]
        with pytest.raises(LockAcquiringError, match="another client has 'resource_name'"):
            await other.lock("resource_name")
        with pytest.raises(LockError):  # not re-entered, in the same task neither
            await manager.lock("resource_name")
        await lock.extend()
    assert lock.valid is False
    await asyncio.to_thread(eventually, lambda: not any(servers.keys("resource_name")), 5)  # long before the TTL
    assert await manager.get_active_locks() == []


@on_a_loop
async def test_without_a_timeout_it_is_renewed_and_with_one_it_is_not(manager, other, servers):
    brief = Aioredlock(servers.urls, internal_lock_timeout=3.0, restart_guard=False)
    async with await brief.lock("renewed") as lock:
        fixed = await brief.lock("fixed", lock_timeout=1.0)
        assert await fixed.lease.wait_lost(timeout=30)
        assert await asyncio.wait_for(_until_moved(lock), 30)
        assert await other.lock("fixed")
        with pytest.raises(LockAcquiringError):
            await fixed.release()
    await brief.destroy()


async def _until_moved(lock):
    """Until it was renewed twice."""
    for _ in range(2):
        before = lock.lease.valid_until
        while lock.lease.valid_until == before:  # noqa: ASYNC110 - nobody tells of a renewal
            await asyncio.sleep(0.01)
    return lock.valid


@on_a_loop
async def test_a_body_that_takes_too_long_is_told_at_its_end(manager, other, servers):
    with pytest.raises(LockAcquiringError):
        async with await manager.lock("late", lock_timeout=1) as lock:
            await lock.lease.wait_lost()
    with pytest.raises(RuntimeError, match="not valid"):
        await lock.extend()
    with pytest.raises(ZeroDivisionError) as caught:  # never hidden
        async with await manager.lock("late", lock_timeout=1) as lock:
            await lock.lease.wait_lost()
            _ = 1 / 0
    assert "besides, " in caught.value.__notes__[0]


@on_a_loop
async def test_an_outage(manager, other, servers):
    lock = await manager.lock("resource_name")
    assert not await other.is_locked("nothing")
    for i in range(3):
        servers.kill(i)
    with pytest.raises(LockRuntimeError):
        await other.lock("another", lock_timeout=5)
    with pytest.raises(LockRuntimeError):
        await other.is_locked("another")
    with pytest.raises(LockRuntimeError):
        await manager.extend(lock)
    assert lock.valid  # an extension that nobody answered takes nothing away
    await manager.unlock(lock)  # owed to the three


@on_a_loop
async def test_the_lock_of_another_process(manager, other, servers):
    lock = await manager.lock("resource_name", lock_timeout=30)
    theirs = await other.get_lock("resource_name", lock.id)
    assert theirs.valid
    assert theirs.lease.fence == lock.lease.fence
    with pytest.raises(LockError):
        await other.get_lock("resource_name", "another token")
    with pytest.raises(LockError):
        await other.get_lock("free", lock.id)
    await other.unlock(theirs)
    await asyncio.to_thread(eventually, lambda: not any(servers.keys("resource_name")))
    with contextlib.suppress(LockError):
        await lock.release()


@on_a_loop
async def test_destroy_gives_all_back(manager, other, servers):
    for i in range(3):
        await manager.lock(f"r:{i}")
    await manager.destroy()
    await asyncio.to_thread(eventually, lambda: not any(servers.keys("r:*")), 5)  # long before the TTL


@on_a_loop
async def test_wrong_arguments(manager, other, servers):
    with pytest.raises(ValueError, match="lock_identifier"):
        await manager.lock("x", lock_identifier="mine")
    with pytest.raises(ValueError, match="Lock timeout must be greater than 0 seconds"):
        await manager.lock("x", lock_timeout=0)
    with pytest.raises(ValueError, match=r"at least 0\.75 s"):
        await manager.lock("x", lock_timeout=0.1)
    with pytest.raises(TypeError, match="not int"):
        await manager.is_locked(5)


@pytest.mark.parametrize(("options", "said"), [
    ({"retry_count": 0}, "Retry count"),
    ({"retry_delay_min": 0}, "Retry delay"),
    ({"retry_delay_max": -1}, "Retry delay"),
    ({"internal_lock_timeout": 0}, "Internal lock_timeout"),
    ({"redis_connections": [object()]}, "not object"),
    ({"redis_connections": [{"host": "h", "ssl": object()}]}, "SSLContext"),
    ({"redis_connections": [{"cat": "hog"}]}, "cat"),
    ({"redis_connections": [{"db": 0}, {"db": 1}]}, "same server"),
])  # fmt: skip
def test_wrong_options(options, said):
    with pytest.raises(ValueError, match=said):
        Aioredlock(**options)


def test_every_way_to_name_a_master():
    given = [
        ("a", 1),
        ["b", 2],
        {"host": "c", "port": 3, "db": 1, "password": "p", "minsize": 1, "maxsize": 9, "encoding": "utf-8"},
        "redis://:p@d:4/2?encoding=utf-8", "/run/redis.sock", {"host": "e", "ssl": True},
        redis.asyncio.Redis(host="f"),
    ]  # fmt: skip
    assert repr(Aioredlock(given).masters) == "<AsyncMasters a:1, b:2, c:3, d:4, /run/redis.sock, e:6379, f:6379>"
    assert repr(Aioredlock().masters) == "<AsyncMasters localhost:6379>"
    assert issubclass(ConfigurationError, ValueError)


def test_each_call_says_what_to_write_instead(redlock_servers):
    """In the line that calls, and what it says runs."""

    async def old():
        manager = Aioredlock(redlock_servers.urls, restart_guard=False)
        lock = await manager.lock("pants", lock_timeout=10)
        await manager.extend(lock)
        await manager.is_locked("pants")
        await manager.unlock(lock)
        await manager.destroy()

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        asyncio.run(old())
    assert [one.category for one in said] == [DeprecationWarning] * 5
    assert {one.filename for one in said} == {__file__}
    assert len({one.lineno for one in said}) == 5
    masters, lock, extend, locked, release = (str(one.message).partition("Write instead:  ")[2] for one in said)
    assert masters == 'masters = AsyncMasters(["redis://…", …], prefix="")'
    program = f"""
async def new(masters, resource):
    {lock}
        assert {locked}
        assert lease.ttl == 10
    lock = masters.lock(resource)
    await lock.acquire()
    {extend}
    {release}
    await masters.close()
"""
    names: dict[str, Any] = {}
    exec(program, names)  # noqa: S102
    asyncio.run(names["new"](AsyncMasters(redlock_servers.urls, restart_guard=False), "pants"))
