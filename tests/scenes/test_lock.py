"""Acquire and release between processes and masters: majorities, minorities, what is owed (P3, P4, R1-R3, R9, R10, R26)."""

from __future__ import annotations

import contextlib
import itertools
from functools import partial
from typing import Any

import pytest
from tenacity.wait import wait_fixed

from tests.bench import scene
from tests.owners import proves


def every_set_is_occupied(at):
    """R1, R2: success exactly with a free majority, at once; nothing of ours stays, and nothing else changes (P7, P8)."""
    lock, every = at.masters.lock("job", ttl=30.0), range(len(at.servers))
    for occupied in itertools.chain.from_iterable(
        itertools.combinations(every, many) for many in range(len(every) + 1)
    ):
        at.put("redlock:job", "another", masters=occupied)
        began = at.now
        lease = yield partial(lock.acquire, timeout=0)
        tie = 2 * len(occupied) == len(every)  # no token has a majority, so it is tried a few times more (C3)
        assert at.now - began < 0.2 if tie else at.exactly(began)
        assert (lease is not None) == (len(every) - len(occupied) > len(every) / 2)
        if lease is not None:
            granted = [index for index, vote in enumerate(lease.votes) if vote.outcome == "granted"]
            assert not set(granted) & set(occupied)
            yield lock.release
        yield at.sleep(0.1)
        assert at.values() == ["another" if index in occupied else None for index in every]
        at.put("redlock:job", None, masters=occupied)


test_any_set_of_five_masters_that_another_client_occupies = scene()(every_set_is_occupied)
test_any_set_of_two_masters_that_another_client_occupies = proves("P8", "R1")(scene(masters=2)(every_set_is_occupied))


@scene()
@pytest.mark.parametrize("fault", ["frozen", "refuses", "cut", "answers lost", "dead"])
def test_no_client_waits_for_a_minority(at, fault):
    """P4, and P7 once it is back."""
    faults: dict[str, Any] = {
        "frozen": (partial(at.freeze, [3, 4]), partial(at.thaw, [3, 4])),
        "refuses": (partial(at.refuse, [3, 4], "MISCONF"), partial(at.refuse, [3, 4], "")),
        "cut": (partial(at.cut, [3, 4]), partial(at.heal, [3, 4])),
        "answers lost": (partial(at.cut, [3, 4], requests=False), partial(at.heal, [3, 4], requests=False)),
        "dead": (partial(at.kill, [3, 4]), partial(at.start, [3, 4], remember=True)),
    }
    begins, ends = faults[fault]
    begins()
    lock = at.masters.lock("job", ttl=30.0)
    for _ in range(20):
        began = at.now
        assert (yield partial(lock.acquire, timeout=0)) is not None
        yield lock.release
        assert at.exactly(began)
    ends()
    yield from at.none_left(5.0)


@proves("P3")
@scene()
def test_a_crashed_holder_blocks_a_name_for_its_ttl_at_most():
    granted: list[float] = []

    def holds(at):
        yield at.masters.lock("job", ttl=3.0).acquire
        granted.append(at.now)
        yield at.sleep(0.5)
        at.crash()
        yield at.sleep(0.1)

    def waits(at):
        yield from at.until(lambda: granted)
        lock, _ = yield from at.held("job", ttl=3.0, retry=wait_fixed(0.01))
        assert 2.99 < at.now - granted[0] < 3.1  # P3
        yield lock.release

    return [holds, waits]


@proves("R10")
@scene()
def test_a_master_that_refuses_a_release_is_asked_again(at):
    lock, _ = yield from at.held("job", ttl=60.0, then=0.1)
    at.freeze([3])
    yield lock.release
    at.refuse([3], "MISCONF")
    at.thaw([3])
    yield at.sleep(5.0)
    assert at.keys() == 1
    at.refuse([3], "")
    yield from at.none_left(20.0)  # R10


@scene()
def test_a_with_raises_at_its_end_that_the_lease_was_lost_and_never_hides_the_error_of_its_body(at):
    def lasts(_):
        yield at.sleep(2.5)

    def raises(_):
        if at.threads:
            yield at.sleep(2.5)
        else:
            at.block(2.5)
        raise ZeroDivisionError

    yield from at.raises(at.errors.LockLost, at.within(at.masters.lock("job", ttl=2.0, auto_extend=False), lasts))
    lock = at.masters.lock("job", ttl=2.0, auto_extend=False)
    assert "was lost" in (yield from at.raises(ZeroDivisionError, at.within(lock, raises))).__notes__[0]
    lock = at.masters.lock("job", ttl=30.0)
    assert not hasattr((yield from at.raises(ZeroDivisionError, at.within(lock, raises))), "__notes__")
    yield from at.none_left()


