"""What each fault of a master looks like to a user: its vote, its words, and what is never said (R3)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import subprocess
import threading
import time

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from redlock import ConfigurationError, Masters, NotAcquired, QuorumUnreachable
from redlock.testing import LocalMasters
from tests.servers.look import all_up, each, eventually, lock_keys, logged, nothing_left, pause, resume
from tests.servers.one import free_port, redis_server, tls_server
from tests.servers.proxy import Proxy
from tests.servers.waiter import NEVER, Waiting, subscribers_up

SECRET = "correct-horse"  # noqa: S105 - of servers that live for a second


@pytest.fixture
def four(redlock_servers):
    return redlock_servers.urls[:4]


def vote_of_the_fifth(world, urls, **options):
    """Everything on five masters works, and the fifth one's vote is what is asked for."""
    with world.Masters(urls, restart_guard=False, **options) as masters:
        lock = masters.lock("job", ttl=10)
        votes = eventually(lambda: _decided_vote(lock))
        lock.acquire(timeout=1)
        lock.release()
        return votes


def _decided_vote(lock):
    with lock as lease:
        vote = lease.votes[4]
    return vote if vote.outcome != "pending" and vote.reason != "still connecting" else None


def test_port_closed(world, four):
    vote = vote_of_the_fifth(world, [*four, f"redis://127.0.0.1:{free_port()}"])
    assert vote.outcome == "error"
    assert "refused" in vote.reason


def test_wrong_password(world, four, tmp_path):
    with redis_server(tmp_path, "--requirepass", SECRET) as port:
        vote = vote_of_the_fifth(world, [*four, f"redis://:not-{SECRET}@127.0.0.1:{port}"])
        assert vote.reason.startswith("wrong user or password")
        assert SECRET not in str(vote)
        assert vote_of_the_fifth(world, [*four, f"redis://127.0.0.1:{port}"]).outcome == "error"
        right = f"redis://:{SECRET}@127.0.0.1:{port}"
        with world.Masters([right], restart_guard=False) as masters, masters.lock("job", ttl=10) as lease:
            assert lease.votes[0].outcome == "granted"
            assert SECRET not in repr(masters) + repr(lease.votes)


def test_wrong_password_everywhere_is_told_at_once_and_apart_from_contention_and_outage(world, tmp_path):
    with redis_server(tmp_path, "--requirepass", SECRET) as port:
        with world.Masters([f"redis://:wrong@127.0.0.1:{port}"], restart_guard=False) as masters:
            # Not "until its timeout", here for ever (C1): no waiting cures a password.
            with pytest.raises(QuorumUnreachable, match="wrong user or password") as caught:
                masters.lock("job", ttl=10).acquire()
            assert "refused" not in str(caught.value)
            assert "held" not in str(caught.value)
            with pytest.raises(QuorumUnreachable, match="wrong user or password"):
                masters.status("job")


def test_no_password_where_one_is_needed_is_told_at_once(world, tmp_path):
    """Some servers say so to the first command only, others already to what redis-py sends before it."""
    with redis_server(tmp_path, "--requirepass", SECRET) as port:
        with world.Masters([f"redis://127.0.0.1:{port}"], restart_guard=False) as masters:
            with pytest.raises(QuorumUnreachable, match="wrong user or password: Authentication required"):
                masters.lock("job", ttl=10).acquire(timeout=20)
            with pytest.raises(QuorumUnreachable, match="wrong user or password"):
                masters.status("job")


