"""Waiting on releases that masters announce (R24), between processes: for each `Masters` is one to the others."""

from __future__ import annotations

import contextlib
import logging
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tenacity import wait_fixed

from tests.servers.look import each, eventually, logged, nothing_left, take
from tests.servers.proxy import Proxy
from tests.servers.waiter import NEVER, Waiting, subscribers_up

ROOT = Path(__file__).parents[2]


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


@pytest.mark.parametrize("name", ["job", "Käse ✓"])
def test_a_release_wakes_who_waits_in_another_process(world, redlock_servers, masters, others, name):
    held = others.lock(name, ttl=30)
    take(held)
    waiting = Waiting(masters.lock(name, ttl=30, retry=NEVER))
    eventually(lambda: subscribers_up(world, masters) == 5)
    held.release()
    assert waiting.end() is not None
    eventually(lambda: nothing_left(redlock_servers))


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


@pytest.mark.parametrize("granted", [False, True])
def test_who_may_not_subscribe_tries_again_from_time_to_time(world, redlock_servers, others, caplog, granted):
    """A warning for each master, once, that says what to grant; and never the password.  Granted later it is used."""
    caplog.set_level(logging.WARNING, "redlock")
    with deaf_user(redlock_servers) as urls, world.Masters(urls, restart_guard=False) as masters:
        held = others.lock("job", ttl=30)
        take(held)
        waiting = Waiting(masters.lock("job", ttl=30, retry=NEVER if granted else wait_fixed(0.2)))
        eventually(lambda: len(logged(caplog)) >= 5)
        if granted:
            each(redlock_servers, "acl_setuser", "deaf", enabled=True, commands=["+subscribe"])
            eventually(lambda: subscribers_up(world, masters) == 5)
        else:
            time.sleep(0.6)
            assert len(logged(caplog)) == 5
        held.release()
        assert waiting.end() is not None
    assert all("subscribe" in record.getMessage() for record in logged(caplog))
    assert "s3cret" not in caplog.text


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
    order: list[str] = []
    both = threading.Barrier(2)

    def work(name, lock):
        with lock:
            pass
        both.wait(60)
        while len(order) < 200:
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
