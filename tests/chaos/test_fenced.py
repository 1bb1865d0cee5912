"""`fenced` (P2): unique, growing in the order of the grants, and a store that was not fooled."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tests.chaos.tape import PROPERTY, Tape, told

FIRST = "1 A held until 2 fence 8 asked 0"
STORIES = {
    "growing": ("5 A held until 6 fence 5 asked 4, 6 B held until 7 fence 6 asked 5, 9 C held until 10 fence 100", ""),
    "a-smaller-one-after-a-greater-one": (f"{FIRST}, 3 B held until 4 fence 7 asked 2", "AB"),
    # The first ended at 1: only who was invoked after that came later.
    "of-two-that-overlap-either-may-come-first": (f"{FIRST}, 3 B held until 4 fence 7 asked 0.5", ""),
    "that-touch": (f"{FIRST}, 3 B held until 4 fence 7 asked 1", ""),
    "that-do-not": (f"{FIRST}, 3 B held until 4 fence 7 asked 1.000001", "AB"),
    "an-acquire-without-an-invocation-took-no-time": (f"{FIRST}, 1.5 B held until 4 fence 7", "AB"),
    "an-invocation-that-was-given-up-is-not-that-of-a-later-answer": (
        f"0 B asks, {FIRST}, 3 B held until 4 fence 7 asked 2", "AB"),
    "nor-is-one-that-was-refused": (f"0 B asks, 0.5 B is-refused, {FIRST}, 3 B held until 4 fence 7", "AB"),
    "nor-is-one-without-an-answer": (f"0 B asks, 0.5 B gives-up, {FIRST}, 3 B held until 4 fence 7", "AB"),
    # R18: equal is not greater, not even for two acquires at the same time.
    "equal-and-overlapping": (f"{FIRST}, 3 B held until 4 fence 8 asked 0.5", "AB"),
    "equal": (f"{FIRST}, 3 B held until 4 fence 8 asked 2", "AB"),
    "of-different-locks": (f"{FIRST}, 3 B held until 4 fence 8 of b, 5 C held until 6 fence 6 of c", ""),
    # R19, C32: only grants count.
    "a-hand-over-and-an-extension": (f"{FIRST}, 2 A extended until 12 fence 8, 3 A/2 resumed until 13", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", STORIES)
def test_fences_of_grants(name):
    """Whose grants the violation is about."""
    story, expected = STORIES[name]
    ruling = told(story).ruling("fenced")
    assert ruling.outcome == ("violated" if expected else "passed")
    assert ["".join(str(event.token) for event in one.events) for one in ruling.violations] == [expected] * bool(
        expected
    )


def test_the_sentence():
    [violation] = told(f"{FIRST}, 3 B held until 4 fence 7").ruling("fenced").violations
    assert "client-2 was given fence 7 of 'a', though client-1 had been given 8" in violation.sentence


def test_workers_of_one_process_are_told_apart():
    tape = Tape()
    tape.event(0, "client-2", "acquire", "invoke", lock="a", worker="1")
    tape.held(1, "client-1", "A", until=2, fence=8)
    tape.event(2, "client-2", "acquire", "invoke", lock="a", worker="2")
    tape.held(3, "client-2", "B", until=4, fence=7, worker="1")  # invoked at 0: may come first
    assert tape.judge("fenced") == []
    tape.held(4, "client-2", "C", until=5, fence=6, worker="2")  # invoked at 2
    assert len(tape.judge("fenced")) == 1


@pytest.mark.parametrize("second", [None, 9])
def test_without_fences_nothing_can_be_said(second):
    tape = Tape()
    tape.held(1, "client-1", "A", until=2, fence=second)
    tape.held(3, "client-1", "B", until=4)
    ruling = tape.ruling("fenced")
    assert ruling.outcome == "unknown"
    assert "no fence" in ruling.note
    assert tape.verdict("exclusive").outcome == "passed"  # nobody asked for it
    assert tape.verdict("exclusive", "fenced").outcome == "unknown"


def test_but_what_is_wrong_among_the_others_is_wrong():
    tape = told("1 A held until 2 fence 8, 3 B/1 held until 4, 5 C/1 held until 6 fence 7")
    assert tape.ruling("fenced").outcome == "violated"


# -- the store -----------------------------------------------------------------------------------------------


HELD = "1 A held until 20 fence 8"
TURNS = "1 A held until 3 fence 7, 4 B held until 14 fence 8, 5 B stored fence 8 read 1"
STORED: dict[str, tuple[str, list[tuple[int, ...]]]] = {
    "a-former-holder": (
        "1 A held until 2 fence 7, 3 B held until 13 fence 8, 4 B stored fence 8, 5 A stored fence 7", [(3, 4)]),
    "it-is-turned-away": (f"{HELD}, 4 B stored fence 8, 5 A turned-away fence 7", []),
    "in-the-plain-one": (f"{HELD}, 4 B stored fence 8, 5 A wrote fence 7", []),
    "the-same-fence": (f"{HELD}, 4 B stored fence 8, 5 A stored fence 8", []),
    "a-greater-one": (f"{HELD}, 4 B stored fence 8, 5 A stored fence 9", []),
    "each-lock-has-a-store-of-its-own": (f"{HELD}, 2 A stored fence 8, 3 B/1 stored fence 7 of b", []),
    "compared-with-all-before": (
        f"{HELD}, 2 A stored fence 5, 3 A stored fence 9, 4 A stored fence 6, 5 A stored fence 7, 6 A stored fence 9",
        [(3, 4), (3, 5)]),
    # client-1 was accepted first, and stopped before it could record that: the order is that of the store.
    "in-the-order-of-the-store": (f"{TURNS}, 6 A stored fence 7 read 0", []),
    "and-against-it": (f"{TURNS}, 6 A stored fence 7 read 2", [(3, 4)]),
    "an-update-lost": (f"{HELD}, 2 A stored fence 8 read 3, 3 A stored fence 8 read 3", [(2, 3)]),
    "one-lost-in-the-plain-store-is-only-counted": (f"{HELD}, 2 A wrote fence 8 read 3, 3 A wrote fence 8 read 3", []),
}  # fmt: skip


@pytest.mark.parametrize("name", STORED)
def test_the_store_is_fooled(name):
    """The events of each violation, by their number in the story."""
    story, expected = STORED[name]
    tape = told(story)
    assert tape.judge("fenced") == [[number + 1 for number in events] for events in expected]
    sentences = [one.sentence for one in tape.ruling("fenced").violations]
    assert any("lost the update" in text for text in sentences) == (name == "an-update-lost")


# -- against one that is slow and obvious --------------------------------------------------------------------

grants = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 6), st.integers(1, 9), st.sampled_from(["a", "b"])), max_size=9
)


@PROPERTY
@given(grants)
def test_the_quick_judge_says_what_a_slow_one_says(found):
    tape = Tape(locks=("a", "b"))
    ends = {}
    for number, (begin, took, fence, lock) in enumerate(found):
        line = tape.held(begin + took, f"client-{number}", f"{number}", until=50, fence=fence, lock=lock, invoked=begin)
        ends[line] = begin, begin + took, fence, lock
    wrong = set()
    for two, (begin, end, fence, lock) in ends.items():
        for one, (_, other_end, other_fence, other_lock) in ends.items():
            if lock != other_lock or one == two:
                continue
            if other_end < begin and other_fence > fence:
                wrong.add(two)
            if other_fence == fence and (other_end, one) < (end, two):
                wrong.add(two)
    reported = {max(lines, key=lambda line: (ends[line][1], line)) for lines in tape.judge("fenced")}
    assert reported == wrong
