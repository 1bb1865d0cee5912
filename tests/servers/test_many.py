"""Many at once in one process, threads or tasks, or one after the other: each gets its own answers, and leaves nothing."""

from __future__ import annotations

import contextlib
import functools
import gc
import random
import threading
import time
import tracemalloc

import redlock
from tests.servers.look import all_up, at_once, eventually, lock_keys, nothing_left


def test_they_share_one_connection_a_master(redlock_servers, masters):
    eventually(lambda: all_up(masters))
    clients = redlock_servers.client(0).info("clients")["connected_clients"]
    errors = []

    def work(name):
        try:
            lock = masters.lock(name, ttl=10)
            for _ in range(15):
                with lock as lease:
                    assert lease.valid
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    at_once([functools.partial(work, f"job {i}") for i in range(32)])
    assert not errors
    assert redlock_servers.client(0).info("clients")["connected_clients"] == clients
    eventually(lambda: nothing_left(redlock_servers))


def test_under_faults_they_get_their_own_answers(world, redlock_servers):
    """Connections break under 16 of them; nobody is handed somebody else's vote, nothing stays behind."""
    stop = threading.Event()
    errors: list[BaseException] = []
    granted = [0]
    inside: dict[str, int] = {}
    with world.Masters(redlock_servers.urls, restart_guard=False, node_timeout=0.2) as masters:

        def work(name):
            lock = masters.lock(name, ttl=10)
            while not stop.is_set():
                try:
                    with lock:
                        inside[name] = inside.get(name, 0) + 1
                        assert inside[name] == 1
                        granted[0] += 1
                        inside[name] -= 1
                except redlock.QuorumUnreachable:
                    pass
                except BaseException as error:  # noqa: BLE001
                    errors.append(error)
                    return

        threads = [threading.Thread(target=work, args=(f"job {i % 8}",)) for i in range(16)]
        for thread in threads:
            thread.start()
        choose = random.Random(1)
        for _ in range(40):
            with contextlib.suppress(Exception):
                redlock_servers.client(choose.randrange(5)).client_kill_filter(_type="normal")
            time.sleep(0.02)
        stop.set()
        for thread in threads:
            thread.join()
        assert not errors
        assert granted[0] > 50
        eventually(lambda: nothing_left(redlock_servers))


CYCLES = 300  # uncontended, and nothing is left behind (P7)


def test_a_frozen_master_keeps_no_key_once_it_thaws(world, redlock_servers):
    with world.Masters(redlock_servers.urls, restart_guard=False, node_timeout=0.1) as masters:
        lock = masters.lock("job", ttl=60)
        with lock:
            pass  # connected before it freezes, so it is sent what follows
        redlock_servers.pause(2)
        for _ in range(CYCLES):
            assert lock.acquire(timeout=1) is not None
            lock.release()
        redlock_servers.resume(2)
        # It works off what it had been sent, acquires and their releases in one order.
        eventually(lambda: nothing_left(redlock_servers))
        assert redlock_servers.client(2).ping()
        assert lock_keys(redlock_servers)[2] == set()


def test_a_lease_weighs_less_than_three_kilobytes(redlock_servers, masters):
    """Also after a burst; and it keeps nothing of the operation that acquired it."""
    each = 0.0
    for locks in ([masters.lock(f"first-{i}") for i in range(100)], [masters.lock(f"job-{i}") for i in range(400)]):
        gc.collect()
        tracemalloc.start()
        try:
            for lock in locks:
                lock.acquire()
            gc.collect()
            each = tracemalloc.get_traced_memory()[0] / len(locks)
        finally:
            tracemalloc.stop()
        for lock in locks:
            lock.release()
    assert each < 3000
