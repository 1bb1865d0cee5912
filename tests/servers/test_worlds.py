"""The front of the loop is as good as what it stands for, and tells of what is left behind it."""

import asyncio

import pytest

from redlock import AsyncMasters
from tests.servers import worlds

NOWHERE = ["redis://127.0.0.1:1"]
stays: list[object] = []  # what a test leaves behind on purpose, until it was told of


@pytest.fixture(params=[name for name in worlds.NAMES if name != "threads"])
def name(request):
    return request.param


async def _task_that_stays():
    stays.append(asyncio.create_task(asyncio.sleep(60)))


async def _masters_that_stay_open():
    masters = AsyncMasters(NOWHERE)
    stays.append(masters)
    with pytest.raises(ConnectionError):
        await masters.status("job")


async def _callback_that_raises():
    asyncio.get_running_loop().call_soon(lambda: 1 // 0)
    await asyncio.sleep(0.01)


async def _future_that_nobody_asked():
    future = asyncio.get_running_loop().create_future()
    future.set_exception(ZeroDivisionError())


@pytest.mark.parametrize(("leaves", "complaint"), [
    (_task_that_stays, "a task is left"),
    (_masters_that_stay_open, "masters were not closed"),
    (_callback_that_raises, "ZeroDivisionError"),
    (_future_that_nobody_asked, "never retrieved"),
])  # fmt: skip
def test_what_is_left_is_told(name, leaves, complaint):
    with pytest.raises(AssertionError, match=complaint), worlds.opened(name) as world:
        world.do(leaves)
    stays.clear()
