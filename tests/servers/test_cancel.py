"""R11 for tasks: cancelled anywhere, nothing stays, nothing hangs, and the cancellation goes on."""

from __future__ import annotations

import asyncio
import gc
import random
import time
from typing import Any

import pytest

from redlock import AsyncMasters, LockLost
from tests.servers.look import connected, eventually, lock_keys, nothing_left


def spy(op, at, cancel):
    """``op``, and ``cancel()`` when it yields its ``at``-th effect, sending or waiting alike."""
    number = 0
    step, argument = op.send, None
    while True:
        try:
            effect = step(argument)
        except StopIteration as stop:
            return stop.value
        number += 1
        if number == at:
            cancel()
        try:
            argument = yield effect
            step = op.send
        except GeneratorExit:
            op.close()
            raise
        except BaseException as error:  # noqa: BLE001 - as every driver does
            step, argument = op.throw, error


class Cancelling:
    """Masters whose next operation cancels the task that runs it, at its ``at``-th effect."""

    def __init__(self, masters: AsyncMasters, at: int) -> None:
        self.struck = False
        self._at = at
        self._masters = masters
        self._run = masters._run
        masters._run = self._spied  # type: ignore[method-assign]

    async def _spied(self, op, *undo):
        task = asyncio.current_task()
        assert task is not None

        def cancel():
            self.struck = True
            task.cancel()

        at, self._at = self._at, 0
        return await self._run(spy(op, at, cancel) if at else op, *undo)

    def stop(self) -> None:
        self._masters._run = self._run  # type: ignore[method-assign]


async def come_clean(servers, masters) -> None:
    """Everything is given back, and whoever comes next gets the lock."""
    until = time.monotonic() + 20
    while any(lock_keys(servers)):
        assert time.monotonic() < until, lock_keys(servers)
        await asyncio.sleep(0.002)
    async with masters.lock("job", ttl=60, timeout=2):
        pass
    for driver in masters._drivers.values():
        assert not driver._connections.operations


def one_lock(masters):
    return masters.lock("job", ttl=60)


def one_slot(masters):
    return masters.slots("job", limit=1, ttl=60)


async def held_by_somebody(servers, lock):
    await lock.acquire()
    return lock.release


async def majority_frozen(servers, lock):
    for i in range(3):
        servers.pause(i)

    async def thaw():
        for i in range(3):
            servers.resume(i)

    return thaw


async def scripts_forgotten(servers, lock):
    for i in range(5):
        servers.client(i).script_flush()
    return _nothing


async def _nothing() -> None:
    pass


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", [one_lock, one_slot])
@pytest.mark.parametrize("scene", [held_by_somebody, majority_frozen, scripts_forgotten])
def test_cancelled_at_every_effect(redlock_servers, scene, kind):
    """Whatever the operations of an ``async with`` are about to do: write to the masters, or wait for them."""

    async def main() -> int:
        options: dict[str, Any] = {"restart_guard": False, "node_timeout": 0.1}
        async with AsyncMasters(redlock_servers.urls, **options) as masters:
            async with AsyncMasters(redlock_servers.urls, **options) as others:
                await come_clean(redlock_servers, masters)
                await come_clean(redlock_servers, others)
                at = 1
                while await once(masters, others, at):
                    at += 1
                return at

    async def once(masters, others, at) -> bool:
        """Returns whether there was an ``at``-th effect."""
        heal = await scene(redlock_servers, kind(others))
        cancelling = Cancelling(masters, at)

        async def work():
            async with kind(masters):
                pass

        task = asyncio.create_task(work())
        done, _ = await asyncio.wait([task], timeout=0.7)
        ends_by_itself = bool(done) or cancelling.struck  # struck just now: it is still rolling back
        if not ends_by_itself:  # nobody cancelled it, and it waits for ever
            task.cancel()
        await asyncio.wait([task], timeout=2)
        cancelling.stop()
        assert task.done()
        assert task.cancelled() or not cancelling.struck, task
        await heal()
        await come_clean(redlock_servers, others)
        return bool(ends_by_itself and cancelling.struck)

    assert asyncio.run(main()) >= 2


