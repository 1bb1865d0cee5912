"""The line in front of the masters, for tasks: cancelled anywhere in it, nobody behind is forgotten (R11, R23)."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from redlock import AsyncLease, AsyncMasters, LockLost, WouldDeadlock
from tests.servers.look import eventually, nothing_left, script_calls


def local_queue(masters):
    (driver,) = masters._drivers.values()
    return driver._connections.local_queue


async def in_line(masters, number) -> None:
    """Until so many wait for "job" or hold it."""
    async with asyncio.timeout(5):
        while len(local_queue(masters)._lines.get("redlock:job", ())) != number:  # noqa: ASYNC110
            await asyncio.sleep(0)


def play(servers, scene) -> None:
    async def main():
        async with AsyncMasters(servers.urls, restart_guard=False) as masters:
            async with masters.lock("warm", ttl=10):
                pass
            await scene(masters)
            assert len(local_queue(masters)) == 0
            async with asyncio.timeout(5), masters.lock("job", ttl=10):
                pass
            for driver in masters._drivers.values():
                assert not driver._connections.operations

    asyncio.run(main())
    eventually(lambda: nothing_left(servers))


@pytest.mark.parametrize("cancelled", [[0], [2], [4], [0, 1, 2], [1, 3], [0, 1, 2, 3, 4]], ids=str)
@pytest.mark.parametrize("when", ["before", "with", "after"])
def test_cancelled_anywhere_in_the_line(redlock_servers, cancelled, when):
    """Before the release, in the tick in which it is written and the next one's turn comes, and one after it."""

    async def scene(masters):
        order = []

        async def work(number):
            async with masters.lock("job", ttl=10):
                order.append(number)

        def cancel():
            for number in cancelled:
                tasks[number].cancel()

        holder = masters.lock("job", ttl=10, bound=False)  # whoever gives it back
        await holder.acquire()
        tasks = []
        for number in range(5):
            tasks.append(asyncio.create_task(work(number)))
            await in_line(masters, number + 2)
        if when == "before":
            cancel()
            await in_line(masters, 1 + 5 - len(cancelled))
            await holder.release()
        else:
            release = asyncio.create_task(holder.release())
            await asyncio.sleep(0)
            if when == "after":
                await asyncio.sleep(0)
            cancel()
            await release
        async with asyncio.timeout(5):
            await asyncio.wait(tasks)
        assert [number for number in range(5) if tasks[number].cancelled()] == cancelled
        assert order == [number for number in range(5) if number not in cancelled]

    play(redlock_servers, scene)


def test_cancelled_at_random_while_it_moves(redlock_servers):
    choose = random.Random(1)

    async def scene(masters):
        inside = 0

        async def work():
            nonlocal inside
            for _ in range(5):
                async with masters.lock(choose.choice(["job", ["job", "more"], ["more", "job"], "more"]), ttl=10):
                    inside += 1
                    await asyncio.sleep(choose.random() * 0.002)
                    inside -= 1

        loop = asyncio.get_running_loop()
        tasks = [asyncio.create_task(work()) for _ in range(100)]
        for task in choose.sample(tasks, 70):
            loop.call_later(choose.random() * 0.4, task.cancel)
        done, left = await asyncio.wait(tasks, timeout=30)
        assert not left
        assert {task.exception() for task in done if not task.cancelled()} == {None}
        assert 10 < sum(task.cancelled() for task in done) <= 70

    play(redlock_servers, scene)


def test_the_end_of_a_task_that_holds_it_lets_the_next_one_pass(redlock_servers):
    """P3: no renewals for who is gone, so no later than its TTL."""

    async def scene(masters):
        lost: list[AsyncLease] = []
        await asyncio.create_task(masters.lock("job", ttl=0.9, on_lost=lost.append).acquire())
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with masters.lock("job", ttl=10, timeout=5):
            assert loop.time() - began < 1.5

    play(redlock_servers, scene)


