"""Metrics of real servers, in both worlds, read back as a dashboard would get them."""

import pytest

from tests.observe.read import SYSTEMS, Observed
from tests.servers.look import all_up, eventually

TTL = 4.5  # a renewal is soon, and none too late on a machine that stands still for a second or two


@pytest.fixture(params=sorted(SYSTEMS))
def observed(request):
    system = SYSTEMS[request.param]()
    yield Observed(system)
    system.close()


@pytest.fixture
def watched(world, redlock_servers, observed):
    observer = observed.make(label=lambda name: name.partition(":")[0])
    with world.Masters(redlock_servers.urls, restart_guard=False, node_timeout=1.5, observer=observer) as masters:
        eventually(lambda: all_up(masters) and observed.value("redlock.master.up") == 5)  # the background tells that
        yield masters


def test_the_life_of_a_lease_is_measured(watched, observed, redlock_servers):
    assert observed.value("redlock.master.up") == 5
    with watched.lock("job:1", ttl=TTL) as lease:
        eventually(lambda: observed.value("redlock.extensions", lock="job") >= 1)
    assert lease.fence
    assert observed.count("redlock.acquire.duration", lock="job", outcome="acquired") == 1
    assert 0 < observed.sum("redlock.grant.duration") <= observed.sum("redlock.acquire.duration")
    assert observed.count("redlock.hold.duration", lock="job") == 1
    assert 0.5 < observed.sum("redlock.hold.duration") < 200  # seconds; no renewal is sooner
    assert observed.value("redlock.attempts", lock="job") == 1
    rounds = 1 + observed.value("redlock.extensions")
    assert observed.value("redlock.votes") == 5 * rounds
    assert observed.value("redlock.votes", outcome="granted") >= 3 * rounds
    assert observed.labels("redlock.votes", "master") == {url.removeprefix("redis://") for url in redlock_servers.urls}
    assert observed.value("redlock.losses") == 0
