"""Which lists of masters go together, what a master says of them, and what a client makes of it (R34).

What clients do to each other is in `tests/scenes/test_agreement.py`.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from redlock._core import wire
from redlock._core.fleet import Fleet, compatible
from redlock._core.kernel.quorum import majority
from redlock._core.voters import Voters
from redlock._health.records import read_fleet_entry
from redlock._io.announcer import Announcement, Announcer
from tests.simulation.master import ENGINE, EPOCH, Keyspace

MAX_TTL = 4.0
LIFE = 2 * MAX_TTL
OLD, NEW = ("a", "b", "c"), ("b", "c", "d")
ONE, OTHER = ("m", "a", "b"), ("m", "c", "d")  # they share one master


@pytest.mark.parametrize("size", range(1, 10))
def test_lists_are_compatible_if_and_only_if_their_majorities_meet(size: int) -> None:
    """Over every list that shares some of the masters and has others, of every size up to nine."""
    one = frozenset(f"m{number}" for number in range(size))
    for shared in range(size + 1):
        for others in range(10 - shared):
            if not shared + others:
                continue
            other = frozenset([f"m{number}" for number in range(shared)] + [f"n{number}" for number in range(others)])
            # The least that two majorities can share: each takes what the other lacks first.
            left = (
                max(0, majority(len(one)) - (len(one) - shared)),
                max(0, majority(len(other)) - (len(other) - shared)),
            )
            meet = left[0] + left[1] > shared
            assert compatible(one, other) == compatible(other, one) == meet, (one, other)


class Said(Keyspace):
    """One master, and who says what to it."""

    def __init__(self) -> None:
        super().__init__()
        self.sleep(0.0)

    def sleep(self, seconds: float) -> None:
        self.now_ms = max(self.now_ms, int(EPOCH * 1000)) + int(seconds * 1000)

    def say(
        self, who: str, names: Any, says: wire.Says = "new", life: float = LIFE, way: wire.Way = "trusted"
    ) -> wire.Lists:
        self.dirty = False
        call = wire.fleet("p:", tuple(names), who, says, life, way)
        return wire.read_fleet(ENGINE.run("fleet", call.script.text, self, list(call.keys), list(call.args)))

    def marks(self) -> dict[str, str]:
        """Of the lists that are there and count, by their names; - and ~ keep nobody away."""
        key = self.find(wire.FLEET + "p:")
        entries = [read_fleet_entry(value.encode()) for value in (key.value if key is not None else {}).values()]
        now = self.now_ms / 1000
        return {
            "".join(sorted(one.names)): one.status for one in entries if one is not None and now <= one.seen + one.life
        }


@pytest.fixture
def master() -> Said:
    return Said()


def test_the_script_says_the_same_as_the_core() -> None:
    """Of all lists out of six masters."""
    every = [
        tuple(f"m{number}" for number in numbers) for size in range(1, 6) for numbers in combinations(range(6), size)
    ]
    for one, other in combinations(every, 2):
        master = Said()
        answers = [master.say(who, names) for who, names in (("a", one), ("b", other))]
        recorded = compatible(frozenset(one), frozenset(other))
        others = () if recorded else (wire.OtherList("1", LIFE, frozenset(one)),)
        assert answers == [wire.Lists(1), wire.Lists(int(recorded), others)], (one, other)


def test_the_script_says_who_takes_an_expiry_in_another_way(master: Said) -> None:
    """R35: of clients that work, or only warn, for as long as they count.  Who gives way does not count."""

    def told(who: str, way: wire.Way, says: wire.Says = "working", names: str = "abc") -> float:
        return master.say(who, names, says, way=way).differs

    assert told("one", "trusted") == 0.0
    master.sleep(3.0)
    assert told("two", "confirmed") == 5.0
    assert told("one", "trusted", "left") == 8.0
    master.sleep(3.0)
    assert told("two", "confirmed") == 2.0, "nobody has said it again"
    master.sleep(3.0)
    assert told("two", "confirmed") == 0.0
    assert told("three", "trusted", names="xyz") == 8.0
    assert told("two", "confirmed") == 0.0, "three gives way"
    assert told("~four", "trusted", names="xyz") == 8.0
    assert told("two", "confirmed") == 8.0


@pytest.mark.parametrize(("who", "mark"), [("late", "-"), ("~late", "~")])
def test_a_client_that_gives_way_and_works_all_the_same_is_told_apart(master: Said, who: str, mark: str) -> None:
    """From the first moment on: `redlock-check` says who gets no lock."""
    master.say("first", OLD)
    for says in ("new", "refused", "back"):
        assert master.say(who, NEW, says).state == 0
        assert master.marks() == {"abc": "1", "bcd": mark}


@pytest.mark.parametrize("closes", [True, False])
def test_what_is_closed_counts_for_one_max_ttl_and_what_others_have_as_before(master: Said, closes: bool) -> None:
    """Leases may live on for so long, handed over or not; and so does what `hold_at_least` keeps."""
    master.say("one", OLD, "working")
    if not closes:
        master.say("another", OLD, "working")
    master.say("one", OLD, "left")
    master.sleep(MAX_TTL - 0.01)
    assert master.marks() == {"abc": "2"}
    master.sleep(0.02)
    assert master.marks() == ({} if closes else {"abc": "2"})


def test_a_list_counts_for_as_long_as_the_largest_max_ttl_of_its_clients_wants_and_no_longer(master: Said) -> None:
    master.say("short", OLD, "working")
    master.say("long", OLD, "working", 4 * LIFE)  # and is gone
    for _ in range(7):
        master.sleep(MAX_TTL)
        master.say("short", OLD, "working")
        assert master.say("late", NEW).others[0].names == {*OLD}
    master.sleep(LIFE + 0.1)
    assert "abc" not in master.marks()


def test_a_client_that_only_asks_takes_nothing_from_others_with_its_list(master: Said) -> None:
    """Also what it said on a connection that was given up, and that comes late."""
    master.say("works", NEW)
    assert master.say("asks", NEW, "refused").state == 0
    assert master.say("works", NEW, "refused").state == 1
    assert master.marks() == {"bcd": "1"}


def test_a_full_master_shows_what_it_has(master: Said) -> None:
    master.say("first", OLD, "working")
    master.refuses = "OOM"
    assert master.say("first", OLD, "working").state == -1
    assert [other.names for other in master.say("late", NEW).others] == [{*OLD}]


def fleet(names: tuple[str, ...] = ONE, *, works: str = "") -> Fleet:
    """``works``: it does, and these masters have recorded it."""
    one = Fleet(names, MAX_TTL, 0.01, 0.25, refuses=True, way="trusted")
    for name in works:
        one.answered(names.index(name), wire.Lists(1), 0.0, 0.0)
    one.next_announcement(1.0)
    return one


def shows(names: tuple[str, ...], mark: str = "2", state: int = 0) -> wire.Lists:
    return wire.Lists(state, (wire.OtherList(mark, LIFE, frozenset(names)),))


def test_a_master_that_takes_no_announcement_is_not_awaited() -> None:
    one = fleet(works="ab")
    assert one.counts_from > 0.1
    one.answered(0, None, 0.1, 0.1)
    assert one.counts_from < 0.1


def test_the_answer_to_a_mere_question_is_none_to_an_announcement() -> None:
    """A client that gave way only asks.  The list that it gave way to is too old now, and others may have come since."""
    one = fleet(OTHER, works="cd")
    one.answered(0, shows(ONE), 1.0, 1.0)
    assert (one.next_announcement(1.0), one.next_announcement(1.0)) == ("back", "refused")
    one.answered(0, wire.Lists(0), 10.0, 10.0)
    assert one.next_announcement(10.0) == "new"
    for master in (1, 2):
        one.answered(master, wire.Lists(1), 10.0, 10.1)
    assert one.counts_from > 10.1
    one.answered(0, wire.Lists(1), 10.0, 10.2)
    assert one.counts_from < 10.2


@pytest.mark.parametrize("cut_off", [False, True])
def test_a_client_that_was_cut_off_takes_no_failure_from_before_for_an_answer(cut_off: bool) -> None:
    """All masters failed until now, and they come back one after the other."""
    one = fleet(works="mab" if cut_off else "")
    for master in range(3):
        one.down(master, 9.9)
    for master in (1, 2):
        one.answered(master, wire.Lists(1), 10.0, 10.0)
    assert (one.counts_from > 10.0) is cut_off


FIVE, SIX = ("x", "y", "z", "a", "b"), ("x", "y", "z", "c", "d")


@pytest.mark.parametrize(("ours", "theirs", "stays"), [("xyab", "z", True), ("xab", "yz", False)])
def test_of_two_that_both_work_the_one_stays_that_more_common_masters_have(ours: str, theirs: str, stays: bool) -> None:
    one = fleet(FIVE, works=ours)
    for name in theirs:
        one.answered(FIVE.index(name), shows(SIX), 1.0, 1.0)
    assert (not one.rejected) is stays


@pytest.mark.parametrize("mark", ["1", "2"])
def test_of_two_that_as_many_common_masters_have_the_smaller_fingerprint_stays(mark: str) -> None:
    """If it has not said that it works, a client of it gives way by itself where our list is shown to it."""
    small, great = sorted([("x", "y", "a", "b", "c"), ("x", "y", "d", "e", "f")], key=wire.fingerprint)
    for names, other, stays in ((small, great, True), (great, small, mark == "1")):
        one = fleet(names, works="x" + "".join(names[2:]))
        one.answered(1, shows(other, mark), 1.0, 1.0)
        assert (not one.rejected) is stays
        soon = 0.05 * MAX_TTL
        assert (one.pause == soon) is (mark == "1" or not stays), "it looks again before the new one works"


def test_a_handshake_takes_nothing_back() -> None:
    """It may be carried out after it was given up, when the client works again."""
    one = fleet(OTHER, works="cd")
    announcer = Announcer(Voters(OTHER, MAX_TTL, restart_guard=False, fleet=one), "p:", lambda: None)
    one.answered(0, shows(ONE), 1.0, 1.0)
    assert one.in_the_way
    assert "refused" in announcer.call().args  # type: ignore[union-attr]


def test_masters_that_refuse_to_be_told_and_one_that_is_gone_stop_nobody() -> None:
    """They keep their votes: four of these five are a majority."""
    one = fleet(FIVE, works="xyzab")
    for at in range(1, 20):
        for refusing in (0, 1):
            one.answered(refusing, None, 2.0 * at, 2.0 * at)
        for master in (3, 4):
            one.answered(master, wire.Lists(1), 2.0 * at, 2.0 * at)
        assert one.known_until > 2.0 * at


def test_an_answer_that_makes_no_sense_costs_no_vote() -> None:
    one = fleet(OLD, works="abc")
    voters = Voters(OLD, MAX_TTL, restart_guard=False, fleet=one)
    announcer = Announcer(voters, "p:", lambda: None)
    announcement = Announcement(announcer.call(), announcer.heard)  # type: ignore[arg-type]
    announcement.sent_at = 1.0
    assert announcement.answered(0, b"hello", 1.0) is False
    assert not one.refusal


def test_ever_new_lists_that_last_for_ever_fill_no_memory_and_open_no_way() -> None:
    """Whoever may write to the hash of lists can invent them, as many as it likes and as long as they fit."""
    one = fleet()
    for number in range(200):
        one.answered(0, wire.Lists(0, (wire.OtherList("2", 1e12, frozenset((f"x{number}",))),)), 1.0, 1.0)
    assert len(one.disagreement.others) <= 100
    assert one.refusal
    given_way = tuple(wire.OtherList("-", LIFE, frozenset((f"y{number}",))) for number in range(200))
    one = fleet()
    one.answered(0, wire.Lists(0, (*given_way, *shows(NEW).others)), 1.0, 1.0)
    assert one.refusal
    with pytest.raises(wire.BadReply):
        wire.read_fleet([0, b"2 100\n" + 70_000 * b"x"])


@pytest.mark.parametrize("permitted", [True, False])
def test_the_price(permitted: bool) -> None:
    """Two requests to each master at first, and then one every half `max_ttl`, also for who may not announce."""
    voters = Voters(
        OLD, MAX_TTL, restart_guard=False, fleet=Fleet(OLD, MAX_TTL, 0.01, 0.25, refuses=True, way="trusted")
    )
    announcer, sent = Announcer(voters, "p:", lambda: None), 0
    announcer.connected(0.0)
    for step in range(1, 5000):
        at = step * 0.08
        if announcer.due(at) or step == 1:
            sent += step > 1
            for master in range(3):
                voters.max_ttl_answered(master, wire.Announced(MAX_TTL, LIFE) if permitted else None, at, at)
                voters.lists_answered(master, wire.Lists(2) if permitted else None, at, at)
    assert 190 < sent <= 200
