"""Commands have the servers of `tests/servers`."""

from tests.servers.conftest import _no_thread_left, servers  # noqa: F401
