"""The handshake with what is no master, or does not want us: what it costs, and what is said of it."""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
import struct
import subprocess
import sys
import threading

import pytest
import redis

from redlock import Masters
from tests.servers.commands import environment
from tests.servers.strangers import serving

# -- who announces what nobody can want ----------------------------------------------------------------

PROGRAM = """
import sys, threading, tracemalloc
from redlock import Masters, RedlockError
from tests.servers.test_shake import announcing

what, after = sys.argv[1].encode() + b"\\r\\n", int(sys.argv[2])
with announcing(what, after) as port:
    tracemalloc.start()
    masters = Masters([f"redis://127.0.0.1:{port}"], connect_timeout=5.0, restart_guard=False)
    try:
        if sys.argv[3] == "check":
            for found in masters.check(probe=False).masters[0].findings: print(found.code, found.message)
        else:
            masters.lock("job").acquire(timeout=0)
    except RedlockError as error:
        print(error)
    masters.close()
    print("MB:", tracemalloc.get_traced_memory()[1] >> 20)
"""


def announcing(what: bytes, after: int):
    """A server that answers everything with OK; ``after`` so many packets it announces that."""

    def announce(connection: socket.socket) -> None:
        for number in itertools.count():
            if not connection.recv(65536):
                return
            connection.sendall(what if number == after else b"+OK\r\n")

    return serving(announce)


@pytest.mark.parametrize(("what", "says", "after", "how"), [
    ("*1000000000", "an answer of 1000000000 values", 0, "lock"),
    ("$536870911", "an answer of 536870911 bytes", 2, "lock"),
    ("*2\r\n*400000000", "values", 0, "check"),
    ("%500000000", "an answer of 1000000000 values", 2, "check"),
])  # fmt: skip
def test_who_announces_a_billion_gets_no_room_for_it(what, says, after, how):
    """It is reserved at once, eight bytes for each, and giving it back holds up the whole process for seconds."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, what, str(after), how],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    assert says in done.stdout
    assert "does not speak the Redis protocol" in done.stdout or "not-redis" in done.stdout
    [megabytes] = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("MB:")]
    assert megabytes < 40


# -- who does not want us ------------------------------------------------------------------------------


class Patient(redis.CredentialProvider):
    """Between the handshake of TLS and the first command, by which time the server has hung up."""

    def __init__(self) -> None:
        self.asked, self.gone = threading.Event(), threading.Event()

    def get_credentials(self) -> tuple[str, str]:
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

    def serve(connection: socket.socket) -> None:
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

    def serve(connection: socket.socket) -> None:
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
