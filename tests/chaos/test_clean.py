"""`clean` (P7): no inspected key that belongs to no hold, except within its TTL (C26)."""

from __future__ import annotations

import re

import pytest

from tests.chaos.tape import Tape, told
from tests.owners import proves

pytestmark = proves("C26")


HELD = "10 A asks, 10.1 A held until 20"  # the TTL is 10
READ = "10.1 A held until 20 fence 1 as shared, 10.2 B held until 20 fence 2 as shared, 12 A releases, " + ", ".join(
    f"{t} B extended until {t + 9.9}" for t in range(15, 100, 5)
)
GIVEN, KEPT = f"{HELD}, 12 A releases", f"{HELD}, 60 A extended until 200"
STORIES: dict[str, tuple[str, list[tuple[int, ...]]]] = {
    "nothing-left": (f"{GIVEN}, 100 master-1 has", []),
    # A key that nobody holds may stay for its TTL.
    "within-its-ttl": (f"{GIVEN}, 15 master-1 has A=5", []),
    "at-the-end-of-its-ttl": (f"{GIVEN}, 20.1 master-1 has A=5", []),
    "just-behind-it": (f"{GIVEN}, 20.100001 master-1 has A=5", [(2, 4)]),
    "long-behind-it": (f"{GIVEN}, 100 master-1 has A=5", [(2, 4)]),
    "of-a-hold-that-is-alive": (f"{KEPT}, 150 master-1 has A=5", []),
    "at-its-end": (f"{KEPT}, 199 master-1 has A=5", []),
    "over": (f"{KEPT}, 200 master-1 has A=5", [(3, 4)]),
    "released-before": (f"{KEPT}, 140 A releases, 150 master-1 has A=5", [(3, 5)]),
    # What happens behind the inspection, or to another lock, has not set it.
    "extended-after-the-inspection": (f"{GIVEN}, 100 master-1 has A=5, 101 A extended until 120", [(2, 4)]),
    "held-after-the-inspection": (f"{GIVEN}, 100 master-1 has A=5, 101 A held until 150", [(2, 4)]),
    "about-another-lock": (f"{GIVEN}, 95 A held until 96 of b, 100 master-1 has A=5", [(2, 5)]),
    # A token that nobody reported: an attempt that failed had one.
    "unknown-and-about-to-end": (f"{GIVEN}, 100 master-1 has B=0", []),
    "unknown-for-a-ttl": (f"{GIVEN}, 100 master-1 has B=10000", []),
    "unknown-for-longer": (f"{GIVEN}, 100 master-1 has B=10001", [(4,)]),
    # Never one without expiry: neither of a hold that is alive, nor within its TTL, nor of somebody unknown.
    "for-ever": (f"{GIVEN}, 15 master-1 has A=-1", [(2, 4)]),
    "for-ever-of-a-hold": (f"{HELD}, 15 master-1 has A=null", [(2, 3)]),
    "for-ever-of-somebody": (f"{GIVEN}, 15 master-1 has B=null", [(4,)]),
    "for-ever-beside-a-hold": (f"{HELD}, 15 master-1 has B=-1", [(3,)]),
    "just-gone": (f"{GIVEN}, 100 master-1 has A=-2", []),  # is what PTTL says then
    # Readers share a key, and each of them is inspected by itself (R33): one that has gone would stay for as long as another
    # one renews, where all have one TTL.
    "a-reader-that-still-reads": (f"{READ}, 96 master-1 has B=9000", []),
    "a-reader-that-has-just-gone": (f"{READ}, 20.1 master-1 has A=5 B=9000", []),
    "a-reader-left-behind-beside-one-that-reads": (f"{READ}, 96 master-1 has B=9000 A=9000", [(1, 21)]),
    "a-set-that-never-goes": (f"{READ}, 96 master-1 has <zset>=-1", [(21,)]),
    "every-master-and-every-key": (
        f"{GIVEN}, 100 master-1 has A=5 B=-1, 100 master-2 has A=5", [(2, 4), (4,), (2, 5)]),
}  # fmt: skip


def acquired():
    return told(GIVEN)


@pytest.mark.parametrize("name", STORIES)
def test_what_is_left(name):
    """The events of each violation, by their number in the story."""
    story, expected = STORIES[name]
    tape = told(story)
    assert sorted(tape.judge("clean")) == sorted([number + 1 for number in events] for events in expected)
    assert not tape.ruling("clean").vacuous
    for violation in tape.ruling("clean").violations:
        assert re.search(r"master-[12] had a key of 'a' \((A|B|<zset>)\)", violation.sentence)


def test_nothing_inspected():
    ruling = acquired().ruling("clean")
    assert ruling.outcome == "passed"
    assert ruling.vacuous
    assert ruling.note == "no master was inspected"


def test_the_limit_is_exact_where_floating_point_is_not():
    tape = Tape(ttl=0.6).told("100.3 A held until 100.4, 100.9 master-1 has A=5")  # 100.3 + 0.6 < 100.9
    assert tape.judge("clean") == []


@pytest.mark.parametrize(("op", "phase", "sets"), [
    ("acquire", "invoke", True), ("acquire", "ok", True), ("acquire", "fail", True), ("acquire", "info", True),
    ("extend", "ok", True), ("resume", "ok", True), ("extend", "invoke", False), ("extend", "fail", False),
    ("release", "invoke", False), ("use", "invoke", False), ("lost", "info", False),
])  # fmt: skip
def test_the_last_event_that_could_have_set_it(op, phase, sets):
    """It may name only the token, where it is not an acquire."""
    tape = acquired()
    lock = {"lock": "a"} if op in ("acquire", "resume") else {}
    tape.event(95, "client-1", op, phase, token="A", valid_until=96, **lock)
    tape.inspect(100, ("A", 5))
    assert bool(tape.judge("clean")) != sets


@pytest.mark.parametrize(("at", "holds"), [(95, True), (90, True), (89.9, False)])
def test_a_token_that_only_a_failure_reported(at, holds):
    tape = acquired()
    tape.event(at, "client-2", "acquire", "fail", lock="a", token="B")
    tape.inspect(100, ("B", 9_000))
    assert bool(tape.judge("clean")) != holds


def test_what_was_invoked_is_not_what_was_seen():
    tape = acquired()
    tape.event(100, "observer", "inspect", "fail", target="master-1", keys=[{"lock": "a", "token": "A", "pttl_ms": -1}])
    assert tape.ruling("clean").vacuous


def test_of_very_many_keys_each_violation_shows_its_own():
    """Or a hundred violations would have all the keys of their master in them, a hundred times."""
    tape = told("1 A held until 2, 1.5 A releases")
    tape.inspect(15, *((f"T{number}", -1) for number in range(5000)))
    ruling = tape.ruling("clean")
    assert ruling.count == 5000
    assert [[len(event.keys) for event in one.events] for one in ruling.violations] == [[1]] * 100
    assert [one.events[0].keys[0].token for one in ruling.violations] == [f"T{number}" for number in range(100)]
