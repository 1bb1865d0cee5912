"""What each fault of a master looks like to a user: its vote, its words, and what is never said (R3)."""

import asyncio
import contextlib
import logging
import re
import socket
import ssl
import struct
import threading

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from redlock import ConfigurationError, Masters, NotAcquired, QuorumUnreachable
from redlock._io import report
from tests.owners import witness
from tests.servers.look import each, eventually
from tests.servers.one import free_port, redis_server, tls_server
from tests.servers.strangers import announcing, answering, saying, serving
from tests.servers.waiter import NEVER, Waiting, subscribers_up

pytestmark = witness("R3", "R4")

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


@pytest.fixture
def tls_port(certificate, tmp_path):
    with tls_server(tmp_path, certificate, "--tls-auth-clients", "no") as port:
        yield port


@pytest.mark.parametrize(("scheme", "where", "outcome", "says"), [
    ("redis", lambda _: contextlib.nullcontext(free_port()), "error", "refused"),
    ("redis", lambda _: saying(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "error", "does not speak the Redis protocol"),
    ("rediss", lambda of: contextlib.nullcontext(of("tls_port")), "error", "^TLS: .*CERTIFICATE_VERIFY_FAILED"),
    ("rediss", lambda of: contextlib.nullcontext(of("servers").ports[4]), "timeout",
        r"\(a port without TLS behaves like this as well\)$"),
], ids=["closed", "http", "certificate", "plain"])  # fmt: skip
def test_an_address_where_no_master_answers(world, four, request, scheme, where, outcome, says):
    with where(request.getfixturevalue) as port:
        patience = 0.3 if outcome == "timeout" else 2.0
        vote = vote_of_the_fifth(world, [*four, f"{scheme}://127.0.0.1:{port}"], connect_timeout=patience)
    assert vote.outcome == outcome
    assert re.search(says, vote.reason)


def test_wrong_password(world, four, tmp_path):
    with redis_server(tmp_path, "--requirepass", SECRET) as port:
        vote = vote_of_the_fifth(world, [*four, f"redis://:not-{SECRET}@127.0.0.1:{port}"])
        assert vote.reason.startswith("wrong user or password")
        assert SECRET not in str(vote)
        assert "no password" not in vote.reason
        for login in ("", ":@", "default:@"):  # whoever writes the last two had a variable that was empty
            reason = vote_of_the_fifth(world, [*four, f"redis://{login}127.0.0.1:{port}"]).reason
            assert reason.startswith("wrong user or password")
            assert reason.endswith(" (no password was given, or an empty one)")
        right = f"redis://:{SECRET}@127.0.0.1:{port}"
        with world.Masters([right], restart_guard=False) as masters, masters.lock("job", ttl=10) as lease:
            assert lease.votes[0].outcome == "granted"
            assert SECRET not in repr(masters) + repr(lease.votes)


@pytest.mark.parametrize("lacks", ["get", "set"])
def test_a_right_that_connecting_takes_is_told_with_where_to_find_the_rule(world, four, tmp_path, lacks):
    with redis_server(tmp_path, "--user", *["default", "on", "nopass", "~*", "&*", "+@all"], f"-{lacks}") as port:
        reason = vote_of_the_fifth(world, [*four, f"redis://127.0.0.1:{port}"]).reason
    assert reason.startswith("not permitted: ")
    assert "redlock-check --acl prints the rule" in reason


@pytest.mark.parametrize(("login", "says"), [(":wrong@", ""), ("", ": Authentication required")])
def test_a_wrong_password_everywhere_is_told_at_once_and_apart_from_contention_and_outage(world, tmp_path, login, says):
    """C1: not "until its timeout", here for ever, for no waiting cures a password."""
    with redis_server(tmp_path, "--requirepass", SECRET) as port:
        with world.Masters([f"redis://{login}127.0.0.1:{port}"], restart_guard=False) as masters:
            with pytest.raises(QuorumUnreachable, match=f"wrong user or password{says}") as caught:
                masters.lock("job", ttl=10).acquire()
            assert "refused" not in str(caught.value)
            assert "held" not in str(caught.value)
            with pytest.raises(QuorumUnreachable, match="wrong user or password"):
                masters.status("job")


@pytest.mark.parametrize(("written", "says"), [
    (lambda client, _: client.rpush("redlock:job", "not", "a", "lock"), "WRONGTYPE.*something that is not a lock"),
    (lambda client, _: client.set("{redlock:job}:fence", "1e300"), "BADFENCE"),
    (lambda client, servers: client.replicaof("127.0.0.1", servers.ports[1]), "it is a replica|read only replica"),
], ids=["type", "fence", "replica"])  # fmt: skip
def test_what_one_master_cannot_do_is_its_vote(redlock_servers, masters, written, says):
    """A key of another type, for one (docs/reference/wire.md)."""
    client = redlock_servers.client(0)
    with masters.lock("before", ttl=10):
        pass
    written(client, redlock_servers)
    try:

        def says_so():
            with masters.lock("job", ttl=10) as lease:
                vote = lease.votes[0]
            return vote.outcome == "error" and re.search(says, vote.reason)

        eventually(says_so)  # it may not have been among the first, which decide
    finally:
        client.replicaof("NO", "ONE")


def test_somebody_keeps_megabytes_under_a_name(world, redlock_servers):
    """A client that asks for that name learns the holder, in a few bytes; holders of other names notice nothing."""
    size = 17_000_000  # more than a connection is kept for: see `_core.sizes`
    each(redlock_servers, "set", "redlock:big", b"x" * size, px=60_000)
    options = {"restart_guard": False, "node_timeout": 15}
    with world.Masters(redlock_servers.urls, **options) as masters, masters.lock("other", ttl=60) as lease:
        with pytest.raises(NotAcquired, match=r"held by x{8}… for up to") as caught:
            with masters.lock("big", ttl=60, timeout=0):
                pass
        assert len(str(caught.value)) < 2_000
        assert masters.status("big").token == "x" * 8 + "…"
        assert lease.valid
    assert [redlock_servers.client(i).strlen("redlock:big") for i in range(5)] == [size] * 5  # P8


def test_tls(world, redlock_servers, tls_port, certificate):
    url = f"rediss://127.0.0.1:{tls_port}?ssl_ca_certs={certificate / 'cert.pem'}"
    with world.Masters([url], restart_guard=False, node_timeout=3) as masters:
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
            with masters.lock("job", ttl=10), redis.Redis(port=port, password=SECRET, db=3) as look:
                assert look.get("redlock:job")


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


ECHO = "unknown command 'AUTH', with args beginning with: '{}'"  # as an old Redis does, cut at 128


@pytest.mark.parametrize(("words", "given", "credentials"), [
    pytest.param(ECHO, SECRET, {"credential_provider": _Provider()}, id="provider"),
    pytest.param(ECHO, SECRET, {"password": SECRET + "x" * 200}, id="longer-than-what-is-echoed"),
    pytest.param("I dislike '{}'", SECRET + "  spaces", {"password": SECRET + "  spaces"}, id="spaces"),
    pytest.param("I dislike '{}'", SECRET, {"password": SECRET.encode()}, id="bytes"),
])  # fmt: skip
def test_a_server_that_echoes_the_password_is_not_quoted(world, words, given, credentials):
    with saying(f"-ERR {words.format(given)}\r\n".encode()) as port:
        client = redis.Redis(host="127.0.0.1", port=port, **credentials)
        with world.Masters([client], restart_guard=False) as masters, pytest.raises(QuorumUnreachable) as caught:
            masters.lock("job", ttl=10).acquire(timeout=0)
    assert SECRET not in str(caught.value)


def test_a_password_of_one_letter_leaves_texts_readable(world):
    """It is not shown where it stands by itself, and every other y stays."""
    with saying(b"-ERR you may say y only on a holiday, my friend: 'y'\r\n") as port:
        with world.Masters([f"redis://:y@127.0.0.1:{port}"], restart_guard=False) as masters:
            with pytest.raises(QuorumUnreachable, match=r"you may say \*\*\* only on a holiday, my friend: '\*\*\*'"):
                masters.lock("job", ttl=10).acquire(timeout=0)


def _denies(connection):
    """As a server in protected mode does, whatever it is asked."""
    connection.sendall(b"-DENIED Redis is running in protected mode because no password is set, 1) Just disable it\r\n")


def test_a_server_in_protected_mode_is_told_with_what_it_says(world):
    """It hangs up at once; and no waiting cures it (C1)."""
    with serving(_denies) as port, world.Masters([f"redis://127.0.0.1:{port}"], restart_guard=False) as masters:
        with pytest.raises(
            QuorumUnreachable, match=r"DENIED Redis is running in protected mode .*\(give the server a password"
        ):
            masters.lock("job", ttl=10).acquire()
        [finding] = masters.check(probe=False).masters[0].findings
        assert finding.code == "unreachable"
        assert "protected mode" in finding.message


@pytest.mark.parametrize("says", ["LOADING Redis is loading the dataset", "BUSY Redis is busy running a script."])
def test_a_master_that_is_loading_or_runs_a_script_without_end_is_waited_for(world, says):
    """While connections are made, where redis-py reads the errors: waiting cures both (C1), unlike a wrong password."""
    with answering(lambda _: f"-{says}\r\n".encode()) as port, world.Masters([f"redis://127.0.0.1:{port}"]) as masters:
        lock = masters.lock("job", ttl=10)
        with pytest.raises(QuorumUnreachable, match=r"(?s)in \d+ attempts: .* error: (BUSY )?Redis is"):
            lock.acquire(timeout=1)


def test_a_log_handler_that_raises_costs_nobody_anything(monkeypatch):
    """All that the library logs behind its callers is logged in these two."""
    monkeypatch.setattr(logging.getLogger("redlock"), "filters", [lambda _: 1 / 0])
    report.report([(logging.WARNING, "no quorum", ())], None)
    report.report_failure("no thread", ValueError())


class _UnsayableError(Exception):
    def __str__(self):
        return str(self.args[1])  # its author's mistake: there is none


class _RaisesAtFirst(redis.CredentialProvider):
    def __init__(self, error):
        self.error, self.asked = error, 0

    def get_credentials(self):
        self.asked += 1
        if self.asked == 1:
            raise self.error
        return "default", ""


@pytest.mark.parametrize("error", [_UnsayableError("the vault is sealed"), asyncio.CancelledError()])
def test_a_credential_provider_that_raises_anything_ends_one_attempt_to_connect_and_no_more(
    world, redlock_servers, error
):
    """Its name has to do where it cannot be shown; the thread that connects goes on to say that it failed."""
    provider = _RaisesAtFirst(error)
    client = redis.Redis(host="127.0.0.1", port=redlock_servers.ports[0], credential_provider=provider)
    with world.Masters([client], restart_guard=False) as masters:
        with pytest.raises(QuorumUnreachable, match=f"error: {type(error).__name__}"):
            masters.lock("job", ttl=10).acquire(timeout=0)
        assert masters.lock("job", ttl=10).acquire(timeout=5) is not None
    assert provider.asked == 2


@pytest.mark.parametrize(("what", "after"), [("*1000000000", 0), ("%500000000", 2)])
def test_who_announces_a_billion_gets_no_room_for_it(what, after):
    """It is reserved at once, eight bytes for each, and giving it back holds up the whole process for seconds."""
    says = "it announces an answer of 1000000000 values"
    with announcing(what.encode() + b"\r\n", after) as port, Masters([f"redis://127.0.0.1:{port}"]) as masters:
        if after:
            assert says in masters.check(probe=False).masters[0].findings[0].message
        else:
            with pytest.raises(QuorumUnreachable, match=says):
                masters.lock("job").acquire(timeout=0)


# -- who does not want us ------------------------------------------------------------------------------


class Patient(redis.CredentialProvider):
    """Between the handshake of TLS and the first command, by which time the server has hung up."""

    def __init__(self):
        self.asked, self.gone = threading.Event(), threading.Event()

    def get_credentials(self):
        self.asked.set()
        assert self.gone.wait(10)
        return "user", "password"


@pytest.mark.parametrize("end", ["closed", "reset"])
def test_a_server_that_wants_a_certificate_is_told_from_one_that_cannot_be_reached(certificate, end):
    """In TLS 1.3 the client is done before the server has looked at its certificate: the first command breaks."""
    provider = Patient()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    context.load_verify_locations(certificate / "cert.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_3

    def serve(connection):
        provider.gone.clear()
        refused = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        with contextlib.suppress(ssl.SSLError):
            refused.do_handshake()
        if end == "reset":
            refused.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        refused.close()
        provider.gone.set()

    with serving(serve) as port:
        client = redis.Redis(
            host="127.0.0.1",
            port=port,
            ssl=True,
            ssl_ca_certs=str(certificate / "cert.pem"),
            credential_provider=provider,
        )
        with Masters([client]) as masters:
            [finding] = masters.check(timeout=10.0, probe=False).masters[0].findings
    assert finding.code == "tls"
    assert "ssl_certfile" in finding.advice


def test_why_a_master_hung_up_is_read_though_nothing_can_be_written_any_more():
    provider = Patient()

    def serve(connection):
        assert provider.asked.wait(10)  # else connecting itself may fail
        connection.sendall(b"-ERR max number of clients reached\r\n")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        provider.gone.set()

    with (
        serving(serve) as port,
        Masters([redis.Redis(host="127.0.0.1", port=port, credential_provider=provider)]) as masters,
    ):
        [finding] = masters.check(timeout=10.0, probe=False).masters[0].findings
    assert finding.code == "busy"
