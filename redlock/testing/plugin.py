"""The pytest plugin: fixtures with five real masters, and with masters whose answer is fixed.

Every pytest run on a machine with this package loads the plugin. So it imports nothing until a test uses a fixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redlock import Masters
    from redlock.testing import FixedMasters, LocalMasters
    from redlock.testing.fixed import FixedOutcome


@pytest.fixture(scope="session", name="_redlock_servers_of_session")
def _servers_of_session() -> Iterator[LocalMasters]:
    """The servers of a session: emptying them is faster than a new start. Each pytest-xdist worker has its own."""
    from redlock.testing import LocalMasters  # noqa: PLC0415

    with LocalMasters() as masters:
        yield masters


@pytest.fixture
def redlock_servers(_redlock_servers_of_session: LocalMasters) -> LocalMasters:
    """Five masters without persistence, a `redlock.testing.LocalMasters`: alive, empty, for this test alone.

    The test may kill, pause and configure them. The next test gets the same servers, after `LocalMasters.reset` has put
    them in order. Not promised: how long they have been up. So make clients of them with `LocalMasters.connect`.
    """
    _redlock_servers_of_session.reset()
    return _redlock_servers_of_session


@pytest.fixture
def redlock_masters(redlock_servers: LocalMasters) -> Iterator[Masters]:
    """A `redlock.Masters` on the five servers of ``redlock_servers``. It is closed after the test.

    It was made by `LocalMasters.connect`: the servers are emptied before each test, so they have forgotten nothing.
    """
    with redlock_servers.connect() as masters:
        yield masters


def _fixed(outcome: FixedOutcome) -> Iterator[FixedMasters]:
    from redlock.testing import FixedMasters  # noqa: PLC0415

    with FixedMasters(outcome) as masters:
        yield masters


@pytest.fixture
def redlock_granted() -> Iterator[FixedMasters]:
    """Masters that grant every lock to all, a `redlock.testing.FixedMasters`.  They are no locks."""
    yield from _fixed("granted")


@pytest.fixture
def redlock_refused() -> Iterator[FixedMasters]:
    """Masters on which another client has every lock.  They are no locks."""
    yield from _fixed("refused")


@pytest.fixture
def redlock_unreachable() -> Iterator[FixedMasters]:
    """Masters that accept no client: no quorum.  They are no locks."""
    yield from _fixed("unreachable")


@pytest.fixture
def redlock_lost() -> Iterator[FixedMasters]:
    """Masters that grant every lock, and deny it when it is extended or released.  They are no locks."""
    yield from _fixed("lost")
