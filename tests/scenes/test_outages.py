"""Waits without a timeout while too few masters answer: how long they go on, and what they are told (C2, R38)."""

from __future__ import annotations

from functools import partial

import pytest

from tests.bench import scene

OUTAGE = 20.0  # the outage_timeout, as max_ttl is
SLACK = 1.2  # the pause between two attempts, and two rounds at `node_timeout`

KINDS = {
    "a name": lambda masters, **options: masters.lock("job", **options),
    "readers": lambda masters, shared=True, **options: masters.lock("job", shared=shared, **options),
    "slots": lambda masters, **options: masters.slots("job", limit=1, **options),
    "names": lambda masters, **options: masters.lock(["job", "other"], **options),
}
kinds = pytest.mark.parametrize("kind", KINDS)


class Asked:
    """The waiters by the time at which they came, and what became of them."""

    def __init__(self, kind):
        self.told: list[tuple[float, str, float]] = []
        self.make = KINDS[kind]

    def asks(self, at, *, came, masters=None):
        yield partial(at.masters.status, "job")
        yield at.sleep(came - at.now)
        lock, what = self.make(masters or at.masters, ttl=OUTAGE), "granted"
        try:
            yield lock.acquire
            yield lock.release
        except at.errors.QuorumUnreachable:
            what = "unreachable"
        self.told.append((came, what, at.now))

    def check(self, *expected):
        assert [one[:2] for one in sorted(self.told)] == [one[:2] for one in expected]
        for (*_, when), (*_, since) in zip(sorted(self.told), expected, strict=True):
            assert 0.0 <= when - since < SLACK, (self.told, expected)


def gone(at, *, since, until):
    """Of five masters two are there."""
    yield at.sleep(since - at.now)
    at.freeze(3)
    yield at.sleep(until - at.now)
    at.thaw(3)


@scene(max_ttl=OUTAGE)
@kinds
def test_each_waits_through_an_outage_for_a_time_of_its_own_in_line_or_in_front_of_it(kind):
    asked = Asked(kind)

    def outage(at):
        yield from gone(at, since=0.5, until=40.0)
        yield at.sleep(10.0)
        asked.check(*((came, "unreachable", came + OUTAGE) for came in (1.0, 2.0, 7.0, 14.0)), (35.0, "granted", 40.0))

    return [(*(partial(asked.asks, came=came) for came in (1.0, 2.0, 7.0, 14.0, 35.0)), outage)]


@scene(max_ttl=OUTAGE)
@kinds
def test_an_outage_counts_from_the_last_attempt_in_which_a_majority_took_part(kind):
    """An attempt of any waiter of the line; until then the holder was in the way."""
    asked, options = Asked(kind), {"shared": False} if kind == "readers" else {}

    def holds(at):
        lock = asked.make(at.masters, ttl=19.0, auto_extend=False, **options)
        yield lock.acquire
        yield from gone(at, since=8.0, until=15.0)
        yield from gone(at, since=17.0, until=50.0)
        last = 17.0 - 0.6  # or a pause later
        asked.check(*((came, "unreachable", last + OUTAGE) for came in (1.0, 2.0, 3.0)))

    return [holds, tuple(partial(asked.asks, came=came) for came in (1.0, 2.0, 3.0))]


@scene(max_ttl=OUTAGE)
@kinds
def test_with_outage_timeout_none_they_wait_through_it(kind):
    asked = Asked(kind)

    def asks(at):
        masters = yield partial(at.client.make, outage_timeout=None)
        job = yield at.begin(asked.asks(at, came=2.0, masters=masters))
        yield from asked.asks(at, came=1.0, masters=masters)
        yield from at.until(lambda: at.over(job))
        asked.check((1.0, "granted", 60.0), (2.0, "granted", 60.0))
        yield masters.close

    return [(asks, partial(gone, since=0.5, until=60.0))]


@scene()
def test_a_crowd_that_waits_in_an_outage_is_no_crowd(at):
    """R40, C2: what the waiter in front has learned of the masters is true for the one that is refused as well."""
    at.kill(3)

    def waits(timeout):
        lock = at.masters.lock("job", max_waiters=1)
        yield from at.raises(at.errors.QuorumUnreachable, partial(lock.acquire, timeout=timeout))

    jobs = []
    for _ in range(2):
        jobs.append((yield at.begin(waits(5.0))))
        yield at.sleep(0.5)
    began = at.now
    yield from waits(5.0)
    assert at.exactly(began), "there are as many as may wait, so it does not"
    yield from at.until(lambda: all(at.over(job) for job in jobs))
