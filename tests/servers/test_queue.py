"""The line in front of the masters, inside one process (R23): who is next, who is forgotten, what it costs."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import pytest

from redlock import NotAcquired, QuorumUnreachable
from tests.owners import witness
from tests.servers.look import all_up, at_once, elsewhere, eventually, kill, nothing_left, script_calls, take

pytestmark = witness("P1", "R23", "R40")


def test_no_more_wait_than_may(world, masters, others):
    """R40.  The next one is refused at once, and told how many there are; a place that is free is taken."""
    held = others.lock("job", ttl=30)
    take(held)
    eventually(lambda: all_up(masters))
    waiting = Contenders(world, masters)
    for _ in range(3):  # the first one asks the masters, two stand behind it
        waiting.come(masters.lock("job", ttl=30, max_waiters=2))
    lock = masters.lock("job", ttl=30, max_waiters=2)
    assert lock.acquire(timeout=60) is None
    with pytest.raises(NotAcquired, match="2 of this process wait for it already, max_waiters is 2") as refused, lock:
        pytest.fail("it is crowded")
    assert refused.value.kind == "crowded"
    assert masters.lock("job", ttl=30).acquire(timeout=0) is None, "without a limit it is refused as ever"
    held.release()
    waiting.join()
    assert len(waiting.order) == 3
    with lock:
        pass


def test_a_crowd_that_waits_in_an_outage_is_no_crowd(world, redlock_servers, masters):
    """C2: what the one in front has learned of the masters is true for who is refused as well."""
    eventually(lambda: all_up(masters))
    kill(redlock_servers, 3)
    waiting = Contenders(world, masters)
    for _ in range(2):
        waiting.come(masters.lock("job", ttl=30, max_waiters=1), timeout=2)

    def refused():
        try:
            masters.lock("job", ttl=30, max_waiters=1).acquire(timeout=2)
        except QuorumUnreachable:
            return True
        return False  # the one in front has not heard yet

    eventually(refused)
    waiting.join()


def in_line(world, masters, name="job") -> int:
    """How many wait for or hold ``name``."""
    return len(world.connections(masters).local_queue._lines.get(f"redlock:{name}", ()))


def nobody_in_line(world, masters) -> bool:
    return len(world.connections(masters).local_queue) == 0


class Contenders:
    """Threads that come one after the other, and what became of each."""

    def __init__(self, world, masters) -> None:
        self.world = world
        self.masters = masters
        self.order: list[int] = []  # of those who got it
        self.outcomes: dict[int, Any] = {}
        self.over: set[int] = set()
        self._threads: list[threading.Thread] = []

    def come(self, lock, *, rounds=1, **options) -> None:
        """One more waits; returns when it stands in line."""
        number = len(self._threads)

        def work():
            for _ in range(rounds):
                try:
                    self.outcomes[number] = lease = lock.acquire(**options)
                except BaseException as error:  # noqa: BLE001 - looked at by the test
                    self.outcomes[number] = error
                    return
                finally:
                    self.over.add(number)
                if lease is not None:
                    self.order.append(number)
                    lock.release()

        there = in_line(self.world, self.masters)
        thread = threading.Thread(target=work, name=f"contender {number}")
        self._threads.append(thread)
        thread.start()
        eventually(lambda: in_line(self.world, self.masters) > there or number in self.over)  # or it is over

    def join(self, seconds=20.0) -> None:
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
            assert not thread.is_alive(), f"{thread.name} was forgotten"


def test_exactly_one_at_a_time(world, redlock_servers, masters):
    """P1: a counter that nothing else protects."""
    lock = masters.lock("job", ttl=10)
    counter = 0

    def work():
        nonlocal counter
        for _ in range(20):
            with lock:
                seen = counter
                os.sched_yield()
                counter = seen + 1

    at_once([work] * 20)
    assert counter == 20 * 20
    assert nobody_in_line(world, masters)
    eventually(lambda: nothing_left(redlock_servers))


def test_a_handover_is_one_script_call_and_its_release(world, redlock_servers, masters):
    """Ten who want it are one to the masters: nobody asks in vain, and nobody has to pause."""
    eventually(lambda: all_up(masters))
    lock = masters.lock("job", ttl=10)
    with lock:
        pass
    eventually(lambda: nothing_left(redlock_servers))
    before = script_calls(redlock_servers)

    def work():
        for _ in range(10):
            with lock:
                pass

    at_once([work] * 10)
    eventually(lambda: nothing_left(redlock_servers))
    calls = [now - then for then, now in zip(before, script_calls(redlock_servers), strict=True)]
    assert max(calls) <= 4 * 10 * 10
    assert sum(calls) <= 2.3 * 5 * 10 * 10  # an acquire and a release on each, and few more


# -- without waiting (C3) ----------------------------------------------------------------------------


def test_the_text_of_who_was_not_served_in_time(masters):
    def other():
        with masters.lock("job", ttl=10, timeout=0.05):
            pass

    with masters.lock("job", ttl=10):
        refused = elsewhere(other)
    assert (
        str(refused).splitlines()[0]
        == "'job' not acquired in time: other threads or tasks of this process hold it or wait for it"
    )


# -- an outage (C2) ----------------------------------------------------------------------------------


def told(lock, count, **options) -> list[str]:
    """What so many are told who ask at the same moment: the first line of the error, if it is one."""
    answers: list[str] = []

    def ask():
        try:
            lease = lock().acquire(**options)
        except QuorumUnreachable as outage:
            answers.append(outage.message.partition(": ")[2])
        else:
            answers.append("busy" if lease is None else "granted")

    at_once([ask] * count)
    return answers
