"""What is left when an ``async with`` is: its own lease and no other, whoever closes it, and its own cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from typing import Any

import pytest

from redlock import AsyncLease, LockLost, NotAcquired, NotExtended, QuorumUnreachable
from tests.asyncio.virtual import MASTERS, Deployment, run, virtual
from tests.servers.interrupt import Interrupt, at_every_line

BOUND = pytest.mark.parametrize("bound", [True, False], ids=["bound", "not-bound"])


def short(d: Deployment, **options: Any) -> Any:
    """A lock whose lease is lost after its TTL."""
    return d.masters.lock("job", ttl=1.0, auto_extend=False, **options)


async def lost(d: Deployment) -> None:
    """It is: also on these masters, which know no time."""
    await asyncio.sleep(1.1)
    for fake in d.fakes:
        fake.space.keys.clear()


def held(d: Deployment, lease: AsyncLease) -> bool:
    return lease.valid and d.keys() == [{"redlock:job": lease.token}] * MASTERS


async def close(d: Deployment) -> None:
    await d.masters.close()
    d.shut()


def myself() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def another(coroutine: Any) -> Any:
    """In a task of its own, or what it raised."""
    return (await asyncio.gather(asyncio.create_task(coroutine), return_exceptions=True))[0]


@BOUND
@pytest.mark.parametrize("stack", [False, True], ids=["statement", "stack"])
@pytest.mark.parametrize("how", ["closed", "dropped", "goes on"])
@virtual
async def test_a_generator_whose_lease_was_lost_leaves_the_next_holder_alone(d, bound, stack, how):
    """P8: it is closed in the task of that holder, or in one that Python makes for it."""
    lock = short(d, bound=bound)

    async def items():
        if stack:
            async with contextlib.AsyncExitStack() as entered:
                await entered.enter_async_context(lock)
                yield 1
        else:
            async with lock:
                yield 1

    generator = items()
    await another(anext(generator))
    await lost(d)
    async with lock as lease:
        if how == "closed":
            await generator.aclose()
        elif how == "dropped":
            del generator
            gc.collect()
        elif bound and stack:
            return  # in another frame of another task: nothing says that this is not the end of ours
        else:
            with pytest.raises(LockLost):
                await anext(generator)
        await d.quiet()
        assert held(d, lease)
    await d.quiet()
    assert not any(d.keys())


@BOUND
@virtual
async def test_a_pending_task_that_is_collected_leaves_the_next_holder_alone(d, bound):
    """P8: whoever happens to run then."""
    lock = short(d, bound=bound, cancel_on_loss=False)

    async def waits():
        async with lock:
            await d.loop.create_future()

    task = asyncio.create_task(waits())
    await lost(d)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    async with lock as lease:
        del task
        gc.collect()
        await d.quiet()
        assert held(d, lease)


@pytest.mark.parametrize("cancel_on_loss", [True, False])
@virtual
async def test_a_pending_task_is_collected_as_any_other(d, cancel_on_loss):
    """Nothing of ours keeps it: its lock is given back."""

    async def waits():
        async with d.masters.lock("job", ttl=10, cancel_on_loss=cancel_on_loss):
            await d.loop.create_future()

    task = asyncio.create_task(waits())
    await d.quiet()
    assert all(d.keys())
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    known = weakref.ref(task)
    del task
    gc.collect()
    assert known() is None
    await d.quiet()
    assert not any(d.keys())


@BOUND
@pytest.mark.parametrize("stack", [False, True], ids=["statement", "stack"])
@virtual
async def test_a_generator_that_is_left_in_the_middle_gives_it_back(d, bound, stack):
    """P7: Python closes it in a task of its own, while the one that entered goes on."""
    lock = d.masters.lock("job", ttl=10, bound=bound)

    async def items():
        async with contextlib.AsyncExitStack() if stack else lock as entered:
            if stack:
                await entered.enter_async_context(lock)
            yield 1

    async for _ in items():
        assert all(d.keys())
        break
    gc.collect()
    await d.quiet()
    assert not any(d.keys())


@virtual
async def test_two_generators_of_one_task_on_one_lock(d):
    """The first one has lost it, and goes on: each ends its own."""
    lock = short(d, cancel_on_loss=False)

    async def items():
        async with lock:
            yield 1

    first = items()
    await anext(first)
    await lost(d)
    async with lock:
        await d.quiet()
    await d.quiet()
    assert not any(d.keys())
    async with lock as lease:
        with pytest.raises(LockLost):
            await anext(first)
        assert held(d, lease)


@pytest.mark.parametrize("cancel_on_loss", [True, False])
@virtual
async def test_a_task_that_entered_is_not_kept(d, cancel_on_loss):
    lock = d.masters.lock("job", ttl=10, bound=False, cancel_on_loss=cancel_on_loss)
    tasks = []
    for _ in range(3):
        task = asyncio.create_task(lock.__aenter__())
        tasks.append(weakref.ref(task))
        await task
        del task
        await another(lock.__aexit__(None, None, None))
    gc.collect()
    assert [known() for known in tasks] == [None] * 3


@virtual
async def test_a_stack_is_given_what_was_acquired(d):
    """`push` leaves what it has not entered."""
    for bound in (True, False):
        lock = d.masters.lock("job", ttl=10, bound=bound)
        async with contextlib.AsyncExitStack() as stack:
            assert await lock.acquire()
            stack.push_async_exit(lock)
        await d.quiet()
        assert not any(d.keys())


@pytest.mark.parametrize("meanwhile", ["masters closed", "released"])
@virtual(tidy=False)
async def test_a_lost_body_that_has_nothing_left_to_release(d, meanwhile):
    """Its cancellation is taken back whatever the release says, or it would strike what is around."""
    lock = short(d)
    with pytest.raises(LockLost):
        async with asyncio.timeout(5), lock:
            try:
                await asyncio.sleep(10)
            finally:
                if meanwhile == "released":
                    with contextlib.suppress(LockLost):
                        await lock.release()
                else:
                    await close(d)
    assert myself().cancelling() == 0
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await asyncio.sleep(1)
    if meanwhile == "released":
        await close(d)


def test_a_cancelled_release_is_observed():
    """It has released (P7)."""

    seen: list[str] = []

    async def scene(d):
        lock = d.masters.lock("job", ttl=10, bound=False)
        await lock.acquire()
        d.mute(*range(MASTERS))
        task = asyncio.create_task(lock.release())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert seen == ["LockAcquired", "LockReleased"]

    run(scene, observer=lambda event: seen.append(type(event).__name__))


class Alarm(Exception):  # noqa: N818 - what a signal handler raises
    pass


class AfterTheGrant(Interrupt):
    """At the n-th line of the lock, and of what it calls, after its operation has ended and before the caller has it."""

    error = Alarm
    files = ("_lock/lock_async.py", "_lock/lock.py", "_lock/masters_async.py")
    granted = over = False

    def __call__(self, frame: Any, event: str, arg: Any) -> Any:
        name = frame.f_code.co_name
        self.granted |= name == "granted"
        if self.over or not frame.f_code.co_filename.endswith(self.files):
            return None
        # What is asked for before a wait comes again after it, to go on.
        if event == "line" and self.granted and name not in ("acquire", "__aenter__"):
            self.count(frame)
        return self


@BOUND
@pytest.mark.parametrize("how", ["acquire", "async with", "by hand", "stack"])
@virtual
async def test_a_signal_handler_that_raises_between_the_grant_and_the_caller(d, how, bound):
    """R11: at every line of ours from the end of the wait on.  No key stays, and the name is free for others."""

    async def takes(lock: Any, strike: AfterTheGrant) -> None:
        if how == "acquire":
            await lock.acquire()
            strike.over = True
            await lock.release()
        elif how == "by hand":
            await lock.__aenter__()
            strike.over = True
            await lock.__aexit__(None, None, None)
        elif how == "stack":
            async with contextlib.AsyncExitStack() as stack:
                await stack.enter_async_context(lock)
                strike.over = True
        else:
            async with lock:
                strike.over = True

    for strike in at_every_line(7, AfterTheGrant):
        lock = d.masters.lock("job", ttl=10, bound=bound)
        with strike.strikes():
            await takes(lock, strike)
        await d.quiet()
        assert not any(d.keys()), strike.where
        assert not lock.owned()
        assert await another(d.masters.lock("job", ttl=10).acquire(timeout=0.1)), strike.where
        for fake in d.fakes:
            fake.space.keys.clear()
        await asyncio.sleep(10)


TRIES: dict[str, Any] = {
    "acquire": lambda d, lock: d.masters.lock("job", ttl=10).acquire(blocking=False),
    "async with": lambda d, lock: contextlib.AsyncExitStack().enter_async_context(d.masters.lock("job", ttl=10, timeout=0)),
    "extend": lambda d, lock: lock.extend(),
    "locked": lambda d, lock: lock.locked(),
    "status": lambda d, lock: d.masters.status("job"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("how", "outage"), [("acquire", False), ("async with", False), *((one, True) for one in TRIES)]
)
@virtual(tidy=False)
async def test_who_is_refused_at_once_lets_others_go_on(d, how, outage):
    """What is known already needs no wait: without a turn for others no holder would release, and no master be connected."""
    lock = d.masters.lock("job", ttl=10, bound=False)
    await lock.acquire()
    for number in range(MASTERS if outage else 0):
        d.hang_up(number)
    await d.quiet()
    others = asyncio.create_task(d.quiet())
    for _ in range(100):
        with contextlib.suppress(QuorumUnreachable, NotAcquired, NotExtended):
            assert not await TRIES[how](d, lock)
    assert others.done(), "the loop stands still"
    for fake in d.fakes:
        fake.space.keys.clear()
    d.driver.shut()
    if not outage:
        d.shut()


@virtual
async def test_a_lost_body_beside_very_many_holds(d):
    """The holds of a task that never releases are searched (`_MANY`), and the loss of a statement is reported all the same."""
    with pytest.raises(LockLost):
        async with short(d, cancel_on_loss=False):
            await lost(d)
            for number in range(101):
                await d.masters.lock(f"other-{number}", ttl=10, auto_extend=False).acquire()
    await asyncio.sleep(10)
    for fake in d.fakes:
        fake.space.keys.clear()
