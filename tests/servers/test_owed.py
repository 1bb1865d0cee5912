"""R10, R11: a release that could not be delivered is owed, and paid."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time

from tests.servers.look import all_up, eventually, lock_keys, nothing_left
from tests.servers.proxy import Proxy


def test_while_a_master_cannot_be_reached(world, redlock_servers):
    with Proxy(redlock_servers.ports[0]) as proxy:
        with world.Masters([proxy.url, *redlock_servers.urls[1:]], restart_guard=False) as masters:
            lock = masters.lock("job", ttl=60)
            eventually(lambda: all_up(masters))
            lock.acquire()
            eventually(lambda: all(lock_keys(redlock_servers)))
            proxy.replies = "lose"  # every attempt to connect fails as well
            proxy.drop()
            lock.release()
            eventually(lambda: not any(lock_keys(redlock_servers)[1:]))
            assert lock_keys(redlock_servers)[0]
            time.sleep(0.2)
            assert lock_keys(redlock_servers)[0]
            proxy.replies = "pass"
            eventually(lambda: nothing_left(redlock_servers))


def test_not_after_the_ttl(world, redlock_servers):
    """What is owed is forgotten when the key has expired anyway: memory stays bounded."""
    with world.Masters(redlock_servers.urls, restart_guard=False, node_timeout=0.05) as masters:
        lock = masters.lock("job", ttl=0.3)
        eventually(lambda: all_up(masters))
        lock.acquire()
        redlock_servers.kill(0)
        lock.release()
        (connection, *_) = world.connections(masters).all
        assert connection.pipeline.owes
        time.sleep(0.7)
        redlock_servers.restart(0)
        eventually(lambda: not connection.pipeline.owes)
        assert redlock_servers.client(0).info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"] == 0


def test_a_master_that_refuses_it_late_is_asked_again(world, redlock_servers):
    """Its answer comes when the release is over for whoever called it, and nobody else is about to read."""
    with world.Masters(redlock_servers.urls, restart_guard=False) as masters:
        lock = masters.lock("job", ttl=60)
        eventually(lambda: all_up(masters))
        lock.acquire()
        eventually(lambda: all(lock_keys(redlock_servers)))
        redlock_servers.client(3).config_set("min-replicas-to-write", 1)
        redlock_servers.pause(3)
        lock.release()
        redlock_servers.resume(3)
        time.sleep(0.3)
        assert lock_keys(redlock_servers)[3]
        redlock_servers.client(3).config_set("min-replicas-to-write", 0)
        eventually(lambda: nothing_left(redlock_servers))


def run(code: str, urls: list[str]) -> subprocess.Popen[str]:
    head = f"from redlock import Masters\nmasters = Masters({urls!r}, restart_guard=False, node_timeout=0.3)\n"
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", head + textwrap.dedent(code)], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_at_interpreter_exit(redlock_servers):
    """Exits right behind a release that nobody had time to confirm."""
    with Proxy(redlock_servers.ports[0]) as proxy:
        proxy.delay = 0.02  # its handshake and its answers are late
        code = """
            lock = masters.lock("job", ttl=60)
            masters.status("job")
            for _ in range(20):
                lock.acquire(); lock.release()
        """
        process = run(code, [proxy.url, *redlock_servers.urls[1:]])
        _output, errors = process.communicate(timeout=20)
        assert process.returncode == 0, errors
        assert not errors
    eventually(lambda: nothing_left(redlock_servers))


def test_at_interpreter_exit_for_at_most_node_timeout(redlock_servers):
    code = """
        import os, signal, sys, time
        lock = masters.lock("job", ttl=60)
        lock.acquire()
        print("held", flush=True)
        sys.stdin.read()
        lock.release()
        print(time.monotonic(), flush=True)
    """
    process = run(code, redlock_servers.urls)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    redlock_servers.pause(0)
    output, _ = process.communicate("", timeout=20)
    assert time.monotonic() - float(output) < 5  # node_timeout and the end of an interpreter
    assert process.returncode == 0
    redlock_servers.resume(0)
    eventually(lambda: nothing_left(redlock_servers))


def test_what_is_owed_is_sent_while_an_acquire_goes_on_waiting(world, redlock_servers):
    """R9, R10: the rollback was refused for a moment, and the next attempt is far away."""
    clients = [redlock_servers.client(i) for i in range(3)]
    with world.Masters(redlock_servers.urls[:3], restart_guard=False) as masters:
        eventually(lambda: all_up(masters))
        for client in clients[:2]:
            client.set("redlock:job", "somebody", px=60_000)
        connections = world.connections(masters)
        send = connections.send

        def refused_at_first(request, waiter):
            if request.owed_until is not None and connections.send is not send:
                clients[2].config_set("min-replicas-to-write", 1)
                connections.send = send
            return send(request, waiter)

        connections.send = refused_at_first
        time.sleep(0.3)  # whoever keeps the connections dozes
        lock = masters.lock("job", ttl=30, retry=lambda _: 1.8)
        waiting = threading.Thread(target=lambda: lock.acquire(timeout=2))
        waiting.start()
        eventually(lambda: connections.send is send and clients[2].get("redlock:job"))
        clients[2].config_set("min-replicas-to-write", 0)
        began = time.monotonic()
        eventually(lambda: clients[2].get("redlock:job") is None)
        assert time.monotonic() - began < 1.2  # long before the acquire has ended
        waiting.join()
        for client in clients[:2]:
            client.delete("redlock:job")