def test_outage_held_and_misconfigured_read_differently(world, redlock_servers):
    dead = [f"redis://127.0.0.1:{free_port()}" for _ in range(3)]
    with world.Masters([*redlock_servers.urls[:2], *dead], restart_guard=False) as masters:
        with pytest.raises(QuorumUnreachable, match="3 of 5 masters took no part") as outage:
            masters.lock("job", ttl=10).acquire(timeout=0.2)
        assert str(outage.value).count("\n") == 5  # a line for every master
    with world.Masters(redlock_servers.urls, restart_guard=False) as one:
        with one.lock("job", ttl=10) as lease, world.Masters(redlock_servers.urls, restart_guard=False) as two:
            with pytest.raises(NotAcquired, match=f"held by {lease.owner} for up to") as held:
                with two.lock("job", ttl=10, timeout=0.1):
                    pass
            assert not isinstance(held.value, QuorumUnreachable)
            assert two.lock("job", ttl=10).acquire(timeout=0.1) is None


def test_wrongtype(redlock_servers, masters):
    """A key of another type is an error vote with a clear reason (docs/reference/wire.md)."""
    redlock_servers.client(4).rpush("redlock:job", "not", "a", "lock")
    vote = eventually(lambda: _decided_vote(masters.lock("job", ttl=10)))
    assert vote.outcome == "error"
    assert "WRONGTYPE" in vote.reason
    assert "something that is not a lock" in vote.reason


def test_a_key_of_another_type_in_the_place_of_the_announcement_is_named(world, four, tmp_path):
    with redis_server(tmp_path) as port:
        with redis.Redis(port=port) as client:
            client.rpush("redlock-max-ttl:redlock:", "not", "a", "number")
        vote = vote_of_the_fifth(world, [*four, f"redis://127.0.0.1:{port}"])
    assert vote.outcome == "error"
    assert vote.reason == "BADMAXTTL redlock-max-ttl:redlock: does not hold the max_ttl of a client: delete it"


def test_a_fence_that_is_no_number(redlock_servers, masters):
    redlock_servers.client(4).set("{redlock:job}:fence", "1e300")
    vote = eventually(lambda: _decided_vote(masters.lock("job", ttl=10)))
    assert vote.outcome == "error"
    assert "BADFENCE" in vote.reason


def test_somebody_keeps_megabytes_under_a_name(world, redlock_servers):
    """Whoever asks for that name learns who has it, in a few bytes; who holds another one notices nothing."""
    size = 17_000_000  # more than a connection is kept for: see `_core.sizes`
    each(redlock_servers, "set", "redlock:big", b"x" * size, px=60_000)
    with world.Masters(redlock_servers.urls, restart_guard=False, node_timeout=5) as masters:
        with masters.lock("other", ttl=30) as lease:
            assert lease.valid
            lock = masters.lock("big", ttl=30)
            assert lock.acquire(timeout=0) is None
            with pytest.raises(NotAcquired, match=r"held by x{128} for up to") as caught:
                with masters.lock("big", ttl=30, timeout=0):
                    pass
            assert len(str(caught.value)) < 2_000
            assert masters.status("big").token == "x" * 128
            assert lock.locked()
            connections = world.connections(masters).all
            assert [connection.failures for connection in connections] == [0] * 5
            assert len(lock_keys(redlock_servers)) == 5
            assert lease.valid
        for i in range(5):
            assert redlock_servers.client(i).strlen("redlock:big") == size  # P8


def test_a_fence_that_no_token_can_exceed_is_told_at_once_with_the_way_out(redlock_servers, masters):
    """Somebody wrote 2**53 - 1, after which a script cannot count.  It is not spread to masters that are well."""
    key = "{redlock:job}:fence"
    each(redlock_servers, "set", key, "9007199254740991", masters=2)
    for _ in range(3):
        with masters.lock("job", ttl=10) as lease:
            assert lease.fence < 2**52
    redlock_servers.client(2).set(key, "9007199254740991")
    with pytest.raises(QuorumUnreachable) as caught:
        masters.lock("job", ttl=10).acquire(timeout=60)
    said = (
        f"BADFENCE {key} does not hold a fencing token but 9007199254740991 (somebody else wrote that: delete the key"
    )
    assert said in str(caught.value)
    with pytest.raises(QuorumUnreachable, match="delete the key on every master while nobody holds the name"):
        masters.status("job")
    for i in range(5):
        redlock_servers.client(i).delete(key)  # as it says
    with masters.lock("job", ttl=10) as lease:
        assert lease.fence < 2**52


