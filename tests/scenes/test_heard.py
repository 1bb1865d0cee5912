"""A waiter is woken by what masters announce, and does not depend on it (R24, R25).

Where the pause between two attempts is `NEVER`, only an announcement leads to the next one.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tenacity.wait import wait_fixed

from tests.bench import scene
from tests.owners import proves

NEVER = wait_fixed(1000)
CHANNEL = "redlock:job:released"


class Held:
    """One process has the lock, and others wait for it."""

    def __init__(self):
        self.began: list[float] = []
        self.released: list[float] = []
        self.got: list[float] = []

    def holds(self, at, *, released=None, gone=1):
        """Until ``released``, a part of the scene, is over; and until so many have had it."""
        lock = at.masters.lock("job", ttl=50.0)
        yield partial(at.masters.status, "job")
        yield at.sleep(3.0)  # all are connected, and have announced themselves
        yield lock.acquire
        self.began.append(at.now)
        yield from released(at) if released else once(at)
        self.released.append(at.now)
        yield lock.release
        yield from at.until(lambda: len(self.got) >= gone, 20.0)

    def waits(self, at, *, retry=NEVER, within=0.05):
        yield partial(at.masters.status, "job")
        yield from at.until(lambda: self.began)
        lock, _ = yield from at.held("job", ttl=50.0, retry=retry)
        self.got.append(at.now)
        assert 0.0 <= at.now - self.released[0] < within
        yield lock.release


def once(at):
    yield at.sleep(1.0)


@scene()
def test_a_release_wakes_a_waiter_that_has_asked_twice_until_then():
    held = Held()

    def released(at):
        before = at.play.judge.calls
        for seconds in (0.2, 10.0):
            yield at.sleep(seconds)
            assert at.play.judge.calls - before < 5 * 5  # two attempts, what they take back, and the rest of ours

    return [partial(held.holds, released=released), held.waits]


@scene()
def test_a_release_that_a_bare_majority_announces_is_enough():
    held = Held()

    def released(at):
        yield at.sleep(1.0)
        at.freeze([3, 4])

    return [partial(held.holds, released=released), held.waits]


@proves("R24")
@scene(delay=0.05)
def test_a_release_before_it_had_subscribed_is_not_missed():
    """Subscribe, look again, then wait."""
    held = Held()

    def released(at):
        before = at.play.judge.calls
        yield from at.until(lambda: at.play.judge.calls == before + 5, tick=0.001)  # it was refused

    return [partial(held.holds, released=released), partial(held.waits, within=1.0)]


@scene()
def test_a_release_while_its_connections_were_broken_is_not_missed():
    held = Held()

    def waits(at):
        job = yield at.begin(held.waits(at, within=1.0))
        yield from at.until(lambda: held.began)
        yield at.sleep(0.8)
        at.cut()
        at.snap()
        yield from at.until(lambda: held.released)
        yield at.sleep(0.5)
        at.heal()
        yield from at.until(lambda: at.over(job))

    return [held.holds, waits]


@scene(announces=False)
def test_where_no_announcement_is_permitted_a_waiter_tries_again_after_its_pause():
    held = Held()
    return [held.holds, partial(held.waits, retry=wait_fixed(3.0), within=3.1)]


@scene()
def test_each_of_a_crowd_is_served_soon_although_they_collide():
    rounds: list[float] = []

    def takes_turns(at):
        lock = at.masters.lock("job", ttl=50.0, retry=NEVER)
        for _ in range(5):
            yield lock.acquire
            rounds.append(at.now)
            yield at.sleep(0.01)
            yield lock.release
        yield from at.until(lambda: len(rounds) == 40, 3.0)

    return [takes_turns] * 8


@scene()
def test_the_pause_that_keeps_contenders_apart_does_not_grow_without_end(at):
    lock = at.masters.lock("job", ttl=50.0, retry=NEVER)
    for token, masters in (("one", [0, 1]), ("two", [2, 3]), ("three", [4])):
        at.put("redlock:job", token, masters=masters)
    job = yield at.begin(takes(lock))
    for turn in range(50):
        yield at.sleep(0.3)
        announce(at, f"turn {turn}", [0, 1, 2])  # they have taken it back, and taken it again
    at.put("redlock:job", None)
    yield at.sleep(0.3)
    announce(at, "the last one", [0, 1, 2])
    yield from at.until(lambda: at.over(job), 0.3)


@scene()
def test_a_release_that_came_while_a_process_stood_still_is_not_missed_by_its_next_waiter():
    """The channel is on, for another waiter of the process has listened before: it looks again at once."""
    held = Held()

    def released(at):
        yield from at.until(lambda: at.other(1).stopped)
        yield at.sleep(0.01)

    def waits(at):
        yield from at.until(lambda: held.began)
        assert (yield partial(at.masters.wait_until_free, "job", timeout=0.5)) is False
        lock = at.masters.lock("job", ttl=50.0, retry=NEVER)
        at.stop(at.client, 0.1)  # as soon as it waits for answers
        yield lock.acquire
        held.got.append(at.now)
        assert at.now - held.released[0] < 0.2
        yield lock.release

    return [partial(held.holds, released=released), waits]


@scene()
def test_an_announcement_during_an_attempt_leads_to_another_one():
    """Two masters have announced it before, and one does so while the waiter is refused by two others."""
    held = Held()

    def holds(at):
        lock = at.masters.lock("job", ttl=50.0)
        yield partial(at.masters.status, "job")
        yield lock.acquire
        held.began.append(at.now)
        yield at.sleep(2.0)
        at.cut([2, 3, 4])
        yield lock.release
        yield at.sleep(1.0)
        at.freeze([2])  # what it says would decide the attempt
        yield from at.until(lambda: at.values()[0] is not None, tick=0.001)
        yield at.sleep(0.01)  # the others have refused it
        held.released.append(at.now)
        at.heal([2, 3, 4])
        yield from at.until(lambda: held.got)
        at.thaw([2])

    return [holds, partial(held.waits, retry=wait_fixed(5.0), within=0.3)]


@scene()
def test_an_announcement_is_remembered_among_others_and_across_an_attempt(at):
    lock = at.masters.lock("job", ttl=50.0, retry=wait_fixed(3.0))
    at.put("redlock:job", "ours")
    job = yield at.begin(takes(lock))
    yield at.sleep(1.0)
    at.put("redlock:job", None)
    at.put("redlock:job", "another")
    announce(at, "ours", [0, 1])
    yield at.sleep(3.0)  # it has tried again
    at.put("redlock:job", None)
    announce(at, "another", [0])
    yield at.sleep(0.01)
    announce(at, "ours", [2])
    yield from at.until(lambda: at.over(job), 0.1)


def announce(at, token, masters):
    for index in masters:
        at.servers[index].master.command("PUBLISH", CHANNEL, token)


def takes(lock):
    yield lock.acquire
    yield lock.release


@scene()
def test_a_waiter_still_hears_when_another_one_of_its_process_has_gone_home():
    held = Held()

    def looks(at):
        yield from at.until(lambda: held.began)
        yield at.sleep(0.5)
        assert (yield partial(at.masters.wait_until_free, "job", timeout=1.0)) is False

    def released(at):
        yield at.sleep(3.0)

    return [partial(held.holds, released=released), (held.waits, looks)]


@scene()
def test_a_process_that_lets_others_go_first_does_not_wait_for_one_that_stands_still():
    held = Held()

    def holds(at):
        yield from held.holds(at, released=stops, gone=0)
        lock, _ = yield from at.held("job", retry=NEVER)
        assert at.now - held.released[0] < 0.1
        yield lock.release

    def stops(at):
        yield at.sleep(1.0)
        at.stop(at.other(1), 30.0)

    return [holds, partial(held.waits, within=31.0)]


@scene()
def test_a_process_that_stood_still_in_its_release_lets_others_go_first_no_longer_than_usual():
    held = Held()

    def holds(at):
        yield from held.holds(at, released=stops, gone=0)
        began, lock = at.now, at.masters.lock("job", retry=NEVER)
        assert began - held.released[0] > 20.0
        yield lock.acquire
        assert at.now - began < 1.0
        yield lock.release

    def stops(at):
        yield at.sleep(1.0)
        at.stop(at.client, 20.0)  # as soon as it waits for answers

    return [holds, held.waits]


# -- no hurry (R25) --------------------------------------------------------------------------------------


def counts(at, ready, held_by, restarted):
    """A key is left on some masters, and others have restarted without theirs: no attempt can succeed."""
    yield partial(at.masters.status, "job")
    yield at.sleep(0.5)
    at.put("redlock:job", "another", masters=held_by)
    at.kill(restarted)
    at.start(restarted)
    yield at.sleep(1.0)
    ready.append(at.now)
    before = at.play.judge.calls
    yield at.sleep(10.0)
    attempts = (at.play.judge.calls - before) / len(at.servers) / 2 / (len(at.play.lives) - 1)
    assert attempts < 2 * 10.0 / 0.5


def waits_in_vain(at, ready):
    yield partial(at.masters.status, "job")
    yield from at.until(lambda: ready)
    lock = at.masters.lock("job", ttl=50.0, retry=wait_fixed(0.5), timeout=9.0)
    yield from at.raises(at.errors.LockUnavailable, at.within(lock))


@scene(guard=True)
def test_waiters_do_not_wake_each_other_while_masters_may_not_vote():
    """Each failed attempt takes its keys back, and masters announce that."""
    ready: list[Any] = []
    return [
        partial(counts, ready=ready, held_by=range(0), restarted=[0, 1, 2]),
        *[partial(waits_in_vain, ready=ready)] * 3,
    ]


@proves("R25")
@scene(masters=3, guard=True)
@pytest.mark.parametrize("waiters", [1, 3])
def test_waiters_do_not_wake_themselves_where_one_master_refuses_and_one_may_not_vote(waiters):
    """Two of three masters, a majority, announce the rollback of each failed attempt."""
    ready: list[Any] = []
    return [
        partial(counts, ready=ready, held_by=range(1), restarted=[1]),
        *[partial(waits_in_vain, ready=ready)] * waiters,
    ]


@scene()
def test_waiters_do_not_wake_each_other_where_a_majority_answers_too_late():
    """Their rollbacks are announced, late as well."""

    def waits(at):
        for index in range(3):
            at.client.lines[f"m{index}:6379"]._delay = 0.5
        yield at.sleep(5.0)
        before = at.play.judge.calls
        lock = at.masters.lock("job", ttl=50.0, retry=wait_fixed(2.0), timeout=10.0)
        yield from at.raises(at.errors.LockUnavailable, at.within(lock))
        assert at.play.judge.calls - before < 5 * 6 * 2 * 5  # six attempts of each, and what they take back

    return [waits] * 5


# -- what is left ----------------------------------------------------------------------------------------


@scene()
def test_of_a_waiter_that_gave_up_no_channel_and_no_connection_is_left(at):
    at.put("redlock:job", "another")
    yield partial(at.masters.lock("other").acquire)
    connections = len(at.client.descriptors)
    yield from at.raises(at.errors.NotAcquired, at.within(at.masters.lock("job", timeout=1.0)))
    assert len(at.client.descriptors) > connections
    yield at.sleep(2.0)
    assert not any(server.master.listening.get(CHANNEL) for server in at.servers)
    assert len(at.client.descriptors) == connections


@scene()
def test_connections_that_go_silent_are_replaced_and_the_lease_of_one_process_and_the_waiter_of_another_go_on():
    """R10, R24: those of subscribers as well, though no operation depends on them."""
    released: list[float] = []

    def holds(at):
        lock = at.masters.lock("job", ttl=6.0)
        lease = yield lock.acquire
        yield at.sleep(2.0 - at.now)
        at.hush()
        yield at.sleep(15.0)
        assert lease.valid
        released.append(at.now)
        yield lock.release

    def waits(at):
        yield at.sleep(1.0)
        lock = at.masters.lock("job", retry=wait_fixed(1000))
        yield lock.acquire
        assert at.exactly(released[0])
        yield lock.release

    def goes_silent(at):
        yield at.sleep(3.0)
        at.put("redlock:another", "theirs", ttl=60.0)
        at.hush()
        another = at.masters.lock("another")
        assert (yield partial(another.acquire, timeout=10.0)) is None  # its subscription meets silence

    return [holds, (waits, goes_silent)]
