"""`exclusive` (P1): holds of one lock with different tokens never overlap; what a hold is (C25, C32)."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from chaos.judge.exclusive import exclusive
from chaos.judge.holds import holds
from tests.chaos.tape import PROPERTY, Tape, told
from tests.owners import proves

pytestmark = proves("C25", "C32")


def hold(tape, token):
    [found] = [one for one in holds(tape.history()) if one.token == token]
    return found.start, found.end


def test_two_at_once():
    tape = Tape()
    first = tape.held(1, "client-1", "A", until=11)
    second = tape.held(5, "client-2", "B", until=15)
    assert tape.judge("exclusive") == [[first, second]]
    [violation] = tape.ruling("exclusive").violations
    assert violation.at == 5
    assert violation.lock == "a"
    assert "'a' was held by client-1 (A) until t=11.000000 and by client-2 (B) from t=5.000000" in violation.sentence
    assert "6.000000 s" in violation.sentence


STORIES: dict[str, tuple[str, list[tuple[int, ...]]]] = {
    # C25: a hold is half open, so touching is not overlapping.
    "just-before-the-end": ("1 A held until 11, 10.999999 B held until 30", [(1, 2)]),
    "at-the-end": ("1 A held until 11, 11 B held until 30", []),
    "just-after-the-end": ("1 A held until 11, 11.000001 B held until 30", []),
    "begun-together": ("1 A held until 11, 1 B held until 30", [(1, 2)]),
    "begun-before": ("1 A held until 11, 0.5 B held until 30", [(2, 1)]),
    # R33: only readers hold it together.
    "two-readers": ("1 A held until 11 as shared, 5 B held until 15 as shared", []),
    "a-reader-and-a-writer": ("1 A held until 11 as shared, 5 B held until 15", [(1, 2)]),
    "a-writer-and-a-reader": ("1 A held until 11, 5 B held until 15 as shared", [(1, 2)]),
    "readers-after-a-writer": (
        "1 A held until 6, 5 A releases, 5 B held until 30 as shared, 6 C held until 8 as shared",
        [],
    ),
    # It is not the last hold that it overlaps with, nor the one that lasts longest.
    "readers-do-not-hide-the-writer": (
        "1 A held until 10, 2 B held until 30 as shared, 9 C held until 12 as shared",
        [(1, 2), (1, 3)],
    ),
    "a-reader-before-the-downgrade": ("1 A held until 11, 5 A downgrades, 4.9 B held until 20 as shared", [(1, 3)]),
    "a-reader-at-the-downgrade": ("1 A held until 11, 5 A downgrades, 5 B held until 20 as shared", []),
    "a-reader-after-the-downgrade": ("1 A held until 11, 5 A downgrades, 6 B held until 20 as shared", []),
    "who-has-downgraded-keeps-writers-out": ("1 A held until 11, 5 A downgrades, 10 B held until 20", [(1, 3)]),
    # A hold ends when its release is invoked, or it is told of the loss.
    "before-the-release": ("1 A held until 11, 5 A releases, 4.999 B held until 20", [(1, 3)]),
    "at-the-release": ("1 A held until 11, 5 A releases, 5 B held until 20", []),
    "before-the-loss": ("1 A held until 11, 5 A loses, 4.999 B held until 20", [(1, 3)]),
    "at-the-loss": ("1 A held until 11, 5 A loses, 5 B held until 20", []),
    "the-answer-to-a-release-is-not-its-end": (
        "1 A held until 11, 5 A releases, 5.1 B held until 15, 5.2 A released",
        [],
    ),
    "only-the-release-of-this-token": ("1 A held until 11, 2 D/1 releases, 5 B held until 15", [(1, 3)]),
    "an-extension-moves-the-end": ("1 A held until 11, 8 A extended until 18, 12 B held until 22", [(1, 2, 3)]),
    # The last `valid_until`, not the greatest (C6).
    "to-a-shorter-time-as-well": ("1 A held until 11, 2 A extended until 6, 6 B held until 16", []),
    "an-extension-that-was-only-asked-for": ("1 A held until 11, 8 A extends until 18, 12 B held until 22", []),
    "an-extension-that-failed": ("1 A held until 11, 8 A fails-to-extend until 18, 12 B held until 22", []),
    "an-extension-without-an-answer": ("1 A held until 11, 8 A may-have-extended until 18, 12 B held until 22", []),
    # R12: it had ended, and another one had it in between.
    "an-extension-that-resurrects": ("1 A held until 11, 12 B held until 22, 13 A extended until 23", [(1, 2, 3)]),
    "one-that-is-asked-for-after-the-loss-and-won": (
        "1 A held until 11, 10 A loses, 12 B held until 22, 13 A extends, 13.1 A extended until 23",
        [(3, 5)],
    ),
    "one-that-is-asked-for-after-the-release-and-won": (
        "1 A held until 11, 10 A releases, 12 B held until 22, 13 A extends, 13.1 A extended until 23",
        [(3, 5)],
    ),
    # A renewer's renewal and a release pass each other.
    "one-that-was-under-way-when-it-was-released-brings-nothing-back": (
        "1 A held until 11, 4.9 A extends, 5 A releases, 5.1 A extended until 15, 6 B held until 16",
        [],
    ),
    "other-locks-have-other-holders": ("1 A held until 11, 2 B held until 12 of b", []),
    # One token for all attempts is bad for other reasons.
    "the-same-token-never-overlaps-itself": ("1 A held until 11, 5 A held until 15", []),
    "but-another-one": ("1 A held until 11, 5 A held until 15, 14 B held until 20", [(2, 3)]),
    "one-token-for-all-attempts-with-another-holder-between-them": (
        "1 A held until 11, 5 A releases, 6 B held until 16, 8 B releases, 9 A held until 19, 30 C held until 35",
        [],
    ),
    "that-was-never-released-but-ran-out": ("9 A held until 19, 30 C held until 35, 40 A held until 50", []),
    "one-client-can-violate-it-alone": ("1 A held until 11, 2 B/1 held until 12", [(1, 2)]),
    "over-when-it-was-returned-is-no-hold": ("1 A held until 11, 5 B held until 5, 6 C held until 4", []),
    # C32: a hand-over is one hold.
    "a-hand-over": ("1 A held until 11, 5 A/2 resumed until 15", []),
    "the-new-holder-has-it": ("1 A held until 11, 5 A/2 resumed until 15, 12 B/1 held until 22", [(2, 3)]),
    "the-loss-of-who-handed-over-does-not-end-it": (
        "1 A held until 11, 5 A/2 resumed until 15, 11 A loses, 12 C held until 22",
        [(2, 4)],
    ),
    "the-new-holder-ends-it": ("1 A held until 11, 5 A/2 resumed until 15, 7 A/2 releases, 8 C held until 18", []),
    # The token was valid until 11, was resumed at 13, and another one had the lock in between.
    "what-lies-between-is-part-of-it": ("1 A held until 11, 11.5 C held until 12, 13 A/2 resumed until 23", [(1, 2)]),
    "nobody-goes-on-with-it": ("1 A held until 11, 5 A/2 takes, 6 C held until 7, 8 A/2 ends", []),
    "perhaps-nobody-does": ("1 A held until 11, 5 A/2 takes, 6 C held until 7", [(1, 3)]),
    # An answer belongs to an invocation of its own operation.
    "an-extension-that-is-under-way-is-no-hand-over": (
        "1 A held until 11, 5 A extends, 6 B held until 16, 7 A ends",
        [(1, 3)],
    ),
    "a-hand-over-that-is-under-way-is-no-extension": (
        "1 A held until 11, 5 A loses, 6 B held until 16, 7 A takes, 8 A extended until 18",
        [],
    ),
    "a-hand-over-that-was-answered-is-not-the-next-one": (
        "1 A held until 11, 2 A/2 takes, 3 A/2 resumed until 13, 5 A/2 ends, 4 B held until 14",
        [(3, 5)],
    ),
    "resumed-from-somebody-unknown": ("5 A/2 resumed until 15, 6 C held until 16", [(1, 2)]),
    # C31: the order of the lines does not matter, only that of the times does.
    "any-order-of-lines": ("6 B held until 16, 5 A releases, 1 A held until 11", []),
    "any-order-of-lines-and-two-at-once": ("6 B held until 16, 1 A held until 11", [(2, 1)]),
}


@pytest.mark.parametrize("name", STORIES)
def test_what_overlaps(name):
    """The events of each violation, by their number in the story."""
    story, expected = STORIES[name]
    assert told(story).judge("exclusive") == [[number + 1 for number in events] for events in expected]


@pytest.mark.parametrize(("story", "expected"), [
    ("1 A held until 11, 5 A extended until 15", (1, 15)),
    ("1 A held until 11, 5 A extended until 15, 6 A releases", (1, 6)),
])  # fmt: skip
def test_events_that_name_only_the_token(story, expected):
    tape = told(story)
    for line in tape.lines[1:]:
        del line["lock"]
    assert hold(tape, "A") == expected


def test_several_names_with_one_token():
    tape = told("1 A held until 11, 1 A held until 11 of b, 5 A extended until 15, 12 B held until 20 of b")
    del tape.lines[2]["lock"]
    assert len(tape.judge("exclusive")) == 1
    tape.event(11, "client-1", "release", "invoke", token="A")
    assert tape.judge("exclusive") == []


def test_a_hold_is_not_in_its_own_way():
    found = holds(told("1 A held until 11").history())
    assert list(exclusive([*found, *found])) == []


def test_it_keeps_its_fence():
    """R19.  Also where the new process does not say it."""
    tape = told("1 A held until 11 fence 7, 5 A/2 resumed until 15")
    assert [one.fence for one in holds(tape.history())] == [7, 7]


def test_an_extension_by_a_process_that_has_not_resumed_yet():
    """It extends to take over, and says so a moment later."""
    assert hold(told("1 A held until 11, 10.9 A/2 extended until 21"), "A") == (1, 21)


# -- whatever happened; `test_second.py` compares what two judges say of it -------------------------------------

times = st.integers(0, 12).map(float)


@st.composite
def stories(draw):
    """Few times, tokens and processes, so that all of them meet."""
    tape = Tape(locks=("a", "b"))
    for _ in range(draw(st.integers(0, 14))):
        t, process = draw(times), draw(st.sampled_from(["client-1", "client-2", "client-3"]))
        token, lock = draw(st.sampled_from(["A", "B", "C", "D"])), draw(st.sampled_from(["a", "a", "b"]))
        until = draw(times)
        match draw(st.sampled_from(["held", "held", "held", "release", "lost", "extended", "asked", "resumed"])):
            case "held":
                tape.held(t, process, token, until=until, lock=lock)
            case "resumed":
                tape.event(t, process, "resume", "ok", lock=lock, token=token, valid_until=until)
            case "extended":
                tape.event(t, process, "extend", "ok", lock=lock, token=token, valid_until=until)
            case "asked":
                tape.event(t, process, "extend", "invoke", lock=lock, token=token)
            case "release":
                tape.event(t, process, "release", "invoke", lock=lock, token=token)
            case "lost":
                tape.event(t, process, "lost", "info", lock=lock, token=token, reason="expired")
    return tape


@PROPERTY
@given(stories())
def test_holds_of_one_token_follow_each_other(tape):
    """What the quick judge stands on."""
    found = holds(tape.history())
    for one in found:
        for two in found:
            if one is not two and (one.lock, one.token) == (two.lock, two.token):
                assert one.end <= two.start or two.end <= one.start


@PROPERTY
@given(stories(), st.randoms(use_true_random=False))
def test_no_order_of_lines_of_different_times_matters(tape, random):
    """C31.  Those of one time stay in their order: the file is all that tells it."""
    before = [violation.at for violation in tape.ruling("exclusive").violations]
    groups: dict[float, list[dict[str, object]]] = {}
    for line in tape.lines:
        groups.setdefault(line["t"], []).append(line)
    keys = list(groups)
    random.shuffle(keys)
    tape.lines = [line for key in keys for line in groups[key]]
    assert [violation.at for violation in tape.ruling("exclusive").violations] == before
