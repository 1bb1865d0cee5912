"""Clients with different lists of masters: who gives way, to whom, and for how long (R34)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.bench import play, scene
from tests.owners import proves

MAX_TTL = 4.0
LIFE = 2 * MAX_TTL  # an announcement counts for so long
NODE_TIMEOUT = 0.25
# The processes in turn.  They share one master, which is further away than the others.
FAR: dict[str, Any] = {
    "lists": ((0, 1, 2), (2, 3, 4)), "max_ttl": MAX_TTL, "ttl": 3.0, "node_timeout": NODE_TIMEOUT, "delay": 0.03,
}  # fmt: skip
FLEET = "redlock-fleet:redlock:"


def holds(at, until):
    """Its lease is valid all that time."""
    lock, lease = yield from at.held("job", ttl=3.0)
    yield at.sleep(until - at.now)
    assert lease.valid
    yield lock.release


def gets(at, name="job", of=None):
    """``yield from`` it: does it get this lock now?"""
    lock = (of or at.masters).lock(name, ttl=3.0)
    try:
        if (yield partial(lock.acquire, timeout=0)) is None:
            return False
    except at.errors.QuorumUnreachable:
        return False
    yield lock.release
    return True


@pytest.mark.parametrize("how", ["killed", "closed"])
def who_comes_last_gives_way(how):
    def first(at):
        lock, lease = yield from at.held("job", ttl=3.0)
        yield at.sleep(10.0 - at.now)
        assert lease.valid
        if how == "killed":
            at.crash()
        yield lock.release
        yield at.masters.close

    def late(at):
        lock = at.masters.lock("job", ttl=3.0)
        yield from at.raises(at.errors.QuorumUnreachable, partial(lock.acquire, timeout=5), match="only we have")
        assert at.now < 1.5  # waiting would not cure it
        while not (yield from gets(at)):
            yield at.sleep(0.2)
        # Who has closed counts for one max_ttl, and else for two from when it was seen last: then, or half a max_ttl before.
        low, high = (13.9, 14.7) if how == "closed" else (15.9, 18.7)
        assert low < at.now < high

    return [first, late]


test_who_comes_last_gives_way_until_the_others_are_gone = proves("R34")(
    scene(**FAR, begins=(0.0, 1.0))(who_comes_last_gives_way)
)
test_two_lists_whose_majorities_may_just_miss_each_other_do_not_go_together = scene(
    **FAR | {"lists": ((0, 1, 2), (1, 2, 3)), "masters": 4}, begins=(0.0, 1.0)
)(who_comes_last_gives_way)


@scene(**FAR | {"lists": ((0, 1, 2), (0, 1, 2, 3))}, begins=(0.0, 1.0))
def test_lists_that_differ_by_one_master_go_together():
    def second(at):
        while at.now < 2 * LIFE:
            assert not (yield from gets(at))
            assert (yield from gets(at, "another"))
            yield at.sleep(1.0)

    return [partial(holds, until=3 * LIFE), second]


@scene(**FAR, begins=(0.0, 1.0))
def test_a_newcomer_does_not_work_before_the_common_master_has_answered():
    """All that only it has are near, and are a majority; the common one is far away."""

    def late(at):
        while at.now < 2.0:
            assert not (yield from gets(at))
            yield at.sleep(0.02)

    return [partial(holds, until=5.0), late]


@scene(**FAR, begins=(0.0, 12.0))
@pytest.mark.parametrize("how", ["stopped", "cut off"])
def test_a_client_that_was_out_of_touch_until_its_list_was_forgotten_begins_anew(how):
    """Others came meanwhile.  The masters that only it has are near, and answer first."""

    def first(at):
        assert (yield from gets(at))
        if how == "stopped":
            at.stop(at.client, 20.0)
            yield at.sleep(0.01)
        else:
            at.cut(3)
            yield at.sleep(20.0)
            at.heal([0, 1])
            at.client.world.after(0.2, at.heal, [2])
        assert at.now > 20.0
        while at.now < 22.0:
            assert not (yield from gets(at))
            yield at.sleep(0.02)

    return [first, partial(holds, until=23.0)]


def a_master_forgets_the_lists():
    def first(at):
        lock, lease = yield from at.held("job", ttl=3.0)
        for _ in range(5):
            yield at.sleep(1.3)
            at.put(FLEET, None, masters=[2])
        yield at.sleep(3.0)
        assert lease.valid
        yield lock.release

    def late(at):
        while at.now < 9.0:
            assert not (yield from gets(at))
            yield at.sleep(0.05)

    return [first, late]


test_a_common_master_that_forgets_the_lists_lets_nobody_in = scene(**FAR, begins=(0.0, 1.0))(a_master_forgets_the_lists)
test_one_of_two_common_masters_that_forgets_the_lists_lets_nobody_in = scene(
    **FAR | {"lists": ((0, 1, 2), (1, 2, 3)), "masters": 4}, begins=(0.0, 1.0)
)(a_master_forgets_the_lists)


@scene(**FAR | {"lists": ((0, 1, 2), (2, 3, 4), (0, 1, 2))}, begins=(0.0, 1.0, 2.0))
def test_a_client_with_the_list_of_others_works_at_once_although_it_is_shown_another_one():
    def first(at):
        assert (yield from gets(at))
        yield at.sleep(3.0)

    def wrong(at):
        assert not (yield from gets(at))
        yield at.sleep(3.0)

    def right(at):
        began = at.now
        assert (yield from gets(at))
        assert at.now - began < 0.4  # its connections are made, and all masters have answered

    return [first, wrong, right]


@scene(masters=3, max_ttl=MAX_TTL, ttl=3.0)
@pytest.mark.parametrize(("how", "agreement", "waits"), [
    ("silent", "refuse", True), ("silent", "warn", False), ("dead", "refuse", False),
])  # fmt: skip
def test_a_master_that_is_silent_is_awaited_for_node_timeout(at, how, agreement, waits):
    if how == "dead":
        at.kill([0])
    else:
        at.freeze([0])
    masters, began = (yield partial(at.client.make, agreement=agreement)), at.now
    lock = masters.lock("job", ttl=3.0)
    yield lock.acquire
    assert NODE_TIMEOUT * waits <= at.now - began < NODE_TIMEOUT * waits + 0.1
    yield lock.release
    at.thaw([0])
    yield masters.close


@pytest.mark.parametrize("world", ["threads", "tasks"])
@pytest.mark.parametrize("lasts", [1.2, 1.8, 3.0, 5.0])
def test_of_two_that_came_while_the_common_master_hung_one_works_on_when_it_answers(world, lasts):
    """It carries out all that it was sent meanwhile, also on connections that were given up.  The other one's lease is lost."""
    leases: list[Any] = []

    def works(at, second):
        if not second:
            at.freeze([2])
        lock = at.masters.lock("job", ttl=3.0, on_lost=lambda _: None)
        yield at.sleep(0.5)
        leases.append((yield partial(lock.acquire, timeout=0)))
        yield from at.until(lambda: len(leases) == 2, 0.5)
        assert [lease.valid for lease in leases] == [True, True]  # nobody can know
        yield at.sleep(lasts - at.now)
        at.thaw([0 if second else 2])
        yield at.sleep(0.4)
        for _ in range(20):
            assert [lease.valid for lease in leases].count(True) == 1
            yield at.sleep(0.5)
        if leases[second].lost:
            assert leases[second].loss().reason == "unreachable"
            assert not (yield from gets(at))
        else:
            yield lock.release

    lives = [partial(works, second=second) for second in (False, True)]
    play(lives, threads=world == "threads", begins=(0.0, 0.1), **FAR)


