"""What counts as a hand-over: a lock that one contender takes again and again is not passed on."""

from __future__ import annotations

import pytest

from benchmarks.scenarios.contention import Hold, contend, handovers, per_second

A, B = (0, 0), (1, 0)


def test_only_to_another_one():
    holds = [Hold(0.0, 1.0, A), Hold(1.5, 2.0, A), Hold(2.25, 3.0, B), Hold(3.5, 4.0, A)]
    assert handovers(holds) == pytest.approx([0.25, 0.5])
    assert per_second(2, holds) == pytest.approx(2 / 3.5)


def test_nothing_to_measure():
    assert handovers([]) == []
    assert per_second(0, [Hold(0, 1, A)]) == 0


class Played:
    """A worker that has done what is written here."""

    def __init__(self, *holds):
        self._holds = holds

    def tell(self, *words):
        pass

    def hear(self, within):
        return {"holds": list(self._holds)}


def test_the_time_in_which_one_process_was_alone_is_left_out():
    first = Played((0.0, 0.5, 0), (1.0, 1.5, 0), (3.0, 3.5, 0))
    second = Played((2.0, 2.5, 0), (4.0, 4.5, 0), (5.0, 5.5, 0))
    assert contend([first, second], "name", 1, 1.0) == [Hold(2.0, 2.5, B), Hold(3.0, 3.5, A)]


def test_a_process_that_never_had_it():
    holds = contend([Played((0.0, 0.5, 0), (1.0, 1.5, 0)), Played()], "name", 1, 1.0)
    assert [hold.contender for hold in holds] == [A, A]
    assert contend([Played(), Played()], "name", 1, 1.0) == []