def test_what_stands_at_a_fence_key_is_told_apart_from_what_stands_at_the_lock_key(redlock_servers, masters):
    for i in range(5):
        redlock_servers.client(i).rpush("{redlock:job}:fence", "a list")
        redlock_servers.client(i).rpush("redlock:other", "a list")
    with pytest.raises(
        QuorumUnreachable,
        match=r"BADFENCE \{redlock:job\}:fence does not hold a fencing token but a value of another type",
    ):
        masters.lock("job", ttl=10).acquire(timeout=60)
    with pytest.raises(QuorumUnreachable, match=r"WRONGTYPE .*\(something that is not a lock has this key\)") as caught:
        masters.lock("other", ttl=10).acquire(timeout=60)
    assert "BADFENCE" not in str(caught.value)


@pytest.mark.parametrize("written", ["1e300", ["a list"]], ids=["number", "another-type"])
def test_what_stands_at_the_announcement_key_is_told_at_once(world, redlock_servers, written):
    """C1: no client can connect until somebody deletes it, however long one waits."""
    for i in range(5):
        client = redlock_servers.client(i)
        client.set("redlock-max-ttl:redlock:", written) if isinstance(written, str) else client.rpush(
            "redlock-max-ttl:redlock:", *written
        )
    try:
        with world.Masters(redlock_servers.urls, restart_guard=False) as masters:
            with pytest.raises(
                QuorumUnreachable,
                match="BADMAXTTL redlock-max-ttl:redlock: does not hold the max_ttl of a client: delete it",
            ):
                masters.lock("job", ttl=10).acquire(timeout=60)
    finally:
        each(redlock_servers, "delete", "redlock-max-ttl:redlock:")


@pytest.mark.parametrize("command", ["EVALSHA", "EVAL", "SCRIPT"])
def test_a_command_that_was_renamed_away_is_told_at_once(world, tmp_path, command):
    with redis_server(tmp_path, "--rename-command", command, "") as port:
        with world.Masters([f"redis://127.0.0.1:{port}"], restart_guard=False) as masters:
            with pytest.raises(QuorumUnreachable, match=f"unknown command .{command}"):
                masters.lock("job", ttl=10).acquire(timeout=60)


