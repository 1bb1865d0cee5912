"""What the tests of the adapters share: nothing is left behind."""

import pytest

from redlock import Masters
from tests.servers.look import eventually, lock_keys


@pytest.fixture
def servers(redlock_servers):
    """Five masters, on which no lock may be left."""
    yield redlock_servers
    eventually(lambda: not any(lock_keys(redlock_servers)))


@pytest.fixture
def masters(servers):
    with Masters(servers.urls, restart_guard=False) as masters:
        yield masters
