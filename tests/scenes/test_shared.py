"""Many readers or one writer (R33), which waits for the readers that are there and keeps new ones away."""

from __future__ import annotations

from functools import partial
from typing import Any

from tenacity.wait import wait_fixed

from tests.bench import scene


@scene()
def test_a_reader_that_crashed_is_over_after_its_ttl_although_another_reads_on():
    released: list[float] = []

    def crashes(at):
        yield at.masters.lock("job", shared=True, ttl=3.0).acquire
        yield at.sleep(0.5)
        at.crash()
        yield at.sleep(0.1)

    def reads_on(at):
        lock, _ = yield from at.held("job", shared=True, ttl=3.0, then=7.9)  # the last renewal was a moment ago
        released.append(at.now)
        yield lock.release

    def writes(at):
        yield at.sleep(1.0)
        lock, _ = yield from at.held("job", retry=wait_fixed(1000))
        assert at.exactly(released[0])
        yield lock.release

    return [crashes, reads_on, writes]


@scene(skew=3599.0)
def test_fences_of_readers_and_writers_rise_whatever_the_wall_clocks_of_clients_show():
    fences: list[int] = []

    def takes(at, number):
        for turn in range(4):
            yield at.sleep(1.0 + 2 * turn + number - at.now)
            lock, lease = yield from at.held("job", shared=turn % 2 == number)
            fences.append(lease.fence)
            yield lock.release

    def checks(at):
        yield at.sleep(10.0)
        assert len(fences) == 8
        assert fences == sorted(set(fences))  # P2

    return [partial(takes, number=0), partial(takes, number=1), checks]


@scene()
def test_a_reader_that_is_there_no_more_is_not_brought_back_by_its_renewal(at):
    _, lease = yield from at.held("job", shared=True, ttl=3.0, then=0.5)
    at.put("redlock:job", None)
    began = at.now
    assert (yield partial(lease.wait_lost, 10.0))  # R12: with the renewal at a third of the TTL
    assert at.now < began + 1.0
    assert at.keys() == 0


@scene()
def test_no_reader_comes_in_while_a_writer_waits_although_others_read_on():
    """Else one would always be there, and the writer would never have its turn."""
    written: list[float] = []

    def reads(at, begins, most):
        yield at.sleep(begins - at.now)
        lock = at.masters.lock("job", shared=True)
        assert ((yield partial(lock.acquire, timeout=0)) is None) == (begins > 1.0)
        if lock.owned():
            yield at.sleep(most)
            yield lock.release

    def writes(at):
        yield at.sleep(1.0)
        lock, _ = yield from at.held("job")
        written.append(at.now)
        assert at.exactly(4.0)
        yield lock.release

    return [partial(reads, begins=0.5, most=3.5), partial(reads, begins=3.0, most=3.0), writes]


@scene(masters=3)
def test_new_readers_are_kept_away_from_the_masters_that_a_writer_has_just_given_back():
    """A reader has two of them, so each attempt of the writer takes the third one, and gives it back."""

    def reads(at):
        at.cut([2])
        yield from at.takes("job", lasts=3.0, shared=True)
        at.heal([2])

    def writes(at):
        yield at.sleep(1.0)
        yield from at.takes("job", retry=wait_fixed(1.5))

    def comes(at):
        for master in (0, 1):
            at.far(master, 0.05)
        yield at.sleep(2.0 - at.now)
        lock = at.masters.lock("job", shared=True, timeout=0)
        refused = yield from at.raises(at.errors.NotAcquired, at.within(lock))
        assert refused.votes[2].outcome == "held", refused

    return [reads, writes, comes]


@scene(announces=False)
def test_a_writer_keeps_new_readers_away_after_an_attempt_that_was_granted_too_late():
    def reads(at):
        lock, _ = yield from at.held("job", shared=True)
        yield at.sleep(3.9 - at.now)
        yield lock.release

    def writes(at):
        yield at.sleep(1.0 - at.now)
        lock = at.masters.lock("job", ttl=10.0, min_validity=9.8, retry=wait_fixed(3.0))
        yield lock.acquire  # at 1, 4 and 7 seconds
        assert 7.0 < at.now < 7.3
        yield lock.release

    def is_late(at):
        yield at.sleep(3.95 - at.now)
        at.cut(requests=False)
        yield at.sleep(0.2)
        at.heal(requests=False)

    def comes(at):
        yield at.sleep(5.0 - at.now)
        assert (yield partial(at.masters.lock("job", shared=True).acquire, timeout=0)) is None

    return [reads, (writes, is_late), comes]


@scene()
def test_a_reader_that_asks_for_the_name_for_itself_is_refused(at):
    reader, writer = at.masters.lock("job", shared=True), at.masters.lock("job")
    lease = yield reader.acquire
    yield from at.raises(at.errors.WouldDeadlock, partial(writer.acquire, timeout=1.0))
    assert lease.valid
    yield reader.release


@scene()
def test_a_reader_that_waits_in_the_same_process_enters_at_a_downgrade(at):
    lock, lease = yield from at.held("job")

    def reads(at):
        reader, _ = yield from at.held("job", shared=True)
        assert at.exactly(1.0)
        yield reader.release

    job = yield at.begin(reads(at))
    yield at.sleep(1.0 - at.now)
    yield lease.downgrade
    yield from at.until(lambda: at.over(job))
    yield lock.release


@scene()
def test_a_lease_is_shared_from_the_moment_in_which_its_downgrade_is_sent():
    """Masters may let readers in long before they have answered."""
    writer: list[Any] = []

    def writes(at):
        lock = at.masters.lock("job", bound=False)
        writer.append((yield lock.acquire))
        yield at.sleep(1.0 - at.now)
        at.cut(requests=False)
        job = yield at.begin(downgrades(at, lock))
        yield at.sleep(0.15)
        at.heal(requests=False)
        yield from at.until(lambda: at.over(job))

    def downgrades(at, lock):
        yield writer[0].downgrade
        yield lock.release

    def reads(at):
        lock, _ = yield from at.held("job", shared=True)
        assert 1.0 <= at.now < 1.1
        assert writer[0].shared
        yield at.sleep(3.0)
        yield lock.release

    return [writes, reads]
