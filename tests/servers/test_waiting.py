"""Waiting on releases that masters announce (R24), between processes: for each `Masters` is one to the others."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tenacity import wait_fixed

from redlock import Masters
from tests.servers.look import all_up, each, eventually, logged, nothing_left, take
from tests.servers.proxy import Proxy
from tests.servers.waiter import NEVER, Waiting, subscribers_up

ROOT = Path(__file__).parents[2]


@pytest.fixture
def others(redlock_servers):
    """Another process, as it were."""
    with Masters(redlock_servers.urls, restart_guard=False) as others:
        eventually(lambda: all_up(others))
        yield others


def subscribed(servers) -> list[int]:
    return [len(servers.client(i).client_list(_type="pubsub")) for i in range(len(servers))]


@contextlib.contextmanager
def deaf_user(servers):
    """The addresses for a user who may do anything but subscribe."""
    for i in range(5):
        servers.client(i).acl_setuser(
            "deaf", enabled=True, passwords=["+s3cret"], commands=["+@all", "-subscribe"], keys=["*"], channels=["*"]
        )
    try:
        yield [url.replace("redis://", "redis://deaf:s3cret@") for url in servers.urls]
    finally:
        each(servers, "acl_deluser", "deaf")


def test_a_release_wakes_who_waits_in_another_process(world, redlock_servers, masters, others):
    held = others.lock("job", ttl=30)
    take(held)
    waiting = Waiting(masters.lock("job", ttl=30, retry=NEVER))
    eventually(lambda: subscribers_up(world, masters) == 5)
    held.release()
    assert waiting.end() is not None
    eventually(lambda: nothing_left(redlock_servers))


def test_names_that_are_not_ascii(world, redlock_servers):
    with (
        Masters(redlock_servers.urls, restart_guard=False, prefix="schlüssel:") as others,
        world.Masters(redlock_servers.urls, restart_guard=False, prefix="schlüssel:") as masters,
    ):
        held = others.lock("Käse ✓", ttl=30)
        take(held)
        waiting = Waiting(masters.lock("Käse ✓", ttl=30, retry=NEVER))
        eventually(lambda: subscribers_up(world, masters) == 5)
        held.release()
        assert waiting.end() is not None


# -- connections -------------------------------------------------------------------------------------


def test_a_second_connection_only_while_somebody_waits(world, redlock_servers, masters, others):
    lock = masters.lock("job", ttl=30)
    with lock:
        pass
    assert subscribed(redlock_servers) == [0] * 5
    held = others.lock("job", ttl=30)
    take(held)
    waiting = [Waiting(masters.lock(name, ttl=30, timeout=20)) for name in ("job", "job", "job")]
    eventually(lambda: subscribed(redlock_servers) == [1] * 5)
    held.release()
    for one in waiting:
        assert one.end() is not None
    eventually(lambda: subscribed(redlock_servers) == [0] * 5)
    assert not world.connections(masters).subscriptions
    assert all(subscriber.sock is None for subscriber in world.connections(masters).subscribers)


def test_many_names_share_one_connection(world, redlock_servers, masters, others):
    held = [others.lock(f"job-{number}", ttl=30) for number in range(20)]
    for lock in held:
        take(lock)
    waiting = [Waiting(masters.lock(f"job-{number}", ttl=30, retry=NEVER)) for number in range(20)]
    eventually(
        lambda: subscribers_up(world, masters) == 5 and len(world.connections(masters).subscriptions.channels) == 20
    )
    assert subscribed(redlock_servers) == [1] * 5
    for lock in held[:10]:
        lock.release()
    for one in waiting[:10]:
        assert one.end() is not None
    eventually(lambda: len(world.connections(masters).subscriptions.channels) == 10)  # unsubscribed, one by one
    eventually(lambda: redlock_servers.client(0).pubsub_numsub("redlock:job-0:released")[0][1] == 0)
    for lock in held[10:]:
        lock.release()
    for one in waiting:
        assert one.end() is not None


def test_a_connection_that_breaks_is_made_again(world, redlock_servers, masters, others):
    held = others.lock("job", ttl=30)
    take(held)
    waiting = Waiting(masters.lock("job", ttl=30, retry=NEVER))
    eventually(lambda: subscribers_up(world, masters) == 5)
    each(redlock_servers, "client_kill_filter", _type="pubsub")
    eventually(lambda: subscribers_up(world, masters) == 5 and subscribed(redlock_servers) == [1] * 5)
    held.release()
    assert waiting.end() is not None


def test_who_may_not_subscribe_tries_again_from_time_to_time(world, redlock_servers, others, caplog):
    """A warning for each master, once, that says what to grant; and never the password."""
    caplog.set_level(logging.WARNING, "redlock")
    with deaf_user(redlock_servers) as urls:
        held = others.lock("job", ttl=30)
        take(held)
        with world.Masters(urls, restart_guard=False) as masters:
            waiting = Waiting(masters.lock("job", ttl=30, retry=wait_fixed(0.2)))
            eventually(lambda: len(logged(caplog)) >= 5)
            time.sleep(0.6)
            held.release()
            assert waiting.end() is not None
        assert len(logged(caplog)) == 5
        assert all("subscribe" in record.getMessage() for record in logged(caplog))
        assert "s3cret" not in caplog.text


def test_a_right_that_is_granted_later_is_used(world, redlock_servers, others, caplog):
    """A refusal is not for ever: the master may have been busy, or its administrator reads warnings."""
    caplog.set_level(logging.WARNING, "redlock")
    with deaf_user(redlock_servers) as urls:
        held = others.lock("job", ttl=30)
        take(held)
        with world.Masters(urls, restart_guard=False) as masters:
            waiting = Waiting(masters.lock("job", ttl=30, retry=NEVER))
            eventually(lambda: len(logged(caplog)) >= 5)
            each(redlock_servers, "acl_setuser", "deaf", enabled=True, commands=["+subscribe"])
            eventually(lambda: subscribers_up(world, masters) == 5)
            held.release()
            assert waiting.end() is not None


def test_half_a_message_holds_nobody_up(world, redlock_servers, others):
    """Two masters send half of what they announce, and nothing after."""
    proxies = [Proxy(int(url.rsplit(":", 1)[1])) for url in redlock_servers.urls[:2]]
    with contextlib.ExitStack() as stack:
        for proxy in proxies:
            stack.callback(proxy.close)
        urls = [proxy.url for proxy in proxies] + redlock_servers.urls[2:]
        held = others.lock("job", ttl=30)
        take(held)
        masters = stack.enter_context(world.Masters(urls, restart_guard=False))
        waiting = Waiting(masters.lock("job", ttl=30, retry=NEVER))
        eventually(lambda: subscribers_up(world, masters) == 5)
        for proxy in proxies:
            proxy.replies = "half"
        held.release()
        assert waiting.end() is not None


# -- ends --------------------------------------------------------------------------------------------


def test_who_gives_up_leaves_no_subscription_behind(world, redlock_servers, masters, others):
    held = others.lock("job", ttl=30)
    take(held)
    assert masters.lock("job", ttl=30).acquire(timeout=0.2) is None
    assert not any(channel.listeners for channel in world.connections(masters).subscriptions._channels.values())
    eventually(lambda: subscribed(redlock_servers) == [0] * 5)
    held.release()


FORK = """
import os, sys, threading, time
from tenacity import wait_fixed
from redlock import Masters
masters = Masters(sys.argv[1:], restart_guard=False)
others = Masters(sys.argv[1:], restart_guard=False)
held = others.lock("job", ttl=30)
held.acquire()
got = []
def wait():
    with masters.lock("job", ttl=30, retry=wait_fixed(60)):
        got.append(True)
