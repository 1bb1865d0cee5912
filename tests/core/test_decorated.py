"""What a lock can be put around: what runs to its end while it is called, or awaited.  Everything else is refused where it is decorated."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any

import pytest

from redlock import AsyncMasters, AsyncMultiLock, ConfigurationError, Masters, MultiLock
from tests.asyncio.virtual import virtual

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.asyncio.virtual import Deployment

URLS = [f"redis://10.0.0.{i}:6379" for i in range(1, 4)]


def plain(text: str = "") -> str:
    return text + "done"


async def coroutine_function(text: str = "") -> str:
    await asyncio.sleep(0)
    return text + "done"


def generator() -> Iterator[None]:
    yield


async def asynchronous_generator() -> AsyncIterator[None]:
    yield


class Plain:
    def __call__(self) -> str:
        return "done"

    def method(self) -> str:
        return "done"


class Awaited:
    async def __call__(self) -> str:
        return await coroutine_function()

    async def method(self) -> str:
        return await coroutine_function()


class Generator:
    def __call__(self) -> Iterator[None]:
        yield


LATER = [
    coroutine_function, functools.partial(coroutine_function, "x"), Awaited(), functools.partial(Awaited()), Awaited().method,
    generator, functools.partial(generator), Generator(), asynchronous_generator, functools.partial(asynchronous_generator),
]  # fmt: skip


def shown(value: object) -> str:
    return getattr(value, "__qualname__", None) or type(value).__name__


AT_ONCE = [
    plain, functools.partial(plain), Plain(), Plain().method, generator, functools.partial(generator), asynchronous_generator,
    Generator(), len,
]  # fmt: skip
THREADS, TASKS = MultiLock("job", Masters(URLS)), AsyncMultiLock("job", AsyncMasters(URLS))
ALREADY: list[tuple[Any, Any]] = [
    (kind, function) for kind in (classmethod, staticmethod) for function in (plain, coroutine_function)
]


@pytest.mark.parametrize(("lock", "function", "said"), [
    *((THREADS, one, "its body would run after the release") for one in LATER),
    *((TASKS, one, "is no coroutine function") for one in AT_ONCE),
    *((lock, kind(one), f"is a {kind.__name__} already: write the lock below @{kind.__name__}")
      for lock in (THREADS, TASKS) for kind, one in ALREADY),
    *((lock, one, "cannot be called") for lock in (THREADS, TASKS)
      for one in (None, "job", property(plain), functools.partialmethod(plain))),
    # It names what it is about.
    (THREADS, LATER[1], r"^functools.partial\(.*coroutine_function .*\) is a coroutine function, which takes an AsyncMultiLock"),
    (THREADS, generator, "^generator is a generator function"),
], ids=shown)  # fmt: skip
def test_what_cannot_be_decorated(lock: Any, function: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        lock(function)


@pytest.mark.parametrize("function", [coroutine_function, functools.partial(coroutine_function, "x"), Awaited().method])
def test_a_thread_tells_nothing_to_a_coroutine_function(function: Any) -> None:
    """It would call it, and nobody would await what it returns."""
    with Masters(URLS) as masters:
        for refused in (
            lambda: masters.lock("job", on_lost=function),
            lambda: masters.slots("job", limit=2, on_lost=function),
            lambda: masters.leader("job").run(lambda _: None, on_stopped=function),
            lambda: masters.leader("job").run(lambda _: None, on_new_leader=function),
        ):
            with pytest.raises(
                ConfigurationError, match=r"^on_\w+=.* is a coroutine function, which a thread does not run"
            ):
                refused()
    AsyncMasters(URLS).lock("job", on_lost=function)


@virtual
async def test_what_is_awaited_has_the_lock_until_it_ends(d: Deployment) -> None:
    """Its ``__call__`` is a coroutine function, or it fills in arguments of one."""

    class Observed:
        async def __call__(self, *_: object) -> bool:
            before = all(d.keys())
            await asyncio.sleep(0)
            return before and all(d.keys())

    async def function(*_: object) -> bool:
        return await Observed()()

    bodies = function, Observed(), Observed().__call__, functools.partial(function, 1), functools.partial(Observed(), 1)
    for body in bodies:
        assert await d.masters.lock("job", ttl=10)(body)()
        await d.quiet()
        assert not any(d.keys())
