"""Many at once in one process, threads or tasks: each gets its own answers."""

from __future__ import annotations

import contextlib
import random
import threading
import time

import redlock
from tests.servers.look import all_up, eventually, nothing_left


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

    threads = [threading.Thread(target=work, args=(f"job {i}",)) for i in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
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
