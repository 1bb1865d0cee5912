"""A fixed corpus of seeds, in chunks that pytest-xdist spreads over the cores.

The long run is ``python -m tests.simulation --seeds 100000``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.simulation.parameters import (
    come_and_go,
    confirmed,
    crowd,
    draw,
    household,
    in_order,
    periods,
    readers_and_writers,
    slots,
)
from tests.simulation.run import simulate

# What faults do the first family shows; the others are there for what is new in them.  `make record` plays more each time.
SEEDS = 500
PERIODS = 100
READERS = 50
COME_AND_GO = 10
SLOTS = 50
CONFIRMED = 100
IN_ORDER = 40
CHUNK = 50
# By long runs, each a violation then.
FOUND = (536, 12614, 24226, 27730, 1023712, 2022798)
# Twelve clients on one free slot, whose attempts took as long as the longest pause that kept them apart.  A master that
# thawed and announced what it had been told forty seconds before, of which waiters remembered nothing: the judge did.
FOUND_OF_SLOTS = (10478, 961769)
# A writer took back what it had got of a lock, and new readers came in there.  In the last one it had got it everywhere.
FOUND_OF_WRITERS = (850123, 850154, 850399, 931721)


def granted(drawn, start):
    return sum(simulate(drawn(seed)).judge.grants for seed in range(start, start + CHUNK))


@pytest.mark.parametrize("drawn", [draw, crowd, household, in_order, slots])
def test_one_seed_is_one_run(drawn):
    first, second = (simulate(drawn(1)).world.lines() for _ in range(2))
    assert first == second


@pytest.mark.parametrize("start", range(0, SEEDS, CHUNK))
def test_seeds_keep_every_promise(start):
    assert granted(draw, start) > CHUNK, "so little is granted that nothing can go wrong"


@pytest.mark.parametrize("start", range(0, PERIODS, CHUNK))
def test_nobody_else_is_granted_it_too_early(start):
    """R28, whatever is lost, killed or restarted."""
    assert granted(periods, start) > CHUNK


@pytest.mark.parametrize("start", range(0, READERS, CHUNK))
def test_readers_are_together_and_writers_alone(start):
    """R33, whatever is lost, killed or restarted."""
    assert granted(readers_and_writers, start) > CHUNK


def test_a_writer_gets_in_although_somebody_always_reads():
    """R33."""
    seeds = (*range(COME_AND_GO), *FOUND_OF_WRITERS)
    assert sum(simulate(come_and_go(seed)).judge.writes for seed in seeds) > len(seeds)


@pytest.mark.parametrize("start", range(0, SLOTS, CHUNK))
def test_at_most_so_many_have_a_slot(start):
    """R32, whatever is lost, killed or restarted."""
    assert granted(slots, start) > CHUNK


@pytest.mark.parametrize("start", range(0, CONFIRMED, CHUNK))
def test_one_alone_has_it_whatever_a_minority_of_clocks_does(start):
    """R35: locks, one of two slots, and readers and writers, while a minority steps or loses lock keys."""
    grants = 0
    for seed in range(start, start + CHUNK):
        fixed = {3: {"slots": 2, "names": 1, "several": 0.0}, 4: {"readers": 0.5}}.get(seed % 5, {})
        grants += simulate(confirmed(seed, **fixed)).judge.grants
    assert grants > CHUNK


def test_many_leases_are_renewed_together_and_on_record():
    """R35, and jobs that keep others out for a while."""
    wrong = {"confirm": True, "masters": 3, "fence_ttl": 3600.0, "faults": (("lie", 1.0), ("evict", 1.0), ("cut", 0.3))}
    together = sum((simulate(household(seed, **wrong)).judge.together for seed in range(4)), Counter())
    assert sum(rounds for leases, rounds in together.items() if leases > 1)
    for seed in range(10):
        assert simulate(periods(seed, looks=0.0, **wrong)).judge.grants


@pytest.mark.parametrize("start", range(0, IN_ORDER, CHUNK // 5))
def test_nobody_is_overtaken(start):
    """R42, among many who wait in order and a few who do not."""
    waited = 0
    for seed in range(start, start + CHUNK // 5):
        waited += simulate(in_order(seed)).judge.line.waited
    assert waited > CHUNK // 5, "so few wait that nobody can be overtaken"


@pytest.mark.parametrize("seed", FOUND_OF_SLOTS)
def test_seeds_of_slots_that_once_were_violations(seed):
    assert simulate(slots(seed)).judge.grants


@pytest.mark.parametrize("seed", range(8))
def test_many_who_are_far_away_settle(seed):
    """R25: neither a lock nor the only free slot is contended for ever where an attempt takes longer than 128 ms."""
    far = replace(slots(FOUND_OF_SLOTS[0]), seed=seed)
    assert simulate(far).judge.grants
    assert simulate(replace(far, slots=0, contended=True)).judge.grants


@pytest.mark.parametrize("seed", FOUND)
def test_seeds_that_once_were_violations(seed):
    assert simulate(draw(seed)).judge.grants


@pytest.mark.parametrize("seed", [7, 55, 731, 1672])
def test_a_seed_reproduces_its_run(seed):
    """Not only the verdict: every step, at the same time."""
    first, second = simulate(draw(seed)), simulate(draw(seed))
    assert first.world.lines() == second.world.lines()
    assert len(first.world.trace) > 100
    assert simulate(draw(seed + 1)).world.lines() != first.world.lines()
