"""`Masters` in coroutines: a mistake, and no way around the lock (R26)."""

from __future__ import annotations

import asyncio

import pytest

from redlock import Masters, WouldDeadlock


def test_a_second_task_of_the_thread_does_not_enter(redlock_servers):
    inside: list[int] = []

    async def section(masters):
        with masters.lock("job", ttl=10, timeout=1):
            inside.append(len(inside))
            await asyncio.sleep(0.1)

    async def main():
        with Masters(redlock_servers.urls, restart_guard=False) as masters:
            return await asyncio.gather(section(masters), section(masters), return_exceptions=True)

    first, second = asyncio.run(main())
    assert first is None
    assert isinstance(second, WouldDeadlock)
    assert "use AsyncMasters" in str(second)
    assert inside == [0]


def test_the_same_task_enters_again(redlock_servers):
    async def main():
        with Masters(redlock_servers.urls, restart_guard=False) as masters:
            with masters.lock("job", ttl=10) as outer, masters.lock("job", ttl=10) as inner:
                assert inner is outer

    asyncio.run(main())


def test_what_is_held_around_the_loop_its_tasks_do_not_enter(redlock_servers):
    """Two of them would be in the section at once."""
    with Masters(redlock_servers.urls, restart_guard=False) as masters, masters.lock("job", ttl=10) as lease:

        async def main():
            masters.lock("job", ttl=10).acquire()

        with pytest.raises(WouldDeadlock, match="use AsyncMasters"):
            asyncio.run(main())
        assert lease.valid


def test_what_a_task_holds_a_plain_function_of_its_loop_does_not_enter(redlock_servers):
    """A callback of the loop runs in no task."""
    said = []

    async def main():
        with Masters(redlock_servers.urls, restart_guard=False) as masters:
            lock = masters.lock("job", ttl=10)

            def callback():
                with pytest.raises(WouldDeadlock) as caught:
                    lock.acquire(blocking=False)
                said.append(caught.value)

            with lock:
                asyncio.get_running_loop().call_soon(callback)
                await asyncio.sleep(0.05)

    asyncio.run(main())
    assert said
