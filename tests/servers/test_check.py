"""`Masters.check` on real servers, in both worlds; the command has commands/test_check_command.py."""

import asyncio
import re
import shutil
import subprocess
import threading

import pytest
import redis

from redlock import AsyncMasters, Masters, QuorumUnreachable
from redlock._health import rights
from redlock.testing import LocalMasters
from tests.servers.look import at_once, eventually, nothing_left, pause, resume
from tests.servers.needs import missing
from tests.servers.one import free_port, redis_server, tls_server
from tests.servers.process import soon
from tests.servers.strangers import answering

SECRET = "correct-horse"  # noqa: S105 - of servers that live for a second


@pytest.fixture(scope="module")
def durable():
    """Masters that may vote from the start."""
    with LocalMasters(5, persistence="always") as servers:
        yield servers


@pytest.fixture
def servers(durable):
    durable.reset()
    return durable


def codes(health):
    return {finding.code for finding in health.findings} | {
        finding.code for master in health.masters for finding in master.findings
    }


def test_five_healthy_ones(world, servers):
    with world.Masters(servers.urls, node_timeout=3) as masters:  # they wait for a disk
        health = masters.check()
    assert health.status == "OK"
    assert health.ok
    assert health.quorum.probe is not None
    assert health.quorum.probe.ok
    assert health.quorum.probe.fence
    for i, master in enumerate(health.masters):
        info = servers.client(i).info()
        assert master.url == servers.urls[i]
        assert master.run_id == info["run_id"]
        assert master.version == info.get("valkey_version", info["redis_version"])
        assert master.appendonly == "yes"
        assert master.appendfsync == "always"
        assert master.role == "master"
        assert master.latency_ms is not None
        assert abs(master.clock_offset_ms or 0.0) < 500  # one machine, one clock
    eventually(lambda: nothing_left(servers))


def test_without_a_probe_nothing_is_written(world, servers):
    def written():
        # Every change of every key counts.  The size of the append-only file would not do: to Redis 6.2 a script
        # that is loaded belongs into it.
        return [servers.client(i).info("persistence")["rdb_changes_since_last_save"] for i in range(5)]

    before = written()
    with world.Masters(servers.urls, node_timeout=3) as masters:
        health = masters.check(probe=False)
        assert health.status == "OK"
        assert health.quorum.probe is None
        assert written() == before
        assert servers.keys() == [{}] * 5
        masters.check()
    assert written() > before


def test_several_checks_at_once_do_not_get_in_each_others_way(world, servers):
    results = []
    with world.Masters(servers.urls, node_timeout=10) as masters:
        at_once([lambda: results.append(masters.check(timeout=10.0))] * 5)
    assert [health for health in results if not health.ok] == []
    assert len(results) == 5


