"""The end of a `Masters`, announced or not: nothing of it is left."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from redlock import AsyncMasters, Masters, QuorumUnreachable, RedlockError
from tests.servers.look import (
    all_up,
    connected,
    each,
    eventually,
    lock_keys,
    no_thread_besides,
    nothing_left,
    pause,
    resume,
    take,
)
from tests.servers.process import run


def descriptors() -> int:
    return len(os.listdir("/dev/fd"))


def test_close_leaves_no_thread_and_no_descriptor(world, redlock_servers):
    gc.collect()
    before, threads = descriptors(), set(threading.enumerate())
    for _ in range(3):
        masters = world.Masters(redlock_servers.urls, restart_guard=False)
        with masters.lock("job", ttl=10):
            pass
        masters.close()
        masters.close()
        assert no_thread_besides(threads)
        assert descriptors() == before
        with pytest.raises(RedlockError, match="closed"):
            masters.lock("job", ttl=10).acquire()


def test_close_does_not_wait_for_a_master_that_hangs_while_connecting(world, redlock_servers):
    redlock_servers.pause(0)
    masters = world.Masters(redlock_servers.urls, restart_guard=False, connect_timeout=20.0)
    with masters.lock("job", ttl=10):
        pass
    began = time.monotonic()
    masters.close()
    assert time.monotonic() - began < 5
    redlock_servers.resume(0)


def test_unused_masters_open_nothing(world, redlock_servers):
    before, threads = descriptors(), set(threading.enumerate())
    masters = world.Masters(redlock_servers.urls)
    masters.lock("job")
    assert descriptors() == before
    assert no_thread_besides(threads)
    masters.close()


def test_close_ends_whoever_waits(world, redlock_servers, masters):
    with masters.lock("job", ttl=10):
        others = world.Masters(redlock_servers.urls, restart_guard=False)
        ended = []

        def wait():
            try:
                others.lock("job", ttl=10).acquire()
            except RedlockError as error:
                ended.append(error)

        threads = [threading.Thread(target=wait) for _ in range(4)]
        for thread in threads:
            thread.start()
        eventually(lambda: len(redlock_servers.client(0).client_list(_type="pubsub")) == 1)
        others.close()
        for thread in threads:
            thread.join(5)
        assert [str(error) for error in ended] == ["these Masters were closed"] * 4
        eventually(lambda: not redlock_servers.client(0).client_list(_type="pubsub"))


def test_dropped_without_close_it_goes_away(world, redlock_servers):
    gc.collect()
    before, threads = descriptors(), set(threading.enumerate())
    masters = world.Masters(redlock_servers.urls, restart_guard=False)
    with masters.lock("job", ttl=10):
        pass
    del masters
    gc.collect()
    eventually(lambda: no_thread_besides(threads))
    eventually(lambda: gc.collect() >= 0 and descriptors() == before)


def test_close_takes_back_what_is_being_acquired(world, redlock_servers):
    """P7, R11: masters that are slow to grant it are slow to hear of the end as well."""
    masters = world.Masters(redlock_servers.urls, restart_guard=False, node_timeout=1.0)
    eventually(lambda: all_up(masters))
    pause(redlock_servers, 3)
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.append(outcome(masters.lock("job", ttl=60))))
    thread.start()
    eventually(lambda: all(lock_keys(redlock_servers)[3:]))
    began = time.monotonic()
    masters.close()
    assert time.monotonic() - began < 3
    thread.join(5)
    resume(redlock_servers, 3)
    assert [str(error) for error in ended] == ["these Masters were closed"]
    eventually(lambda: nothing_left(redlock_servers))


def test_what_is_being_acquired_is_given_back_at_once(world, redlock_servers):
    """P7: not when its round is over, for by then `close` may be."""
    masters = world.Masters(redlock_servers.urls, restart_guard=False, node_timeout=20.0)
    eventually(lambda: all_up(masters))
    pause(redlock_servers, 3)
    acquiring = threading.Thread(target=lambda: outcome(masters.lock("job", ttl=60)))
    acquiring.start()
    eventually(lambda: all(lock_keys(redlock_servers)[3:]))
    closing = threading.Thread(target=masters.close)
    closing.start()
    eventually(lambda: not any(lock_keys(redlock_servers)[3:]), 10)
    resume(redlock_servers, 3)
    closing.join(30)
    acquiring.join(30)
    eventually(lambda: nothing_left(redlock_servers))


def test_close_in_the_middle_of_everything_leaves_no_key_of_nobody(world, redlock_servers):
    """P7: who was told that it has not got it need not release it."""
    failed = []

    def work(masters, name):
        for number in itertools.count():
            lock = masters.lock(f"{name}-{number}", ttl=60)
            if not isinstance(outcome(lock), world.Lease):
                failed.append(f"redlock:{name}-{number}")
                return
            with contextlib.suppress(RedlockError):
                lock.release()

    for number in range(8):
        masters = world.Masters(redlock_servers.urls, restart_guard=False)
        eventually(lambda masters=masters: all_up(masters))
        threads = [threading.Thread(target=work, args=(masters, f"{number}-{i}")) for i in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
        masters.close()
        for thread in threads:
            thread.join(5)
    assert len(failed) == 32
    eventually(lambda: not set(failed).intersection(set().union(*lock_keys(redlock_servers))))


def outcome(lock):
    """The lease, or the error."""
    try:
        return lock.acquire()
    except RedlockError as error:
        return error


def test_a_release_under_way_is_waited_for(redlock_servers):
    """It is over when the masters have answered, and not because its `Masters` are."""
    masters = Masters(redlock_servers.urls, restart_guard=False, node_timeout=2.0)
    eventually(lambda: all_up(masters))
    lock = masters.lock("job", ttl=30, bound=False)
    take(lock)
    pause(redlock_servers, 3)
    releaser = ThreadPoolExecutor(1).submit(lock.release)
    eventually(lambda: not any(lock_keys(redlock_servers)[3:]))
    thaw = threading.Timer(0.3, lambda: [redlock_servers.resume(i) for i in range(3)])
    thaw.start()
    masters.close()
    assert releaser.result(1) is None
    thaw.join()
    assert nothing_left(redlock_servers)


def test_who_closes_second_waits_for_the_first(redlock_servers):
    async def main():
        masters = AsyncMasters(redlock_servers.urls, restart_guard=False, node_timeout=0.5)
        await connected(masters)
        lock = masters.lock("job", ttl=10)
        await lock.acquire()
        redlock_servers.pause(0)  # so that there is something to wait for
        await lock.release()
        (driver,) = masters._runtime.drivers.values()
        first = asyncio.create_task(masters.close())
        await asyncio.sleep(0.05)
        await masters.close()
        assert all(connection.sock is None for connection in driver._connections.all)
        await first
        redlock_servers.resume(0)

    asyncio.run(main())
    eventually(lambda: nothing_left(redlock_servers))


# -- used when Python is exiting: 3.12 starts no thread any more then ----------------------------------


PROGRAMS = {
    "threads": """
        with Masters(urls, restart_guard=False) as masters, masters.lock("job"):
            print("done")
    """,
    "asyncio": """
        async def main():
            async with AsyncMasters(urls, restart_guard=False) as masters, masters.lock("job"):
                print("done")
        asyncio.run(main())
    """,
    "check": """
        with Masters(urls, restart_guard=False) as masters:
            masters.check()
            print("done")
    """,
    "check-asyncio": """
        asyncio.run(AsyncMasters(urls, restart_guard=False).check())
        print("done")
    """,
}
AT_EXIT = """
import asyncio, atexit
from redlock import AsyncMasters, Masters, RedlockError
urls = {urls!r}

