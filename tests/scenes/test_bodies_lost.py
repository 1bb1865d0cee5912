"""Bodies under ``async with``: cancelled when their lease is lost, or from outside (R11, C13)."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
from typing import Any

import pytest

from tests.bench import scene
from tests.owners import proves

TTL = 0.4


def in_tasks(body):
    """A scene after which nothing is left: no key, and nothing of what cancelled the body."""

    @functools.wraps(body)
    async def written(at, **arguments):
        await body(at, **arguments)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        gc.collect()
        await asyncio.sleep(70)  # also what belongs to another client has expired
        assert at.keys() == 0

    return scene(node_timeout=0.1)(written)


def short(at, **options):
    """A lock whose lease is lost after its TTL."""
    return at.masters.lock("job", ttl=TTL, auto_extend=False, **options)


@pytest.mark.parametrize("kind", ["function", "coroutine function"])
@in_tasks
async def test_on_lost_is_called_on_the_loop_and_what_it_raises_is_logged(at, kind):
    told = []

    def plain(lease):
        told.append((asyncio.get_running_loop(), lease))
        raise ZeroDivisionError("mine")

    async def waits(lease):
        await asyncio.sleep(0.01)
        plain(lease)

    at.expects("ZeroDivisionError: mine")
    with pytest.raises(at.errors.LockLost):
        async with short(at, on_lost=plain if kind == "function" else waits) as lease:
            await asyncio.sleep(10)
    await asyncio.sleep(0.1)
    assert any("on_lost" in line for line in at.log)
    assert told == [(asyncio.get_running_loop(), lease)]


@in_tasks
async def test_a_body_that_swallows_the_cancellation(at):
    after = []
    with pytest.raises(at.errors.LockLost):
        async with short(at) as lease:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(10)
            assert lease.lost
            await asyncio.sleep(0.05)  # is not cancelled a second time
            after.append(True)
    assert after


@in_tasks
async def test_a_body_that_raises_something_else(at):
    with pytest.raises(ZeroDivisionError) as caught:
        async with short(at):
            try:
                await asyncio.sleep(10)
            finally:
                raise ZeroDivisionError
    assert "was lost" in caught.value.__notes__[0]


@pytest.mark.parametrize("awaits", [True, False])
@in_tasks
async def test_a_loop_that_was_blocked(at, awaits):
    """P6.  Where the body ends before it can be cancelled, the cancellation must not strike what comes after it."""
    for _ in range(3):
        with pytest.raises(at.errors.LockLost):
            async with short(at) as lease:
                at.block(1.5 * TTL)
                assert lease.lost  # the first look is right
                if awaits:
                    await asyncio.sleep(10)
        await asyncio.sleep(0.01)  # nobody cancels this


@proves("C13")
@pytest.mark.parametrize("order", ["loss first", "outer first"])
@in_tasks
async def test_cancelled_from_outside_at_the_same_moment(at, order):
    """C13: the cancellation wins."""

    async def holder():
        lock = short(at)
        async with lock as lease:
            leases.append(lease)
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                assert task is not None
                if order == "loss first":
                    task.cancel()
                raise

    leases: list[Any] = []
    task = asyncio.create_task(holder())
    if order == "outer first":
        await asyncio.sleep(0.1)
        while not leases[0].lost:  # the loop is blocked, or the loss might be found in a tick before
            at.block(0.001)
        task.cancel()  # and the renewer finds the loss in the same tick
    done, _ = await asyncio.wait([task])
    assert task.cancelled()
    return done


@in_tasks
async def test_asyncio_timeout_around_and_inside(at):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(TTL / 2), at.masters.lock("job", ttl=10):
            await asyncio.sleep(10)
    with pytest.raises(at.errors.LockLost):
        async with asyncio.timeout(10), short(at):
            await asyncio.sleep(10)
    with pytest.raises(at.errors.LockLost):
        async with short(at), asyncio.timeout(10):
            await asyncio.sleep(10)


@pytest.mark.parametrize("leave", ["closed", "closed by another task", "dropped"])
@in_tasks
async def test_a_generator_that_is_left_after_its_loss_takes_the_cancellation_back(at, leave):
    """As that of `asyncio.timeout` does; `run` looks at the task that was cancelled."""

    async def holds():
        async with short(at) as lease:
            yield lease

    generator = holds()
    lease = await anext(generator)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.sleep(10)
    assert lease.lost
    if leave == "closed":
        await generator.aclose()
    elif leave == "closed by another task":
        await asyncio.create_task(generator.aclose())
    else:
        del generator
        gc.collect()
        await asyncio.sleep(0.2)  # the loop closes it


@in_tasks
async def test_two_locks_in_one_task(at):
    """The inner one goes on when the outer one is lost, until the body is cancelled, and each says its own."""
    with pytest.raises(at.errors.LockLost) as caught:
        async with at.masters.lock("job", ttl=5 * TTL, auto_extend=False), at.masters.lock("other", ttl=10) as other:
            await asyncio.sleep(10)
    assert caught.value.name == "job"
    assert not other.lost
    with pytest.raises(at.errors.LockLost) as caught:
        async with at.masters.lock("other", ttl=10) as other, short(at):
            await asyncio.sleep(10)
    assert caught.value.name == "job"
    assert not other.lost


# -- levels (R26) --------------------------------------------------------------------------------------


@in_tasks
async def test_a_level_that_is_cancelled_gives_back_its_own(at):
    lock = at.masters.lock("job", ttl=10)

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


@pytest.mark.parametrize(("outer", "inner"), [(True, True), (False, False), (False, True)])
@in_tasks
async def test_nested_bodies_whose_lease_is_lost(at, outer, inner):
    """C13: each level reports its own loss, no cancellation is left over; and what the second one asks for it gets (R26)."""
    levels: list[str] = []

    async def work():
        try:
            async with at.masters.lock("job", ttl=5 * TTL, cancel_on_loss=outer):
                try:
                    async with at.masters.lock("job", ttl=5 * TTL, cancel_on_loss=inner) as lease:
                        at.put("redlock:job", "another")
                        await (asyncio.sleep(20) if inner else lease.wait_lost(20))
                except at.errors.LockLost:
                    levels.append("inner")
        except at.errors.LockLost:
            levels.append("outer")
        await asyncio.sleep(0.01)

    task = asyncio.create_task(work())
    await task
    assert task.cancelling() == 0
    assert levels == ["inner", "outer"]


@pytest.mark.parametrize("objects", [1, 2])
@in_tasks
async def test_a_body_whose_inner_level_is_over_is_cancelled_all_the_same(at, objects):
    """C13: who entered again and left is still told that the lease is lost."""
    lock = at.masters.lock("job", ttl=TTL)
    inner = lock if objects == 1 else at.masters.lock("job", ttl=TTL)

    async def work():
        async with lock:
            async with inner:
                pass
            at.put("redlock:job", "another")
            await asyncio.sleep(20)
            pytest.fail("nobody told it")

    task = asyncio.create_task(work())
    with pytest.raises(at.errors.LockLost):
        await task
    assert task.cancelling() == 0


# -- cancelled from outside (R11) ------------------------------------------------------------------------


@in_tasks
async def test_a_loss_while_the_body_is_cancelled_does_not_hide_the_cancellation(at):
    async def work():
        async with short(at, cancel_on_loss=False, on_lost=lambda _: task.cancel()):
            await asyncio.sleep(10)

    task = asyncio.create_task(work())
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert "was lost" in caught.value.__notes__[0]


@in_tasks
async def test_any_other_exception_at_the_await(at):
    coroutine = at.masters.lock("job", ttl=30).acquire()
    coroutine.send(None)
    with pytest.raises(TimeoutError):
        coroutine.throw(TimeoutError())
