"""Threads that wait for one another: one reads for all, and none is forgotten (`redlock/_io/waiter.py`)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.bench import play
from tests.bench.library import Patch

if TYPE_CHECKING:
    from tests.bench import At
    from tests.bench.users import Steps

# A thread that is about to follow takes so long that the leading one has often left meanwhile.
SLOW = Patch(
    "redlock._io.waiter",
    "                return False\n            self._follow()\n",
    "                return False\n            __import__('time').sleep(0.0015)\n            self._follow()\n",
)
# A thread says that it follows, and does not look whether any other one still leads.
WAKE_UP_LOST = Patch(
    "redlock._io.waiter",
    "            # A thread that stops leading first says so, and then looks for followers.\n"
    "            if host.leader is not None:\n                return True\n",
    "            return True\n",
)


def slowest(*patches: Patch) -> float:
    """The seconds of the slowest of many operations of two threads, which often come while the other one leads."""
    found: list[float] = []

    def works(at: At, name: str, pause: float) -> Steps:
        lock = at.masters.lock(name)
        for number in range(200):
            yield at.sleep(pause * (number % 7) / 7)
            for call in (lock.acquire, lock.release):
                began = at.now
                yield call
                found.append(at.now - began)

    play([(partial(works, name="a", pause=0.1), partial(works, name="b", pause=0.13))], threads=True, patches=patches)
    return max(found)


def test_a_thread_that_follows_just_when_the_leader_leaves_is_not_forgotten():
    assert slowest(SLOW) < 0.02


def test_one_that_does_not_look_again_is_seen():
    assert slowest(SLOW, WAKE_UP_LOST) > 0.02
