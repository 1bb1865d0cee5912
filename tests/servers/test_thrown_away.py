"""A coroutine that is thrown away where its loop does not run gives back what it holds (R11)."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from redlock import AsyncMasters
from tests.servers.look import eventually, nothing_left


def masters_of(servers):
    return AsyncMasters(servers.urls, restart_guard=False, node_timeout=1.0)


async def body(lock, ended):
    try:
        async with lock:
            await asyncio.Event().wait()
    except BaseException as error:
        ended.append(type(error))
        raise


async def inside(lock, ended):
    """A coroutine that is suspended inside of its ``async with``."""
    async with lock:  # the masters are connected
        pass
    coroutine = body(lock, ended)
    future = coroutine.send(None)
    while not future.done():  # noqa: ASYNC110 - to the tick
        await asyncio.sleep(0)
    coroutine.send(None)
    assert lock.lease.valid
    return coroutine


async def use(masters):
    async with masters.lock("another", ttl=30):
        pass


@pytest.mark.parametrize("then", ["stopped", "closed", "another runs", "closed, another has come"])
def test_a_body_is_thrown_away_after_its_loop(redlock_servers, then):
    masters = masters_of(redlock_servers)
    ended: list[object] = []
    lock = masters.lock("job", ttl=30)
    loop = asyncio.new_event_loop()
    coroutine = loop.run_until_complete(inside(lock, ended))

    async def throw_away():
        if "come" in then:
            await use(masters)  # which closes the connections of the loop that is closed
        coroutine.close()
        await asyncio.to_thread(eventually, lambda: "come" not in then or nothing_left(redlock_servers))

    if "closed" in then:
        loop.close()
    if "another" in then:
        asyncio.run(throw_away())
    else:
        coroutine.close()
    assert ended == [GeneratorExit]
    assert (lock.lease.valid, lock.lease.lost) == (False, False)
    eventually(lambda: nothing_left(redlock_servers))
    asyncio.run(masters.close())
    loop.close()


@pytest.mark.parametrize("how", ["closed", "collected", "closed by its own thread"])
def test_a_body_is_thrown_away_while_its_loop_runs(redlock_servers, how):
    """And somebody else on that loop waits for the lock."""

    async def main():
        async with masters_of(redlock_servers) as masters:
            ended: list[object] = []
            lock = masters.lock("job", ttl=30)
            coroutines = [await inside(lock, ended)]
            lease = lock.lease
            waiting = asyncio.create_task(masters.lock("job", ttl=30).acquire(timeout=10))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            if how == "closed by its own thread":
                coroutines[0].close()
            elif how == "closed":
                await asyncio.to_thread(coroutines[0].close)
            else:
                coroutines.append(coroutines)
                del coroutines
                thread = threading.Thread(target=gc.collect)
                thread.start()
                thread.join()
            got = await waiting
            assert got.fence > lease.fence
            assert ended == [GeneratorExit]
            assert not lease.lost
            await masters.lock("job", ttl=30, token=got.token).release()

    asyncio.run(main())
    eventually(lambda: nothing_left(redlock_servers))


def test_a_generator_is_left_on_the_next_loop(redlock_servers):
    """A worker gives each step of it a loop of its own."""
    masters = masters_of(redlock_servers)

    async def holds():
        async with masters.lock("job", ttl=30) as lease:
            yield lease

    async def leave():
        await use(masters)
        await generator.aclose()
        await masters.close()

    generator = holds()
    loop = asyncio.new_event_loop()  # `asyncio.run` would end the generator
    lease = loop.run_until_complete(anext(generator))
    loop.close()
    asyncio.run(leave())
    assert (lease.valid, lease.lost) == (False, False)
    assert nothing_left(redlock_servers)
