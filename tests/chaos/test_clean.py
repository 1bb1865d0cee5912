"""`clean` (P7): no inspected key that belongs to no hold, except within its TTL (C26)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chaos.tape import Tape, told
from tests.owners import proves

pytestmark = proves("C26")


def acquired(*, released: float | None = 12) -> Tape:
    """client-1 took it at 10.1, asked at 10; the TTL is 10."""
    tape = Tape(ttl=10)
    tape.held(10.1, "client-1", "A", until=20, invoked=10)
    if released is not None:
        tape.release(released, "client-1", "A")
    return tape


def test_nothing_left() -> None:
    tape = acquired()
    tape.inspect(100)
    assert tape.judge("clean") == []
    assert not tape.ruling("clean").vacuous


def test_nothing_inspected() -> None:
    ruling = acquired().ruling("clean")
    assert ruling.outcome == "passed"
    assert ruling.vacuous
    assert ruling.note == "no master was inspected"


@pytest.mark.parametrize(("at", "holds"), [(15, True), (20.1, True), (20.100001, False), (100, False)])
def test_a_key_that_nobody_holds_may_stay_for_its_ttl(at: float, holds: bool) -> None:
    tape = acquired()
    look = tape.inspect(at, ("A", 5))
    assert tape.judge("clean") == ([] if holds else [[3, look]])


def test_the_limit_is_exact_where_floating_point_is_not() -> None:
    tape = Tape(ttl=0.6)
    tape.held(100.3, "client-1", "A", until=100.4)
    tape.inspect(100.9, ("A", 5))  # 100.3 + 0.6 < 100.9
    assert tape.judge("clean") == []


@pytest.mark.parametrize(("released", "at", "holds"), [
    (None, 150, True), (None, 199, True), (None, 200, False), (140, 150, False),
])  # fmt: skip
def test_a_key_of_a_hold_that_is_alive(released: float | None, at: float, holds: bool) -> None:
    tape = acquired(released=released)
    tape.extended(60, "client-1", "A", until=200)
    tape.inspect(at, ("A", 5))
    assert bool(tape.judge("clean")) != holds


@pytest.mark.parametrize(("op", "phase", "sets"), [
    ("acquire", "invoke", True), ("acquire", "ok", True), ("acquire", "fail", True), ("acquire", "info", True),
    ("extend", "ok", True), ("resume", "ok", True), ("extend", "invoke", False), ("extend", "fail", False),
    ("release", "invoke", False), ("use", "invoke", False), ("lost", "info", False),
])  # fmt: skip
def test_the_last_event_that_could_have_set_it(op: str, phase: str, sets: bool) -> None:
    tape = acquired()
    tape.event(95, "client-1", op, phase, lock="a", token="A", valid_until=96)
    tape.inspect(100, ("A", 5))
    assert bool(tape.judge("clean")) != sets


@pytest.mark.parametrize(("event", "holds"), [
    pytest.param({"t": 101, "op": "extend", "valid_until": 120}, False, id="after-the-inspection"),
    pytest.param({"t": 101, "op": "acquire", "valid_until": 150}, False, id="a-hold-that-begins-later"),
    pytest.param({"t": 95, "op": "acquire", "valid_until": 96, "lock": "b"}, False, id="about-another-lock"),
    pytest.param({"t": 95, "op": "extend", "valid_until": 96, "lock": None}, True, id="one-that-names-only-the-token"),
])  # fmt: skip
def test_which_event_may_have_set_it(event: dict[str, Any], holds: bool) -> None:
    tape = acquired()
    fields = {"lock": "a", "token": "A", "process": "client-1", "phase": "ok"} | event
    tape.event(**{name: value for name, value in fields.items() if value is not None})
    tape.inspect(100, ("A", 5))
    assert bool(tape.judge("clean")) != holds


@pytest.mark.parametrize(("pttl_ms", "holds"), [(0, True), (1, True), (10_000, True), (10_001, False), (99_999, False)])
def test_a_token_that_nobody_reported(pttl_ms: int, holds: bool) -> None:
    """An attempt that failed had one."""
    tape = acquired()
    look = tape.inspect(100, ("B", pttl_ms))
    assert tape.judge("clean") == ([] if holds else [[look]])


@pytest.mark.parametrize(("at", "holds"), [(95, True), (90, True), (89.9, False)])
def test_a_token_that_only_a_failure_reported(at: float, holds: bool) -> None:
    tape = acquired()
    tape.event(at, "client-2", "acquire", "fail", lock="a", token="B")
    tape.inspect(100, ("B", 9_000))
    assert bool(tape.judge("clean")) != holds


@pytest.mark.parametrize("pttl_ms", [-1, None])
@pytest.mark.parametrize("token", ["A", "B"])
@pytest.mark.parametrize("released", [12, None])
def test_never_one_without_expiry(token: str, pttl_ms: int | None, released: float | None) -> None:
    """Neither of a hold that is alive, nor within its TTL, nor of somebody unknown."""
    tape = acquired(released=released)
    tape.inspect(15, (token, pttl_ms))
    assert len(tape.judge("clean")) == 1


def test_a_key_that_has_just_gone() -> None:
    """-2 is what PTTL says then."""
    tape = acquired()
    tape.inspect(100, ("A", -2))
    assert tape.judge("clean") == []


def test_every_master_and_every_key() -> None:
    tape = acquired()
    one = tape.inspect(100, ("A", 5), ("B", -1))
    two = tape.inspect(100, ("A", 5), master="master-2")
    assert sorted(lines[-1] for lines in tape.judge("clean")) == [one, one, two]
    assert any("master-2 had a key of 'a' (A)" in violation.sentence for violation in tape.ruling("clean").violations)


def test_what_was_invoked_is_not_what_was_seen() -> None:
    tape = acquired()
    tape.event(100, "observer", "inspect", "fail", target="master-1", keys=[{"lock": "a", "token": "A", "pttl_ms": -1}])
    assert tape.ruling("clean").vacuous


def test_of_very_many_keys_each_violation_shows_its_own() -> None:
    """Or a hundred violations would have all the keys of their master in them, a hundred times."""
    tape = told("1 A held until 2, 1.5 A releases")
    tape.inspect(15, *((f"T{number}", -1) for number in range(5000)))
    ruling = tape.ruling("clean")
    assert ruling.count == 5000
    assert [[len(event.keys) for event in one.events] for one in ruling.violations] == [[1]] * 100
    assert [one.events[0].keys[0].token for one in ruling.violations] == [f"T{number}" for number in range(100)]


# -- readers: they share a key, and each of them is inspected by itself (R33) --------------------------


def read() -> Tape:
    """Two read: client-1 until 12, client-2 goes on; the TTL is 10."""
    tape = Tape(ttl=10)
    tape.held(10.1, "client-1", "A", until=20, fence=1, mode="shared")
    tape.held(10.2, "client-2", "B", until=20, fence=2, mode="shared")
    tape.release(12, "client-1", "A")
    for t in range(15, 100, 5):
        tape.extended(t, "client-2", "B", until=t + 9.9)
    return tape


def test_a_reader_that_still_reads() -> None:
    tape = read()
    tape.inspect(96, ("B", 9000))
    assert tape.judge("clean") == tape.judge("exclusive") == []


def test_a_reader_that_was_left_behind_is_seen_beside_one_that_reads() -> None:
    """With one TTL for all, a reader that has gone would stay for as long as another one renews."""
    tape = read()
    tape.inspect(20.1, ("A", 5), ("B", 9000))
    assert tape.judge("clean") == []
    look = tape.inspect(96, ("B", 9000), ("A", 9000))
    assert [violation[-1] for violation in tape.judge("clean")] == [look]
    ((found,),) = [list(one.events[-1].keys) for one in tape.ruling("clean").violations]
    assert found.pttl_ms == 9000
    assert (found.lock, found.token) == ("a", "A")


def test_a_set_that_never_goes() -> None:
    tape = read()
    look = tape.inspect(96, ("<zset>", -1))
    assert tape.judge("clean") == [[look]]
