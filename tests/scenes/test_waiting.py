"""Waiting for a name: who is next, what wakes a waiter, what a dead one costs (R23, R24, R41, R42)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tenacity.wait import wait_fixed

from redlock._core import wire
from redlock._core.fair import tickets
from tests.bench import scene
from tests.owners import proves

NEVER = wait_fixed(1000)  # only what masters say wakes a waiter
A_SECOND = tickets.LIFE + 0.3  # the life of a ticket, and an attempt


def takes(at, served, after, **options):
    """Come, wait, and give it back a little later."""
    yield at.sleep(after)
    lock, lease = yield from at.held("job", **options)
    served.append((at.now, after, lease.fence))
    yield at.sleep(0.2)
    yield lock.release


@proves("R42")
@scene(skew=3.0)  # their wall clocks
def test_waiters_of_several_processes_are_served_in_the_order_in_which_they_came():
    served: list[Any] = []

    def holds(at):
        lock, _ = yield from at.held("job", then=6.0)  # some lives of a ticket: waiting renews it
        yield lock.release
        yield from at.until(lambda: len(served) == 4, 10.0)
        assert [came for _, came, _ in served] == [0.5, 1.0, 1.5, 2.0]  # R42
        assert sorted(served) == sorted(served, key=lambda one: one[2])  # P2

    return [holds, *(partial(takes, served=served, after=number / 2, fair=True) for number in range(1, 5))]


@scene()
def test_a_waiter_that_gave_up_is_not_waited_for_by_those_behind_it():
    served: list[Any] = []

    def holds(at):
        lock, _ = yield from at.held("job", then=3.0)
        released = at.now
        yield lock.release
        yield from at.until(lambda: served, 10.0)
        assert served[0][0] - released < 0.05  # R23

    def gives_up(at):
        yield at.sleep(0.1)
        yield from at.raises(at.errors.NotAcquired, at.within(at.masters.lock("job", timeout=1.0)))

    return [(holds, gives_up, partial(takes, served=served, after=0.2))]


# -- one try (C3) ----------------------------------------------------------------------------------------


@proves("C3")
@scene(masters=3)
@pytest.mark.parametrize("kind", ["name", "names", "slots"])
def test_of_clients_that_try_once_at_the_same_moment_one_gets_it(kind):
    """Each is near to one master, and refused by those that are near to others."""
    rounds, clients, won = 10, 4, []

    def tries(at, number):
        for line in at.client.lines.values():
            line._delay *= 1 if line.server.master.index == number % 3 else 15
        name = ["job", "other"] if kind == "names" else "job"
        lock = at.masters.slots(name, limit=1) if kind == "slots" else at.masters.lock(name)
        yield partial(at.masters.status, "job")
        for turn in range(1, rounds + 1):
            yield at.sleep(5.0 * turn - at.now)
            if (yield partial(lock.acquire, timeout=0)) is not None:
                won.append(turn)
                yield at.sleep(3.0)
                yield lock.release
        yield at.sleep(5.0 * rounds + 5.0 - at.now)
        assert won == [*range(1, rounds + 1)]

    return [partial(tries, number=number) for number in range(clients)]


@scene()
def test_waiters_that_have_died_cost_a_second_once():
    served: list[Any] = []

    def holds(at):
        lock, _ = yield from at.held("job", then=5.0)
        for number in (1, 2):
            at.crash(at.other(number))
        yield lock.release
        yield from at.until(lambda: served, A_SECOND)  # R42
        yield from at.until(lambda: len(served) == 3, 10.0)
        assert served[2][0] - served[0][0] < 0.6  # the others do not pay for them again

    waiters = [partial(takes, served=served, after=number / 2, fair=True, retry=NEVER) for number in range(1, 6)]
    return [holds, *waiters]


@scene()
def test_no_other_client_is_granted_a_name_while_a_client_waits_in_order(at):
    call = tickets.stand(wire.keys_for("redlock:", ["job"]), "another", 1_700_000_000_000_000, 60.0, new=False)
    for server in at.servers:
        server.master.evaluate(call, text=True)
    began = at.now
    for options in ({"shared": True}, {}, {"fair": True}):
        lock = at.masters.lock("job", timeout=0, **options)
        yield from at.raises(at.errors.NotAcquired, at.within(lock), r"wait in order|is next in the queue")
    lock = at.masters.lock("job", retry=NEVER)  # the end of that ticket wakes it
    yield lock.acquire
    assert at.now - began < A_SECOND
    yield lock.release


@scene()
def test_a_waiter_that_gives_up_leaves_no_ticket_behind():
    def holds(at):
        lock, _ = yield from at.held("job")
        yield at.sleep(2.1 - at.now)
        yield lock.release

    def gives_up(at):
        yield at.sleep(1.0 - at.now)
        assert (yield partial(at.masters.lock("job", fair=True).acquire, timeout=1.0)) is None
        yield at.sleep(0.2)
        assert not any("tickets" in key for server in at.servers for key in server.master.keys)
        assert (yield partial(at.masters.lock("job").acquire, timeout=0)) is not None  # P4
        at.crash()
        yield at.sleep(0.1)

    return [holds, gives_up]


# -- too few masters (C2) --------------------------------------------------------------------------------


def tries(at, told, patience, *, slots, after=0.0):
    """One of the threads or tasks of a process, which come in the same moment."""
    yield at.sleep(1.0 + after - at.now)
    lock = at.masters.slots("job", limit=slots) if slots else at.masters.lock("job", bound=False)
    try:
        lease = yield partial(lock.acquire, timeout=patience)
    except at.errors.QuorumUnreachable:
        told.append("unreachable")
        return
    told.append("granted" if lease else "held")
    if lease:
        yield at.sleep(1.0)
        yield lock.release


def breaks(at, outage):
    yield at.sleep(0.9)
    getattr(at, outage)(3)
    yield at.sleep(5.0)
    at.thaw()


@proves("C2")
@scene()
@pytest.mark.parametrize("slots", [0, 2])
@pytest.mark.parametrize("outage", ["kill", "freeze"])
@pytest.mark.parametrize("patience", [2.0, 0.1, 0.0])
def test_an_outage_is_told_to_all_that_wait_in_a_process(patience, outage, slots):
    told: list[str] = []

    def checks(at):
        yield at.sleep(5.0)
        assert told == ["unreachable"] * 5

    waiters = [partial(tries, told=told, patience=patience, slots=slots)] * 5
    return [(partial(breaks, outage=outage), checks, *waiters)]


@scene()
@pytest.mark.parametrize("slots", [0, 2])
def test_an_outage_is_told_to_a_client_that_only_tries_behind_one_that_waits(slots):
    told: list[str] = []

    def checks(at):
        yield at.sleep(3.0)
        assert told == ["unreachable"] * 3

    waits = partial(tries, told=[], patience=30.0, slots=slots)
    others = [partial(tries, told=told, patience=0.0, slots=slots, after=1.0)] * 3
    return [(partial(breaks, outage="kill"), checks, waits, *others)]


@scene()
@pytest.mark.parametrize("slots", [0, 1])
def test_while_masters_answer_another_client_has_the_name(slots):
    told: list[str] = []

    def checks(at):
        yield at.sleep(3.0)
        assert sorted(told) == ["granted", *["held"] * 4]

    return [(checks, *[partial(tries, told=told, patience=one, slots=slots) for one in (0.0, 0.5, 0.5, 0.5, 0.0)])]


@scene()
@pytest.mark.parametrize(("ends", "options"), [
    (3.0 / 3, {"ttl": 3.0}), (0.5, {"max_hold": 0.5}), (3.0, {"ttl": 3.0, "auto_extend": False}),
], ids=["stolen", "max_hold", "expired"])  # fmt: skip
def test_a_lease_that_is_lost_lets_the_next_waiter_of_its_process_pass(at, ends, options):
    """R23: long before its holder looks at it, and without a word of it."""
    served: list[Any] = []
    lock, began = at.masters.lock("job", **options), at.now
    lease = yield lock.acquire
    retry = wait_fixed(0.02)
    first = yield at.begin(takes(at, served, 0.0, retry=retry))
    second = yield at.begin(takes(at, served, 0.1, retry=retry))
    yield at.sleep(0.2)
    if ends == 1.0:
        at.put("redlock:job", "another", ttl=ends)  # the next renewal proves it (R13)
    yield from at.until(lambda: at.over(first) and at.over(second))
    assert [came for _, came, _ in served] == [0.0, 0.1]
    assert 0.0 < served[0][0] - began - ends < 0.3
    assert served[0][2] > lease.fence
    assert lease.lost
    yield from at.raises(at.errors.LockLost, lock.release)


# -- until it is free ------------------------------------------------------------------------------------


@scene()
def test_wait_until_free_ends_at_its_timeout(at):
    lock, _ = yield from at.held("job", bound=False)
    assert (yield partial(at.masters.wait_until_free, "job", 0)) is False
    began = at.now
    assert (yield partial(at.masters.wait_until_free, "job", timeout=3.0)) is False
    assert at.exactly(began + 3.0)
    yield lock.release


@scene()
def test_a_release_wakes_all_that_wait_until_a_name_is_free_and_none_of_them_polls():
    free: list[float] = []

    def holds(at):
        lock, _ = yield from at.held("job", ttl=50.0, then=2.0)
        before = at.play.judge.calls
        yield at.sleep(10.0)
        assert at.play.judge.calls - before < 4 * 5 * 12  # at 0.5, 1, 2 s: waiters that poll ask hundreds of times
        released = at.now
        yield lock.release
        yield at.sleep(0.5)
        assert len(free) == 4
        assert max(free) - released < 0.1  # R24; and R23: none stands in a queue

    def waits(at):
        yield at.sleep(1.0)
        assert (yield partial(at.masters.wait_until_free, "job"))
        free.append(at.now)

    return [(holds, waits), waits, (waits, waits)]
