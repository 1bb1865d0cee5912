"""The pytest plugin: five real masters for whoever asks for them.

Loaded into every pytest run on a machine that has this package, so it imports nothing until a test
asks for a fixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redlock import Masters
    from redlock.testing import LocalMasters


@pytest.fixture(scope="session", name="_redlock_servers_of_session")
def _servers_of_session() -> Iterator[LocalMasters]:
    """Started once: emptying them is faster.  Under pytest-xdist each worker has its own."""
    from redlock.testing import LocalMasters  # noqa: PLC0415

    with LocalMasters() as masters:
        yield masters


@pytest.fixture
def redlock_servers(_redlock_servers_of_session: LocalMasters) -> LocalMasters:
    """Five volatile masters, a `redlock.testing.LocalMasters`: alive, empty, and the test's own.

    It may kill, pause and configure them as it likes.  The next test gets the same servers, put in
    order again by `LocalMasters.reset`.  Not promised: that they have been up for long, or only for a
    moment, so clients of them want ``restart_guard=False``.
    """
    _redlock_servers_of_session.reset()
    return _redlock_servers_of_session


@pytest.fixture
def redlock_masters(redlock_servers: LocalMasters) -> Iterator[Masters]:
    """A `redlock.Masters` on the five of ``redlock_servers``, closed after the test.

    Its ``restart_guard`` is off: the servers have just been started.
    """
    from redlock import Masters  # noqa: PLC0415

    masters = Masters(redlock_servers.urls, restart_guard=False)
    try:
        yield masters
    finally:
        masters.close()
