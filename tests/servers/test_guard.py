"""A name stays taken for a while after a loss, on real servers, in both worlds, whether expiries are confirmed or not (R36, R35)."""

from __future__ import annotations

import time

import pytest

from tests.servers.look import all_up, eventually, nothing_left, take

TTL, GUARD = 8.0, 2.0


@pytest.mark.parametrize("confirms", [False, True])
def test_after_a_loss_the_guard_and_after_a_release_nothing(world, servers, confirms, watch):
    options = {"restart_guard": False, "confirm_expiry": confirms}
    with (
        world.Masters(servers.urls, guard=GUARD, **options) as masters,
        world.Masters(servers.urls, **options) as others,
    ):
        eventually(lambda: all_up(masters) and all_up(others))
        lock, other = masters.lock("guarded", ttl=TTL, max_hold=1.0), others.lock("guarded", ttl=TTL)
        began = time.monotonic()
        lease = take(lock)
        assert TTL < servers.client(0).pttl("redlock:guarded") / 1000 <= TTL + GUARD
        assert lease.remaining() < TTL
        assert lease.wait_lost(30)
        take(other, timeout=30)
        waited = time.monotonic() - (began + 1.0)  # max_hold, and not when we heard of the loss
        # The renewer gives it away then, long before its keys end.
        assert GUARD * 0.98 - 0.1 < waited < TTL
        other.release()
        lock = masters.lock("guarded", ttl=TTL)
        take(lock, timeout=30)
        lock.release()
        began = time.monotonic()
        take(other, timeout=30)
        assert time.monotonic() - began < GUARD + watch.late
        other.release()
        eventually(lambda: nothing_left(servers))
