"""What the tests with real servers share."""

import subprocess
import threading
from pathlib import Path
from zlib import crc32

import pytest

from redlock import Masters
from tests.servers import worlds
from tests.servers.look import all_up, eventually


@pytest.fixture(autouse=True)
def _no_thread_left():
    """`close()` leaves none, at once; those of a check or a connection may be inside the resolver or a handshake."""
    before = set(threading.enumerate())
    yield
    eventually(lambda: not any(one.name.startswith("redlock-check") for one in {*threading.enumerate()} - before))
    left = [thread for thread in threading.enumerate() if thread not in before and "redlock" in thread.name]
    assert all(thread.name.startswith("redlock-connect") for thread in left), left


# Where a test meets what a loop does itself: sockets, alarms, signals, cancellation.  The others know the lock alone, or how
# connections are made, which is done in threads: both are the same on each loop.
UVLOOP = {
    "test_lock", "test_worlds", "test_renewer", "test_silent", "test_owed", "test_close", "test_waiting",
}  # fmt: skip
# Where the subject is what masters answer, and what the lock makes of that.  The classes of both worlds are one text
# (`tools/unasync.py`), and how each of them asks is proved in the other files.  Such a scene plays in one world, and each file
# has scenes in both.
ONCE = {
    "test_check", "test_confirm_expiry", "test_faults", "test_fleet", "test_hand_over", "test_hold_at_least", "test_listing",
    "test_losses_in_the_log", "test_outages", "test_owner", "test_restart", "test_runs_on", "test_shared", "test_slots",
    "test_versions", "test_watch",
}  # fmt: skip
BOTH = "test_tls["  # which each of them speaks in its own way


def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if _plays(item)]


def _plays(item):
    spec, file = getattr(item, "callspec", None), item.path
    world = spec.params.get("world") if spec is not None and file.parent == Path(__file__).parent else None
    if world is None:
        return True
    if file.stem in ONCE and not item.name.startswith(BOTH):
        return bool(world == worlds.NAMES[crc32(item.name.replace(world, "").encode()) % 2])
    return world != "uvloop" or file.stem in UVLOOP


@pytest.fixture(params=worlds.NAMES)
def world(request):
    """Threads or asyncio.  A test that does not ask for it is about one of them."""
    with worlds.opened(request.param) as opened:
        yield opened


@pytest.fixture
def masters(world, redlock_servers):
    """As the plugin's ``redlock_masters``, in each world; all of them vote."""
    with world.Masters(redlock_servers.urls, restart_guard=False) as masters:
        eventually(lambda: all_up(masters))
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


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """The folder of a key and its certificate, which is its own authority."""
    folder = tmp_path_factory.mktemp("tls")
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key.pem -out cert.pem"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*make.split(), *names], cwd=folder, check=True, capture_output=True)
    return folder
