"""`slots`: never more holders of a group than there are slots (R32)."""

from __future__ import annotations

import pytest

from chaos.history import MUST, Unreadable
from chaos.judge.slots import group_of
from tests.chaos.tape import Tape

EVERYTHING = (*MUST, "slots")


def group(limit=2):
    return Tape(must=EVERYTHING, locks=tuple(f"a#{slot}" for slot in range(limit)), slots={"a": limit})


# How many slots there are, what happens, the events of each violation of `slots`, and how many there are of `exclusive`.
STORIES: dict[str, tuple[int, str, list[list[int]], int]] = {
    "as-many-as-there-are":
        (2, "1 A held until 11 of a#0, 2 B held until 12 of a#1, 5 A releases of a#0, 5 C held until 15 of a#0", [], 0),
    # As with a counter for each master: each believes in a slot, and two in the same one.
    "one-more": (2, "1 A held until 11 of a#0, 2 B held until 12 of a#1, 10.9 C held until 15 of a#0", [[2, 3, 4]], 1),
    "one-slot-twice-is-no-one-more": (2, "1 A held until 11 of a#0, 2 B held until 12 of a#0", [], 1),
    "touching-is-not-together": (1, "1 A held until 5 of a#0, 5 B held until 12 of a#0", [], 0),
    "a-little-is": (1, "1 A held until 5.000001 of a#0, 5 B held until 12 of a#0", [[2, 3]], 1),
    "handed-over-it-is-one": (1, "1 A held until 11 of a#0, 3 A/2 resumed until 13 of a#0", [], 0),
    "a-number-that-is-too-great": (2, "1 A held until 11 of a#2", [[2]], 0),
}  # fmt: skip


@pytest.mark.parametrize("name", STORIES)
def test_who_holds_together(name):
    limit, story, expected, twice = STORIES[name]
    tape = group(limit).told(story)
    assert tape.judge("slots") == expected
    assert len(tape.judge("exclusive")) == twice
    assert not tape.ruling("slots").vacuous
    assert tape.verdict("slots").outcome == ("violated" if expected else "passed")


def test_what_is_no_slot_of_the_header_counts_for_nothing():
    tape = group(1)
    for process, lock in (("client-1", "a"), ("client-2", "b#0"), ("client-3", "a#0"), ("client-4", "a#x")):
        tape.held(1, process, process, until=11, fence=1, lock=lock)
    assert tape.judge("slots") == []
    assert Tape(must=EVERYTHING).ruling("slots").vacuous
    assert group_of("a#b#12") == ("a#b", 12)
    assert group_of("a#") is group_of("a") is group_of("a#-1") is None


def test_a_grant_whose_slot_was_not_known_when_it_was_asked_for():
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
def test_a_header_that_makes_no_sense(slots):
    with pytest.raises(Unreadable, match="slots"):
        Tape(slots=slots).history()
