"""What the collector takes apart: it clears weak references first, and lets code of the program run afterwards (R15, P7)."""

from __future__ import annotations

import contextlib
import gc
import time
import weakref
from typing import Any

import pytest

from tests.servers.look import eventually, nothing_left


class Cycle:
    """Only the collector gets rid of it."""

    def __init__(self, content: Any = None) -> None:
        self.me = self
        self.content = content


def stays(lease, others) -> list[str]:
    """What happens to ``lease`` within the time in which its renewer would do it."""
    lock = others.lock("job", ttl=1)
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        if not lease.valid:
            return ["it ended"]
        if lock.acquire(blocking=False):
            lock.release()
            return ["somebody else was in"]
        time.sleep(0.005)
    return ["it stayed"]


@pytest.mark.parametrize("bound", [True, False], ids=["bound", "not-bound"])
@pytest.mark.parametrize("stack", [False, True], ids=["statement", "stack"])
def test_a_generator_in_a_cycle_is_inside_of_its_with_until_it_has_ended(
    redlock_servers, redlock_masters, others, bound, stack
):
    lock = redlock_masters.lock("job", ttl=30, bound=bound)
    found: list[str] = []

    def items():
        with contextlib.ExitStack() as entered:
            if stack:
                lease = entered.enter_context(lock)
                try:
                    yield 1
                finally:
                    found.extend(stays(lease, others))
            else:
                with lock as lease:
                    try:
                        yield 1
                    finally:
                        found.extend(stays(lease, others))

    cycle = Cycle(items())
    next(cycle.content)
    del cycle
    gc.collect()
    assert found == ["it stayed"]
    eventually(lambda: nothing_left(redlock_servers))


@pytest.mark.parametrize("bound", [True, False], ids=["bound", "not-bound"])
def test_an_object_in_a_cycle_that_releases_its_lock_at_its_end(redlock_servers, redlock_masters, others, bound):
    found: list[str] = []

    class Service(Cycle):
        def __init__(self) -> None:
            super().__init__()
            self.lock = redlock_masters.lock("job", ttl=30, bound=bound)
            self.lease = self.lock.acquire()

        def __del__(self) -> None:
            found.extend(stays(self.lease, others))
            self.lock.release()
            found.append("released")

    Service()
    gc.collect()
    assert found == ["it stayed", "released"]
    assert nothing_left(redlock_servers)


def test_a_stack_in_a_cycle_that_nobody_closes(redlock_servers, redlock_masters):
    """Nobody leaves, so its renewer does: also if that looks in the middle of the collection."""
    cycle = Cycle(contextlib.ExitStack())
    cycle.content.enter_context(redlock_masters.lock("job", ttl=30))
    weakref.finalize(cycle, time.sleep, 0.1)  # it has time to look
    del cycle
    gc.collect()
    eventually(lambda: nothing_left(redlock_servers))
