"""`prompt` (P6): nobody acts on a lease that has ended, and its holder is told within 50 ms (C27-C29)."""

from __future__ import annotations

import pytest

from tests.chaos.tape import told
from tests.owners import proves

pytestmark = proves("C27", "C28", "C29")

LATE = 1000.0  # the end of the recording, unless it is what the test is about


def expired(*, until=11, end=LATE):
    """client-1 held it from 1 on, and neither released it nor was told."""
    return told(f"1 A held until {until}, {end} observer looks")


# The end of the recording is one of the words: C28 is about it.
BEING_TOLD = {
    "never": ("1 A held until 11", LATE, [(1,)]),
    "of-another-token": ("1 A held until 11, 11 B/1 loses, 11 A/2 loses", LATE, [(1,)]),
    # C28: a release that was invoked after `valid_until` without `lost`.
    "released-in-time": ("1 A held until 11, 5 A releases", LATE, []),
    "released-at-the-end": ("1 A held until 11, 11 A releases", LATE, []),
    "released-too-late": ("1 A held until 11, 11.000001 A releases", LATE, [(1, 2)]),
    "released-within-50-ms": ("1 A held until 11, 11.04 A releases", LATE, [(1, 2)]),
    "released-much-too-late": ("1 A held until 11, 20 A releases", LATE, [(1, 2)]),
    # C9: it is told once, also if it noticed first.
    "told-after-the-release-and-in-time": ("1 A held until 11, 11.01 A releases, 11.02 A loses", LATE, []),
    "the-first-time-counts": ("1 A held until 11, 11 A loses, 12 A loses", LATE, []),
    "the-last-valid-until-counts": ("1 A held until 11, 8 A extended until 18", LATE, [(2,)]),
    "by-that-it-is-in-time": ("1 A held until 11, 8 A extended until 18, 18.05 A loses", LATE, []),
    "a-shorter-one-as-well": ("1 A held until 11, 2 A extended until 6, 7 A releases", LATE, [(2, 3)]),
    # C28: no violation while `valid_until` + 50 ms lies beyond the last event.
    "open-at-the-end": ("1 A held until 11", 5, []),
    "open-for-40-ms": ("1 A held until 11", 11.04, []),
    "open-just-less": ("1 A held until 11", 11.049999, []),
    "open-for-50-ms": ("1 A held until 11", 11.05, [(1,)]),
    "open-for-longer": ("1 A held until 11", 11.1, [(1,)]),
    "open-where-floating-point-says-otherwise": ("1 A held until 4.35", 4.4, [(1,)]),  # 4.35 + 0.05 < 4.4
    "open-but-released-after-its-time": ("1 A held until 11, 11.02 A releases", 11.02, [(1, 2)]),
    "handed-over-in-time": ("1 A held until 11, 10 A/2 resumed until 20, 11 A/2 releases", LATE, []),
    "handed-over-at-the-end": ("1 A held until 11, 11 A/2 resumed until 21, 12 A/2 releases", LATE, []),
    "handed-over-too-late": ("1 A held until 11, 12 A/2 resumed until 22, 13 A/2 releases", LATE, [(1, 2)]),
    # Who gave it away had done so when the other one asked for it.
    "asked-for-in-time": ("1 A held until 11, 10 A/2 takes, 12 A/2 resumed until 22, 13 A/2 releases", LATE, []),
    "who-took-over-must-be-told": ("1 A held until 11, 5 A/2 resumed until 15, 11 A loses", LATE, [(2,)]),
    "who-took-over-was": ("1 A held until 11, 5 A/2 resumed until 15, 11 A loses, 15 A/2 loses", LATE, []),
    "every-hold-of-a-token": ("1 A held until 11, 20 A held until 30, 30 A loses", LATE, [(1, 2)]),
}
TWICE = "1 A held until 11, 11 A loses, 20 A held until 30, 30 A loses"
USING = {
    # C29: a use counts by its invocation.  There are no 50 ms for it.
    "in-time": ("1 A held until 11, 11 A loses, 5 A uses", LATE, []),
    "at-the-end": ("1 A held until 11, 11 A loses, 11 A uses", LATE, []),
    "too-late": ("1 A held until 11, 11 A loses, 11.000001 A uses", LATE, [(1, 3)]),
    "within-50-ms": ("1 A held until 11, 11 A loses, 11.04 A uses", LATE, [(1, 3)]),
    "much-too-late": ("1 A held until 11, 11 A loses, 30 A uses", LATE, [(1, 3)]),
    # It is about the last hold of its token that began before.
    "in-the-first-hold": (f"{TWICE}, 5 A uses", LATE, []),
    "after-the-first": (f"{TWICE}, 12 A uses", LATE, [(1, 5)]),
    "before-the-second": (f"{TWICE}, 19 A uses", LATE, [(1, 5)]),
    "as-the-second-begins": (f"{TWICE}, 20 A uses", LATE, []),
    "in-the-second": (f"{TWICE}, 25 A uses", LATE, []),
    "after-the-second": (f"{TWICE}, 31 A uses", LATE, [(3, 5)]),
    "of-a-lease-that-was-extended": ("1 A held until 11, 18 A loses, 8 A extended until 18, 12 A uses", LATE, []),
    "by-who-took-over": ("1 A held until 11, 5 A/2 resumed until 15, 15 A/2 releases, 12 A/2 uses", LATE, []),
    "by-who-handed-over": ("1 A held until 11, 5 A/2 resumed until 15, 15 A/2 releases, 12 A uses", LATE, [(1, 4)]),
    "by-somebody-who-was-handed-the-token": ("1 A held until 11, 11 A loses, 10 A/3 uses", LATE, []),
    "by-such-a-one-too-late": ("1 A held until 11, 11 A loses, 12 A/3 uses", LATE, [(1, 3)]),
    "a-stop-before-its-first-look-excuses-nothing": (
        "1 A held until 11, 11 A loses, 5 stop strikes client-3 until 6, 12 A/3 uses",
        LATE,
        [(1, 5)],
    ),
    "of-a-token-that-nobody-holds": ("1 A held until 11, 11 A loses, 12 B uses", LATE, []),
}


