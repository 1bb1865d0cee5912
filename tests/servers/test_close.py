"""The end of a `Masters`, announced or not: nothing of it is left."""

from __future__ import annotations

import gc
import os
import threading
import time

import pytest

from redlock import RedlockError
from tests.servers.look import eventually


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
        assert set(threading.enumerate()) == threads
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
    before = descriptors(), set(threading.enumerate())
    masters = world.Masters(redlock_servers.urls)
    masters.lock("job")
    assert (descriptors(), set(threading.enumerate())) == before
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
        time.sleep(0.2)
        others.close()
        for thread in threads:
            thread.join(5)
        assert len(ended) == 4


def test_dropped_without_close_it_goes_away(world, redlock_servers):
    gc.collect()
    before, threads = descriptors(), set(threading.enumerate())
    masters = world.Masters(redlock_servers.urls, restart_guard=False)
    with masters.lock("job", ttl=10):
        pass
    del masters
    gc.collect()
    eventually(lambda: set(threading.enumerate()) == threads)
    eventually(lambda: gc.collect() >= 0 and descriptors() == before)
