"""Threads and asyncio behind one face, so that what a worker does is written once.

In the world of threads nothing is ever awaited: its coroutines run to their end in one step.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from redlock import AsyncMasters, Masters

T = TypeVar("T")


class World(ABC):
    """A client in it calls ``masters.lock`` and the like through these few methods."""

    masters: Any
    can_cancel = False

    @abstractmethod
    async def result(self, value: Any) -> Any:
        """What a method of the library gives: a value, or something to be awaited."""

    @abstractmethod
    async def sleep(self, seconds: float) -> None: ...

    @abstractmethod
    async def aside(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call what may block."""

    @abstractmethod
    async def within(self, lock: Any, body: Callable[[Any], Awaitable[None]]) -> None:
        """``with lock as lease: body(lease)``."""

    @abstractmethod
    async def lead(self, election: Any, body: Callable[[Any], Awaitable[None]], after: Callable[[Any], None]) -> None:
        """``for term in election.terms(): with term: body(term)``, and ``after(term)`` behind each."""

    @abstractmethod
    async def cancel_after(self, seconds: float, work: Coroutine[Any, Any, None]) -> None:
        """Do ``work``, and cancel it then."""


class Threads(World):
    def __init__(self, masters: Masters) -> None:
        self.masters = masters

    async def result(self, value: Any) -> Any:
        return value

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no loop here

    async def aside(self, function: Callable[..., T], *arguments: Any) -> T:
        return function(*arguments)

    async def within(self, lock: Any, body: Callable[[Any], Awaitable[None]]) -> None:
        with lock as lease:
            await body(lease)

    async def lead(self, election: Any, body: Callable[[Any], Awaitable[None]], after: Callable[[Any], None]) -> None:
        for term in election.terms():
            with term:
                await body(term)
            after(term)

    async def cancel_after(self, seconds: float, work: Coroutine[Any, Any, None]) -> None:
        raise NotImplementedError("threads cannot be cancelled")


class Tasks(World):
    can_cancel = True

    def __init__(self, masters: AsyncMasters) -> None:
        self.masters = masters

    async def result(self, value: Any) -> Any:
        return await value

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def aside(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.to_thread(function, *arguments)

    async def within(self, lock: Any, body: Callable[[Any], Awaitable[None]]) -> None:
        async with lock as lease:
            await body(lease)

    async def lead(self, election: Any, body: Callable[[Any], Awaitable[None]], after: Callable[[Any], None]) -> None:
        async for term in election.terms():
            async with term:
                await body(term)
            after(term)

    async def cancel_after(self, seconds: float, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        done, _ = await asyncio.wait([task], timeout=seconds)
        if not done:
            task.cancel()
            await asyncio.wait([task])
        if not task.cancelled():
            task.result()  # what it raised is a fault


def run_threads(workers: Sequence[Callable[[World], Coroutine[Any, Any, None]]], masters: Masters) -> None:
    """Returns when all are done.  Raises what the first one raised."""
    raised: list[BaseException] = []

    def run(work: Callable[[World], Coroutine[Any, Any, None]]) -> None:
        try:
            work(Threads(masters)).send(None)
        except StopIteration:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            raised.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    masters.close()
    if raised:
        raise raised[0]


def run_tasks(workers: Sequence[Callable[[World], Coroutine[Any, Any, None]]], masters: AsyncMasters) -> None:
    async def main() -> None:
        async with masters, asyncio.TaskGroup() as group:
            for work in workers:
                group.create_task(work(Tasks(masters)))

    asyncio.run(main())
