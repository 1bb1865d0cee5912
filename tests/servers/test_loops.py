"""Event loops come and go; what was made on them goes without a sound, or says what to do."""

import asyncio
import functools
import gc
import importlib.util
import os
import secrets
import threading
from typing import Any

import pytest
from tenacity import wait_fixed

from redlock import AsyncMasters, AsyncMultiLock, ConfigurationError, Masters, MultiLock, RedlockError
from tests.servers.look import at_once, each, eventually, nothing_left, script_calls
from tests.servers.needs import missing
from tests.servers.process import run, soon


class Ours:
    """The masters under a name that nobody else gives his connections, so that they can be counted."""

    def __init__(self, servers):
        self._servers = servers
        self._name = secrets.token_hex(4)
        self.urls = [f"{url}?client_name={self._name}" for url in servers.urls]

    def connections(self):
        """How many each master has."""
        clients = [self._servers.client(i).client_list() for i in range(len(self.urls))]
        return [sum(client["name"] == self._name for client in each) for each in clients]


@pytest.fixture
def ours(redlock_servers):
    return Ours(redlock_servers)


async def use(masters, name="job"):
    async with masters.lock(name, ttl=10) as lease:
        await asyncio.sleep(0.002)
        assert lease.valid
        return lease.fence


def test_one_loop_after_the_other(redlock_servers, ours):
    """As with `asyncio.run` in every job of a worker: the connections of a closed loop are closed by the next one."""
    masters = AsyncMasters(ours.urls, restart_guard=False)
    fences = [asyncio.run(use(masters)) for _ in range(5)]
    assert fences == sorted(set(fences))
    eventually(lambda: max(ours.connections()) == 1)
    asyncio.run(masters.close())
    eventually(lambda: ours.connections() == [0] * 5)
    with pytest.raises(RedlockError, match="these Masters were closed"):
        asyncio.run(use(masters))
    eventually(lambda: nothing_left(redlock_servers))


def test_two_loops_in_two_threads(redlock_servers, ours):
    masters = AsyncMasters(ours.urls, restart_guard=False)
    lock = masters.lock("shared", ttl=10, retry=wait_fixed(0.001))
    counter = 0

    async def work():
        nonlocal counter
        for _ in range(50):
            async with lock:
                seen = counter
                await asyncio.to_thread(os.sched_yield)
                counter = seen + 1

    async def both():
        await asyncio.gather(work(), work())

    at_once([functools.partial(asyncio.run, both()) for _ in range(2)])
    assert counter == 200
    asyncio.run(masters.close())
    eventually(lambda: ours.connections() == [0] * 5)
    eventually(lambda: nothing_left(redlock_servers))


def test_closed_on_one_loop_while_another_one_uses_it(redlock_servers):
    masters = AsyncMasters(redlock_servers.urls, restart_guard=False)
    running = threading.Event()
    seen = []

    async def waits():
        async with masters.lock("job", ttl=10):
            running.set()
            try:  # in a task of its own: this one would enter what it holds again (R26)
                await asyncio.create_task(masters.lock("job", ttl=10).acquire())
            except RedlockError as error:
                seen.append(error)

    def other():
        try:
            asyncio.run(waits())
        except RedlockError as error:  # of the release, which cannot be sent any more
            seen.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    assert running.wait(30)
    asyncio.run(masters.close())
    thread.join(30)
    assert not thread.is_alive()
    assert len(seen) == 2
    assert all("closed" in str(error) for error in seen)


def test_dropped_without_close(redlock_servers, ours):
    """Its connections go with it, on a loop that runs on as well as on one that is closed."""

    async def main():
        masters = AsyncMasters(ours.urls, restart_guard=False)
        await use(masters)
        del masters
        gc.collect()
        await asyncio.to_thread(eventually, lambda: ours.connections() == [0] * 5)

    asyncio.run(main())
    masters = AsyncMasters(ours.urls, restart_guard=False)
    asyncio.run(use(masters))
    del masters
    gc.collect()
    eventually(lambda: ours.connections() == [0] * 5)


def test_a_loop_that_is_closed_in_the_middle(redlock_servers):
    """Its owner's task is never resumed; what it had acquired or asked for is given back when it is dropped."""
    masters = AsyncMasters(redlock_servers.urls, restart_guard=False)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(use(masters))
    for i in range(3):  # so that it waits between attempts
        redlock_servers.client(i).set("redlock:job", "somebody", px=60_000)
    reported: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: reported.append(context))

    async def for_a_moment():
        task = loop.create_task(masters.lock("job", ttl=30).acquire())
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # its owner's mistake, here on purpose
        await asyncio.to_thread(eventually, lambda: script_calls(redlock_servers)[4] >= asked + 2)  # and its release

    asked = script_calls(redlock_servers)[4]
    loop.run_until_complete(for_a_moment())
    loop.close()
    assert asyncio.run(use(masters, "other"))
    gc.collect()
    each(redlock_servers, "delete", "redlock:job", masters=3)
    eventually(lambda: nothing_left(redlock_servers))
    asyncio.run(masters.close())
    assert not reported


