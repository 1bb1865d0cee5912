"""P4: whatever a minority does, acquire takes what it takes with all masters healthy.

Every deadline is made so long that waiting for the bad master could not be mistaken for noise.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.servers.look import all_up, eventually, lock_keys, nothing_left
from tests.servers.proxy import Proxy

NODE_TIMEOUT = 9.0


def freeze(servers, proxy):
    servers.pause(4)


def refuse(servers, proxy):
    servers.kill(4)


def half_a_reply(servers, proxy):
    proxy.replies = "half"


def no_reply(servers, proxy):
    proxy.replies = "hold"


def lost_reply(servers, proxy):
    proxy.replies = "lose"


@pytest.mark.parametrize("fault", [freeze, refuse, half_a_reply, no_reply, lost_reply])
@pytest.mark.parametrize("when", ["before connecting", "connected"])
def test_nobody_waits_for_it(world, redlock_servers, fault, when):
    with Proxy(redlock_servers.ports[4]) as proxy:
        urls = [*redlock_servers.urls[:4], proxy.url]
        if when == "before connecting":
            fault(redlock_servers, proxy)
        options: dict[str, Any] = {"node_timeout": NODE_TIMEOUT, "connect_timeout": 4.0, "restart_guard": False}
        with world.Masters(urls, **options) as masters:
            lock = masters.lock("job", ttl=30)
            if when == "connected":
                eventually(lambda: all_up(masters))
                fault(redlock_servers, proxy)
            for _ in range(20):
                began = time.monotonic()
                assert lock.acquire(timeout=0) is not None
                lock.release()
                assert time.monotonic() - began < NODE_TIMEOUT / 2
            # What is owed to it may take its time at the end: heal it first.
            proxy.replies = "pass"
            proxy.drop()
            if redlock_servers.alive(4):
                redlock_servers.resume(4)
            else:
                redlock_servers.restart(4)
            eventually(lambda: nothing_left(redlock_servers))


def test_a_master_that_lets_in_and_throws_out_is_not_hammered(world, redlock_servers):
    with Proxy(redlock_servers.ports[0]) as proxy:
        with world.Masters([proxy.url, *redlock_servers.urls[1:]], restart_guard=False) as masters:
            with masters.lock("job", ttl=30):
                pass
            connection = world.connections(masters).all[0]
            thrown_out = 0
            until = time.monotonic() + 1.0
            while time.monotonic() < until:
                if connection.pipeline.down is None:
                    before = connection.opened_at
                    proxy.drop()
                    # Or it is back already: nobody may have looked for so long.
                    eventually(lambda before=before: connection.sock is None or connection.opened_at != before)
                    thrown_out += 1
                time.sleep(0.001)
            # With a pause of 50 ms or more each time; without one it is several times as often.
            assert thrown_out <= 1.0 / 0.05


@pytest.mark.parametrize("n", [2, 5])
def test_masks(world, redlock_servers, n):
    """Every set of masters that somebody else occupies: success exactly with a free majority (R1, R2)."""
    clients = [redlock_servers.client(i) for i in range(n)]
    # So long that a tie that waits for anything shows.
    with world.Masters(redlock_servers.urls[:n], restart_guard=False, node_timeout=9.0) as masters:
        eventually(lambda: all_up(masters))
        lock = masters.lock("job", ttl=30)
        for mask in range(2**n):
            occupied = {i for i in range(n) if mask >> i & 1}
            eventually(lambda: not any(lock_keys(redlock_servers)))
            for i in occupied:
                clients[i].set("redlock:job", "somebody", px=60_000)
            began = time.monotonic()
            lease = lock.acquire(timeout=0)
            assert time.monotonic() - began < 4.0
            assert (lease is not None) == (n - len(occupied) >= n // 2 + 1), (n, occupied)
            if lease is not None:
                # A master that is pending when it is decided answers in its own time.
                voters = [i for i, vote in enumerate(lease.votes) if vote.outcome == "granted"]
                assert not occupied.intersection(voters)
                lock.release()
            # Nothing of ours is left (R9), and what somebody else has is untouched (P7, P8).
            left = [{"redlock:job"} if i in occupied else set() for i in range(n)]
            eventually(lambda left=left: lock_keys(redlock_servers)[:n] == left)
            for i in occupied:
                assert clients[i].get("redlock:job") == b"somebody"
                clients[i].delete("redlock:job")
