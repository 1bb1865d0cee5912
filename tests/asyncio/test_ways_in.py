"""Every way in which a task can enter a hold, cancelled in every turn of the loop: nothing stays (R11, P7)."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from redlock import RedlockError
from redlock.fenced._order import Ended
from redlock.fenced._tasks import AsyncFenced
from tests.asyncio.virtual import OTHER, Deployment, run

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

WORK = 1.0  # seconds of a body


async def acquired(d: Deployment) -> None:
    lock = d.masters.lock("job", ttl=10)
    await lock.acquire()
    try:
        await asyncio.sleep(WORK)
    finally:
        await lock.release()


async def extended(d: Deployment) -> None:
    """Or not, as masters are in trouble."""
    lock = d.masters.lock("job", ttl=10, timeout=1.0)
    with contextlib.suppress(RedlockError):
        await lock.acquire()
        try:
            await lock.extend()
        finally:
            await lock.release()


async def statement(d: Deployment, **options: Any) -> None:
    async with d.masters.lock("job", ttl=10, **options):
        await asyncio.sleep(WORK)


async def stack(d: Deployment, kind: str = "lock", **options: Any) -> None:
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(getattr(d.masters, kind)("job", ttl=10, **options))
        await asyncio.sleep(WORK)


async def by_hand(d: Deployment, **options: Any) -> None:
    lock = d.masters.lock("job", ttl=10, **options)
    await lock.__aenter__()
    try:
        await asyncio.sleep(WORK)
    finally:
        await lock.__aexit__(None, None, None)


async def entered_again(d: Deployment) -> None:
    """Neither of the two asks the masters, so the second one lets others go on."""
    async with d.masters.lock("job", ttl=10), contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(d.masters.lock("job", ttl=10))
        await by_hand(d)


async def decorated(d: Deployment) -> None:
    @d.masters.lock("job", ttl=10)
    async def work() -> None:
        await asyncio.sleep(WORK)

    await work()


async def synchronized(d: Deployment) -> None:
    @d.masters.synchronized("{what}", ttl=10)
    async def work(what: str) -> None:
        await asyncio.sleep(WORK)

    await work("job")


async def several(d: Deployment) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for name in ("other", "job"):
            await stack.enter_async_context(d.masters.lock(name, ttl=10))
        await asyncio.sleep(WORK)


async def terms(d: Deployment) -> None:
    election = d.masters.leader("job", ttl=10)
    async for term in election.terms():
        async with term:
            await asyncio.sleep(WORK)
        election.stop()


async def term_in_a_stack(d: Deployment) -> None:
    election = d.masters.leader("job", ttl=10)
    async with contextlib.AsyncExitStack() as stack:
        each = election.terms()
        stack.push_async_callback(each.aclose)  # type: ignore[attr-defined]
        await stack.enter_async_context(await anext(each))
        await asyncio.sleep(WORK)


async def leads(d: Deployment) -> None:
    election = d.masters.leader("job", ttl=10)

    async def lead(term: Any) -> None:
        await asyncio.sleep(WORK)
        election.stop()

    await election.run(lead, signals=())


class Store:
    """A database that does all at once."""

    def __getattr__(self, name: str) -> Callable[..., object]:
        if name == "told":
            return lambda error: error
        return lambda *_: Ended.UNDONE if name == "rollback" else None


async def fenced(d: Deployment) -> None:
    async def call(method: Callable[..., object], *args: object) -> object:
        await asyncio.sleep(0)
        return method(*args)

    async with AsyncFenced(d.masters.lock("job", ttl=10), Store(), call):  # type: ignore[arg-type]
        await asyncio.sleep(WORK)


WAYS: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {
    "acquired": acquired, "extended": extended, "statement": statement, "unbound": partial(statement, bound=False),
    "not-cancelled-on-loss": partial(statement, cancel_on_loss=False), "stack": stack, "reader": partial(stack, shared=True),
    "in-order": partial(stack, fair=True), "slot": partial(stack, kind="slots", limit=2), "by-hand": by_hand,
    "unbound-by-hand": partial(by_hand, bound=False), "entered-again": entered_again, "decorated": decorated,
    "synchronized": synchronized, "several": several, "terms": terms, "term-in-a-stack": term_in_a_stack, "leads": leads,
    "fenced": fenced,
}  # fmt: skip


# What trouble there is, before it begins.


def greater_fence(d: Deployment) -> None:
    for fake in d.fakes:
        for name in ("job", "job#0", "job#1", "other"):
            fake.put(f"{{redlock:{name}}}:fence", str(2**51))


def held(d: Deployment) -> None:
    """By somebody else, who gives it back soon."""
    for fake in d.fakes:
        for name in ("redlock:job", "redlock:job#0", "redlock:job#1"):
            fake.put(name, OTHER)
            d.loop.call_later(0.3, fake.put, name, None)


def scripts_forgotten(d: Deployment) -> None:
    for fake in d.fakes:
        fake.forgot = True


async def struck_in(d: Deployment, turn: int, way: Callable[..., Any], again: bool, scene: Callable[..., None]) -> bool:
    """Go that ``way``, and be cancelled when its ``turn`` begins, or ``again`` and again; False if there are not so many."""
    scene(d)
    await d.quiet()  # the connections know who is down
    task = asyncio.create_task(way(d))
    struck = False

    def strike() -> None:
        nonlocal struck
        struck = True
        if again:
            d.loop.selector.strike(1, strike)
        task.cancel()

    d.loop.selector.strike(turn, strike)
    raised: object = (await asyncio.gather(task, return_exceptions=True))[0]  # kept with all frames, as a log may do
    assert raised is None or isinstance(raised, asyncio.CancelledError), raised
    d.loop.selector.strike(0, strike)
    await asyncio.sleep(0.3)  # the other holder has given it back, and the renewer has looked
    d.speak()
    await d.quiet()
    left = [fake.keys for fake in d.fakes]
    assert not any(left), f"cancelled in turn {turn} it leaves {left}, while {raised!r} is kept"
    return struck


@pytest.mark.long
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_a_task_that_is_cancelled_in_any_turn_of_any_way_in_leaves_no_key(way, again):
    """As time-outs and groups of tasks cancel, too."""
    scenes: list[Callable[[Deployment], None]] = [lambda _: None, greater_fence, held, lambda d: d.mute(0, 1)]
    if way == "extended":
        scenes += [lambda d: d.mute(0, 1, 2), scripts_forgotten]
    for scene in scenes:
        turn = 1
        while run(lambda d: struck_in(d, turn, WAYS[way], again, scene)):  # noqa: B023 - at once
            turn += 1
        assert turn > 5