def at_exit():
    try:
        if True:{program}
    except RedlockError as error:
        print(error)

atexit.register(at_exit)
"""


@pytest.mark.parametrize("program", PROGRAMS)
def test_used_first_in_a_callback_of_atexit(redlock_servers, program):
    """It works where Python starts threads then, and says at once that it does not where it does not."""
    code = AT_EXIT.format(urls=redlock_servers.urls, program=PROGRAMS[program].replace("\n", "\n    "))
    done = run("-W", "error", "-c", code)
    assert done.stderr == ""
    starts_none = "Python is exiting and starts no thread any more" in done.stdout  # 3.12; not 3.11, nor 3.13
    assert ("done" in done.stdout) != starts_none
    assert not starts_none or sys.version_info >= (3, 12)
    eventually(lambda: nothing_left(redlock_servers))


@pytest.fixture
def exiting(monkeypatch):
    """From now on Python starts no thread of ours, in the words of the versions that do so."""
    start = threading.Thread.start

    def refuse(thread):
        if thread.name.startswith("redlock"):
            raise RuntimeError("can't create new thread at interpreter shutdown")
        start(thread)

    return lambda: monkeypatch.setattr(threading.Thread, "start", refuse)


def test_nothing_was_connected_before(world, redlock_servers, exiting):
    exiting()
    with world.Masters(redlock_servers.urls, restart_guard=False) as masters:
        for use in (masters.lock("job").acquire, masters.check, lambda: masters.status("job")):
            with pytest.raises(RedlockError, match="Python is exiting and starts no thread any more"):
                use()


def test_the_connections_broke_meanwhile(world, redlock_servers, exiting):
    """An acquire without a timeout would wait for ever for new ones."""
    with world.Masters(redlock_servers.urls, restart_guard=False) as masters:
        eventually(lambda: all_up(masters))
        exiting()
        each(redlock_servers, "client_kill_filter", _type="normal", skipme=True, masters=3)
        with pytest.raises(QuorumUnreachable, match="Python is exiting and starts no thread any more"):
            masters.lock("job").acquire()


def test_too_many_threads(world, redlock_servers, monkeypatch):
    """That may pass: whoever waits is not told anything, and who does not learns why."""

    def refuse(_):
        raise RuntimeError("can't start new thread")

    with world.Masters(redlock_servers.urls, restart_guard=False) as masters:
        with monkeypatch.context() as patch:
            start = threading.Thread.start
            patch.setattr(threading.Thread, "start", lambda one: refuse(one) if "redlock" in one.name else start(one))
            with pytest.raises(RedlockError, match="no thread could be started: can't start new thread"):
                masters.lock("job").acquire(timeout=0)
        with masters.lock("job") as lease:
            assert lease.valid
