"""A body under ``async with`` is cancelled when its lease is lost, and the statement raises `LockLost`."""

from __future__ import annotations

import asyncio
import contextlib
import gc

import pytest

from redlock import AsyncLease, AsyncMasters, LockLost, _clock
from tests.servers.look import eventually, nothing_left

TTL = 0.4


def run(body, servers):
    """``body(masters)`` on a loop, with all masters connected."""

    async def main():
        async with AsyncMasters(servers.urls, restart_guard=False, node_timeout=0.1) as masters:
            for _ in range(100):
                if all(vote.outcome == "free" for vote in (await masters.status("x")).votes):
                    break
                await asyncio.sleep(0.01)
            task = asyncio.current_task()
            assert task is not None
            result = await body(masters)
            assert task.cancelling() == 0  # nothing is left of what cancelled the body
            return result

    result = asyncio.run(main(), debug=True)
    gc.collect()
    eventually(lambda: nothing_left(servers))
    return result


def short(masters, **options):
    """A lock whose lease is lost after its TTL."""
    return masters.lock("job", ttl=TTL, auto_extend=False, **options)


def test_the_body_is_cancelled_in_time(redlock_servers, watch):
    async def body(masters):
        leases = []
        with pytest.raises(LockLost) as caught:
            async with masters.lock("job", ttl=TTL) as lease:
                leases.append(lease)
                for i in range(5):
                    redlock_servers.pause(i)
                try:
                    await asyncio.sleep(10)
                finally:
                    cancelled_at = _clock.now()
        told_at = _clock.now()
        for i in range(5):
            redlock_servers.resume(i)
        (lease,) = leases
        assert lease.valid_until <= cancelled_at < lease.valid_until + watch.prompt
        assert told_at < lease.valid_until + watch.prompt  # the release is not waited for: it is too late anyway
        assert caught.value.reason == "unreachable"
        assert isinstance(caught.value.__cause__, asyncio.CancelledError)

    run(body, redlock_servers)


def test_switched_off(redlock_servers):
    async def body(masters):
        with pytest.raises(LockLost):
            async with short(masters, cancel_on_loss=False) as lease:
                await asyncio.sleep(1.5 * TTL)
                assert lease.lost

    run(body, redlock_servers)


@pytest.mark.parametrize("kind", ["function", "coroutine function"])
def test_on_lost_is_called_on_the_loop(redlock_servers, kind):
    async def body(masters):
        told = []

        def plain(lease):
            told.append((asyncio.get_running_loop(), lease))

        async def waits(lease):
            await asyncio.sleep(0.01)
            plain(lease)

        with pytest.raises(LockLost):
            async with short(masters, on_lost=plain if kind == "function" else waits) as lease:
                await asyncio.sleep(10)
        await asyncio.sleep(0.05)
        assert told == [(asyncio.get_running_loop(), lease)]

    run(body, redlock_servers)


def test_an_on_lost_coroutine_that_raises_is_logged(redlock_servers, caplog):
    async def body(masters):
        async def broken(lease):
            raise ZeroDivisionError("mine")

        with pytest.raises(LockLost):
            async with short(masters, on_lost=broken):
                await asyncio.sleep(10)
        await asyncio.sleep(0.01)

    run(body, redlock_servers)
    assert "ZeroDivisionError: mine" in caplog.text


def test_in_a_task_group(redlock_servers):
    """Its children are cancelled with the body."""

    async def body(masters):
        ended = []

        async def child():
            try:
                await asyncio.sleep(10)
            finally:
                ended.append(_clock.now())

        with pytest.raises(LockLost):
            async with short(masters), asyncio.TaskGroup() as group:
                group.create_task(child())
                group.create_task(child())
        assert len(ended) == 2

    run(body, redlock_servers)


def test_inside_of_a_task_group(redlock_servers):
    """Only the task that held it fails; the group then cancels the others, as for any error."""

    async def body(masters):
        async def holder():
            async with short(masters):
                await asyncio.sleep(10)

        async def grouped():  # before Python 3.13 a group that failed leaves its task marked as cancelled
            async with asyncio.TaskGroup() as group:
                group.create_task(holder())

        with pytest.raises(ExceptionGroup) as caught:
            await asyncio.create_task(grouped())
        assert caught.group_contains(LockLost)

    run(body, redlock_servers)


def test_a_body_that_swallows_the_cancellation(redlock_servers):
    async def body(masters):
        after = []
        with pytest.raises(LockLost):
            async with short(masters) as lease:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(10)
                assert lease.lost
                await asyncio.sleep(0.05)  # is not cancelled a second time
                after.append(True)
        assert after

    run(body, redlock_servers)


