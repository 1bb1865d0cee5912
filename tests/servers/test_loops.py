"""Event loops come and go; what was made on them goes without a sound, or says what to do."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import importlib.util
import os
import resource
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from tenacity import wait_fixed

from redlock import AsyncMasters, AsyncMultiLock, ConfigurationError, Masters, MultiLock, RedlockError
from redlock._asyncio import driver
from redlock._asyncio.connections import Connections
from redlock._asyncio.operation import Operation
from redlock.testing import LocalMasters
from tests.servers.look import at_once, connected, eventually, lock_keys, nothing_left
from tests.servers.needs import missing


def connections(servers) -> list[int]:
    """How many clients each master has, without the one that asks."""
    return [len(servers.client(i).client_list()) - 1 for i in range(len(servers.urls))]


async def use(masters, name="job"):
    async with masters.lock(name, ttl=10) as lease:
        await asyncio.sleep(0.002)
        assert lease.valid
        return lease.fence


def test_one_loop_after_the_other(redlock_servers):
    """As with `asyncio.run` in every job of a worker: the connections of a closed loop are closed by the next one."""
    masters = AsyncMasters(redlock_servers.urls, restart_guard=False)
    fences = [asyncio.run(use(masters)) for _ in range(5)]
    assert fences == sorted(set(fences))
    eventually(lambda: max(connections(redlock_servers)) == 1)
    asyncio.run(masters.close())
    eventually(lambda: connections(redlock_servers) == [0] * 5)
    with pytest.raises(RedlockError, match="these Masters were closed"):
        asyncio.run(use(masters))
    eventually(lambda: nothing_left(redlock_servers))


def test_two_loops_in_two_threads(redlock_servers):
    masters = AsyncMasters(redlock_servers.urls, restart_guard=False)
    lock = masters.lock("shared", ttl=10, retry=wait_fixed(0.001))
    counter = 0

    async def work():
        nonlocal counter
        for _ in range(50):
            async with lock:
                seen = counter
                await asyncio.sleep(0)
                counter = seen + 1

    async def both():
        await asyncio.gather(work(), work())

    at_once([functools.partial(asyncio.run, both()) for _ in range(2)])
    assert counter == 200
    asyncio.run(masters.close())
    eventually(lambda: connections(redlock_servers) == [0] * 5)
    eventually(lambda: nothing_left(redlock_servers))


def test_released_on_another_loop_than_it_was_acquired_on(redlock_servers):
    """C10, R23: the line of the first loop goes on."""
    masters = AsyncMasters(redlock_servers.urls, restart_guard=False)
    lock = masters.lock("job", ttl=10, bound=False)

    async def main():
        await lock.acquire()
        waits = asyncio.create_task(masters.lock("job", ttl=10).acquire(timeout=5))
        await asyncio.sleep(0.05)
        await asyncio.to_thread(lambda: asyncio.run(lock.release()))
        assert await waits is not None
        await masters.close()

    asyncio.run(main())


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
    assert running.wait(5)
    asyncio.run(masters.close())
    thread.join(5)
    assert not thread.is_alive()
    assert len(seen) == 2
    assert all("closed" in str(error) for error in seen)
    # The loop that closes waits for threads of its own alone; those of another one end soon.
    eventually(lambda: not [thread for thread in threading.enumerate() if "redlock-connect" in thread.name])


def test_dropped_without_close(redlock_servers):
    """Its connections go with it, on a loop that runs on as well as on one that is closed."""

    async def main():
        masters = AsyncMasters(redlock_servers.urls, restart_guard=False)
        await use(masters)
        del masters
        gc.collect()
        until = time.monotonic() + 20
        while await asyncio.to_thread(connections, redlock_servers) != [0] * 5:
            assert time.monotonic() < until
            await asyncio.sleep(0.01)

    asyncio.run(main())
    masters = AsyncMasters(redlock_servers.urls, restart_guard=False)
    asyncio.run(use(masters))
    del masters
    gc.collect()
    eventually(lambda: connections(redlock_servers) == [0] * 5)


def test_dropped_on_a_loop_that_never_runs_again(redlock_servers):
    """What it was told to do at the end is never done; the sockets are closed all the same."""
    masters = AsyncMasters(redlock_servers.urls, restart_guard=False)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(use(masters))
    del masters
    gc.collect()
    loop.close()
    del loop
    gc.collect()
    eventually(lambda: connections(redlock_servers) == [0] * 5)


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
        await asyncio.sleep(0.01)

    loop.run_until_complete(for_a_moment())
    loop.close()
    assert asyncio.run(use(masters, "other"))
    gc.collect()
    for i in range(3):
        redlock_servers.client(i).delete("redlock:job")
    eventually(lambda: nothing_left(redlock_servers))
    asyncio.run(masters.close())
    assert not reported


def left_while_it_waits_for_the_connections(masters, servers):
    """A loop whose task has begun its first round (R2), towards masters that hang while they are connected to."""
    for i in range(5):
        servers.pause(i)
    loop = asyncio.new_event_loop()
    task = loop.create_task(masters.lock("job").acquire())
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # its owner's mistake, here on purpose
    loop.run_until_complete(asyncio.sleep(0.05))
    return loop, task


def test_a_loop_that_is_closed_while_a_task_waits_for_the_connections(redlock_servers):
    """The next loop works at once, as after any other end."""
    masters = AsyncMasters(redlock_servers.urls, restart_guard=False)
    loop, task = left_while_it_waits_for_the_connections(masters, redlock_servers)
    loop.close()
    for i in range(5):
        redlock_servers.resume(i)
    assert asyncio.run(use(masters))
    asyncio.run(masters.close())
    eventually(lambda: connections(redlock_servers) == [0] * 5)
    assert not task.done()


def test_close_after_a_loop_was_closed_while_a_task_waited_for_the_connections(redlock_servers):
    """What that loop had is closed, and what this one has as well."""
    masters = AsyncMasters(redlock_servers.urls, restart_guard=False)
    loop, task = left_while_it_waits_for_the_connections(masters, redlock_servers)

    async def main():
        using = asyncio.create_task(use(masters, "other"))
        await asyncio.sleep(0.05)  # this loop has begun while the other one was open
        loop.close()
        for i in range(5):
            redlock_servers.resume(i)
        await using
        await masters.close()

    asyncio.run(main())
    eventually(lambda: connections(redlock_servers) == [0] * 5)
    assert not task.done()


def test_one_that_fails_in_the_end_does_not_keep_others_from_theirs(redlock_servers, monkeypatch, caplog):
    """R11: whatever goes wrong with the connections of one loop."""
    masters = AsyncMasters(redlock_servers.urls, restart_guard=False)
    loops = [asyncio.new_event_loop() for _ in range(3)]
    for loop in loops:
        loop.run_until_complete(use(masters))
    drivers = set(masters._drivers.values())
    shut, settled = driver.Driver.shut, []

    def shut_and_raise(one):
        shut(one)
        if one.loop.is_closed():
            raise ZeroDivisionError("shut")

    def settle_and_raise(one):
        settled.append(one)
        raise ZeroDivisionError("settled")

    with monkeypatch.context() as patch:
        patch.setattr(driver, "_DRIVERS", drivers.copy())
        patch.setattr(driver.Driver, "deliver_owed_at_exit", settle_and_raise)
        driver._at_exit()
        assert set(settled) == drivers
        assert caplog.text.count("ZeroDivisionError: settled") == 3
        for loop in loops[:2]:
            loop.close()
        patch.setattr(driver.Driver, "shut", shut_and_raise)
        loops[2].run_until_complete(masters.close())
    loops[2].close()
    assert caplog.text.count("ZeroDivisionError: shut") == 2
    eventually(lambda: connections(redlock_servers) == [0] * 5)


def test_nothing_runs_while_nothing_is_to_be_done(redlock_servers):
    """A held lock, an idle loop: no polling."""

    async def main():
        async with AsyncMasters(redlock_servers.urls, restart_guard=False) as masters:
            async with masters.lock("job", ttl=10):
                await asyncio.sleep(0.5)  # until the alarm of an operation that is over has gone off in vain
                loop = asyncio.get_running_loop()
                rounds = 0
                select = loop._selector.select  # type: ignore[attr-defined]

                def counting(timeout=None):
                    nonlocal rounds
                    rounds += 1
                    return select(timeout)

                loop._selector.select = counting  # type: ignore[attr-defined]
                used = resource.getrusage(resource.RUSAGE_SELF)
                await asyncio.sleep(1.0)
                after = resource.getrusage(resource.RUSAGE_SELF)
                loop._selector.select = select  # type: ignore[attr-defined]
        assert rounds <= 3
        assert after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime < 0.1

    asyncio.run(main())


def test_waiting_for_a_master_that_is_down_does_not_spin(redlock_servers):
    async def main():
        async with AsyncMasters(redlock_servers.urls, restart_guard=False) as masters:
            await use(masters)
            redlock_servers.kill(0)
            await asyncio.sleep(0.1)
            used = resource.getrusage(resource.RUSAGE_SELF)
            await asyncio.sleep(1.0)
            after = resource.getrusage(resource.RUSAGE_SELF)
            assert after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime < 0.2
            await asyncio.to_thread(redlock_servers.restart, 0)
            until = time.monotonic() + 20
            while [v.outcome for v in (await masters.status("job")).votes] != ["free"] * 5:
                assert time.monotonic() < until
                await asyncio.sleep(0.02)

    asyncio.run(main())


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
    "several-runs": "[asyncio.run(use()) for _ in range(3)]",
    "bare-loop": "loop = asyncio.new_event_loop(); loop.run_until_complete(use()); loop.close()",
    "collected": "asyncio.run(use()); del masters; gc.collect()",
    "waiter-left": "asyncio.run(leaves_a_waiter())",
    "acquire-left": "asyncio.run(leaves_an_acquire_under_way())",
    "waiting-for-links": "l = asyncio.new_event_loop(); l.run_until_complete(leaves_a_task_that_waits_for_the_links()); l.close()",
    "uvloop": "import uvloop; [uvloop.run(use()) for _ in range(2)]",
    "uvloop-acquire-left": "import uvloop; uvloop.run(leaves_an_acquire_under_way())",
}


@pytest.mark.parametrize("end", ENDS)
def test_the_interpreter_exits_without_a_word(redlock_servers, end):
    if "uvloop" in end and importlib.util.find_spec("uvloop") is None:
        missing("uvloop")
    code = PROGRAM.format(urls=redlock_servers.urls, end=ENDS[end])
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-W", "ignore:::uvloop", "-c", code],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    eventually(lambda: nothing_left(redlock_servers))


def test_what_is_owed_at_the_end_is_sent_by_the_interpreter_that_exits(redlock_servers):
    """R11: a release that was cancelled a moment before, towards masters that answer late."""
    code = f"""
    import asyncio
    from redlock import AsyncMasters
    masters = AsyncMasters({redlock_servers.urls!r}, restart_guard=False, node_timeout=2.0)

    async def main():
        lock = masters.lock('job', ttl=10)
        await lock.acquire()
        print("up", flush=True)
        input()
        task = asyncio.current_task()
        asyncio.get_running_loop().call_later(0.1, task.cancel)
        await lock.release()

    try:
        asyncio.run(main())
    except asyncio.CancelledError:
        print("cancelled", flush=True)
    """
    process = subprocess.Popen(
        [sys.executable, "-X", "dev", "-W", "error", "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "up\n"
    assert sum(map(bool, lock_keys(redlock_servers))) >= 3
    for i in range(5):
        redlock_servers.pause(i)
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "cancelled\n"
    time.sleep(0.3)
    assert process.poll() is None  # it waits for the masters, at most node_timeout
    for i in range(5):
        redlock_servers.resume(i)
    _, errors = process.communicate(timeout=10)
    assert errors == ""
    eventually(lambda: nothing_left(redlock_servers))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_after_a_fork_the_child_has_connections_of_its_own(redlock_servers):
    masters = AsyncMasters(redlock_servers.urls, restart_guard=False)

    async def parent():
        async with masters.lock("job", ttl=10) as lease:
            (driver,) = masters._drivers.values()
            numbers = [connection.fd for connection in driver._connections.all]
            pid = os.fork()
            if pid == 0:
                os._exit(_child(lease, numbers))
            _, status = await asyncio.to_thread(os.waitpid, pid, 0)
            assert os.waitstatus_to_exitcode(status) == 0
            assert lease.valid
        assert await use(masters)

    def _child(lease, numbers) -> int:
        try:
            for number in numbers:  # its copies of the sockets
                with contextlib.suppress(OSError):
                    os.fstat(number)
                    return 4
            asyncio.events._set_running_loop(None)
            if lease.valid or lease.lost:
                return 1

            async def child():
                if await masters.lock("job", ttl=10).acquire(blocking=False) is not None:
                    return 2
                await use(masters, "child")
                await masters.close()
                return 0

            loop = asyncio.new_event_loop()
            return int(loop.run_until_complete(child()))
        except BaseException as error:  # noqa: BLE001
            print(repr(error), file=sys.stderr)
            return 3

    asyncio.run(parent())
    asyncio.run(masters.close())
    eventually(lambda: nothing_left(redlock_servers))


def test_uvloop(redlock_servers):
    if importlib.util.find_spec("uvloop") is None:
        missing("uvloop")
    import uvloop  # noqa: PLC0415

    masters = AsyncMasters(redlock_servers.urls, restart_guard=False)

    async def main():
        for _ in range(100):
            await use(masters)
        await asyncio.gather(*(use(masters, f"job:{i}") for i in range(100)))
        assert await asyncio.to_thread(connections, redlock_servers) == [1] * 5
        redlock_servers.kill(0)
        await use(masters)
        await asyncio.to_thread(redlock_servers.restart, 0)
        until = time.monotonic() + 20
        while [v.outcome for v in (await masters.status("job")).votes] != ["free"] * 5:
            assert time.monotonic() < until
            await asyncio.sleep(0.02)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(use(masters))
        runner.run(masters.close())
    eventually(lambda: nothing_left(redlock_servers))


def test_masters_that_nobody_ever_used_close_without_a_loop_of_their_own():
    with LocalMasters(1) as servers:
        masters = AsyncMasters(servers.urls)
        asyncio.run(masters.close())
        asyncio.run(masters.close())


def test_a_loop_that_is_blocked_while_the_masters_answer(redlock_servers):
    async def main():
        async with AsyncMasters(redlock_servers.urls, restart_guard=False, node_timeout=0.05) as masters:
            await connected(masters)
            lock = masters.lock("job", ttl=10)

            async def work():
                lease = await lock.acquire(timeout=0)
                assert lease is not None
                # What was not used for listening is gone: it counts from when it was asked (R6).
                assert lease.remaining() < 10 - 0.1 - 0.2
                await lock.release()

            for _ in range(3):
                task = asyncio.create_task(work())
                await asyncio.sleep(0)
                time.sleep(0.2)  # noqa: ASYNC251 - another task does this
                await task

    asyncio.run(main())


class Struck(Exception):  # noqa: N818 - a signal handler raises it
    pass


@pytest.mark.parametrize(("kind", "method"), [(Connections, "flush"), (Connections, "step"), (Operation, "step")])
def test_an_exception_of_a_signal_handler_breaks_nothing_for_good(redlock_servers, monkeypatch, kind, method):
    """It may strike at any line; here at the first one of what must not be forgotten."""
    original = getattr(kind, method)
    left = [0]

    def struck(self):
        if left[0]:
            left[0] -= 1
            raise Struck
        return original(self)

    monkeypatch.setattr(kind, method, struck)

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        async with AsyncMasters(redlock_servers.urls, restart_guard=False, node_timeout=0.1) as masters:
            await connected(masters)

            async def use(number):
                with contextlib.suppress(RedlockError, Struck):
                    async with asyncio.timeout(5), masters.lock(f"job-{number}", ttl=10, timeout=1):
                        pass

            for _ in range(5):
                left[0] = 1
                await asyncio.gather(*map(use, range(3)))  # what one alone sends is not gathered for `flush`
                assert not left[0]
                for number in range(3):
                    async with asyncio.timeout(5), masters.lock(f"job-{number}", ttl=10):
                        pass

    asyncio.run(main())
    eventually(lambda: nothing_left(redlock_servers))


def test_a_master_that_comes_up_while_it_is_interrupted_is_not_forgotten(redlock_servers, monkeypatch):
    watch = Connections._watch
    left = [1]

    def struck(self, connection):
        if left[0]:
            left[0] -= 1
            raise Struck
        watch(self, connection)

    monkeypatch.setattr(Connections, "_watch", struck)

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        async with AsyncMasters(redlock_servers.urls, restart_guard=False) as masters:
            await connected(masters)

    asyncio.run(main())
