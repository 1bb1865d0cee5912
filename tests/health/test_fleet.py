"""What a check says of the lists of masters that clients use (R34): lists that are incompatible, clients that are silent."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from redlock._health.examine import silent
from redlock._health.records import FleetEntry, read_fleet_entry
from redlock._health.verdict import judge
from tests.health.facts import CLIENT_OPTIONS, healthy

if TYPE_CHECKING:
    from redlock._health.result import Finding

NOW = 1_700_000_000.0


def entry(*names: str, status: str = "2", several: bool = True) -> FleetEntry:
    return FleetEntry(NOW - 3, 120.0, several, status, frozenset(names))


def found(*lists: FleetEntry, silent: tuple[str, ...] = (), given: str = "abc") -> list[Finding]:
    masters = [replace(healthy(), name=name, lists=lists, asked_at=NOW) for name in given]
    masters[1] = replace(masters[1], silent=silent)
    return [one for one in judge(masters, CLIENT_OPTIONS, None).findings if one.code == "fleet"]


def test_two_lists_that_both_take_locks():
    [one] = found(entry("a", "b", "c"), entry("b", "c", "d", status="~", several=False))
    assert one.level == "warning"
    assert one.message == (
        "two clients may hold one lock, for they have masters that are incompatible: several clients have a, b, c; "
        "one client has b, c, d"
    )
    assert "redlock-check --plan" in one.advice


def test_one_that_is_refused_is_named_as_that():
    [one] = found(entry("a", "b", "c"), entry("b", "c", "d", status="-", several=False))
    assert one.message.startswith("clients have masters that are incompatible")
    assert one.message.endswith("one client has b, c, d, and gets no lock until the others are gone")


def test_who_checks_with_a_list_that_does_not_go_with_those_in_use_is_told():
    """A typing error in the configuration of what is to be deployed next: no client has it yet."""
    [one] = found(entry("a", "b", "c"), given="cde")
    assert one.level == "warning"
    assert one.message.startswith("the masters that are given here are incompatible with those that clients use")
    assert "only we have d, e and only they have a, b" in one.message
    assert found(entry("a", "b", "c"), given="abcd") == [], "the next step"
    assert found(given="cde") == [], "nobody uses any"


def test_of_a_list_that_is_refused_it_is_said_once():
    """A client has what is given here, and was refused: that is the finding."""
    [one] = found(entry("a", "b", "c"), entry("c", "d", "e", status="-"), given="cde")
    assert one.message.endswith("several clients have c, d, e, and get no lock until the others are gone")
    assert found(entry("a", "b", "c", status="-"), given="cde") == [], "whoever gets no lock is in nobody's way"


def test_clients_that_announce_nothing_beside_others():
    [one] = found(entry("a", "b", "c"), silent=("10.0.0.7", "10.0.0.7", "10.0.0.8"))
    assert one.level == "warning"
    assert "3 connections without a name, from 10.0.0.7, 10.0.0.8" in one.message
    assert "announce nothing" in one.message
    [one] = found(entry("a", "b", "c"), silent=("10.0.0.7",))
    assert "1 connection without a name, from 10.0.0.7, runs scripts" in one.message


@pytest.mark.parametrize(("line", "is_silent"), [
    ("id=3 addr=10.0.0.7:4711 laddr=10.0.0.1:6379 name= cmd=evalsha user=default lib-name=redis-py", True),
    ("id=3 addr=10.0.0.7:4711 name= cmd=eval user=default", True),
    ("id=3 addr=10.0.0.7:4711 name=redlock cmd=evalsha user=default", False),
    ("id=3 addr=10.0.0.7:4711 name=billing cmd=evalsha user=default", False),
    ("id=3 addr=10.0.0.7:4711 name= cmd=subscribe user=default", False),
    ("id=3 addr=10.0.0.7:4711 name= cmd=info user=default", False), ("", False), ("what is this", False),
])  # fmt: skip
def test_who_is_silent(line, is_silent):
    assert silent(line.encode()) == (["10.0.0.7"] if is_silent else [])


@pytest.mark.parametrize("value", [b"", b"1 2 a 9\nx", b"1 2 a 2", b"x 2 a 2\nm", b"1 " + b"9" * 400 + b" a 2\nm"])
def test_what_is_no_entry_is_dropped(value):
    assert read_fleet_entry(value) is None


@pytest.mark.parametrize(("ways", "silent", "says"), [
    (["trusted", "trusted"], ("10.0.0.7",), ""),
    (["confirmed", "confirmed"], (), ""),
    (["confirmed", "trusted"], (), "clients without it"),  # on two masters that two clients do not share
    (["confirmed", "confirmed"], ("10.0.0.7",), "1 connection as of an earlier version, which cannot have it"),
])  # fmt: skip
def test_some_confirm_an_expiry_and_some_do_not(ways, silent, says):
    """R35: the votes of all masters count, and none of them can be trusted."""
    masters = [
        replace(healthy(), name=name, lists=(), ways=frozenset((way,))) for name, way in zip("ab", ways, strict=True)
    ]
    health = judge([*masters, replace(healthy(), name="c", silent=silent)], CLIENT_OPTIONS, None)
    found = [[one for one in master.findings if one.code == "confirm-expiry"] for master in health.masters]
    assert [len(some) for some in found] == ([1, 1, 0] if says else [0, 0, 0])
    assert all(one.level == "critical" and says in one.message for some in found for one in some)
    assert health.quorum.voting == 3
