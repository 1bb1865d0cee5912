"""What a renewal does to a lease and its keys: alone, with others, in vain, too late (R12-R15, R37)."""

from __future__ import annotations

import gc
from functools import partial
from typing import Any

import pytest

from tests.bench import scene
from tests.owners import proves

TTL = 3.0


@proves("R13")
@scene()
def test_a_renewal_that_nobody_answers_takes_nothing_away(at):
    lock, lease = yield from at.held("job", ttl=TTL, then=0.1)
    at.cut(5)
    yield at.sleep(TTL / 2)
    assert lease.valid  # R13
    at.heal(5)
    yield at.sleep(4 * TTL)
    assert lease.valid
    assert at.keys() == 5
    yield lock.release


@scene()
def test_renewals_are_tried_again_with_pauses_while_all_masters_are_down(at):
    _, lease = yield from at.held("job", ttl=TTL, then=0.1)
    at.kill(5)
    while not lease.lost:
        yield at.sleep(0.01)
        assert lease._state.extensions <= 32  # R13: a twentieth of the TTL apart, in steps of a 32nd
    assert lease._state.extensions >= 10
    assert lease.loss().reason == "unreachable"
    at.start(5)


@scene()
def test_what_becomes_of_each_of_many_leases_that_are_renewed_together(at):
    told: list[str] = []
    names = [f"job-{number}" for number in range(8)]
    leases = {}
    for name in names:
        lock = at.masters.lock(name, ttl=TTL, bound=False, on_lost=lambda lease: told.append(lease.name))
        leases[name] = lock, (yield lock.acquire)
    yield at.sleep(10 * TTL)
    for master in range(3):
        at.put("redlock:job-2", None, masters=[master])
    at.put("redlock:job-5", None, masters=[4])
    began = at.now
    assert (yield partial(leases["job-2"][1].wait_lost, 10))
    assert at.now - began < TTL / 3 + 0.05  # R12, R13: by proof
    assert leases["job-2"][1].loss().reason == "expired"
    yield at.sleep(3 * TTL)
    assert told == ["job-2"]
    assert [at.keys(f"redlock:{name}") for name in names] == [5, 5, 0, 5, 5, 5, 5, 5]  # R14
    for lock, lease in leases.values():
        if lease.name != "job-2":
            yield lock.release


@scene()
def test_many_leases_outlive_each_master_in_turn(at):
    told: list[Any] = []
    names = [f"job-{number}" for number in range(12)]
    locks = [at.masters.lock(name, ttl=TTL, bound=False, on_lost=told.append) for name in names]
    for lock in locks:
        yield lock.acquire
    for master in range(5):
        for begins, ends in (
            (at.freeze, at.thaw),
            (partial(at.refuse, how="MISCONF"), partial(at.refuse, how="")),
            (at.snap, at.snap),
        ):
            begins([master])
            yield at.sleep(TTL / 2)
            ends([master])
            yield at.sleep(TTL / 2)
        at.kill([master])
        yield at.sleep(TTL / 2)
        at.start([master])  # it has forgotten them
        yield at.sleep(TTL)
    assert told == []
    assert [at.keys(f"redlock:{name}") for name in names] == [5] * 12  # R14
    for lock in locks:
        yield lock.release


@scene()
def test_an_extension_that_is_over_does_not_come_behind_a_later_one():
    """R12: two masters have forgotten its script, and say so late.  It asked for less time than the later one."""
    over: list[float] = []
    taught: list[float] = []

    def holds(at):
        lock, _ = yield from at.held("job", ttl=60.0, auto_extend=False, then=0.1)
        for server in at.servers[:2]:
            server.master.flush_scripts()
        at.cut([0, 1], requests=False)
        yield partial(lock.extend, 6.0)
        over.append(at.now)
        yield from at.until(lambda: taught)
        yield partial(lock.extend, 60.0)
        at.heal([0, 1], requests=False)
        yield at.sleep(7.0)
        assert at.keys() == 5
        yield lock.release

    def teaches(at):
        lock, _ = yield from at.held("other", ttl=30.0, auto_extend=False)
        yield from at.until(lambda: over)
        yield lock.extend
        taught.append(at.now)
        yield lock.release

    return [holds, teaches]