def test_a_task_enters_again_and_its_children_do_not(redlock_servers):
    """R26 goes by task; what a task starts is another one."""

    async def scene(masters):
        one, two = masters.lock("job", ttl=10), masters.lock("job", ttl=10)
        async with one as lease:
            before = script_calls(redlock_servers)
            async with two as again, one as and_again:
                assert again is and_again is lease
            assert script_calls(redlock_servers) == before
            assert await asyncio.create_task(two.acquire(timeout=0.01)) is None
            with pytest.raises(WouldDeadlock):
                await masters.lock(["job", "more"], ttl=10).acquire()
            assert lease.valid
        assert not lease.valid

    play(redlock_servers, scene)


def test_a_level_that_is_cancelled_gives_back_its_own(redlock_servers):
    async def scene(masters):
        lock = masters.lock("job", ttl=10)

        async def work():
            async with lock as lease:
                try:
                    async with asyncio.timeout(0.05), lock:
                        await asyncio.sleep(10)
                except TimeoutError:
                    assert lease.valid
                assert lock.owned()
                await asyncio.sleep(0.05)
                assert lease.valid
            assert not lock.owned()

        await asyncio.create_task(work())

    play(redlock_servers, scene)


@pytest.mark.parametrize("cancel_on_loss", [True, False])
def test_nested_bodies_whose_lease_is_lost(redlock_servers, cancel_on_loss):
    """C13: each level reports its own loss, and no cancellation is left over."""

    async def scene(masters):
        lock = masters.lock("job", ttl=0.9, cancel_on_loss=cancel_on_loss)
        levels: list[Any] = []

        async def work():
            try:
                async with lock:
                    try:
                        async with lock:
                            for i in range(5):
                                await asyncio.to_thread(redlock_servers.client(i).delete, "redlock:job")
                            await asyncio.sleep(5 if cancel_on_loss else 1.5)
                    except LockLost:
                        levels.append("inner")
            except LockLost:
                levels.append("outer")
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
            await asyncio.sleep(0.01)

        task = asyncio.create_task(work())
        async with asyncio.timeout(4):
            await task
        assert levels == ["inner", "outer"]
        for i in range(5):
            await asyncio.to_thread(redlock_servers.client(i).delete, "redlock:job")

    play(redlock_servers, scene)


def test_a_body_that_is_to_be_cancelled_inside_of_one_that_is_not(redlock_servers):
    """R26: what the second one asks for, it gets."""

    async def scene(masters):
        levels: list[Any] = []

        async def work():
            try:
                async with masters.lock("job", ttl=0.9, cancel_on_loss=False):
                    try:
                        async with masters.lock("job", ttl=0.9):
                            for i in range(5):
                                await asyncio.to_thread(redlock_servers.client(i).delete, "redlock:job")
                            await asyncio.sleep(20)
                    except LockLost:
                        levels.append("inner")
            except LockLost:
                levels.append("outer")

        task = asyncio.create_task(work())
        await task
        assert task.cancelling() == 0
        assert levels == ["inner", "outer"]

    play(redlock_servers, scene)


@pytest.mark.parametrize("objects", [1, 2])
def test_a_body_whose_inner_level_is_over_is_cancelled_all_the_same(redlock_servers, objects):
    """C13: who entered again and left is still told that the lease is lost."""

    async def scene(masters):
        lock = masters.lock("job", ttl=0.9)
        inner = lock if objects == 1 else masters.lock("job", ttl=0.9)

        async def work():
            async with lock:
                async with inner:
                    pass
                for i in range(5):
                    await asyncio.to_thread(redlock_servers.client(i).delete, "redlock:job")
                await asyncio.sleep(3)
                pytest.fail("nobody told it")

        task = asyncio.create_task(work())
        with pytest.raises(LockLost):
            await task
        assert task.cancelling() == 0

    play(redlock_servers, scene)