def test_asyncio_timeout_around_everything(redlock_servers):
    async def main():
        options: dict[str, Any] = {"restart_guard": False}
        async with (
            AsyncMasters(redlock_servers.urls, **options) as masters,
            AsyncMasters(redlock_servers.urls, **options) as others,
        ):
            lock, other = masters.lock("job", ttl=60), others.lock("job", ttl=60)
            async with lock:
                began = time.monotonic()
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await other.acquire()
                assert 0.2 <= time.monotonic() - began < 1.0
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1), other:
                        pytest.fail("it is held")
            for i in range(5):
                redlock_servers.pause(i)
            try:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await lock.acquire()
            finally:
                for i in range(5):
                    redlock_servers.resume(i)
            await come_clean(redlock_servers, masters)

    asyncio.run(main())


def test_a_body_that_is_cancelled_gives_the_lock_back_before_it_goes_on(redlock_servers):
    async def main():
        async with AsyncMasters(redlock_servers.urls, restart_guard=False) as masters:

            async def work():
                async with masters.lock("job", ttl=60):
                    holds.set()
                    await asyncio.Event().wait()

            holds = asyncio.Event()
            task = asyncio.create_task(work())
            await holds.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with masters.lock("job", ttl=60, timeout=0):
                pass
            await come_clean(redlock_servers, masters)

    asyncio.run(main())


def test_a_thousand_tasks_cancelled_at_random(redlock_servers):
    rng = random.Random(1)

    async def main() -> None:
        async with AsyncMasters(redlock_servers.urls, restart_guard=False) as masters:
            await come_clean(redlock_servers, masters)

            async def work(lock):
                async with lock:
                    await asyncio.sleep(rng.random() * 0.002)

            outcomes = {"cancelled": 0, "done": 0}
            for _ in range(10):
                tasks = [asyncio.create_task(work(masters.lock(f"job:{i % 60}", ttl=60))) for i in range(100)]
                loop = asyncio.get_running_loop()
                for task in tasks:
                    if rng.random() < 0.8:  # the others get there, however slow this machine is
                        loop.call_later(rng.random() * 0.02, task.cancel)
                await asyncio.wait(tasks, timeout=20)
                for task in tasks:
                    assert task.done()
                    outcomes["cancelled" if task.cancelled() else "done"] += 1
                    if not task.cancelled():
                        assert task.exception() is None
            assert outcomes["cancelled"] > 100
            assert outcomes["done"] > 100
            await come_clean(redlock_servers, masters)
            assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    gc.collect()  # a task or a future that complains does so now


def test_a_lease_that_was_lost_while_the_body_was_cancelled_does_not_hide_the_cancellation(redlock_servers):
    async def main():
        async with AsyncMasters(redlock_servers.urls, restart_guard=False, node_timeout=0.05) as masters:

            async def work():
                async with masters.lock("job", ttl=0.2, auto_extend=False, cancel_on_loss=False):
                    await asyncio.sleep(10)

            task = asyncio.create_task(work())
            await asyncio.sleep(0.4)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError as error:
                assert "was lost" in error.__notes__[0]  # noqa: PT017
            with pytest.raises(LockLost):
                async with masters.lock("job", ttl=0.2, auto_extend=False, cancel_on_loss=False):
                    await asyncio.sleep(0.3)

    asyncio.run(main())


async def granted(masters, task):
    """Until the masters have granted it, and before ``task`` was resumed."""
    (driver,) = masters._drivers.values()
    while driver._connections.operations or not driver._connections.unclaimed:  # noqa: ASYNC110 - to the tick
        await asyncio.sleep(0)
    assert not task.done()


def test_cancelled_with_a_lock_just_won_while_the_masters_are_being_closed(redlock_servers):
    async def main():
        async with AsyncMasters(redlock_servers.urls, restart_guard=False) as masters:
            await connected(masters)
            task = asyncio.create_task(masters.lock("job", ttl=30).acquire())
            await asyncio.sleep(0)
            await granted(masters, task)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    eventually(lambda: nothing_left(redlock_servers))


def test_any_other_exception_at_the_await(redlock_servers):
    async def main():
        async with AsyncMasters(redlock_servers.urls, restart_guard=False) as masters:
            await connected(masters)
            coroutine = masters.lock("job", ttl=30).acquire()
            coroutine.send(None)
            with pytest.raises(TimeoutError):
                coroutine.throw(TimeoutError())
            await asyncio.sleep(0.05)

    asyncio.run(main())
    eventually(lambda: nothing_left(redlock_servers))
