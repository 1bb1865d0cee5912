"""How long locks wait on real masters: through an outage (R38), and by the timeout of their `Masters`."""

import functools
import logging
import threading
from typing import Any

import pytest

from redlock import NotAcquired, QuorumUnreachable
from tests.owners import witness
from tests.servers.look import at_once, kill, pause, restart, resume, take

pytestmark = witness("R38")


def told(world, *locks):
    """What each of several threads is told that say ``with lock:`` at once."""
    errors: list[Any] = [None] * len(locks)

    def waits(number):
        try:
            with locks[number]:
                pass
        except Exception as error:  # noqa: BLE001 - looked at by the test
            errors[number] = error

    at_once(functools.partial(waits, number) for number in range(len(locks)))
    return errors


@pytest.mark.parametrize("strike", [kill, pause])
def test_an_outage_ends_every_wait(world, redlock_servers, caplog, strike):
    """Whoever waits in one process hears it, in line or in front of it, and the log has one record of it."""
    caplog.set_level(logging.INFO, logger="redlock")
    with world.Masters(redlock_servers.urls, restart_guard=False, outage_timeout=1.0) as masters:
        with masters.lock("job"):  # it is connected
            pass
        strike(redlock_servers, 3)
        shared = masters.lock("catalogue", shared=True)
        locks = [masters.lock("one"), masters.lock("one"), masters.lock("one"), masters.lock(["two", "three"]),
                 masters.slots("slots", limit=2), shared, shared]  # fmt: skip
        errors = told(world, *locks)
        assert [type(error) for error in errors] == [QuorumUnreachable] * len(locks)
        assert all("outage_timeout is 1 s" in str(error) for error in errors)
    texts = [record.getMessage() for record in caplog.records]
    assert sum(text.startswith("no quorum") for text in texts) == 1
    (restart if strike is kill else resume)(redlock_servers, 3)


def test_the_timeout_of_its_masters_unless_it_has_its_own(world, redlock_servers, others):
    held = others.lock("job", bound=False)
    take(held)
    with world.Masters(redlock_servers.urls, restart_guard=False, timeout=0.2, node_timeout=2) as masters:
        assert masters.lock("job").acquire() is None
        for impatient in (masters.lock("job"), masters.lock("job", timeout=0.0), masters.lock(["job", "more"])):
            with pytest.raises(NotAcquired), impatient:
                pass
        release = threading.Timer(0.5, held.release)
        release.start()
        with masters.lock("job", timeout=-1.0) as lease:  # its own wins
            assert lease.valid
        release.join()
