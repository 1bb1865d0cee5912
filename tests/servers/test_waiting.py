"""Waiting on releases that masters announce (R24), between processes: for each `Masters` is one to the others."""

from __future__ import annotations

import contextlib
import logging

import pytest
from tenacity import wait_fixed

from tests.servers.look import each, eventually, logged, nothing_left, script_calls, take
from tests.servers.waiter import NEVER, Waiting, subscribers_up


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


def test_a_second_connection_only_while_somebody_waits(redlock_servers, masters, others):
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
    with deaf_user(redlock_servers) as urls, world.Masters(urls, restart_guard=False, node_timeout=2) as masters:
        held = others.lock("job", ttl=30)
        take(held)
        waiting = Waiting(masters.lock("job", ttl=30, retry=NEVER if granted else wait_fixed(0.2)))
        eventually(lambda: len(logged(caplog)) >= 5)
        if granted:
            each(redlock_servers, "acl_setuser", "deaf", enabled=True, commands=["+subscribe"])
            eventually(lambda: subscribers_up(world, masters) == 5)
        else:
            asked = script_calls(redlock_servers)[0]
            eventually(lambda: script_calls(redlock_servers)[0] > asked + 5)
            assert len(logged(caplog)) == 5
        held.release()
        assert waiting.end() is not None
    assert all("subscribe" in record.getMessage() for record in logged(caplog))
    assert "s3cret" not in caplog.text