@scene()
def test_of_two_extensions_one_learns_of_the_loss_and_the_other_one_hears_nothing(at):
    told: list[Any] = []
    lock, lease = yield from at.held("job", ttl=60.0, bound=False, on_lost=told.append, then=0.1)
    at.put("redlock:job", None)
    jobs = [(yield at.begin(at.raises(at.errors.LockLost, lock.extend)))]
    yield at.sleep(0.0005)
    at.cut(5, answers=False)
    jobs.append((yield at.begin(at.raises(at.errors.LockLost, lock.extend))))
    yield from at.until(lambda: all(map(at.over, jobs)))
    yield at.sleep(0.1)
    assert told == [lease]  # C9
    assert lease.loss().reason == "expired"  # R13: by proof
    at.heal(5, answers=False)


# -- keys are given back to no lease that is over (R14, R37) ---------------------------------------------


@proves("R37")
@scene()
def test_masters_that_refused_a_grant_get_its_key_soon(at):
    at.put("redlock:job", "another", masters=[3, 4])
    lock, lease = yield from at.held("job", ttl=10.0, auto_extend=False)
    at.put("redlock:job", None, masters=[3])
    yield at.sleep(0.25 + 0.1)  # `node_timeout`
    assert at.values() == [lease.token] * 4 + ["another"]  # P8
    at.put("redlock:job", None, masters=[4])
    yield at.sleep(1.0)
    assert at.values() == [lease.token] * 5  # R37: not renewed, and asked once more
    yield lock.release


@scene()
def test_a_master_that_says_late_that_it_has_no_key_gets_none_behind_the_release(at):
    lock, _ = yield from at.held("job", ttl=TTL, then=0.1)
    at.put("redlock:job", None, masters=[0])
    at.cut([0], requests=False)
    yield at.sleep(TTL / 3)  # it is renewed, and the others have answered
    yield lock.release
    at.heal([0], requests=False)
    yield from at.none_left()


@proves("R14")
@scene(worlds=["threads"])
@pytest.mark.parametrize("lacks", ["when it is renewed", "from the beginning"])
def test_a_key_that_is_about_to_be_given_back_is_not_written_behind_the_release(at, lacks):
    """The thread that renews is preempted just before it writes that, and its holder releases meanwhile."""
    repair, driver, repairs = at.library["_core.kernel.extension"].Repair, at.masters._runtime.driver(), []
    send = driver.send
    for master in range(1, 5):  # what master 0 lacks is known before the others have decided
        at.far(master, 0.01)

    def preempted(request, operation):
        if isinstance(request, repair):
            repairs.append(at.now)
            at.block(0.1)
        send(request, operation)

    driver.send = preempted
    if lacks == "from the beginning":
        at.put("redlock:job", "another", masters=[0])
    lock, _ = yield from at.held("job", ttl=TTL)
    at.put("redlock:job", None, masters=[0])
    yield from at.until(lambda: repairs)
    yield lock.release
    yield from at.none_left(0.2)


@scene()
def test_a_lease_that_nobody_can_release_any_more_is_released_at_once(at):
    yield (lambda: at.masters.lock("job", ttl=10.0, bound=False).acquire())
    gc.collect()
    yield from at.none_left()  # R15


@scene()
def test_so_are_the_keys_of_one_that_was_lost_before(at):
    told: list[Any] = []
    locks = [at.masters.lock("job", ttl=TTL, bound=False, on_lost=told.append)]
    yield locks[0].acquire
    yield at.sleep(0.1)
    at.cut(5, requests=False)
    yield at.sleep(TTL)
    assert len(told) == 1
    assert at.keys() == 5, "the extensions arrive, and the holder hears nothing"
    locks.clear()
    gc.collect()
    yield from at.none_left()  # R15
    at.heal(5, requests=False)