@pytest.mark.parametrize(("story", "end", "expected"), [
    *(pytest.param(*case, id=f"told-{name}") for name, case in BEING_TOLD.items()),
    *(pytest.param(*case, id=f"used-{name}") for name, case in USING.items()),
])  # fmt: skip
def test_who_is_told_and_who_uses_it(story, end, expected):
    """The events of each violation, by their number in the story."""
    tape = told(f"{story}, {end} observer looks")
    assert tape.judge("prompt") == [[number + 1 for number in events] for events in expected]


# -- being told ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("until", [11, 11.03, 1234567.1, 4.35, 2.3])
@pytest.mark.parametrize(("after", "late"), [(-1, False), (0, False), (0.05, False), (0.0500001, True), (3, True)])
def test_50_ms_are_allowed(until, after, late):
    """Also where until + 0.05 is not quite that in floating point."""
    tape = expired(until=until, end=until + 10)
    line = tape.lost(round(until + after, 9), "client-1", "A")
    assert tape.judge("prompt") == ([[2, line]] if late else [])


def test_the_sentence_of_one_that_was_never_told():
    assert "never notified" in expired().ruling("prompt").violations[0].sentence


STRIKES: dict[str, tuple[str, bool]] = {
    # C27: the interval touches [valid_until, valid_until + 50 ms].
    "around": ("5 stop strikes client-1 until 20", True),
    "until-the-end": ("5 stop strikes client-1 until 11", True),
    "over-before": ("5 stop strikes client-1 until 10.999999", False),
    "within": ("11.02 stop strikes client-1 until 11.03", True),
    "from-the-last-moment-on": ("11.05 stop strikes client-1 until 20", True),
    "too-late": ("11.050001 stop strikes client-1 until 20", False),
    "for-ever": ("5 stop strikes client-1", True),
    "for-ever-but-later": ("12 stop strikes client-1", False),
    "killed": ("5 kill strikes client-1 until 11", True),
    "killed-too-late": ("11.050001 kill strikes client-1", False),
    "one-of-several": ("5 stop strikes client-2+client-1", True),
    "another-one": ("5 stop strikes client-2", False),
    "others-with-such-names": ("5 stop strikes client-2+client-11", False),
    "another-fault": ("5 pause strikes client-1", False),
    "cut-off": ("5 halves strikes client-1+client-2", False),
    "one-of-several-is-healed-before": (
        "5 stop strikes client-1+client-2, 9 stop heals client-1, 20 stop heals client-2", False),
    # Another one of its kind is another one.
    "healed-and-struck-again": ("5 stop strikes client-1 until 9, 15 stop strikes client-1 until 20", False),
    "it-could-not-be-made": ("5 stop strikes client-1, 6 stop misses client-1", False),
}  # fmt: skip


