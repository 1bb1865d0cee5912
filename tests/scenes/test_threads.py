"""Threads that wait for one another: one reads for all, and none is forgotten (`redlock/_io/waiter.py`)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tenacity.wait import wait_fixed

from tests.bench import Life, play
from tests.bench.judge import HANGS, Violation
from tests.bench.library import Patch

WAITER = "redlock._io.waiter"
ROUNDS, EVERY = 40, 2.0  # seconds from one round to the next one, in which no other thread comes and helps
SOON = 0.5  # seconds for all of a round
MOST = 6  # runs for a broken one to be seen
# Each thread relies on the others for long, and the background reads for none: whatever is lost shows.
NEVER_IMPATIENT = (
    Patch(WAITER, "_PATIENCE, _MOST_PATIENCE = 0.03, 0.5", "_PATIENCE, _MOST_PATIENCE = 30.0, 30.0"),
    Patch(WAITER, "_LET_RUN = 0.005", "_LET_RUN = 30.0"),
    Patch("redlock._system.clock", "NAP = 1.0", "NAP = 30.0"),
    Patch("redlock._io.driver_threads", "if not self.host.polling or connection.poisoned:", "if connection.poisoned:"),
)
FEW: dict[str, Any] = {"names": 3, "naps": 2e-4}
BUSY: dict[str, Any] = {"names": 3, "naps": 1e-3}
SLOW: dict[str, Any] = {"names": 2, "naps": 2e-3}
ONE_LEADS_FOR_LONG: dict[str, Any] = {"names": 3, "naps": 2e-4, "waits": 1}
BROKEN = {
    "a thread that follows does not look whether any other one still leads": (
        BUSY,
        "            if host.leader is not None:\n                return True\n        with host.mutex",
        "            return True\n        with host.mutex",
    ),
    "a thread of the chain that is awake ends it": (FEW, "            waiter.wakes_next = False\n", "            return\n"),
    "a thread that has led ends the chain": (
        FEW,
        "        if self.wakes_next:\n            self._wake_next()\n\n    # -- leading",
        "\n    # -- leading",
    ),
    "a thread that leads sleeps until others have asked, of whom none is there": (
        SLOW,
        "            waiter.wakes_next = True\n",
        "            if waiter is self:\n                continue\n            waiter.wakes_next = True\n",
    ),
}  # fmt: skip


def slowest(*patches, names, naps, waits=0, within=0.004):
    """The seconds of the slowest of many operations of four threads, which come at almost the same time."""
    found: list[float] = []

    def works(at, number):
        yield at.sleep(1.0)
        for one in range(ROUNDS):
            yield at.sleep(EVERY * (one + 1) - at.now + at.client.chance.random() * within)
            lock, began = at.masters.lock(f"job-{(number + one) % names}", ttl=500.0), at.now
            yield lock.acquire
            yield lock.release
            found.append(at.now - began)

    def stays(at):
        at.put("redlock:taken", "another", ttl=1e5)
        lock = at.masters.lock("taken", ttl=50.0, retry=wait_fixed(1e5))
        assert (yield partial(lock.acquire, timeout=EVERY * (ROUNDS + 1))) is None

    lives: list[Life] = [*(partial(works, number=number) for number in range(4)), *[stays] * waits]
    play(
        [tuple(lives)], threads=True, patches=(*NEVER_IMPATIENT, *patches), preempted=0.02, naps=naps, max_ttl=500.0,
        node_timeout=15.0,
    )  # fmt: skip
    return max(found)


@pytest.mark.parametrize(
    "setting", [FEW, BUSY, SLOW, ONE_LEADS_FOR_LONG], ids=["few", "busy", "slow", "one leads for long"]
)
def test_no_thread_is_forgotten_by_those_that_it_relies_on(setting):
    assert slowest(**setting) < SOON


@pytest.mark.parametrize("what", BROKEN)
def test_one_that_is_forgotten_is_seen(what):
    setting, old, new = BROKEN[what]
    for number in range(MOST):
        try:
            if slowest(Patch(WAITER, old, new), **setting, within=0.002 + number / 1000) > SOON:
                return
        except Violation as violation:  # it even waits for ever
            if violation.invariant != HANGS:
                raise
            return
    pytest.fail("not seen")
