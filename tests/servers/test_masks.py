"""Every set of masters that somebody else occupies: success exactly with a free majority (R1, R2)."""

from __future__ import annotations

import time

import pytest

from tests.servers.look import eventually, lock_keys


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_masks(world, redlock_servers, n):
    clients = [redlock_servers.client(i) for i in range(n)]
    # So long that a tie that waits for anything shows.
    with world.Masters(redlock_servers.urls[:n], restart_guard=False, node_timeout=9.0) as masters:
        lock = masters.lock("job", ttl=30)
        with lock:
            pass
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
                # Who is still pending when it is decided answers in its own time.
                voters = [i for i, vote in enumerate(lease.votes) if vote.outcome == "granted"]
                assert not occupied.intersection(voters)
                lock.release()
            # Nothing of ours is left, and what somebody else has is untouched (P7, P8).
            left = [{"redlock:job"} if i in occupied else set() for i in range(n)]
            eventually(lambda left=left: lock_keys(redlock_servers)[:n] == left)
            for i in occupied:
                assert clients[i].get("redlock:job") == b"somebody"
                clients[i].delete("redlock:job")