@pytest.mark.parametrize("name", STRIKES)
def test_who_was_stopped_or_killed_then_is_excused(name):
    story, exempt = STRIKES[name]
    assert bool(expired().told(story).judge("prompt")) != exempt


def test_a_client_that_says_stop_is_no_nemesis():
    tape = expired()
    tape.event(5, "client-2", "stop", "invoke", target="client-1")
    assert len(tape.judge("prompt")) == 1


# -- using ---------------------------------------------------------------------------------------------------


def lost(*, until=11):
    return expired(until=until).told(f"{until} A loses")


def test_the_lines_of_a_use_are_both_named():
    tape = lost()
    used = tape.used(31, "client-1", "A", invoked=12)
    assert tape.judge("prompt") == [[2, used - 1, used]]


USE: dict[str, object] = {"lock": "a", "token": "A", "store": "plain", "accepted": True, "fence": 1}


@pytest.mark.parametrize(("phase", "fields"), [
    # In whatever store, and whatever came of it.
    ("ok", {"store": "fenced", "accepted": False}), ("ok", {"store": "fenced"}), ("ok", {}),
    # Also one that never ended or was never begun.
    ("invoke", {}), ("fail", {}), ("info", {}),
    ("invoke", {"lock": None}),  # it is found by its token
    ("invoke", {"token": None}),  # which may be told at the end only
])  # fmt: skip
def test_every_use_counts(phase, fields):
    tape = lost()
    known = {name: value for name, value in (USE | fields).items() if value is not None}
    tape.event(12, "client-1", "use", phase, **known)
    if "token" not in known:
        tape.used(13, "client-1", "A")
    assert len(tape.judge("prompt")) == 1


@pytest.mark.parametrize(("begin", "end", "exempt"), [
    pytest.param(10.5, 19, True, id="between-the-look-and-the-use"),
    pytest.param(9, 10, True, id="when-it-looked"),
    pytest.param(20, 21, True, id="when-it-was-invoked"),
    pytest.param(5, 9.9, False, id="before-it-looked"),
    pytest.param(20.1, 30, False, id="after-it-was-invoked"),
    pytest.param(15, None, True, id="for-ever"),
])  # fmt: skip
def test_stopped_between_the_last_look_and_the_invocation(begin, end, exempt):
    """C29: it looked at 10, when all was well, and then at nothing."""
    tape = lost()
    tape.event(10, "client-1", "look", "ok", lock="a", token="A")
    tape.used(21, "client-1", "A", invoked=20)
    tape.fault("stop", "client-1", begin, end)
    assert bool(tape.judge("prompt")) != exempt


@pytest.mark.parametrize("op", ["kill", "pause"])
def test_only_a_stop_excuses_a_use(op):
    tape = lost()
    tape.used(21, "client-1", "A", invoked=20)
    tape.fault(op, "client-1", 10, 19)
    assert len(tape.judge("prompt")) == 1


def test_its_own_last_event_stands_for_the_last_look_but_not_what_its_renewer_writes():
    tape = lost()
    tape.used(9, "client-1", "A", invoked=8)
    tape.fault("stop", "client-1", 9.5, 19)
    tape.lines[2]["t"] = 19.001  # it is told as soon as it runs again, by another thread
    tape.used(20, "client-1", "A", invoked=19.002)
    assert tape.judge("prompt") == []
    tape.event(19.0015, "client-1", "look", "ok", lock="a")
    assert len(tape.judge("prompt")) == 1


def test_what_another_worker_does_is_no_look():
    tape = lost()
    tape.used(9, "client-1", "A", worker="1")
    tape.fault("stop", "client-1", 9.5, 19)
    tape.event(19.5, "client-1", "look", "ok", worker="2")
    tape.used(20, "client-1", "A", worker="1")
    assert tape.judge("prompt") == []
