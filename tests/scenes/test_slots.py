"""Slots: at most so many holders, by so many locks and never by a counter (R32)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tenacity.wait import wait_fixed

from tests.bench import scene
from tests.owners import proves


@proves("R32")
@scene(masters=3)
def test_each_client_reaches_two_masters_and_no_more_hold_a_slot_than_there_are():
    """Each master sees two of them, and any two of them share one master."""
    given: list[Any] = []

    def takes(at, far):
        yield at.sleep(1.0 + far)
        at.cut([far])
        slot = at.masters.slots("group", limit=2)
        given.append((yield partial(slot.acquire, timeout=0)))
        yield from at.until(lambda: len(given) == 3)
        assert sum(lease is not None for lease in given) == 2
        at.heal([far])
        if slot.owned():
            yield slot.release

    return [partial(takes, far=far) for far in range(3)]


@scene(masters=2)
def test_clients_that_masters_give_different_slots_hold_different_slots():
    """Each is near to another master, so one gives it this slot, and the other one that slot: a vote is for one of them."""
    turns, given = range(20), {}

    def takes(at, near):
        for master in range(2):
            at.far(master, 0.0003 if master == near else 0.003)
        for turn in turns:
            at.put(f"redlock:group-{turn}#0", "another")
            yield at.sleep(1.0 + turn - at.now)
            slot = at.masters.slots(f"group-{turn}", limit=3)
            lease = yield partial(slot.acquire, timeout=0.5)
            assert lease is not None
            given[turn, near] = lease.name
            yield at.sleep(1.6 + turn - at.now)
            assert given[turn, 0] != given[turn, 1], turn
            assert at.keys(f"redlock:{lease.name}") == 2
            yield slot.release

    return [partial(takes, near=near) for near in range(2)]


@scene()
def test_a_client_that_waits_for_a_slot_pauses_and_the_release_of_any_wakes_it():
    released: list[float] = []

    def holds(at):
        slots = [at.masters.slots("group", limit=3, ttl=50.0, bound=False) for _ in range(3)]
        for slot in slots:
            yield slot.acquire
        yield at.sleep(1.1 - at.now)
        before = at.play.judge.calls
        yield at.sleep(0.2)
        assert at.play.judge.calls == before  # R25: they ask for a slot no more
        yield at.sleep(10.0)
        for slot in slots:
            released.append(at.now)
            yield slot.release
            yield at.sleep(2.0)

    def waits(at):
        yield at.sleep(1.0 - at.now)
        slot = at.masters.slots("group", limit=3, retry=wait_fixed(1000))
        yield slot.acquire
        assert at.exactly(released[-1])  # R24
        yield at.sleep(10.0)
        yield slot.release

    return [holds, waits, waits, waits]


@pytest.mark.long
@pytest.mark.parametrize(("slots", "masters"), [(3, 3), (8, 3), (3, 5)])
def test_contenders_for_as_many_free_slots_need_two_rounds(slots, masters):
    """A third one is rare, although each message takes another time (0.2 to 1.8 of the usual one)."""
    rounds: list[int] = []
    turns = 960 // slots

    def contends(at):
        def attempts():
            client: Any = at.client
            return sum(one.client is client for one in at.play.judge._by_token.values())

        for turn in range(turns):
            slot = at.masters.slots(f"group-{turn}", limit=slots)
            yield at.sleep(1.0 + turn - at.now)
            before = attempts()
            assert (yield slot.acquire) is not None
            rounds.append(attempts() - before)
            yield at.sleep(0.5)
            yield slot.release

    @scene(masters=masters, worlds=["tasks"])
    def contend():
        return [contends] * slots

    contend(world="tasks")
    assert len(rounds) == slots * turns
    assert sum(one > 2 for one in rounds) <= 0.025 * len(rounds), sorted(rounds)[-20:]
