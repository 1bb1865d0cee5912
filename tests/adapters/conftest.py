"""What the tests of the adapters share: nothing is left behind."""

import pytest

from tests.servers.look import eventually, lock_keys


@pytest.fixture
def servers(redlock_servers):
    """Five masters, on which no lock may be left."""
    yield redlock_servers
    eventually(lambda: not any(lock_keys(redlock_servers)))
