"""A grant that a master refused is made whole on real servers, in both worlds, renewed or not (R37)."""

import pytest
from prometheus_client import CollectorRegistry

from redlock import Masters
from redlock.observe.prometheus import PrometheusObserver
from tests.owners import witness
from tests.servers.look import all_up, eventually, nothing_left, take

pytestmark = witness("R37")

OTHER = "0" * 40


@pytest.mark.parametrize("renewed", [False, True])
def test_a_master_that_refused_has_the_key_soon_after_it_is_free(world, servers, renewed):
    registry = CollectorRegistry()
    observer = PrometheusObserver(registry)
    with world.Masters(servers.urls, restart_guard=False, observer=observer) as masters:
        eventually(lambda: all_up(masters))
        one, another = servers.client(0), servers.client(4)
        for client in (one, another):
            client.set("redlock:whole", OTHER, px=30_000)
        lock = masters.lock("whole", ttl=60, auto_extend=renewed)
        lease = take(lock)
        one.delete("redlock:whole")
        key = lease.token.encode()
        eventually(lambda: masters.status("whole") and one.get("redlock:whole") == key)
        assert another.get("redlock:whole") == OTHER.encode(), "it is another one's (P8)"
        assert 50_000 < one.pttl("redlock:whole") <= 60_000
        assert lock.lease is not None
        lock.release()
        bare = registry.get_sample_value("redlock_bare_majority_seconds_total")
        assert bare is not None
        assert bare > 0.2
        another.delete("redlock:whole")
        eventually(lambda: nothing_left(servers))


def test_a_repair_is_written_before_its_answer_is_looked_for(servers, monkeypatch):
    """Else that would be read when something else is due, a second later, and the whole second be counted as bare."""
    with Masters(servers.urls, restart_guard=False) as masters:
        eventually(lambda: all_up(masters))
        (driver,) = masters._runtime.drivers.values()
        reads, unwritten = driver.read_late, []

        def read_late(connection, now):
            unwritten.append(bool(driver._connections.corked))
            return reads(connection, now)

        monkeypatch.setattr(driver, "read_late", read_late)
        one = servers.client(0)
        one.set("redlock:whole", OTHER, px=30_000)
        lock = masters.lock("whole", ttl=60, auto_extend=False)
        lease = take(lock)
        one.delete("redlock:whole")
        eventually(lambda: one.get("redlock:whole") == lease.token.encode())
        lock.release()
        assert unwritten
        assert not any(unwritten)