def test_a_user_with_exactly_the_rule_passes_everything(world, tmp_path):
    """What `redlock-check --acl` prints is verified, on a server that logs every refusal."""
    rule = rights.rule("redlock:", database=True).split()
    with redis_server(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as port:
        with redis.Redis(port=port) as admin:
            eventually(admin.ping)
            admin.execute_command("ACL", "SETUSER", "locker", "on", f">{SECRET}", *rule)
            admin.execute_command("ACL", "LOG", "RESET")
            with world.Masters([f"redis://locker:{SECRET}@127.0.0.1:{port}/1"], node_timeout=3) as masters:
                health = masters.check()
                [master] = health.masters
                assert master.findings == ()
                assert health.quorum.probe is not None
                assert health.quorum.probe.ok
                lock = masters.lock(["a{b}", "c"], ttl=10, bound=False)  # with a hash tag, and without
                with lock:
                    lock.extend()
                    assert masters.status("c").token
                    assert lock.acquire(timeout=0.3) is None  # it subscribes
            assert SECRET not in str(health.as_dict())
            refused = {entry["object"] for entry in admin.acl_log()}
            # redis-py tells its name and ignores that it may not.  A client asks once whether there are functions (R44), and
            # a check whether the user has rights that nobody needs.
            assert refused <= {"fcall", "client|setinfo", "client|list", "function|delete", "config|set", "acl|dryrun"}


# Of those that only readers need nothing is said (R33): see test_shared.py.  Without a name a connection is only one that
# nobody knows (R34), and a status does not say how many wait (R40).
UNASKED = ("+z", "+client", "+pubsub")
ASKED = [word for word in rights.rule("redlock:").split() if word[0] in "+~&" and not word.startswith(UNASKED)]


@pytest.mark.parametrize("without", ASKED)
def test_every_part_of_the_rule_is_needed_and_its_absence_is_found(without, tmp_path, redlock_servers):
    """One right less, and the check names it."""
    rule = [word for word in rights.rule("redlock:").split() if word != without]
    client = redlock_servers.client(0)
    client.execute_command("ACL", "SETUSER", "locker", "reset", "on", f">{SECRET}", *rule)
    try:
        with Masters([f"redis://locker:{SECRET}@127.0.0.1:{redlock_servers.ports[0]}"]) as masters:
            [master] = masters.check(probe=False).masters
    finally:
        client.acl_deluser("locker")
    [finding] = [finding for finding in master.findings if finding.code == "no-permission"]
    assert without in master.rights_missing
    assert f" {without}" in finding.message


@pytest.mark.parametrize("line", ["-FOO bar", "+OK", "*2\r\n$1\r\nx\r\n$1\r\ny"])
def test_what_gives_one_answer_to_everything_is_no_server(servers, line):
    with answering(lambda _: f"{line}\r\n".encode()) as port:
        urls = [*servers.urls[:4], f"redis://127.0.0.1:{port}"]
        with Masters(urls, restart_guard=False) as masters:
            health = masters.check(timeout=2.0, probe=False)
    assert [finding.code for finding in health.masters[4].findings] == ["not-redis"]
    assert health.quorum.voting == 4
    assert health.quorum.can_lose == 1


def test_what_a_server_sends_cannot_move_the_cursor():
    says = (
        b"redis_version:7.0\x1b[2J\x1b[1;1HOK: all fine\r\nrun_id:a\x1b\r\nuptime_in_seconds:99999\r\n"
        b"role:slave\r\nmaster_host:\x1b[31mx\r\nmaxmemory_policy:a\x1b]0;t\x07\r\n"
    )

    answers = {
        "INFO": b"$%d\r\n%s\r\n" % (len(says), says), "TIME": b"*2\r\n$1\r\n1\r\n$1\r\n1\r\n", "GET": b"$4\r\n\x1b[2J\r\n",
        "CONFIG": b"*4\r\n$10\r\nappendonly\r\n$4\r\n\x1b[2J\r\n$11\r\nappendfsync\r\n$1\r\n\x1b\r\n",
    }  # fmt: skip
    with (
        answering(lambda command: answers.get(command, b"-BAR \x1b[2J\x1b]0;x\x07\r\n")) as port,
        answering(lambda command: b"+OK\r\n" if command == "CLIENT" else b"-BUSY \x1b[2J\r\n") as busy,
        answering(lambda _: b"-\x1b[31mevil\x1b]0;x\x07\r\n") as evil,
    ):
        urls = [f"redis://127.0.0.1:{port}", f"redis://127.0.0.1:{busy}", f"redis://:pw@127.0.0.1:{evil}"]
        with Masters(urls) as masters:
            health = masters.check(timeout=2.0)
    assert "7.0" in (health.masters[0].version or "")
    assert [finding.code for finding in health.masters[1].findings] == ["busy"]
    assert "evil" in str(health.masters[2].findings)
    texts = [health.summary, *texts_of(health.as_dict())]
    assert [text for text in texts if not text.isprintable()] == []


def texts_of(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for one in value for text in texts_of(one)]
    return [value] if isinstance(value, str) else []


NEEDED = ("EVALSHA", "PTTL", "INFO")
SPARED = ("CONFIG", "SUBSCRIBE")


@pytest.mark.parametrize("command", [*NEEDED, *SPARED])
def test_a_command_that_was_renamed(command, tmp_path):
    """The vote counts only if clients can acquire, extend and release with it."""
    with redis_server(tmp_path, "--rename-command", command, "") as port, redis.Redis(port=port) as client:
        eventually(client.ping)
        guard = command == "INFO"  # nobody else needs that
        with Masters([f"redis://127.0.0.1:{port}"], restart_guard=guard) as masters:
            [master] = masters.check(probe=False).masters
    found = [finding for finding in master.findings if finding.level == "critical"]
    assert master.votes is (command in SPARED)
    assert [finding.code for finding in found] == ["no-command"] * (command in NEEDED)
    assert all(re.search(rf"\b{command}\b", finding.message) for finding in found)


@pytest.mark.parametrize(("protocols", "asked"), [
    ("TLSv1.3", ""), ("TLSv1.2", ""), ("TLSv1.2", "&ssl_min_version=772"),
])  # fmt: skip
def test_a_server_that_refuses_the_clients_tls(servers, certificate, tmp_path, protocols, asked):
    """It wants a certificate, or another version."""
    authority = certificate / "cert.pem"
    with tls_server(tmp_path, certificate, "--tls-auth-clients", "yes", "--tls-protocols", protocols) as port:
        with Masters([*servers.urls[:4], f"rediss://127.0.0.1:{port}?ssl_ca_certs={authority}{asked}"]) as masters:
            [finding] = masters.check(timeout=2.0, probe=False).masters[4].findings
    assert finding.code == "tls"
    assert "ssl_certfile" in finding.advice


def test_a_sentinel_is_told_apart_from_a_server(tmp_path):
    configuration = tmp_path / "sentinel.conf"
    port = free_port()
    configuration.write_text(f"port {port}\nbind 127.0.0.1\n", encoding="utf-8")
    binary = shutil.which("redis-server") or missing("redis-server")
    with subprocess.Popen([binary, str(configuration), "--sentinel"], stdout=subprocess.DEVNULL) as sentinel:
        try:
            with Masters([f"redis://127.0.0.1:{port}"], restart_guard=False) as masters:
                eventually(lambda: "not-master" in codes(masters.check(probe=False)))
                with pytest.raises(QuorumUnreachable, match=r"in 1 attempt(.|\n)*: it is a Sentinel; give the"):
                    masters.lock("job").acquire()
        finally:
            sentinel.kill()


def test_a_cluster_has_one_database(servers):
    answers = {"SELECT": b"-ERR SELECT is not allowed in cluster mode\r\n"}
    with answering(lambda command: answers.get(command, b"+OK\r\n")) as port:
        with Masters([*servers.urls[:4], f"redis://127.0.0.1:{port}/1"]) as masters:
            health = masters.check(probe=False)
    assert [finding.code for finding in health.masters[4].findings] == ["no-database"]


async def test_a_check_that_is_cancelled_leaves_nothing(durable):
    """No task, no thread that goes on, no lock."""

    def checking():
        return any(one.name.startswith("redlock-check") for one in threading.enumerate())

    durable.reset()
    pause(durable)
    async with AsyncMasters(durable.urls) as masters:
        task = asyncio.create_task(masters.check(timeout=30.0))
        await soon(checking)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await soon(lambda: not checking())
    resume(durable)
    eventually(lambda: nothing_left(durable))