@scene(max_ttl=MAX_TTL, ttl=3.0)
@pytest.mark.parametrize("agreement", ["refuse", "warn", "ignore"])
@pytest.mark.parametrize("lasts", [LIFE, LIFE + 0.5, LIFE + 1.7 * MAX_TTL])
def test_when_a_majority_is_back_after_an_outage_locks_are_granted_soon(at, agreement, lasts):
    """The masters have forgotten its list, and its max_ttl (R21): its connections have outlived that."""
    masters = yield partial(at.client.make, agreement=agreement)
    assert (yield from gets(at, of=masters))
    yield at.sleep(MAX_TTL)
    at.freeze(3)
    yield at.sleep(lasts)
    at.thaw(3)
    began = at.now
    while not (yield from gets(at, of=masters)):
        yield at.sleep(0.02)
    assert at.now - began < 0.1 * MAX_TTL + 3 * NODE_TIMEOUT
    yield masters.close


@scene(**FAR, begins=(0.0, 1.0))
def test_who_only_warns_works_says_so_once_and_leaves_the_others_alone():
    def late(at):
        masters = yield partial(at.client.make, agreement="warn")
        while at.now < 2 * LIFE:
            assert (yield from gets(at, "another", of=masters))
            yield at.sleep(0.5)
        # here, and the first
        assert sum("two clients may hold one lock" in line and "WARNING" in line for line in at.log) == 2
        yield masters.close

    return [partial(holds, until=3 * LIFE), late]
