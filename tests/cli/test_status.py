"""What `redlock-run --status-port` answers, and when it does not (R41)."""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import selectors
import socket
import threading
from types import SimpleNamespace

import pytest

from redlock import ConfigurationError
from redlock._cli.address import Address, address
from redlock._cli.status import Status
from tests.servers.look import eventually


def lease(*, valid=True):
    return SimpleNamespace(valid=valid, owner="web-1/7", fence=42, remaining=lambda: 9.8765 if valid else -1.0)


LEADS = {"name": "job", "leads": True, "leader": "web-1/7", "term": 42, "remaining": 9.877}
OTHER = {"name": "job", "leads": False, "leader": "web-2/8"}
NOBODY = {"name": "job", "leads": False, "leader": ""}


@pytest.fixture
def status():
    found = Status("job", Address("127.0.0.1", 0))
    yield found
    found.close()


def asked(status, path, method="GET", body=None):
    connection = http.client.HTTPConnection(status.at.host, status.at.port, timeout=10)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None
    finally:
        connection.close()


@pytest.mark.parametrize(("path", "changes", "code", "says"), [
    ("/leader", {}, 503, NOBODY),
    ("/leader", {"leader": "web-2/8"}, 503, OTHER),
    ("/leader", {"lease": lease()}, 200, LEADS),
    ("/leader?verbose", {"lease": lease()}, 200, LEADS),
    ("/leader", {"lease": lease(valid=False), "leader": "web-2/8"}, 503, NOBODY),  # it has run out: whoever leads is not known
    ("/healthz", {}, 200, {"name": "job", "state": "waiting"}),
    ("/healthz", {"lease": lease()}, 200, {"name": "job", "state": "leading"}),
    ("/healthz", {"lease": lease(valid=False)}, 200, {"name": "job", "state": "waiting"}),
    ("/healthz", {"lease": lease(), "asked": lambda: True}, 503, {"name": "job", "state": "ending"}),
    ("/", {}, 404, {"error": "there are /leader and /healthz"}),
])  # fmt: skip
def test_answers(status, path, changes, code, says):
    for name, value in changes.items():
        setattr(status, name, value)
    with status.answering():
        assert asked(status, path) == (code, says)
        assert asked(status, path, "HEAD") == (code, None)
        assert asked(status, path, "OPTIONS") == (code, says)  # HAProxy asks so by default


def test_between_two_terms_who_asks_waits(status):
    """No thread is there for the fork, and nobody is refused."""
    with status.answering():
        pass
    assert not [thread for thread in threading.enumerate() if thread.name == "redlock-run-status"]
    heard = []
    asks = threading.Thread(target=lambda: heard.append(asked(status, "/healthz")))
    asks.start()
    with status.answering():
        asks.join(10)
    assert heard == [(200, {"name": "job", "state": "waiting"})]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "CONNECT", "get", "BREW"])
def test_what_does_not_only_look_is_not_found_whatever_comes_with_it(status, method):
    """As the page says; and a body, which is not read, takes nothing of the answer away."""
    with status.answering():
        for body in (None, b"x" * 1_000_000):
            assert asked(status, "/leader", method, body) == (404, {"error": "there are /leader and /healthz"})


OK, NOT_FOUND = b"HTTP/1.0 200 OK\r\n", b"HTTP/1.0 404 Not Found\r\n"


