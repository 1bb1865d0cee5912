"""What `redlock-run --status-port` answers, and when it does not (R41)."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from types import SimpleNamespace

import pytest

from redlock import ConfigurationError
from redlock._cli.address import Address, address
from redlock._cli.status import Status


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


def asked(status, path, method="GET"):
    connection = http.client.HTTPConnection(status.at.host, status.at.port, timeout=10)
    try:
        connection.request(method, path)
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


def test_one_who_says_nothing_keeps_nobody_out(status):
    with status.answering(), socket.create_connection(status.at, 10):
        assert asked(status, "/healthz")[0] == 200


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
