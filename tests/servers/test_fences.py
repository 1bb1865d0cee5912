"""P2 on real servers: fences rise, whatever the clients' wall clocks say."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from redlock.testing import LocalMasters
from tests.owners import witness
from tests.servers.look import all_up, eventually

pytestmark = witness("P2", "R16", "R17", "R20")

HANDOVERS = 60


class Holder:
    def __init__(self, world: str, offset: float, urls: list[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.servers.holder", world, str(offset), *urls],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, command: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def __enter__(self) -> Holder:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=10)


@pytest.mark.timeout(240)
def test_handovers_between_processes_that_disagree_by_an_hour():
    """A random master is down at each hand-over: frozen mostly, killed and restarted with its data at times."""
    seed = random.randrange(2**32)
    choose = random.Random(seed)
    print(f"seed {seed}")
    with (
        LocalMasters(5, persistence="always") as servers,
        Holder("asyncio", -1800, servers.urls) as behind,
        Holder("threads", 1800, servers.urls) as ahead,
    ):
        # The two worlds are one fleet: a holder may be of either.
        fences: list[int] = []
        for turn in range(HANDOVERS):
            victim = choose.randrange(5)
            kill = turn % 10 == 0
            if kill:
                servers.kill(victim)
            else:
                servers.pause(victim)
            holder = choose.choice((behind, ahead))
            answer = holder("acquire")
            assert answer.isdigit(), (turn, victim, answer)
            fences.append(int(answer))
            # The release meets another set of masters than the acquire.
            if kill:
                servers.restart(victim)
            else:
                servers.resume(victim)
            assert holder("release") == "ok"
        assert fences == sorted(set(fences))
        hour = 3600 * 1_000_000
        assert fences[-1] - fences[0] < 2 * hour  # they rose by microseconds, not by leaps


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
