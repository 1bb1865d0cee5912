"""Waiting on releases that masters announce (R24), between processes: for each `Masters` is one to the others."""

import contextlib
import logging

import pytest
from tenacity import wait_fixed

from tests.servers.look import each, eventually, logged, script_calls, take
from tests.servers.waiter import NEVER, Waiting, subscribers_up


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


# -- connections -------------------------------------------------------------------------------------


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
