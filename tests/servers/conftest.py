"""What the tests with real servers share."""

from __future__ import annotations

import subprocess
import threading

import pytest

from redlock import Masters
from tests.servers import worlds
from tests.servers.look import all_up, eventually
from tests.servers.pairs import NODE_TIMEOUT, Pairs, never_impatient
from tests.servers.punctual import Watch


@pytest.fixture(autouse=True)
def _no_thread_left():
    """A test that starts threads ends them: `close()` leaves none."""
    before = set(threading.enumerate())
    yield

    def left():
        return [thread for thread in threading.enumerate() if thread not in before and "redlock" in thread.name]

    # A check's thread that nobody answered ends by itself, soon: it may be inside the resolver.
    eventually(lambda: not [thread for thread in left() if thread.name.startswith("redlock-check")])
    assert not left()


@pytest.fixture
def watch():
    """How punctual this machine is meanwhile."""
    with Watch() as watch:
        yield watch


@pytest.fixture(params=worlds.NAMES)
def world(request):
    """Threads or asyncio.  A test that does not ask for it is about one of them."""
    with worlds.opened(request.param) as opened:
        yield opened


@pytest.fixture
def masters(world, redlock_servers):
    """As the plugin's ``redlock_masters``, in each world."""
    with world.Masters(redlock_servers.urls, restart_guard=False) as masters:
        yield masters


@pytest.fixture
def servers(redlock_servers):
    """The same ones, where a file is full of them."""
    return redlock_servers


@pytest.fixture
def others(redlock_servers):
    """Another process, as it were: `Masters` in threads."""
    with Masters(redlock_servers.urls, restart_guard=False) as others:
        eventually(lambda: all_up(others))
        yield others


@pytest.fixture
def pairs(monkeypatch):
    """`Masters` without servers and threads, led by the test."""
    never_impatient(monkeypatch)
    pairs = Pairs(NODE_TIMEOUT)
    yield pairs
    pairs.close()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """The folder of a key and its certificate, which is its own authority."""
    folder = tmp_path_factory.mktemp("tls")
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key.pem -out cert.pem"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*make.split(), *names], cwd=folder, check=True, capture_output=True)
    return folder