@pytest.mark.parametrize(("sent", "ends", "begins"), [
    pytest.param(b"GET /healthz HTTP/1.1\r\nConnection: keep-alive\r\n\r\n", False, OK, id="it-would-stay"),
    pytest.param(b"GET /healthz HTTP/1.1\r\n\r\nGET /leader HTTP/1.1\r\n\r\n", False, OK, id="two-at-once"),
    pytest.param(b"\r\nGET /healthz HTTP/1.1\n\n", False, OK, id="bare-lines"),
    pytest.param(b"GET /healthz HTTP/1.1\r\nCookie: " + b"x" * 100_000 + b"\r\n\r\n", False, OK, id="a-huge-header"),
    pytest.param(b"GET /" + b"x" * 100_000, False, NOT_FOUND, id="no-line-at-all"),
    pytest.param(b"GET /healthz\r\n", True, OK, id="no-version"),
    pytest.param(b"GET /healthz HTTP/1.1", True, OK, id="half-of-it"),
    pytest.param(b"\x16\x03\x01\x02\x00\x01" + bytes(range(256)), True, NOT_FOUND, id="tls"),
    pytest.param(b"\r\n\r\n", True, b"", id="no-word"),
    pytest.param(b"", True, b"", id="nothing"),
])  # fmt: skip
def test_odd_requests_get_one_answer_and_the_end(status, sent, ends, begins):
    with status.answering(), socket.create_connection(status.at, 10) as client:
        client.sendall(sent)
        if ends:
            client.shutdown(socket.SHUT_WR)
        with client.makefile("rb") as file:
            heard = file.read()
        assert heard.startswith(begins)
        assert heard.count(b"HTTP/1.0") == bool(begins)
        assert asked(status, "/healthz")[0] == 200


class Slow(threading.Thread):
    """Sends a request, a byte now and then, and never all of it."""

    def __init__(self, at):
        super().__init__()
        self.line = socket.create_connection(at, 20)
        self._enough = threading.Event()
        self.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._enough.set()
        self.join()
        self.line.close()

    def run(self):
        with contextlib.suppress(OSError):
            self.line.sendall(b"GET /healthz HTTP/1.1\r\nHost: ")
            while not self._enough.wait(0.05):
                self.line.sendall(b"x")


def test_nothing_waits_for_a_slow_client(status):
    """Nor does the next term, in which it goes on."""

    def term():
        with status.answering():
            assert asked(status, "/healthz")[0] == 200

    with Slow(status.at):
        for _ in range(2):
            one = threading.Thread(target=term, daemon=True)
            one.start()
            one.join(30)
            assert not one.is_alive()


def closed(client) -> bool:
    """Whether the other end has closed it, which is waited for."""
    try:
        while client.recv(4096):
            pass
    except ConnectionResetError:  # without having read all of it
        pass
    return True


def test_a_client_has_some_seconds_for_all_of_its_request(status, monkeypatch):
    monkeypatch.setattr("redlock._cli.status._PATIENCE", 0.2)
    with status.answering(), Slow(status.at) as slow, socket.create_connection(status.at, 20) as stays:
        stays.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")  # it has its answer, and stays
        assert closed(slow.line)
        assert closed(stays)
        eventually(lambda: not status._clients)


def test_without_a_descriptor_left_it_answers_again_when_there_is_one(status, monkeypatch):
    few = iter([OSError(errno.EMFILE, "Too many open files")] * 3)

    class Listener:
        """As this process has it, which may not open one more file."""

        def __init__(self, real):
            self._real = real

        def accept(self):
            for error in few:
                raise error
            return self._real.accept()

        def __getattr__(self, name):
            return getattr(self._real, name)

    real = status._listener
    status._selector.unregister(real)
    status._listener = Listener(real)
    status._selector.register(status._listener, selectors.EVENT_READ)
    with status.answering():
        assert asked(status, "/healthz")[0] == 200
    assert not [*few]


def test_a_port_in_use(status):
    with pytest.raises(
        ConfigurationError, match=rf"--status-port {status.at}: cannot listen there \(Address already in use\)"
    ):
        Status("job", status.at)


@pytest.mark.parametrize(("given", "means"), [
    ("8080", Address("127.0.0.1", 8080)), ("192.0.2.1:0", Address("192.0.2.1", 0)), ("[::1]:80", Address("::1", 80)),
    ("localhost:80", Address("localhost", 80)),
])  # fmt: skip
def test_addresses(given, means):
    assert address(given) == means
