"""Announcements of our list of masters on the way of locks (R34): nothing is lost for them, and nothing overtaken."""

from __future__ import annotations

import asyncio

import pytest

from redlock import RedlockError
from tests.asyncio.virtual import MASTERS, virtual

ALL = tuple(range(MASTERS))


def scripts(deployment):
    return [[heard.script for heard in fake.heard] for fake in deployment.fakes]


@pytest.mark.parametrize("others", [0, 2])
@virtual(tidy=False, agreement="warn")
async def test_masters_that_are_dropped_roll_back_before_they_take_their_list_back(d, others):
    """Both are sent; and the same with several operations, whose requests leave together."""
    count = 1 + others
    expected = [*["acquire"] * count, *["release"] * count, "fleet"]
    d.mute(*ALL)
    tasks = [asyncio.create_task(d.masters.lock(f"job-{n}", ttl=10).acquire()) for n in range(1 + others)]
    await d.quiet()
    d.driver.shut()
    for task in tasks:
        with pytest.raises(RedlockError):
            await task
    await d.quiet()
    heard = scripts(d)
    d.shut()
    assert heard == [expected] * MASTERS


@virtual(tidy=False, agreement="warn")
async def test_closing_waits_for_what_is_owed_and_then_takes_the_list_back(d):
    """The masters are slow to answer a release."""

    async def holding():
        async with d.masters.lock("job", ttl=10):
            d.mute(*ALL)

    releasing = asyncio.create_task(holding())
    await d.quiet()
    closing = asyncio.create_task(d.masters.close())
    await d.quiet()
    assert all(set(heard[1:]) == {"release"} for heard in scripts(d)), "the answers are awaited"
    d.speak()
    await closing
    await asyncio.wait([releasing])
    releasing.exception()
    await d.quiet()
    for heard in scripts(d):
        assert (heard[0], heard[-1]) == ("acquire", "fleet")
        assert set(heard[1:-1]) == {"release"}, "once, or once more as it was interrupted"
    d.shut()
