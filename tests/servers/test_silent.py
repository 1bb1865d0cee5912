"""Connections that go on taking bytes and answer nothing, while new ones work: a proxy, a tunnel, a NAT (P4, R10)."""

import contextlib
import logging

import pytest

from redlock import QuorumUnreachable
from tests.servers.look import all_up, eventually, logged, nothing_left
from tests.servers.relay import Relay


@pytest.fixture
def proxies(redlock_servers):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Relay(port)) for port in redlock_servers.ports]


def fall_silent(proxies):
    for proxy in proxies:
        proxy.lag()


def test_all_of_them_are_replaced_and_whoever_asks_gets_an_answer(world, redlock_servers, proxies, caplog):
    with world.Masters([proxy.url for proxy in proxies], restart_guard=False) as masters:
        eventually(lambda: all_up(masters))
        with caplog.at_level(logging.WARNING):
            fall_silent(proxies)
            lock = masters.lock("job", ttl=30)
            assert eventually(lambda: lock.acquire(timeout=0))
            lock.release()
            eventually(lambda: all_up(masters) and caplog.text.count("was replaced: no answer for") >= len(proxies))
        replaced = [one.getMessage() for one in logged(caplog) if "was replaced: no answer for" in one.getMessage()]
        assert all("CLIENT PAUSE" in one for one in replaced)  # what a master does may look the same
        assert {one.split()[4] for one in replaced} == {proxy.url.removeprefix("redis://") for proxy in proxies}
        # What was asked for while they were silent was taken back, over the new ones.
        eventually(lambda: nothing_left(redlock_servers))


def own_connections(health):
    return [one.message for master in health.masters for one in master.findings if one.code == "own-connection"]


def test_a_check_says_that_it_is_our_connections_which_do_not_work(world, proxies):
    """It has connections of its own, over which all masters answer."""
    with world.Masters([proxy.url for proxy in proxies], restart_guard=False, node_timeout=2) as masters:
        eventually(lambda: all_up(masters))
        assert own_connections(masters.check()) == []
        fall_silent(proxies)
        with pytest.raises(QuorumUnreachable):
            masters.lock("job", ttl=30).acquire(timeout=0)
        health = masters.check(probe=False)
        assert health.quorum.voting == 5
        assert len(own_connections(health)) == 5
        assert all("no answer for" in message for message in own_connections(health))
        eventually(lambda: all_up(masters))
        assert own_connections(masters.check()) == []
