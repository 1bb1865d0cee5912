"""The end of a `Masters`, announced or not: nothing of it is left."""

import asyncio
import gc
import os
import sys
import threading
import weakref

import pytest

from redlock import AsyncMasters, Masters, QuorumUnreachable, RedlockError
from tests.servers.look import all_up, each, eventually, no_thread_besides, nothing_left
from tests.servers.process import run


def descriptors():
    return len(os.listdir("/dev/fd"))


def test_close_leaves_no_thread_and_no_descriptor(world, redlock_servers):
    gc.collect()
    before, threads = descriptors(), set(threading.enumerate())
    for _ in range(3):
        masters = world.Masters(redlock_servers.urls, restart_guard=False)
        lock = masters.lock("job", ttl=10)
        assert no_thread_besides(threads), "unused masters opened something"
        assert descriptors() == before
        with lock:
            pass
        masters.close()
        masters.close()
        assert no_thread_besides(threads)
        assert descriptors() == before
        with pytest.raises(RedlockError, match="closed"):
            masters.lock("job", ttl=10).acquire()


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


async def drop_the_lock(masters):
    await masters.lock("job", bound=False).acquire()


async def leave_a_generator(masters):
    async def holding():
        async with masters.lock("job"):
            yield

    async for _ in holding():
        break


async def leave_an_election(masters):
    async for _ in masters.leader("job").terms():
        break


@pytest.mark.parametrize("leave", [drop_the_lock, leave_a_generator, leave_an_election])
def test_what_nobody_has_any_more_is_given_back(redlock_servers, leave):
    """P7: the background was told of it, and may not come to it any more."""

    async def main():
        async with AsyncMasters(redlock_servers.urls, restart_guard=False) as masters:
            await leave(masters)

    asyncio.run(main())
    assert nothing_left(redlock_servers)


@pytest.mark.parametrize("error", [BlockingIOError, ConnectionResetError])
@pytest.mark.parametrize("call", ["recv", "send"])
def test_what_is_dropped_is_gone_at_once_after_an_error_of_a_socket(redlock_servers, call, error):
    """P7: nobody gives it back while a traceback keeps it, until the collector runs."""
    with Masters(redlock_servers.urls, restart_guard=False, node_timeout=5.0) as masters:
        eventually(lambda: all_up(masters))
        pipeline = masters._runtime.driver()._connections.all[0].pipeline
        used = getattr(pipeline, call)

        def fail(*_):
            setattr(pipeline, call, used)
            raise error

        gc.disable()
        try:
            setattr(pipeline, call, fail)
            lock = masters.lock("job", bound=False)
            lock.acquire()
            dropped = weakref.ref(lock)
            del lock
            eventually(lambda: getattr(pipeline, call) is not fail)
            assert dropped() is None
        finally:
            gc.enable()
    assert nothing_left(redlock_servers)


def test_what_nobody_has_any_more_is_given_back_at_exit(redlock_servers):
    made = f"all = [Masters({redlock_servers.urls}, restart_guard=False) for _ in range(10)]"
    taken = "for name, masters in enumerate(all): masters.lock(f'{name}', bound=False).acquire()"
    run("-c", f"from redlock import Masters\n{made}\n{taken}")
    assert nothing_left(redlock_servers)


# -- used when Python is exiting: 3.12 starts no thread any more then ----------------------------------


HELD = """
masters = Masters(urls, restart_guard=False)
lock = masters.lock("job")
lock.acquire()
gc.disable()  # `Late` ends last
threading.Thread(target=stop, args=[masters._runtime.driver()], daemon=True).start()
"""
PROGRAMS = {
    "threads": """
        with Masters(urls, restart_guard=False) as masters, masters.lock("job"):
            print("done")
    """,
    "check-asyncio": """
        asyncio.run(AsyncMasters(urls, restart_guard=False).check())
        print("done")
    """,
    "held": """
        lock.release()
        masters.close()
        print("done")
    """,
}
# `Late`: after all callbacks Python stops the other threads where they are, here with our locks, and calls `__del__`.
AT_EXIT = """
import asyncio, atexit, gc, threading, time
take, taken = threading.Event(), threading.Event()
atexit.register(lambda: (take.set(), threading.active_count() > 1 and taken.wait(5)))  # called after that of redlock
from redlock import AsyncMasters, Masters, RedlockError
from redlock._io import process
urls = {urls!r}

def stop(driver):
    take.wait()
    with driver.host.mutex, process.brief.lock, driver.background.renewer.mutex.lock:
        taken.set()
        time.sleep(60)

def at_exit():
    try:
        if True:{program}
    except RedlockError as error:
        print(error)

class Late:
    def __init__(self):
        self.kept = self

    def __del__(self):
        at_exit()

{register}
"""


@pytest.mark.parametrize(("program", "register"), [
    ("threads", "atexit.register(at_exit)"), ("check-asyncio", "atexit.register(at_exit)"),
    ("threads", "Late()"), ("check-asyncio", "Late()"), ("held", f"{HELD}Late()"),
])  # fmt: skip
def test_used_when_python_ends(redlock_servers, program, register):
    """It works where Python starts threads then, and says at once that it does not where it does not."""
    code = {"program": PROGRAMS[program].replace("\n", "\n    "), "register": register}
    done = run("-W", "error", "-c", AT_EXIT.format(urls=redlock_servers.urls, **code))
    assert done.stderr == ""
    starts_none = "Python is exiting and starts no thread any more" in done.stdout
    assert ("done" in done.stdout) != starts_none
    assert not starts_none or register == "Late()" or sys.version_info >= (3, 12)  # 3.12; not 3.11, nor 3.13
    eventually(lambda: nothing_left(redlock_servers))


# Daemon threads go on while Python ends.  It looks through what it has to call then, here for long.
MEANWHILE = """
import atexit, sys, threading, weakref
from redlock import Masters
from redlock._io.runtime import DRIVERS

class Other:
    def deliver_at_exit(self):
        pass

others = [Other() for _ in range(20_000)]
masters = [Masters([f"redis://127.0.0.1:{{port}}" for port in (1, 2, 3)]) for _ in range(300)]
ends = threading.Event()

def drop():
    ends.wait()
    while masters:
        masters.pop()

def add():
    ends.wait()
    for _ in range(20_000):
        others.append(Other())
        DRIVERS.add(others[-1])

{many}
threading.Thread(target={does}, daemon=True).start()
atexit.register(ends.set)
sys.setswitchinterval(1e-6)
"""


@pytest.mark.parametrize(("many", "does"), [
    ("for one in others: weakref.finalize(one, int)", "drop"), ("DRIVERS.update(others)", "add"),
])  # fmt: skip
def test_another_thread_drops_or_makes_masters_while_python_ends(many, does):
    assert run("-W", "error", "-c", MEANWHILE.format(many=many, does=does)).stderr == ""


def test_nothing_was_connected_before(world, redlock_servers, monkeypatch):
    monkeypatch.setattr(sys, "is_finalizing", lambda: True)
    with world.Masters(redlock_servers.urls, restart_guard=False) as masters:
        for use in (masters.lock("job").acquire, masters.check, lambda: masters.status("job")):
            with pytest.raises(RedlockError, match="Python is exiting and starts no thread any more"):
                use()


def test_the_connections_broke_meanwhile(world, redlock_servers, monkeypatch):
    """An acquire without a timeout would wait for ever for new ones."""
    with world.Masters(redlock_servers.urls, restart_guard=False) as masters:
        eventually(lambda: all_up(masters))
        monkeypatch.setattr(sys, "is_finalizing", lambda: True)
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
