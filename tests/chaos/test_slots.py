"""`slots`: never more holders of a group than there are slots (R32)."""

from __future__ import annotations

import pytest

from chaos.history import MUST, Unreadable
from chaos.judge.slots import group_of
from tests.chaos.tape import Tape

EVERYTHING = (*MUST, "slots")


def group(limit: int = 2) -> Tape:
    tape = Tape(must=EVERYTHING, locks=tuple(f"a#{slot}" for slot in range(limit)))
    tape.header["slots"] = {"a": limit}
    return tape


def test_as_many_as_there_are() -> None:
    tape = group()
    tape.held(1, "client-1", "A", until=11, fence=1, lock="a#0")
    tape.held(2, "client-2", "B", until=12, fence=1, lock="a#1")
    tape.event(5, "client-1", "release", "invoke", lock="a#0", token="A")
    tape.held(5, "client-2", "C", until=15, fence=2, lock="a#0")
    assert tape.judge("slots") == tape.judge("exclusive") == []
    assert not tape.ruling("slots").vacuous
    assert tape.verdict().outcome == "passed"


def test_one_more() -> None:
    """As with a counter for each master: each believes in a slot, and two in the same one."""
    tape = group()
    first = tape.held(1, "client-1", "A", until=11, fence=1, lock="a#0")
    second = tape.held(2, "client-2", "B", until=12, fence=1, lock="a#1")
    third = tape.held(10.9, "client-3", "C", until=15, fence=2, lock="a#0")
    assert tape.judge("slots") == [[first, second, third]]
    assert len(tape.judge("exclusive")) == 1
    assert tape.verdict().outcome == "violated"


def test_one_slot_twice_is_no_one_more() -> None:
    tape = group()
    tape.held(1, "client-1", "A", until=11, fence=1, lock="a#0")
    tape.held(2, "client-2", "B", until=12, fence=2, lock="a#0")
    assert tape.judge("slots") == []
    assert len(tape.judge("exclusive")) == 1


@pytest.mark.parametrize("end", [5, 5.000001])
def test_touching_is_not_together(end: float) -> None:
    tape = group(1)
    tape.held(1, "client-1", "A", until=end, fence=1, lock="a#0")
    tape.held(5, "client-2", "B", until=12, fence=2, lock="a#0")
    assert bool(tape.judge("slots")) == (end > 5)


def test_a_lease_that_is_handed_over_is_one() -> None:
    tape = group(1)
    tape.held(1, "client-1", "A", until=11, fence=1, lock="a#0")
    tape.event(3, "client-2", "resume", "ok", lock="a#0", token="A", valid_until=13)
    assert tape.judge("slots") == []


def test_a_number_that_is_too_great() -> None:
    tape = group()
    line = tape.held(1, "client-1", "A", until=11, fence=1, lock="a#2")
    assert tape.judge("slots") == [[line]]


def test_what_is_no_slot_of_the_header_counts_for_nothing() -> None:
    tape = group(1)
    for process, lock in (("client-1", "a"), ("client-2", "b#0"), ("client-3", "a#0"), ("client-4", "a#x")):
        tape.held(1, process, process, until=11, fence=1, lock=lock)
    assert tape.judge("slots") == []
    assert Tape(must=EVERYTHING).ruling("slots").vacuous
    assert group_of("a#b#12") == ("a#b", 12)
    assert group_of("a#") is group_of("a") is group_of("a#-1") is None


def test_a_grant_whose_slot_was_not_known_when_it_was_asked_for() -> None:
    """`fenced`: it began when the group was asked."""
    tape = group()
    tape.event(1, "client-1", "acquire", "invoke", lock="a")
    tape.held(2, "client-2", "B", until=2.5, fence=2, lock="a#0", invoked=1.5)
    tape.held(4, "client-1", "A", until=12, fence=1, lock="a#0")
    assert tape.judge("fenced") == []
    late = group()
    late.held(2, "client-2", "B", until=2.5, fence=2, lock="a#0", invoked=1.5)
    late.event(3, "client-1", "acquire", "invoke", lock="a")
    late.held(4, "client-1", "A", until=12, fence=1, lock="a#0")
    assert len(late.judge("fenced")) == 1


@pytest.mark.parametrize("slots", [[], {"a": 0}, {"a": "2"}, {"a": True}, 3])
def test_a_header_that_makes_no_sense(slots: object) -> None:
    tape = group()
    tape.header["slots"] = slots
    with pytest.raises(Unreadable, match="slots"):
        tape.history()
