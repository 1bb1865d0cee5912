"""Connections that have died while nobody asked anything: the masters are well, and the first attempt says so."""

from __future__ import annotations

import os
import signal

import pytest

from tests.servers import worlds
from tests.servers.look import eventually, nothing_left
from tests.servers.process import started


def _idle_for_a_second(servers) -> bool:
    """As the servers count, in whole seconds: 2 of these may be little more than 1.  The test's own clients are busy."""
    for number in range(len(servers)):
        for client in servers.client(number).client_list():
            if client["name"] == "redlock" and int(client["idle"]) < 2:
                return False
    return True


def _hang_up(servers) -> None:
    """As a server with a ``timeout`` does, or a proxy that closes what is idle."""
    for number in range(len(servers)):
        for client in servers.client(number).client_list():
            if client["name"] == "redlock":
                servers.client(number).client_kill_filter(_id=client["id"])


@pytest.mark.parametrize("name", worlds.NAMES)
@pytest.mark.parametrize(
    ("what", "says"), [("acquire", "granted"), ("slots", "granted"), ("extend", "extended, valid: True")]
)
def test_the_first_attempt_after_a_freeze_meets_connections_that_the_servers_have_closed(
    redlock_servers, name, what, says
):
    """R10, P4: it is asked again over new ones, within the time of the attempt."""
    with started("-m", "tests.servers.sleeper", name, what, *redlock_servers.urls) as process:
        process.says("stands still", seconds=60)  # it is new
        eventually(lambda: _idle_for_a_second(redlock_servers))
        _hang_up(redlock_servers)
        os.kill(process.popen.pid, signal.SIGCONT)
        assert process.says("then") == f"then: {says}"
        assert process.ends() == 0
    if what != "extend":
        eventually(lambda: nothing_left(redlock_servers))
