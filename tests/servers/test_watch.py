"""Watching who holds a name, on real servers, in both worlds (R41)."""

import pytest

from tests.owners import witness
from tests.servers.look import Doing, eventually, take

pytestmark = witness("R41")


class Watching(Doing):
    """A thread that watches, and notes the owner and the fence of each state."""

    def __init__(self, statuses):
        self.told: list[str] = []
        self.fences: list[int] = []

        def note():
            for status in statuses:
                self.told.append(status.owner if status.token else "")
                self.fences.append(status.fence or 0)

        super().__init__(note)


@pytest.fixture
def watching(world, redlock_servers):
    """Begins to watch; the masters that it watches through are closed at the end, which ends it."""
    begun = []
    with world.Masters(redlock_servers.urls, restart_guard=False, max_ttl=60) as through:

        def watch(name):
            begun.append(Watching(through.watch(name)))
            return begun[-1]

        yield watch
    for one in begun:
        assert one.end() is None


def test_holders_come_and_go(watching, others, redlock_masters):
    seen = watching("job")
    eventually(lambda: seen.told == [""])
    for number, masters in enumerate((others, redlock_masters)):
        lock = masters.lock("job", ttl=30, owner=f"holder-{number}")
        take(lock)
        eventually(lambda: seen.told[-1] == f"holder-{number}")  # noqa: B023
        lock.release()
        eventually(lambda: seen.told[-1] == "")
    assert seen.told == ["", "holder-0", "", "holder-1", ""]
    assert seen.fences == sorted(seen.fences)