def test_a_body_that_raises_something_else(redlock_servers):
    async def body(masters):
        with pytest.raises(ZeroDivisionError) as caught:
            async with short(masters):
                try:
                    await asyncio.sleep(10)
                finally:
                    raise ZeroDivisionError
        assert "was lost" in caught.value.__notes__[0]

    run(body, redlock_servers)


def test_bodies_that_end_in_another_order(redlock_servers):
    """Whose lease is lost is whose body is cancelled, though others of the same task began later."""

    async def main():
        async with AsyncMasters(redlock_servers.urls, restart_guard=False) as masters:
            kept = masters.lock("kept", ttl=10)
            lost = masters.lock("lost", ttl=1.0)
            await kept.__aenter__()
            with pytest.raises(LockLost, match="'lost'"):
                async with lost:
                    await kept.__aexit__(None, None, None)
                    async with masters.lock("inner", ttl=10):
                        for i in range(5):
                            redlock_servers.client(i).set("redlock:lost", "somebody-else")
                        await asyncio.sleep(10)
            assert not kept.owned()

    asyncio.run(main())


def test_the_body_ends_in_the_very_tick_in_which_it_is_cancelled(redlock_servers):
    """The cancellation is taken back: it must not strike whatever comes after the statement."""

    async def body(masters):
        for _ in range(3):
            lock = short(masters)
            with pytest.raises(LockLost):
                async with lock as lease:
                    while not lease.lost:  # no await: the loop is blocked until it is too late
                        pass
                    (body,) = lease._state.holds
                    body.lost()  # as the renewer does in the next tick
            await asyncio.sleep(0.01)  # nobody cancels this

    run(body, redlock_servers)


def test_a_loop_that_was_blocked(redlock_servers):
    async def body(masters):
        import time  # noqa: PLC0415 - to block the loop on purpose

        with pytest.raises(LockLost):
            async with short(masters) as lease:
                time.sleep(1.5 * TTL)  # noqa: ASYNC251
                assert lease.lost  # the first look is right
                await asyncio.sleep(10)

    run(body, redlock_servers)


@pytest.mark.parametrize("order", ["loss first", "outer first"])
def test_cancelled_from_outside_at_the_same_moment(redlock_servers, order):
    """C13: the cancellation wins."""

    async def body(masters):
        async def holder():
            lock = short(masters)
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

        leases: list[AsyncLease] = []
        task = asyncio.create_task(holder())
        if order == "outer first":
            await asyncio.sleep(TTL / 2)
            await asyncio.sleep(leases[0].remaining() - 0.002)
            while not leases[0].lost:
                pass
            task.cancel()  # and the renewer finds the loss in the same tick
        done, _ = await asyncio.wait([task])
        assert task.cancelled()
        return done

    run(body, redlock_servers)


def test_asyncio_timeout_around_and_inside(redlock_servers):
    async def body(masters):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(TTL / 2), short(masters):
                await asyncio.sleep(10)
        with pytest.raises(LockLost):
            async with asyncio.timeout(10), short(masters):
                await asyncio.sleep(10)
        with pytest.raises(LockLost):
            async with short(masters):
                async with asyncio.timeout(10):
                    await asyncio.sleep(10)

    run(body, redlock_servers)


@pytest.mark.parametrize("leave", ["closed", "closed by another task", "dropped"])
def test_a_generator_that_is_left_after_its_loss_takes_the_cancellation_back(redlock_servers, leave):
    """As that of `asyncio.timeout` does; `run` looks at the task that was cancelled."""

    async def body(masters):
        async def holds():
            async with short(masters) as lease:
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
            await asyncio.sleep(0.01)  # the loop closes it

    run(body, redlock_servers)


def test_two_locks_in_one_task(redlock_servers):
    """The inner one goes on when the outer one is lost, until the body is cancelled, and each says its own."""

    async def body(masters):
        with pytest.raises(LockLost) as caught:
            async with short(masters):
                async with masters.lock("other", ttl=10) as other:
                    await asyncio.sleep(10)
        assert caught.value.name == "job"
        assert not other.lost
        with pytest.raises(LockLost) as caught:
            async with masters.lock("other", ttl=10) as other, short(masters):
                await asyncio.sleep(10)
        assert caught.value.name == "job"
        assert not other.lost

    run(body, redlock_servers)


def test_a_task_that_has_ended_without_releasing_is_not_kept(redlock_servers):
    """R15: the watchdog dies with its owner."""

    async def body(masters):
        lease = await asyncio.create_task(masters.lock("job", ttl=TTL).acquire())
        assert lease is not None
        assert await lease.wait_lost(3 * TTL)

    run(body, redlock_servers)


def test_a_decorated_function_is_cancelled_as_well(redlock_servers):
    async def body(masters):
        @short(masters)
        async def work():
            await asyncio.sleep(10)

        with pytest.raises(LockLost):
            await work()

    run(body, redlock_servers)
