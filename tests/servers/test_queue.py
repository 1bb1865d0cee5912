"""The line in front of the masters, inside one process (R23): who is next, who is forgotten, what it costs."""

import os

import pytest

from redlock import NotAcquired
from tests.owners import witness
from tests.servers.look import at_once, elsewhere, eventually, nothing_left, take
from tests.servers.waiter import Waiting

pytestmark = witness("P1", "R23", "R40")


def test_no_more_wait_than_may(world, masters, others):
    """R40.  The next one is refused at once, and told how many there are; a place that is free is taken."""
    held = others.lock("job", ttl=30)
    take(held)
    lines = world.connections(masters).local_queue._lines
    waiting = []
    for number in range(3):  # the first one asks the masters, two stand behind it
        waiting.append(Waiting(masters.lock("job", ttl=30, max_waiters=2)))
        eventually(lambda: len(lines.get("redlock:job", ())) > number)  # noqa: B023
    lock = masters.lock("job", ttl=30, max_waiters=2)
    assert lock.acquire(timeout=60) is None
    with pytest.raises(NotAcquired, match="2 of this process wait for it already, max_waiters is 2") as refused, lock:
        pytest.fail("it is crowded")
    assert refused.value.kind == "crowded"
    assert masters.lock("job", ttl=30).acquire(timeout=0) is None, "without a limit it is refused as ever"
    held.release()
    assert all(one.end() for one in waiting)
    with lock:
        pass


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
    assert len(world.connections(masters).local_queue) == 0
    eventually(lambda: nothing_left(redlock_servers))


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
