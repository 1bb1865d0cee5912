"""The steps from the masters in use to others (R34): each is safe, and what is not safe is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from redlock._core.fleet import compatible
from redlock._health.plan import plan
from redlock._health.result import MastersList
from redlock._health.verdict import judge
from tests.health.facts import CLIENT_OPTIONS, dead, healthy

if TYPE_CHECKING:
    from redlock._health.facts import MasterFacts


def named(*numbers: int) -> tuple[str, ...]:
    return tuple(f"10.0.0.{number}:6379" for number in numbers)


def alive(*lists: tuple[str, ...]) -> list[MastersList]:
    return [MastersList(names, recorded=True, several=False, seen_s=0.1, known_to=names) for names in lists]


def health_of(facts: list[MasterFacts] | None = None) -> Any:
    return judge(facts or [healthy(number) for number in range(20)], CLIENT_OPTIONS, None)


@pytest.mark.parametrize("size", range(1, 10))
def test_each_step_goes_with_the_list_before(size):
    """From lists of up to nine to others of up to nine, which share some."""
    health = health_of()
    for after in range(1, 10):
        for kept in range(min(size, after) + 1):
            goes_step_by_step(named(*range(size)), named(*range(kept), *range(10, 10 + after - kept)), health)


def goes_step_by_step(now, new, health):
    found = plan(alive(now), now, new, health)
    assert not found.refused
    here = set(now)
    for step in found.steps:
        there = set(step.masters)
        assert len(here ^ there) == 1, "one address at a time"
        assert step.master in here ^ there
        assert (step.change == "add") == (step.master in there)
        assert compatible(here, there)
        here = there
    assert here == set(new)
    assert len(found.steps) == len(set(now) ^ set(new)), "no detour"


def test_in_the_middle_of_a_change_the_next_step_waits():
    found = plan(alive(named(1, 2, 3), named(1, 2, 3, 4)), named(1, 2, 3), named(2, 3, 4), health_of())
    (step,) = found.steps
    assert (step.change, step.master) == ("remove", *named(1))
    assert found.waits == f"clients still have {', '.join(named(1, 2, 3))}"
    assert not plan(alive(named(1, 2, 3, 4)), named(1, 2, 3, 4), named(2, 3, 4), health_of()).waits


THREE, FIVE = (1, 2, 3), (1, 2, 3, 4, 5)
THEY = [healthy(number) for number in THREE]


@pytest.mark.parametrize(("lists", "now", "new", "facts", "said"), [
    pytest.param([THREE, (2, 3, 4)], THREE, (2, 3, 4), None, "are incompatible already",
        id="clients-that-do-not-go-together-are-no-beginning"),
    pytest.param([THREE], (7, 8, 9), (7, 8, 9, 10), None, "another list than the one that is given",
        id="a-list-that-nobody-has-is-no-beginning"),
    pytest.param([THREE], THREE, (1, 2, 3, 4), [*THEY, dead(4)], "the new master 10.0.0.4:6379 cannot vote",
        id="a-new-master-that-cannot-vote"),
    pytest.param([THREE], THREE, (1, 2, 3, 4), [*THEY, healthy(4, info={"run_id": THEY[0].info["run_id"]})],
        "One server under two names has one vote", id="a-new-master-that-is-an-old-one"),
    pytest.param([FIVE], FIVE, (2, 3, 4, 5), [*THEY, dead(4), dead(5)],
        "without 10.0.0.1:6379 only 2 of 4 masters would be up", id="no-step-takes-the-majority-away"),
])  # fmt: skip
def test_what_is_refused(lists, now, new, facts, said):
    found = plan(alive(*(named(*one) for one in lists)), named(*now), named(*new), health_of(facts))
    assert said in found.refused
    assert not found.steps


def test_an_old_master_that_is_down_may_be_replaced():
    facts = [dead(1), healthy(2), healthy(3), healthy(4)]
    found = plan(alive(named(1, 2, 3)), named(1, 2, 3), named(2, 3, 4), health_of(facts))
    assert not found.refused
    assert len(found.steps) == 2


def test_masters_that_are_down_go_first_and_are_not_counted_among_those_that_may_fail():
    facts = [healthy(number) for number in (1, 2, 3, 4)] + [dead(5)]
    found = plan(alive(named(1, 2, 3, 4, 5)), named(1, 2, 3, 4, 5), named(1, 2, 3), health_of(facts))
    assert [(step.master, step.survives) for step in found.steps] == [(*named(5), 1), (*named(4), 1)]