def test_names_in_different_slots_of_a_cluster_are_told_at_once(world, tmp_path):
    with redis_server(tmp_path, "--cluster-enabled", "yes") as port:
        with redis.Redis(port=port) as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            eventually(lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"))
        with world.Masters([f"redis://127.0.0.1:{port}"], restart_guard=False) as masters:
            with masters.lock("one", ttl=10):
                pass
            with pytest.raises(QuorumUnreachable, match=r"CROSSSLOT .*independent servers"):
                masters.lock(["one", "two"], ttl=10).acquire(timeout=60)


def test_full_master_refuses_new_locks_but_extends_and_releases(redlock_servers, masters):
    lock = masters.lock("job", ttl=10)
    lock.acquire()
    each(redlock_servers, "config_set", "maxmemory", "1")
    try:
        assert lock.extend().valid
        lock.release()
        with pytest.raises(QuorumUnreachable, match="OOM"):
            lock.acquire(timeout=0)
    finally:
        each(redlock_servers, "config_set", "maxmemory", "0")
    eventually(lambda: nothing_left(redlock_servers))


def test_replica(redlock_servers, masters):
    client = redlock_servers.client(4)
    with masters.lock("before", ttl=10):
        pass
    try:
        client.replicaof("127.0.0.1", redlock_servers.ports[0])
        vote = eventually(lambda: _decided_vote(masters.lock("job", ttl=10)))
        assert vote.outcome == "error"
        assert "READONLY" in vote.reason
    finally:
        client.replicaof("NO", "ONE")


def test_not_enough_replicas_keeps_the_key_until_the_release_gets_through(redlock_servers, masters):
    """A release that the master could not do is still owed to it (R10), and is done when it can."""
    lock = masters.lock("job", ttl=10)
    eventually(lambda: all_up(masters))
    lock.acquire()
    client = redlock_servers.client(4)
    eventually(lambda: client.exists("redlock:job"))
    client.config_set("min-replicas-to-write", 1)
    lock.release()
    vote = eventually(lambda: _decided_vote(masters.lock("other", ttl=10)))
    assert "NOREPLICAS" in vote.reason
    assert client.exists("redlock:job")
    client.config_set("min-replicas-to-write", 0)
    eventually(lambda: nothing_left(redlock_servers))


def test_runaway_script(redlock_servers, masters):
    client = redlock_servers.client(4)
    client.config_set("lua-time-limit", 10)
    with masters.lock("before", ttl=10):
        pass
    runaway = threading.Thread(target=_swallow(lambda: client.eval("while true do end", 0)))
    runaway.start()
    try:
        time.sleep(0.05)
        vote = eventually(lambda: _decided_vote_of_error(masters))
        assert "BUSY" in vote.reason
    finally:
        killer = redis.Redis(port=redlock_servers.ports[4], retry=Retry(NoBackoff(), 0))
        eventually(_swallow(lambda: killer.script_kill() or True))
        killer.close()
        runaway.join()
        client.config_set("lua-time-limit", 5000)
    eventually(lambda: nothing_left(redlock_servers))


def _decided_vote_of_error(masters):
    with masters.lock("job", ttl=10):  # the others decide, mostly before it has said that it is busy
        vote = masters.status("job").votes[4]
    return vote if vote.outcome == "error" else None


def _swallow(call):
    def quiet():
        try:
            return call()
        except redis.RedisError:
            return None

    return quiet


def test_script_flush_costs_nothing_but_the_text(redlock_servers, masters):
    """Scripts are run by name; a master that has forgotten one gets its text, once (docs/reference/wire.md)."""
    lock = masters.lock("job", ttl=10)
    for _ in range(5):
        each(redlock_servers, "script_flush")
        with lock as lease:
            each(redlock_servers, "script_flush")
            lock.extend()
            assert lease.fence
    eventually(lambda: nothing_left(redlock_servers))


def test_a_repair_needs_no_script_that_is_known(redlock_servers, masters):
    """R14: nobody counts its answer, and the key comes back all the same."""
    lock = masters.lock("job", ttl=10)
    with lock as lease:
        eventually(lambda: len([1 for keys in lock_keys(redlock_servers) if keys]) == 5)
        redlock_servers.client(2).script_flush()
        redlock_servers.client(2).delete("redlock:job")
        lock.extend()  # decided by the others, perhaps before it has been sent the text
        eventually(lambda: redlock_servers.client(2).get("redlock:job") == lease.token.encode())


def test_a_master_that_always_answers_last_learns_what_it_has_forgotten(world, redlock_servers):
    """The attempt is decided when it says NOSCRIPT; the locks after that one are on it as well."""
    with Proxy(redlock_servers.ports[2]) as proxy:
        urls = [*redlock_servers.urls[:2], f"redis://127.0.0.1:{proxy.port}"]
        with world.Masters(urls, restart_guard=False) as masters:
            eventually(lambda: all_up(masters))
            proxy.delay = 0.05
            redlock_servers.client(2).script_flush()
            with masters.lock("before", ttl=10):
                time.sleep(0.3)
            with masters.lock("job", ttl=10):
                eventually(lambda: redlock_servers.client(2).exists("redlock:job"))


def test_a_port_that_speaks_something_else(world, four):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stop = threading.Event()
        listener.settimeout(0.05)

        def serve():
            while not stop.is_set():
                try:
                    client, _ = listener.accept()
                except TimeoutError:
                    continue
                with client:
                    client.recv(4096)
                    client.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

        server = threading.Thread(target=serve)
        server.start()
        try:
            vote = vote_of_the_fifth(world, [*four, f"redis://127.0.0.1:{listener.getsockname()[1]}"])
        finally:
            stop.set()
            server.join()
    assert vote.outcome == "error"
    assert "does not speak the Redis protocol" in vote.reason


def test_maxclients(world, four, tmp_path):
    with redis_server(tmp_path, "--maxclients", "1") as port:
        only = redis.Redis(port=port, retry=Retry(NoBackoff(), 0))
        eventually(_swallow(only.ping))  # the connection that found the server up is not gone at once
        vote = vote_of_the_fifth(world, [*four, f"redis://127.0.0.1:{port}"])
        only.close()
    assert vote.outcome == "error"
    assert "max number of clients" in vote.reason


ACL = (
    "+set +get +del +pexpire +pttl +eval +evalsha +script|load +publish +subscribe +unsubscribe +info +config|get "
    "+time +hgetall +hset +hdel resetchannels ~redlock:* ~{redlock:* ~redlock-max-ttl:* ~redlock-fleet:* &redlock:*"
)


def test_an_acl_user_with_just_what_is_needed(world, tmp_path, caplog):
    caplog.set_level(logging.WARNING, "redlock")
    user = f"--user locker on >{SECRET} -@all {ACL}".split()
    with redis_server(tmp_path, *user) as port:
        url = f"redis://locker:{SECRET}@127.0.0.1:{port}"
        with world.Masters([url], restart_guard=False) as masters:
            lock = masters.lock("job", ttl=10)
            with lock:
                lock.extend()
                assert masters.status("job").token
                with Masters([url], restart_guard=False) as others:
                    waiting = others.lock("job", ttl=10).acquire(timeout=0.3)
                    assert waiting is None
    assert not logged(caplog)  # nobody complains that he may not subscribe


def test_an_acl_user_who_may_not_run_scripts(world, four, tmp_path):
    user = f"--user locker on >{SECRET} -@all {ACL} -evalsha".split()
    with redis_server(tmp_path, *user) as port:
        vote = vote_of_the_fifth(world, [*four, f"redis://locker:{SECRET}@127.0.0.1:{port}"])
    assert vote.outcome == "error"
    assert "NOPERM" in vote.reason
    assert SECRET not in vote.reason


def test_a_master_that_did_not_permit_the_release_has_no_key_left_when_it_does(world, redlock_servers):
    """P7: it can be reached."""
    admin = redlock_servers.client(0)
    with world.Masters(redlock_servers.urls, restart_guard=False) as masters:
        eventually(lambda: all_up(masters))
        lock = masters.lock("job", ttl=30)
        lock.acquire()
        eventually(lambda: admin.exists("redlock:job"))
        admin.execute_command("ACL", "SETUSER", "default", "-evalsha")
        try:
            lock.release()
            eventually(lambda: lock_keys(redlock_servers)[1:] == [set()] * 4)
            assert admin.exists("redlock:job")
        finally:
            admin.execute_command("ACL", "SETUSER", "default", "+@all")
        eventually(lambda: nothing_left(redlock_servers))


def test_an_acl_user_who_may_not_announce_is_told_the_key(world, four, tmp_path):
    acl = ACL.replace("~redlock-max-ttl:* ", "")
    user = f"--user locker on >{SECRET} -@all {acl}".split()
    with redis_server(tmp_path, *user) as port:
        vote = vote_of_the_fifth(world, [*four, f"redis://locker:{SECRET}@127.0.0.1:{port}"])
    assert "redlock-max-ttl:redlock:" in vote.reason


@pytest.fixture
def tls_port(certificate, tmp_path):
    with tls_server(tmp_path, certificate, "--tls-auth-clients", "no") as port:
        yield port


def test_tls(world, redlock_servers, tls_port, certificate):
    url = f"rediss://127.0.0.1:{tls_port}?ssl_ca_certs={certificate / 'cert.pem'}"
    with world.Masters([url], restart_guard=False) as masters:
        lock = masters.lock("job" * 100, ttl=10)
        for _ in range(200):
            with lock:
                assert lock.extend().valid
        with Masters([url], restart_guard=False) as others:
            held = others.lock("held", ttl=10)
            held.acquire()
            waiting = Waiting(masters.lock("held", ttl=10, retry=NEVER))
            eventually(lambda: subscribers_up(world, masters) == 1)
            held.release()
            assert waiting.end() is not None
        assert masters.status("job" * 100).token is None


def test_a_key_of_another_certificate_is_refused_at_once_and_named(certificate, tmp_path):
    key, encrypted = tmp_path / "key.pem", tmp_path / "encrypted.pem"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    subprocess.run(
        ["openssl", "rsa", "-in", certificate / "key.pem", "-aes128", "-passout", f"pass:{SECRET}", "-out", encrypted],
        check=True,
        capture_output=True,
    )
    address = f"rediss://127.0.0.1?ssl_certfile={certificate / 'cert.pem'}&ssl_keyfile="
    for wrong in (f"{key}", f"{encrypted}", f"{encrypted}&ssl_password=guessed"):
        with pytest.raises(ConfigurationError, match=f"ssl_keyfile={wrong.partition('&')[0]}: no private key"):
            Masters([address + wrong])
    for right in (f"{certificate / 'key.pem'}", f"{encrypted}&ssl_password={SECRET}"):
        Masters([address + right]).close()


def test_tls_with_an_unknown_certificate(world, four, tls_port):
    vote = vote_of_the_fifth(world, [*four, f"rediss://127.0.0.1:{tls_port}"])
    assert vote.outcome == "error"
    assert vote.reason.startswith("TLS: ")
    assert "CERTIFICATE_VERIFY_FAILED" in vote.reason


def test_tls_towards_a_plain_port(world, redlock_servers):
    urls = [*redlock_servers.urls[:4], redlock_servers.urls[4].replace("redis://", "rediss://")]
    vote = vote_of_the_fifth(world, urls, connect_timeout=0.3)
    assert vote.outcome == "timeout"
    assert vote.reason.endswith("(a port without TLS behaves like this as well)")


def test_unix_socket(world, tmp_path):
    path = tmp_path / "r.sock"
    with redis_server(tmp_path, "--unixsocket", str(path)):
        with world.Masters([f"unix://{path}"], restart_guard=False) as masters:
            assert str(path) in repr(masters)
            with masters.lock("job", ttl=10) as lease:
                assert lease.votes[0].master == str(path)


@pytest.mark.parametrize("kind", [redis.Redis, redis.asyncio.Redis])
def test_clients_of_redis_py_give_their_settings_not_their_patience(world, tmp_path, kind):
    """R4, C17: a client that would retry for a minute does not make a vote do so."""
    with redis_server(tmp_path, "--requirepass", SECRET, "--databases", "4") as port:
        client = kind(
            host="127.0.0.1",
            port=port,
            password=SECRET,
            db=3,
            decode_responses=True,
            socket_timeout=60,
            retry=Retry(NoBackoff(), 100) if kind is redis.Redis else None,
        )
        with world.Masters([client], restart_guard=False) as masters:
            assert SECRET not in repr(masters)
            with masters.lock("job", ttl=10):
                with redis.Redis(port=port, password=SECRET, db=3) as look:
                    assert look.get("redlock:job")


def test_two_urls_of_one_server_have_one_vote(world, redlock_servers):
    """C16: found by run_id, and the second one's vote names the first."""
    port = redlock_servers.ports[0]
    urls = [f"redis://127.0.0.1:{port}", f"redis://localhost:{port}", redlock_servers.urls[1]]
    same = f"same server as 127.0.0.1:{port}"
    with world.Masters(urls, restart_guard=False) as masters:
        # A majority is connected at first; which two of them are, nobody knows.
        eventually(lambda: same in masters.status("job").votes[1].reason)
        assert masters.status("job").votes[1].outcome == "error"
        with masters.lock("job", ttl=10, timeout=5) as lease:
            granted = [vote.master for vote in lease.votes if vote.outcome == "granted"]
            assert f"localhost:{port}" not in granted


def test_connecting_slowly_does_not_fail_the_first_lock(world):
    """R2: before its first round a `Masters` waits for the connections, whatever the timeout of the call."""
    with LocalMasters(3) as servers:
        pause(servers, 3)

        def resume_all():
            resume(servers, 3)

        thaw = threading.Timer(0.5, resume_all)
        thaw.start()
        with world.Masters(servers.urls, restart_guard=False, node_timeout=0.1) as masters:
            lock = masters.lock("job", ttl=10)
            assert lock.acquire(blocking=False) is not None
            lock.release()
        thaw.join()


class _Provider(redis.CredentialProvider):
    def get_credentials(self):
        return "user", SECRET


def test_a_setting_that_redis_py_refuses_is_refused_when_it_is_given(world):
    with pytest.raises(ConfigurationError, match=r"settings for 10\.0\.0\.1:6379 are refused"):
        world.Masters(["rediss://10.0.0.1?ssl_cert_reqs=nonsense"])
    both = redis.Redis(host="10.0.0.1", password=SECRET, credential_provider=_Provider())
    with pytest.raises(ConfigurationError, match="are refused") as caught:
        world.Masters([both])
    assert SECRET not in str(caught.value)


def test_tls_settings_of_a_plain_client_are_not_its_business(world, redlock_servers):
    """C17.  In a URL they are refused: who wrote them there thinks that TLS is spoken."""
    first = redis.Redis(port=redlock_servers.ports[0])
    first.connection_pool.connection_kwargs["ssl_cert_reqs"] = "none"
    masters = [first, *redlock_servers.urls[1:]]
    with world.Masters(masters, restart_guard=False) as masters, masters.lock("job", ttl=10) as lease:
        assert lease.valid


@pytest.mark.parametrize(
    ("sent", "says"),
    [(b"%1\r\n*1\r\n:1\r\n:1\r\n", ""), (b"*1000000000\r\n", ": it announces an answer of 1000000000 values")],
)
def test_an_answer_that_no_parser_can_build_breaks_its_connection_and_nothing_else(world, redlock_servers, sent, says):
    """P4: a map whose key is a list; an array for which there is no room."""
    with Proxy(redlock_servers.ports[4]) as proxy:
        with world.Masters([*redlock_servers.urls[:4], proxy.url], restart_guard=False, node_timeout=1.0) as masters:
            eventually(lambda: all_up(masters))
            proxy.replies = "hold"
            redlock_servers.pause(0)
            redlock_servers.pause(1)  # so that the acquire waits for the fifth, and reads it itself

            def junk():
                for client, _ in proxy._pairs:
                    with contextlib.suppress(OSError):
                        client.sendall(sent)

            timer = threading.Timer(0.2, junk)
            timer.start()
            with pytest.raises(QuorumUnreachable, match=f"does not speak the Redis protocol{says}"):
                masters.lock("job", ttl=10).acquire(timeout=0)
            timer.join()
            proxy.replies = "pass"
            redlock_servers.resume(0)
            redlock_servers.resume(1)
            eventually(lambda: all_up(masters))  # the housekeeper has survived it and connects again
            eventually(lambda: nothing_left(redlock_servers))


ECHO = "unknown command 'AUTH', with args beginning with: '{}'"  # as an old Redis does, cut at 128


@pytest.mark.parametrize(("words", "given", "credentials"), [
    pytest.param(ECHO, SECRET, {"credential_provider": _Provider()}, id="provider"),
    pytest.param(ECHO, SECRET, {"password": SECRET + "x" * 200}, id="longer-than-what-is-echoed"),
    pytest.param("I dislike '{}'", SECRET + "  spaces", {"password": SECRET + "  spaces"}, id="spaces"),
    pytest.param("I dislike '{}'", SECRET, {"password": SECRET.encode()}, id="bytes"),
])  # fmt: skip
def test_a_server_that_echoes_the_password_is_not_quoted(world, words, given, credentials):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        stop = threading.Event()

        def serve():
            while not stop.is_set():
                with contextlib.suppress(OSError):
                    client, _ = listener.accept()
                    with client:
                        client.recv(4096)
                        client.sendall(f"-ERR {words.format(given)}\r\n".encode())

        server = threading.Thread(target=serve)
        server.start()
        try:
            client = redis.Redis(host="127.0.0.1", port=listener.getsockname()[1], **credentials)
            with world.Masters([client], restart_guard=False) as masters:
                with pytest.raises(QuorumUnreachable) as caught:
                    masters.lock("job", ttl=10).acquire(timeout=0)
        finally:
            stop.set()
            server.join()
    assert SECRET not in str(caught.value)


class Broken(logging.Filter):
    def filter(self, record):
        raise ZeroDivisionError


def test_a_log_handler_that_raises_is_nothing_to_whoever_waits(world, redlock_servers):
    """C1: that the quorum is gone is logged by the one that finds it out, and it goes on waiting."""
    logger, broken = logging.getLogger("redlock"), Broken()
    with world.Masters(redlock_servers.urls, restart_guard=False, node_timeout=0.1) as masters:
        eventually(lambda: all_up(masters))
        logger.addFilter(broken)
        try:
            pause(redlock_servers, 3)
            with pytest.raises(QuorumUnreachable):
                masters.lock("job", ttl=10).acquire(timeout=0.3)
            resume(redlock_servers, 3)
            assert masters.lock("job", ttl=10).acquire(timeout=5) is not None
        finally:
            logger.removeFilter(broken)


def test_a_log_handler_that_raises_costs_no_master(world, redlock_servers):
    logger = logging.getLogger("redlock")
    broken = Broken()
    with world.forgives(ZeroDivisionError), world.Masters(redlock_servers.urls, restart_guard=False) as masters:
        eventually(lambda: all_up(masters))
        logger.addFilter(broken)
        try:
            redlock_servers.kill(0)
            time.sleep(0.2)
            redlock_servers.restart(0)
            eventually(lambda: all_up(masters))
        finally:
            logger.removeFilter(broken)


class _SealedError(Exception):
    def __str__(self) -> str:
        return str(self.args[1])  # its author's mistake: there is none


class _SealedAtFirst(redis.CredentialProvider):
    def __init__(self) -> None:
        self.asked = 0

    def get_credentials(self):
        self.asked += 1
        if self.asked == 1:
            raise _SealedError("the vault is sealed")
        return "default", ""


def test_an_exception_that_cannot_be_shown_ends_one_attempt_to_connect_and_no_more(world, redlock_servers):
    """Its name has to do; the thread that connects goes on to say that it failed."""
    provider = _SealedAtFirst()
    client = redis.Redis(host="127.0.0.1", port=redlock_servers.ports[0], credential_provider=provider)
    with world.Masters([client], restart_guard=False) as masters:
        with pytest.raises(QuorumUnreachable, match="error: _SealedError"):
            masters.lock("job", ttl=10).acquire(timeout=0)
        assert masters.lock("job", ttl=10).acquire(timeout=5) is not None
    assert provider.asked == 2


class _Moody(redis.CredentialProvider):
    def __init__(self):
        self.asked = 0

    def get_credentials(self):
        self.asked += 1
        if self.asked == 1:
            raise asyncio.CancelledError
        return ("default", "")


def test_a_credential_provider_that_raises_what_is_no_exception(world, redlock_servers):
    moody = _Moody()
    client = redis.Redis(port=redlock_servers.ports[0], credential_provider=moody)
    with world.Masters([client, *redlock_servers.urls[1:]], restart_guard=False) as masters:
        eventually(lambda: all_up(masters))
    assert moody.asked == 2
