"""Witnesses have the servers of `tests/servers`, and two of its worlds."""

import pytest

from tests.servers import worlds
from tests.servers.conftest import _no_thread_left, certificate, masters, others, servers  # noqa: F401


@pytest.fixture(params=["threads", "asyncio"])
def world(request):
    with worlds.opened(request.param) as opened:
        yield opened
