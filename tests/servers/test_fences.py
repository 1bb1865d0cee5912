"""P2 on real servers: fences rise, whatever the clients' wall clocks say."""

import random
import time
from typing import Any

from redlock import Masters
from redlock.testing import LocalMasters
from tests.owners import witness
from tests.servers import worlds
from tests.servers.look import all_up, eventually, take

pytestmark = witness("P2", "R16", "R17", "R20")

HOUR = 3600 * 10**9
MICROSECONDS = 1000


def set_wall_clock(masters, ahead):
    masters._runtime.deployment.settings.fences._wall_ns = lambda: time.time_ns() + ahead


def test_handovers_between_clients_that_disagree_by_an_hour():
    """A random master is down at each of them, and another one at the release: frozen, or killed and restarted with its data."""
    seed = random.randrange(2**32)
    choose, fences = random.Random(seed), list[int]()
    print(f"seed {seed}")
    options: dict[str, Any] = {"restart_guard": False, "node_timeout": 0.2}
    with (
        LocalMasters(5, persistence="always") as servers,
        worlds.opened("asyncio") as tasks,
        tasks.Masters(servers.urls, **options) as behind,
        Masters(servers.urls, **options) as ahead,
    ):
        set_wall_clock(tasks.real(behind), -HOUR // 2)
        set_wall_clock(ahead, HOUR // 2)
        locks = [masters.lock("job", ttl=10) for masters in (behind, ahead)]
        for turn in range(20):
            victim, lock = choose.randrange(5), choose.choice(locks)
            ends, begins = (servers.kill, servers.restart) if turn % 10 == 0 else (servers.pause, servers.resume)
            ends(victim)
            fences.append(take(lock, timeout=60).fence or 0)
            begins(victim)
            lock.release()
    assert fences == sorted(set(fences))
    assert fences[-1] - fences[0] < 2 * HOUR // MICROSECONDS  # they rose by microseconds, not by leaps


def test_fence_keys_live_for_fence_ttl_after_the_last_extension(world, redlock_servers):
    """R20."""
    with world.Masters(redlock_servers.urls, restart_guard=False, fence_ttl=100.0) as masters:
        eventually(lambda: all_up(masters))
        lock = masters.lock("job", ttl=10)
        lock.acquire()
        client = redlock_servers.client(0)
        eventually(lambda: 99_000 < client.pttl("{redlock:job}:fence") <= 100_000)
        client.pexpire("{redlock:job}:fence", 5_000)
        lock.extend()
        eventually(lambda: 99_000 < client.pttl("{redlock:job}:fence") <= 100_000)
        lock.release()
