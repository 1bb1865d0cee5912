"""What was once wrong around the event loop, each in its smallest scene."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest
import redis

from redlock import AsyncMasters, RedlockError
from redlock._asyncio import connections as connections_module
from redlock._asyncio.connections import Connections
from redlock._asyncio.operation import Operation
from tests.servers.look import all_up, eventually, nothing_left


def masters_of(servers, **options):
    return AsyncMasters(servers.urls, restart_guard=False, **options)


async def connected(masters):
    for _ in range(500):
        if all(vote.outcome in ("free", "held") for vote in (await masters.status("whatever")).votes):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("not connected")


async def granted(masters, task):
    """Until the masters have granted it, and before ``task`` was resumed."""
    (driver,) = masters._drivers.values()
    while driver._connections.operations or not driver._connections.unclaimed:  # noqa: ASYNC110 - to the tick
        await asyncio.sleep(0)
    assert not task.done()


def test_cancelled_with_a_lock_just_won_while_the_masters_are_being_closed(redlock_servers):
    async def main():
        async with masters_of(redlock_servers) as masters:
            await connected(masters)
            task = asyncio.create_task(masters.lock("job", ttl=30).acquire())
            await asyncio.sleep(0)
            await granted(masters, task)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    eventually(lambda: nothing_left(redlock_servers))


@pytest.mark.parametrize("then", ["stopped", "closed", "another runs"])
def test_thrown_away_with_a_lock_just_won(redlock_servers, then):
    masters = masters_of(redlock_servers)
    coroutine = masters.lock("job", ttl=30).acquire()

    async def begin():
        await connected(masters)
        coroutine.send(None)
        (driver,) = masters._drivers.values()
        while driver._connections.operations:  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def throw_away():
        coroutine.close()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    if then == "another runs":
        asyncio.run(throw_away())
    elif then == "closed":
        loop.close()
    coroutine.close()
    eventually(lambda: nothing_left(redlock_servers))
    asyncio.run(masters.close())
    loop.close()


def test_any_other_exception_at_the_await(redlock_servers):
    async def main():
        async with masters_of(redlock_servers) as masters:
            await connected(masters)
            coroutine = masters.lock("job", ttl=30).acquire()
            coroutine.send(None)
            with pytest.raises(TimeoutError):
                coroutine.throw(TimeoutError())
            await asyncio.sleep(0.05)

    asyncio.run(main())
    eventually(lambda: nothing_left(redlock_servers))


def test_a_body_whose_coroutine_is_thrown_away_gives_the_lock_back(redlock_servers):
    async def main():
        async with masters_of(redlock_servers) as masters:
            await connected(masters)

            async def work():
                async with masters.lock("job", ttl=30):
                    await asyncio.Event().wait()

            coroutine = work()
            future = coroutine.send(None)
            while not future.done():  # noqa: ASYNC110
                await asyncio.sleep(0)
            coroutine.send(None)  # holds it now
            coroutine.close()
            await asyncio.sleep(0.05)

    asyncio.run(main())
    eventually(lambda: nothing_left(redlock_servers))


class _Moody(redis.CredentialProvider):
    def __init__(self):
        self.asked = 0

    def get_credentials(self):
        self.asked += 1
        if self.asked == 1:
            raise asyncio.CancelledError
        return ("default", "")


def test_a_credential_provider_that_raises_what_is_no_exception(world, redlock_servers):
    moody = _Moody()
    client = redis.Redis(port=redlock_servers.ports[0], credential_provider=moody)
    with world.Masters([client, *redlock_servers.urls[1:]], restart_guard=False) as masters:
        eventually(lambda: all_up(masters))
    assert moody.asked == 2


def test_sockets_that_come_while_others_are_closed():
    class Socket:
        closed = 0

        def close(self):
            Socket.closed += 1
            if Socket.closed < 5:
                sockets.add(Socket())

    sockets = {Socket(), Socket()}
    connections_module._close_all(sockets)  # type: ignore[arg-type]
    assert Socket.closed == 6
    assert not sockets


def test_a_loop_that_is_blocked_while_the_masters_answer(redlock_servers):
    async def main():
        async with masters_of(redlock_servers, node_timeout=0.05) as masters:
            await connected(masters)
            lock = masters.lock("job", ttl=10)

            async def work():
                lease = await lock.acquire(timeout=0)
                assert lease is not None
                # What was not used for listening is gone: it counts from when it was asked (R6).
                assert lease.remaining() < 10 - 0.1 - 0.2
                await lock.release()

            for _ in range(3):
                task = asyncio.create_task(work())
                await asyncio.sleep(0)
                time.sleep(0.2)  # noqa: ASYNC251 - another task does this
                await task

    asyncio.run(main())


class Struck(Exception):  # noqa: N818 - a signal handler raises it
    pass


@pytest.mark.parametrize(("kind", "method"), [(Connections, "flush"), (Connections, "step"), (Operation, "step")])
def test_an_exception_of_a_signal_handler_breaks_nothing_for_good(redlock_servers, monkeypatch, kind, method):
    """It may strike at any line; here at the first one of what must not be forgotten."""
    original = getattr(kind, method)
    left = [0]

    def struck(self):
        if left[0]:
            left[0] -= 1
            raise Struck
        return original(self)

    monkeypatch.setattr(kind, method, struck)

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        async with masters_of(redlock_servers, node_timeout=0.1) as masters:
            await connected(masters)

            async def use(number):
                with contextlib.suppress(RedlockError, Struck):
                    async with asyncio.timeout(5), masters.lock(f"job-{number}", ttl=10, timeout=1):
                        pass

            for _ in range(5):
                left[0] = 1
                await asyncio.gather(*map(use, range(3)))  # what one alone sends is not gathered for `flush`
                assert not left[0]
                for number in range(3):
                    async with asyncio.timeout(5), masters.lock(f"job-{number}", ttl=10):
                        pass

    asyncio.run(main())
    eventually(lambda: nothing_left(redlock_servers))


def test_who_closes_second_waits_for_the_first(redlock_servers):
    async def main():
        masters = masters_of(redlock_servers, node_timeout=0.5)
        await connected(masters)
        lock = masters.lock("job", ttl=10)
        await lock.acquire()
        redlock_servers.pause(0)  # so that there is something to wait for
        await lock.release()
        (driver,) = masters._drivers.values()
        first = asyncio.create_task(masters.close())
        await asyncio.sleep(0.05)
        await masters.close()
        assert all(connection.sock is None for connection in driver._connections.all)
        await first
        redlock_servers.resume(0)

    asyncio.run(main())
    eventually(lambda: nothing_left(redlock_servers))


def test_a_master_that_comes_up_while_it_is_interrupted_is_not_forgotten(redlock_servers, monkeypatch):
    watch = Connections._watch
    left = [1]

    def struck(self, connection):
        if left[0]:
            left[0] -= 1
            raise Struck
        watch(self, connection)

    monkeypatch.setattr(Connections, "_watch", struck)

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        async with masters_of(redlock_servers) as masters:
            await connected(masters)

    asyncio.run(main())