def test_used_where_no_loop_runs(redlock_servers):
    masters = AsyncMasters(redlock_servers.urls, restart_guard=False)
    lock = masters.lock("job", ttl=10)
    assert lock.owned() is False
    assert lock.lease is None
    assert "job" in repr(lock)
    coroutine = lock.acquire()
    with pytest.raises(RuntimeError, match="no running event loop"):
        coroutine.send(None)
    with pytest.raises(TypeError, match="context manager"), lock:  # type: ignore[attr-defined]
        pass


def test_masters_of_the_other_world_are_refused(redlock_servers):
    with pytest.raises(ConfigurationError, match="AsyncMultiLock needs AsyncMasters, these are Masters"):
        AsyncMultiLock("job", Masters(redlock_servers.urls))  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="MultiLock needs Masters, these are AsyncMasters"):
        MultiLock("job", AsyncMasters(redlock_servers.urls))  # type: ignore[arg-type]


PROGRAM = """
import asyncio, gc, logging, socket
from redlock import AsyncMasters
# How slow this machine is, nobody asked.
logging.getLogger("asyncio").addFilter(lambda record: not record.msg.startswith("Executing"))
masters = AsyncMasters({urls!r}, restart_guard=False)

async def use():
    async with masters.lock("job", ttl=10):
        pass

async def hold():
    async with masters.lock("job", ttl=10):
        await asyncio.sleep(10)

async def leaves_a_waiter():
    async with masters.lock("job", ttl=10):
        asyncio.create_task(hold())
        await asyncio.sleep(0.05)

async def leaves_a_task_that_waits_for_the_links():
    global silent
    listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    silent = AsyncMasters([f"redis://127.0.0.1:{{one.getsockname()[1]}}" for one in listening])
    asyncio.create_task(silent.lock("job").acquire())._log_destroy_pending = False
    await asyncio.sleep(0.05)
    for one in listening:
        one.detach()        # they go with the process

async def leaves_an_acquire_under_way():
    await use()
    asyncio.create_task(hold())
    await asyncio.sleep(0)

{end}
"""

ENDS = {
    "never-closed": "asyncio.run(use())",
    "bare-loop": "loop = asyncio.new_event_loop(); loop.run_until_complete(use()); loop.close()",
    "collected": "asyncio.run(use()); del masters; gc.collect()",
    "waiter-left": "asyncio.run(leaves_a_waiter())",
    "acquire-left": "asyncio.run(leaves_an_acquire_under_way())",
    "waiting-for-links": "l = asyncio.new_event_loop(); l.run_until_complete(leaves_a_task_that_waits_for_the_links()); l.close()",
    "uvloop-acquire-left": "import uvloop; uvloop.run(leaves_an_acquire_under_way())",
}


@pytest.mark.parametrize("end", ENDS)
def test_the_interpreter_exits_without_a_word(redlock_servers, end):
    if "uvloop" in end and importlib.util.find_spec("uvloop") is None:
        missing("uvloop")
    code = PROGRAM.format(urls=redlock_servers.urls, end=ENDS[end])
    done = run("-X", "dev", "-W", "error", "-W", "ignore:::uvloop", "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    eventually(lambda: nothing_left(redlock_servers))


# -- coroutines that are thrown away where their loop does not run (R11) -------------------------------


async def begun(lock):
    """A task that stands inside of an ``async with``, and its lease."""

    async def body():
        async with lock:
            inside.set()
            await asyncio.Event().wait()

    inside = asyncio.Event()
    task: Any = asyncio.create_task(body())
    task._log_destroy_pending = False
    await inside.wait()
    return task.get_coro(), lock.lease


def test_a_body_is_thrown_away_after_its_loop(redlock_servers):
    masters = AsyncMasters(redlock_servers.urls, restart_guard=False)
    lock, loop = masters.lock("job", ttl=30), asyncio.new_event_loop()
    coroutine, lease = loop.run_until_complete(begun(lock))
    loop.close()
    coroutine.close()
    assert (lease.valid, lease.lost) == (False, False)
    eventually(lambda: nothing_left(redlock_servers))
    asyncio.run(masters.close())


def test_a_body_is_thrown_away_in_another_thread_while_its_loop_runs(redlock_servers):
    """And another waiter on that loop gets the lock."""

    async def main():
        async with AsyncMasters(redlock_servers.urls, restart_guard=False) as masters:
            lock = masters.lock("job", ttl=30)
            coroutine, lease = await begun(lock)
            waiting = asyncio.create_task(masters.lock("job", ttl=30, bound=False).acquire(timeout=10))
            (driver,) = masters._runtime.drivers.values()
            await soon(lambda: len(driver._connections.local_queue._lines["redlock:job"]) == 2)
            await asyncio.to_thread(coroutine.close)
            assert getattr(await waiting, "fence", 0) > lease.fence
            assert not lease.lost

    asyncio.run(main())
    eventually(lambda: nothing_left(redlock_servers))
