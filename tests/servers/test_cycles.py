"""P7 in bulk: thousands of uncontended cycles leave nothing behind."""

from __future__ import annotations

from tests.servers.look import eventually, lock_keys, nothing_left

CYCLES = 3000


def test_healthy_masters_keep_no_key(redlock_servers, masters):
    lock = masters.lock("job", ttl=10)
    for _ in range(CYCLES):
        assert lock.acquire() is not None
        lock.release()
    # Releases are answered by a majority; the rest have theirs in the order of their connection (R10).
    eventually(lambda: nothing_left(redlock_servers), 1.0)


def test_a_frozen_master_keeps_no_key_once_it_thaws(world, redlock_servers):
    with world.Masters(redlock_servers.urls, restart_guard=False, node_timeout=0.1) as masters:
        lock = masters.lock("job", ttl=10)
        with lock:
            pass  # connected before it freezes, so it is sent what follows
        redlock_servers.pause(2)
        for _ in range(CYCLES):
            assert lock.acquire(timeout=1) is not None
            lock.release()
        redlock_servers.resume(2)
        # It works off what it had been sent, acquires and their releases in one order.
        eventually(lambda: nothing_left(redlock_servers), 2.0)
        assert redlock_servers.client(2).ping()
        assert lock_keys(redlock_servers)[2] == set()


def test_what_a_frozen_master_was_sent_is_little(world, redlock_servers):
    """A master that does not answer is sent nothing new, so nothing piles up for it."""
    with world.Masters(redlock_servers.urls, restart_guard=False, node_timeout=0.02) as masters:
        lock = masters.lock("job", ttl=10)
        with lock:
            pass
        before = redlock_servers.client(2).info("commandstats")["cmdstat_evalsha"]["calls"]
        redlock_servers.pause(2)
        for _ in range(CYCLES):
            with lock:
                pass
        redlock_servers.resume(2)
        eventually(lambda: nothing_left(redlock_servers), 2.0)
        after = redlock_servers.client(2).info("commandstats")["cmdstat_evalsha"]["calls"]
        # Within node_timeout of the freeze some cycles still go out, then none does.
        assert after - before < CYCLES
