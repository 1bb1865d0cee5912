"""What programs that the tests start inherit from this process, which test begins first, what is never collected or left."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from redlock import AsyncMasters

if TYPE_CHECKING:
    from collections.abc import Iterator

# A run in the background (`nohup make test &`) ignores these, and so would all that it starts.
for _name, _handler in (
    ("SIGINT", signal.default_int_handler),
    ("SIGQUIT", signal.SIG_DFL),
    ("SIGHUP", signal.SIG_DFL),
):
    _number = getattr(signal, _name, None)  # Windows has only the first one
    if _number is not None and signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first: else all processes but one would wait for it.  No property is to be fast."""
    items.sort(key=lambda item: item.get_closest_marker("longest") is None)
    for item in items:
        limits = getattr(getattr(item, "obj", None), "_hypothesis_internal_use_settings", None)
        if limits is not None and limits.deadline is not None:
            raise pytest.UsageError(f"{item.nodeid} needs PROPERTY: on a busy machine it would take too long")


def pytest_collection_finish() -> None:
    """What is there for as long as the run is left alone by the collector: tests call it at each of their ends."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: Any) -> bool | None:
    """A test that is a coroutine function plays on a loop, with the masters and engines that it asks for open there.

    It leaves no task, no cancellation and no handler of signals.
    """
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def play() -> None:
        task, handler = asyncio.current_task(), signal.getsignal(signal.SIGINT)
        assert task is not None
        async with contextlib.AsyncExitStack() as stack, asyncio.timeout(120):
            for one in given.values():
                if isinstance(one, AsyncMasters):
                    await stack.enter_async_context(one)
                elif hasattr(one, "sync_engine"):
                    stack.push_async_callback(one.dispose)
            await pyfuncitem.obj(**given)
        async with asyncio.timeout(20):
            while asyncio.all_tasks() != {task}:  # noqa: ASYNC110 - Python closes a generator that was left in a task
                await asyncio.sleep(0.005)
        assert (task.cancelling(), signal.getsignal(signal.SIGINT)) == (0, handler)

    asyncio.run(play())
    return True


@pytest.fixture
def async_masters(redlock_servers: Any) -> AsyncMasters:
    """For a test that is a coroutine function."""
    return AsyncMasters(redlock_servers.urls, restart_guard=False)


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """A test ends its threads and closes its masters: else the collector does, and a later test fails by chance."""
    before = _there()
    yield
    until = time.monotonic() + 20
    while (left := _there() - before) and time.monotonic() < until:
        time.sleep(0.005)
    assert not left


def _there() -> set[object]:
    drivers = getattr(sys.modules.get("redlock._io.runtime"), "DRIVERS", ())
    threads = [one for one in threading.enumerate() if one.name != "relay"]  # of chaos: as long as its process
    return {*threads, *(one for one in drivers if not one._connections.closed)}