thread = threading.Thread(target=wait)
thread.start()
links = None
while True:
    time.sleep(0.01)
    channels = masters._driver._connections.subscriptions._channels.values()
    if channels and all(channel.confirmed == 31 for channel in channels):
        break
child = os.fork()
if child == 0:
    with masters.lock("another", ttl=30):       # connections of its own
        pass
    try:
        masters.close()
    finally:
        os._exit(0)
os.waitpid(child, 0)
held.release()
thread.join(10)
print("woken" if got else "not woken")
masters.close()
others.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_that_is_forked_off_does_not_end_the_wait(redlock_servers):
    outcome = subprocess.run(
        [sys.executable, "-c", FORK, *redlock_servers.urls],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert outcome.stdout == "woken\n", outcome.stderr


# -- many processes ----------------------------------------------------------------------------------

COUNTER = """
import asyncio, sys, time
from redlock import AsyncMasters, Masters

world, path, times, *urls = sys.argv[1:]

def increment():
    with open(path) as file:
        value = int(file.read())
    time.sleep(0.0005)
    with open(path, "w") as file:
        file.write(str(value + 1))

def threads():
    with Masters(urls, restart_guard=False) as masters:
        lock = masters.lock("counter", ttl=30)
        for _ in range(int(times)):
            with lock:
                increment()

async def tasks():
    async with AsyncMasters(urls, restart_guard=False) as masters:
        lock = masters.lock("counter", ttl=30)
        for _ in range(int(times)):
            async with lock:
                increment()

threads() if world == "threads" else asyncio.run(tasks())
"""


@pytest.mark.timeout(120)
def test_four_processes_increment_a_counter_that_nothing_else_protects(redlock_servers, tmp_path):
    counter = tmp_path / "counter"
    counter.write_text("0")
    processes = [
        subprocess.Popen([sys.executable, "-c", COUNTER, kind, str(counter), "50", *redlock_servers.urls], cwd=ROOT)
        for kind in ("threads", "asyncio") * 2
    ]
    try:
        assert [process.wait(100) for process in processes] == [0] * 4
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert counter.read_text() == "200"
    eventually(lambda: nothing_left(redlock_servers))


def test_who_released_lets_others_go_first(world, masters, others):
    """One that takes it again and again, and one that waits: they take turns."""
    stop = time.monotonic() + 1.5
    order: list[str] = []

    def work(name, lock):
        while time.monotonic() < stop:
            with lock:
                order.append(name)
                time.sleep(0.002)

    threads = [
        threading.Thread(target=work, args=("a", masters.lock("job", ttl=30))),
        threading.Thread(target=work, args=("b", others.lock("job", ttl=30))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = [order.count("a"), order.count("b")]
    assert min(counts) > 10
    assert max(counts) <= 5 * min(counts), counts