# -- entered again (R26) ---------------------------------------------------------------------------------


@proves("R26")
@scene()
def test_each_level_that_is_inside_is_told_of_the_loss_once(at):
    told: list[str] = []

    def fails(_):
        told.append("fails")
        raise ZeroDivisionError

    at.expects("ZeroDivisionError")
    outer, inner, left = (
        at.masters.lock("job", ttl=3.0, on_lost=lambda _, name=name: told.append(name)) for name in ("outer", "inner", "left")
    )  # fmt: skip
    failing = at.masters.lock("job", ttl=3.0, on_lost=fails)
    lease = yield outer.acquire
    for lock in (inner, failing, left, inner):
        assert (yield lock.acquire) is lease
    yield left.release
    at.put("redlock:job", "another")
    yield at.sleep(5.0)
    assert told == ["outer", "inner", "fails"]  # C9
    for lock in (inner, inner, failing, outer):
        yield from at.raises(at.errors.LockLost, lock.release)


@scene()
def test_a_lost_lease_is_not_entered_again_and_each_level_is_told(at):
    told: list[Any] = []
    one, two = (at.masters.lock("job", on_lost=told.append) for _ in range(2))
    old = yield one.acquire
    assert (yield two.acquire) is old
    yield at.sleep(0.1)
    at.put("redlock:job", None)
    yield from at.raises(at.errors.LockLost, two.extend)
    new = yield partial(one.acquire, timeout=5)
    assert new is not old
    assert new.fence > old.fence
    error = yield from at.raises(at.errors.LockLost, two.release)  # of the level in which it is: the old one is two's
    assert error.reason == "expired"
    assert new.valid
    yield one.release  # the latest first
    assert not new.lost
    yield from at.raises(at.errors.LockLost, one.release)
    yield from at.raises(at.errors.NotHeld, one.release)
    yield at.sleep(0.1)
    assert [lease.token for lease in told] == [old.token]  # C9: once, to the lock that acquired it
    assert at.keys() == 0


@proves("C5")
@scene()
def test_a_thread_or_task_that_would_wait_for_itself_is_told_so(at):
    """C5: it has both, and would get one of them when it has given both back."""
    both, one, other = at.masters.lock(["a", "b"]), at.masters.lock("a"), at.masters.lock(["b", "c"])
    for held, wanted in ((both, one), (both, other), (one, both)):
        lease, calls = (yield held.acquire), at.play.judge.calls
        for options in ({}, {"timeout": 0}, {"blocking": False}):
            says = f"this {'thread' if at.threads else 'task'} holds"
            yield from at.raises(at.errors.WouldDeadlock, partial(wanted.acquire, **options), says)
        assert (lease.valid, wanted.owned(), at.play.judge.calls) == (True, False, calls)
        yield held.release


@scene()
def test_an_extension_sets_the_ttl_and_does_not_add_to_it(at):
    lock, lease = yield from at.held("job", ttl=10.0, then=1.0)
    fence = lease.fence
    for asked, ttl in ((20.0, 20.0), (2.0, 2.0), (None, 10.0)):  # C6: a shorter one is allowed, and counts at once
        yield partial(lock.extend, asked)
        assert (lease.ttl, lease.fence) == (ttl, fence)  # R19
        assert 0.98 * ttl < lease.remaining() < ttl
        yield at.sleep(0.1)
        assert all(ttl - 0.2 < left <= ttl for left in at.left())


@proves("C10")
@scene()
def test_another_thread_or_task_releases_and_extends_nothing(at):
    """C10: but for a lock that belongs to nobody."""
    lock, free = at.masters.lock("job"), at.masters.lock("free", bound=False)
    for one in (lock, free):
        yield one.acquire

    def another():
        for call in (lock.release, lock.extend):
            yield from at.raises(at.errors.NotHeld, call)
        yield free.release

    yield from at.done(another())
    yield at.sleep(0.1)
    assert (at.keys(), at.keys("redlock:free")) == (5, 0)
    yield lock.release


