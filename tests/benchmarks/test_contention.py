"""What counts as a hand-over: a lock that one contender takes again and again is not passed on."""

from __future__ import annotations

import math

import pytest

from benchmarks.scenarios.contention import Hold, contend, handovers, jain

A, B = (0, 0), (1, 0)


def test_only_to_another_one():
    holds = [Hold(0.0, 1.0, A), Hold(1.5, 2.0, A), Hold(2.25, 3.0, B), Hold(3.5, 4.0, A)]
    assert handovers(holds) == pytest.approx([0.25, 0.5])
    assert handovers([]) == []


class Played:
    """A worker that does what is written here, counted from the moment at which all begin."""

    def __init__(self, *holds):
        self._holds = holds

    def tell(self, *words):
        self._begin = words[5]
        assert words[6] - self._begin == pytest.approx(10.0)

    def hear(self, within):
        assert within < math.inf
        return {
            "holds": [(self._begin + acquired, self._begin + released, who) for acquired, released, who in self._holds]
        }


def contended(*workers):
    return contend(workers, "name", 2, 10.0)


def test_what_several_processes_did_is_put_in_its_order():
    first, second = Played((0.0, 0.5, 0), (3.0, 3.5, 0)), Played((2.0, 2.5, 0), (4.0, 4.5, 1))
    holds = contended(first, second)
    assert [hold.contender for hold in holds] == [A, B, A, (1, 1)]
    assert handovers(holds) == pytest.approx([1.5, 0.5, 0.5])


def test_what_began_after_the_end_is_left_out():
    holds = contended(Played((0.0, 0.5, 0), (9.9, 10.4, 0), (10.5, 11.0, 0)), Played())
    assert len(holds) == 2


def test_jains_index():
    """Of four contenders: all alike, and one that gets everything."""
    alike = [Hold(0.0, 0.0, (process, number)) for process in (0, 1) for number in (0, 1)]
    assert jain(alike * 3, 2, 2) == 1.0
    assert jain(alike[:1] * 9, 2, 2) == 0.25
    assert jain([], 2, 2) == 0.0
