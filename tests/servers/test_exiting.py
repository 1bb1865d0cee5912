"""Used when Python is exiting, in a callback of `atexit` for example: Python 3.12 starts no thread any more then."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from redlock import QuorumUnreachable, RedlockError
from tests.servers.look import all_up, each, eventually, nothing_left

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
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
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