# -- readers (R33) ---------------------------------------------------------------------------------------


@proves("R33")
@scene()
def test_a_writer_waits_for_the_last_reader_and_is_woken():
    released: list[float] = []

    def reads(at):
        readers = [at.masters.lock("job", shared=True, bound=False) for _ in range(2)]
        for reader in readers:
            yield reader.acquire
        for reader in readers:
            yield at.sleep(2.0)
            released.append(at.now)
            yield reader.release

    def writes(at):
        yield at.sleep(1.0)
        lock, _ = yield from at.held("job", retry=wait_fixed(1000))
        assert len(released) == 2
        assert at.exactly(released[1])
        yield lock.release

    return [reads, writes]


# -- restarts (R21) --------------------------------------------------------------------------------------


@scene(guard=True, max_ttl=20.0)
def test_restarted_without_its_memory_a_master_may_not_give_away_what_it_forgot():
    granted: list[float] = []

    def holds(at):
        _, lease = yield from at.held("job", ttl=10.0, auto_extend=False)
        granted.append(at.now)
        at.kill([0, 1, 2])
        at.start([0, 1, 2])
        yield at.sleep(9.5)
        assert lease.valid

    def waits(at):
        yield from at.until(lambda: granted)
        yield at.sleep(1.0)
        other = partial(at.masters.lock("other", ttl=10.0).acquire, timeout=2.0)
        yield from at.raises(at.errors.QuorumUnreachable, other, "its vote counts in")
        lock = at.masters.lock("job", ttl=10.0)
        yield partial(lock.acquire, timeout=60.0)  # C1: a waiting acquire outlasts it
        assert at.now - granted[0] > 20.0  # P5: no vote before max_ttl of uptime
        yield lock.release

    return [holds, waits]


class Alarm(BaseException):
    """As a signal handler raises it."""


@scene()
def test_a_stack_that_is_struck_before_its_release_leaves_no_key_while_its_error_is_kept(at):
    """P7: contextlib keeps the end of a stack as long as the error, and that in a cycle."""
    lock = at.masters.lock("job", ttl=10.0)

    def struck(_):
        raise Alarm

    lock._check = struck

    def in_a_thread():
        with contextlib.ExitStack() as stack:
            stack.enter_context(lock)

    async def in_a_task():
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(lock)

    with pytest.raises(Alarm) as kept:
        yield in_a_thread if at.threads else in_a_task
    yield at.sleep(0.1)
    assert at.keys() == 0, f"while {kept!r} is kept"
    assert not lock.owned()


@scene(worlds=["threads"], delay=0.02)
def test_what_the_background_gives_back_just_then_arrives_before_close_is_over(at):
    """P7: the lock was dropped, the background has begun to give it back, and another thread runs on."""
    driver = at.masters._runtime.driver()
    send, tick, struck = driver.send, driver.background.tick, []

    def acquire_and_drop():
        at.masters.lock("job", bound=False).acquire()

    def preempted_before_it_is_asked_for(*request):
        struck.append(at.now)
        at.block(0.1)
        send(*request)

    def preempted_before_it_is_written():
        at.block(0.01 if driver._connections.corked else 0.0)
        return tick()

    driver.send, driver.background.tick = preempted_before_it_is_asked_for, preempted_before_it_is_written
    yield acquire_and_drop
    yield from at.until(lambda: struck)
    assert at.keys() == 5
    yield at.masters.close
    assert at.keys() == 0


@scene()
@pytest.mark.parametrize("what", ["acquire", "slots", "extend"])
def test_the_first_attempt_after_a_freeze_meets_connections_that_the_servers_have_closed(what):
    """R10, P4: masters are asked again over new ones, within the time of the attempt."""

    def sleeps(at):
        make = partial(at.masters.slots, limit=3) if what == "slots" else at.masters.lock
        lock = make("job", ttl=30.0, auto_extend=False)
        yield lock.acquire
        if what != "extend":
            yield lock.release
        yield at.sleep(3.0 - at.now)  # it stands still then
        assert at.now > 5.0
        assert (yield lock.extend if what == "extend" else partial(lock.acquire, timeout=0)) is not None
        yield lock.release

    def freezes(at):
        yield at.sleep(2.0)
        at.stop(at.other(0), 4.0)
        yield at.sleep(2.0)
        for line in at.other(0).lines.values():
            line.snap()

    return [sleeps, freezes]
