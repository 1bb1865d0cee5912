"""What a lock can be put around: what runs to its end while it is called, or awaited.  Everything else is refused where it is decorated."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from redlock import AsyncMasters, AsyncMultiLock, ConfigurationError, Masters, MultiLock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

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


BOTH = pytest.mark.parametrize(
    "lock", [MultiLock("job", Masters(URLS)), AsyncMultiLock("job", AsyncMasters(URLS))], ids=shown
)


@pytest.mark.parametrize("function", LATER, ids=shown)
def test_a_body_that_would_run_after_the_release(function: Any) -> None:
    with pytest.raises(ConfigurationError, match="its body would run after the release"):
        MultiLock("job", Masters(URLS))(function)


@pytest.mark.parametrize(
    "function", [plain, functools.partial(plain), Plain(), Plain().method, generator, functools.partial(generator),
                 asynchronous_generator, Generator(), len], ids=shown,
)  # fmt: skip
def test_what_cannot_be_awaited_as_a_whole(function: Any) -> None:
    with pytest.raises(ConfigurationError, match="is no coroutine function"):
        AsyncMultiLock("job", AsyncMasters(URLS))(function)


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


@BOTH
@pytest.mark.parametrize("kind", [classmethod, staticmethod])
@pytest.mark.parametrize("function", [plain, coroutine_function])
def test_above_a_classmethod(lock: Any, kind: Any, function: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=f"is a {kind.__name__} already: write the lock below @{kind.__name__}"
    ):
        lock(kind(function))


@BOTH
@pytest.mark.parametrize("what", [None, "job", property(plain), functools.partialmethod(plain)], ids=shown)
def test_what_nobody_can_call(lock: Any, what: Any) -> None:
    with pytest.raises(ConfigurationError, match="cannot be called"):
        lock(what)


class Held:
    """In place of the masters: says whether the lock is held."""

    def __init__(self) -> None:
        self.now = False

    def set(self, *, now: bool) -> None:
        self.now = now

    def patched(self, lock: type) -> Any:
        if lock is MultiLock:
            return patch.multiple(lock, __enter__=lambda _: self.set(now=True), __exit__=lambda *_: self.set(now=False))

        async def enter(_: object) -> None:
            self.set(now=True)

        async def leave(*_: object) -> None:
            self.set(now=False)

        return patch.multiple(lock, __aenter__=enter, __aexit__=leave)


def test_so_does_what_is_awaited() -> None:
    """Its ``__call__`` is a coroutine function, or it fills in arguments of one: the body ends before it is released."""
    held = Held()

    class Observed:
        async def __call__(self, *_: object) -> bool:
            before = held.now
            await asyncio.sleep(0)
            return before and held.now

    async def function(*_: object) -> bool:
        return await Observed()()

    bodies = function, Observed(), Observed().__call__, functools.partial(function, 1), functools.partial(Observed(), 1)
    for body in bodies:
        with held.patched(AsyncMultiLock):
            assert asyncio.run(AsyncMultiLock("job", AsyncMasters(URLS))(body)())
        assert not held.now


def test_an_error_names_what_it_is_about() -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"^functools.partial\(.*coroutine_function .*\) is a coroutine function, which takes an AsyncMultiLock",
    ):
        MultiLock("job", Masters(URLS))(functools.partial(coroutine_function, "x"))
    with pytest.raises(ConfigurationError, match=r"^generator is a generator function"):
        MultiLock("job", Masters(URLS))(generator)
