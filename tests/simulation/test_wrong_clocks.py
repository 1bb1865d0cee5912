"""Clocks of a minority are wrong, or it loses lock keys: scenes that chance finds rarely (R35).

Each is told step by step: the real scripts run on masters, whose lock keys go when the scene says so, and the shipped
decision judges their answers.  Each breaks a variant of the rule, in which two leases are valid at once, and not the rule.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from redlock import scripts
from redlock._core import expiry, records, wire
from redlock._core.expiry import judge
from tests.simulation.master import ENGINE, Keyspace
from tests.simulation.variants import VARIANTS, script

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from redlock._core.expiry import Records

KEYS = wire.keys_for("redlock:", ["a"], records=True)
(LOCK,), (FENCE,), (GRANT,) = KEYS
TWO = wire.keys_for("redlock:", ["a", "b"], records=True)
TTL = 30.0
HOUR = 3600.0


class Keys(Keyspace):
    """A master without listeners."""

    now_ms = 1_000_000

    def _publish(self, *_: str) -> int:
        return 0


class Stage:
    """So many masters, and what clients send them.  Time stands still: a lock key goes when the scene says so."""

    def __init__(self, masters: int, keys: wire.Keys = KEYS) -> None:
        self.masters = [Keys() for _ in range(masters)]
        self.need = masters // 2 + 1
        self.keys = keys

    def run(self, master: int, call: wire.Call) -> Any:
        keyspace = self.masters[master]
        return ENGINE.run(call.script.name, call.script.text, keyspace, list(call.keys), list(call.args))

    # -- what clients send ---------------------------------------------------------------------------

    def acquire(self, token: str, fence: int, *masters: int) -> dict[int, Any]:
        call = records.acquire(self.keys, token, TTL, fence, HOUR)
        return {master: self.run(master, call) for master in masters}

    def extend(self, token: str, mark: str, fence: int | None, *masters: int) -> list[bool]:
        call = records.extend(self.keys, token, TTL, HOUR, mark, fence)
        return [self.run(master, call) == [1] for master in masters]

    def extend_without_a_record(self, token: str, *masters: int) -> list[bool]:
        return [self.run(master, wire.extend(self.keys, token, TTL, HOUR)) == [1] for master in masters]

    def repair(self, token: str, fence: int, *masters: int) -> list[bool]:
        call = records.repair(self.keys, token, TTL, fence, HOUR)
        return [self.run(master, call) == [1] for master in masters]

    def release(self, token: str, fence: int | None, *masters: int, keep: float = 0.0) -> None:
        for master in masters:
            self.run(master, records.release(self.keys, token, keep, fence))

    def settle(self, token: str, fence: int, shown: Iterable[set[str]], *masters: int) -> list[bool]:
        call = records.settle(self.keys, token, TTL, fence, HOUR, list(shown))
        return [self.run(master, call)[0] == 1 for master in masters]

    def phantom(self, token: str, fence: int, shown: Iterable[set[str]], *masters: int) -> list[bool]:
        call = records.settle(self.keys, token, TTL, fence, HOUR, list(shown), phantom=True)
        return [self.run(master, call)[0] == 1 for master in masters]

    # -- what becomes of it --------------------------------------------------------------------------

    def gone(self, *masters: int) -> None:
        """The lock keys end: in time, or because a clock is wrong, or because a master loses them."""
        for master in masters:
            for key in self.keys.locks:
                self.masters[master].keys.pop(key, None)

    def forgets(self, master: int) -> None:
        self.masters[master].keys.clear()

    def verdict(self, answers: dict[int, Any]) -> str:
        """What the client makes of ``answers``, if the other masters never answer."""
        clean = sum(answer[0] in (1, 2) for answer in answers.values())
        return judge(len(self.masters), clean, self.shown(answers), 0).verdict

    def granted(self, token: str, fence: int, answers: dict[int, Any]) -> bool:
        """Whether these ``answers`` end in a grant: the second round goes to those that have not refused."""
        clean = [master for master, answer in answers.items() if answer[0] in (1, 2)]
        found = judge(len(self.masters), len(clean), self.shown(answers), 0)
        if found.verdict == "confirmed" or (found.verdict == "clean" and any(answers[one][0] == 2 for one in clean)):
            may = [
                {f"{mark} {whose}" for which, mark, whose in found.over if which == name} for name in range(self._names)
            ]
            return sum(self.settle(token, fence, may, *[*clean, *self.shown(answers)])) >= self.need
        return found.verdict == "clean"

    @property
    def _names(self) -> int:
        return len(self.keys.locks)

    def shown(self, answers: dict[int, Any]) -> dict[int, Records]:
        read = {master: records.read_flagged(answer) for master, answer in answers.items()}
        return {master: flagged[1] for master, flagged in read.items() if flagged is not None}


def of(answers: dict[int, Any]) -> list[set[str]]:
    """What these answers have shown of the one name."""
    flagged = [records.read_flagged(answer) for answer in answers.values()]
    return [{f"{one[1][0].mark} {one[1][0].token}" for one in flagged if one is not None}]


def both(*changes: Any) -> list[Any]:
    return [script(scripts.EXTEND_RECORDED, *changes), script(scripts.RENEW_RECORDED, *changes)]


PLAYS: list[Callable[[], bool]] = []
SCENES: list[tuple[Callable[[], bool], Callable[[], list[Any]]]] = []  # each with what breaks in it


def scene(*broken: Callable[[], list[Any]]) -> Any:
    """A scene returns whether somebody is granted the name while somebody else has it.  ``broken``: where it does."""

    def add(play: Callable[[], bool]) -> Callable[[], bool]:
        PLAYS.append(play)
        SCENES.extend((play, one) for one in broken)
        return play

    return add


# -- variants --------------------------------------------------------------------------------------------------------


def compared_by_token() -> list[Any]:
    """The second round compares whose record is there, and not of which extension."""
    return [
        script(
            scripts.SETTLE, ("ARGV[one] == here", "string.match(ARGV[one], ' (.*)$') == string.match(here, ' (.*)$')")
        )
    ]


def repaired_anywhere() -> list[Any]:
    """A key is given back wherever nobody holds the name, whoever is on record."""
    return [script(scripts.REPAIR_RECORDED, ("or (whose and whose ~= token and tonumber(its_fence) > fence)", ""))]


def extends_only_its_own_record() -> list[Any]:
    """An extension puts nothing on record where nothing is."""
    return [
        script(
            scripts.EXTEND_RECORDED,
            ("redis.call('SET', KEYS[2 * n + i], records[i], 'PX', ARGV[5])",
             "if recorded(KEYS[2 * n + i]) then redis.call('SET', KEYS[2 * n + i], records[i], 'PX', ARGV[5]) end"),
        )
    ]  # fmt: skip


def any_release_clears() -> list[Any]:
    """A release takes away what is on record, whatever its fence."""
    return [script(scripts.RELEASE_RECORDED, ("(whose and tonumber(its_fence) <= fence)", "whose"))]


def fence_from_its_key() -> list[Any]:
    """A release compares its fence with that at the fence key, and not with that on record."""
    text = ("whose and tonumber(its_fence) <= fence", "whose and tonumber(redis.call('GET', ARGV[4]) or '0') <= fence")
    correct = records.release

    def release(keys: Any, token: str, keep: float = 0.0, fence: int | None = None) -> wire.Call:
        call = correct(keys, token, keep, fence)
        return call._replace(args=(*call.args[:2], "", keys.fences[0]))

    no_keep = ("local left = ARGV[3] and redis.call('PTTL', KEYS[i])", "local left = false")
    return [script(scripts.RELEASE_RECORDED, text, no_keep), mock.patch.object(records, "release", release)]


def marks_go_down() -> list[Any]:
    """An extension that comes late puts its mark in place of a later one."""
    return both(("(tonumber(before) or math.huge) >= tonumber(mark)", "false"))


def answers_of_any_moment() -> list[Any]:
    """All have answered, and none says that it is held by who is on record: that is over."""
    correct = expiry.judge

    def judged(masters: int, clean: int, shown: Any, missing: int) -> Any:
        found = correct(masters, clean, shown, missing)
        if found.verdict != "doubt":
            return found
        over = frozenset((name, *one[:2]) for of_one in shown.values() for name, one in of_one.items())
        return expiry.Judgement("confirmed", over)

    return [mock.patch(f"{__name__}.judge", judged)]


def counted_and_not_taken() -> list[Any]:
    """What has run out for certain is a vote, and nothing is taken or written there."""
    return [mock.patch.object(Stage, "settle", lambda stage, token, fence, shown, *masters: [True] * len(masters))]


def phantom_without_a_look() -> list[Any]:
    """A phantom is left wherever nobody holds the name, whatever is on record by now."""
    return [
        script(scripts.SETTLE, ("may = may or ARGV[one] == here", "may = may or value ~= token or ARGV[one] == here"))
    ]


def mark_used_twice() -> list[Any]:
    """Two extensions of a lease have the same mark, and a master minds only a smaller one."""
    again = ("(tonumber(before) or math.huge) >= tonumber(mark)", "(tonumber(before) or math.huge) > tonumber(mark)")
    return [script(scripts.EXTEND_RECORDED, again), mock.patch(f"{__name__}.later", lambda mark: mark)]


def later(mark: str) -> str:
    """The mark of the extension after that one."""
    return str(int(mark) + 1)


# -- scenes ----------------------------------------------------------------------------------------------------------


@scene(VARIANTS["trusts-expiry"].patches)
def kleppmann() -> bool:
    """A has 1, 2 and 3; the clock of 3 jumps; then 1 and 2 are out of B's reach, and 4 and 5 are back."""
    stage = Stage(5)
    assert stage.granted("A", 10, stage.acquire("A", 10, 0, 1, 2))
    stage.gone(2)
    return stage.granted("B", 21, stage.acquire("B", 20, 2, 3, 4))


@scene(VARIANTS["one-fewer-is-enough"].patches)
def kleppmann_of_three() -> bool:
    """A has 1 and 2; the clock of 2 jumps; then 1 is out of B's reach, and 3 is back."""
    stage = Stage(3)
    assert stage.granted("A", 10, stage.acquire("A", 10, 0, 1))
    stage.gone(1)
    return stage.granted("B", 21, stage.acquire("B", 20, 1, 2))


@scene(VARIANTS["no-mark"].patches)
def an_extension_misses_a_master() -> bool:
    """Two that name the same holder are no two witnesses: the extension came to 1 and 2; 3 ends honestly, 2 steps."""
    stage = Stage(3)
    stage.acquire("A", 10, 0, 1, 2)
    assert stage.extend("A", "1", 10, 0, 1) == [True, True]
    stage.gone(2, 1)
    return stage.granted("B", 21, stage.acquire("B", 20, 1, 2))


@scene(mark_used_twice)
def each_extension_has_a_mark_of_its_own() -> bool:
    """The first one came to all, the second one not to 2, which ends honestly; 1 steps."""
    stage = Stage(3)
    stage.acquire("A", 10, 0, 1, 2)
    stage.extend("A", "1", 10, 0, 1, 2)
    assert stage.extend("A", later("1"), 10, 0, 1) == [True, True]
    stage.gone(2, 1)
    return stage.granted("B", 21, stage.acquire("B", 20, 1, 2))


@scene(VARIANTS["no-mark"].patches)
def an_extension_misses_two_of_five() -> bool:
    """... and of five, one wrong clock is enough."""
    stage = Stage(5)
    stage.acquire("A", 10, 0, 1, 2, 3, 4)
    stage.extend("A", "1", 10, 0, 1, 2)
    stage.gone(3, 4, 2)
    return stage.granted("B", 21, stage.acquire("B", 20, 2, 3, 4))


@scene(answers_of_any_moment)
def answers_are_not_of_one_moment() -> bool:
    """0 has told C that A holds it; then A ends, B is granted by 0 and 1, and 1 loses the key of B."""
    stage = Stage(3)
    stage.acquire("A", 10, 0, 1)
    asked = stage.acquire("C", 30, 0, 2)
    assert asked[0][0] == 0
    stage.release("A", 10, 0, 1)
    assert stage.granted("B", 20, stage.acquire("B", 20, 0, 1))
    stage.gone(1)
    return stage.granted("C", 31, asked | stage.acquire("C", 30, 1))


@scene(VARIANTS["rollback-is-a-release"].patches)
def a_rollback_clears_nothing() -> bool:
    """A failed attempt proposed a greater fence than that of the lease that lives."""
    stage = Stage(3)
    stage.acquire("A", 10, 0, 1)
    stage.gone(1)
    assert stage.verdict(stage.acquire("B", 20, 0, 1, 2)) == "doubt"
    stage.release("B", None, 0, 1, 2)
    return stage.granted("C", 31, stage.acquire("C", 30, 1, 2))


@scene(counted_and_not_taken)
def what_is_counted_is_taken() -> bool:
    """A is over.  B and C are told so by the same two masters, and only one of them may have it."""
    stage = Stage(3)
    stage.acquire("A", 10, 0, 1, 2)
    stage.gone(0, 1, 2)
    b, c = stage.acquire("B", 20, 0, 1), stage.acquire("C", 30, 0, 1)
    return stage.granted("B", 31, b) and stage.granted("C", 32, c)


@scene(extends_only_its_own_record)
def an_extension_counts_a_repaired_master() -> bool:
    """A on 0 and 1; 2 is repaired; 0 restarts empty, and votes again when its guard is over; 2 steps."""
    stage = Stage(3)
    stage.acquire("A", 10, 0, 1)
    stage.extend("A", "1", 10, 0, 1)
    assert stage.repair("A", 10, 2) == [True]
    stage.forgets(0)
    assert stage.extend("A", "2", 10, 1, 2) == [True, True]
    stage.gone(2)
    return stage.granted("B", 21, stage.acquire("B", 20, 0, 2))


def _in_flight(meanwhile: Callable[[Stage], None]) -> bool:
    """X asks 1, which loses its key.  Others have it meanwhile, and end.  Then X gets its last vote, and Y asks 1 and 2."""
    stage = Stage(3)
    x = stage.acquire("X", 50, 1)
    stage.gone(1)
    assert stage.granted("T", 20, stage.acquire("T", 20, 0, 1, 2))
    stage.extend("T", "1", 20, 0, 1, 2)
    meanwhile(stage)
    stage.release("T", 20, 0, 1, 2)
    assert stage.granted("X", 51, x | stage.acquire("X", 50, 0))
    return stage.granted("Y", 61, stage.acquire("Y", 60, 1, 2))


@scene(any_release_clears)
def a_release_clears_what_is_older() -> bool:
    """The record of X has a greater fence than T, and stays when T ends."""
    return _in_flight(lambda stage: None)


@scene(repaired_anywhere)
def a_repair_minds_the_record() -> bool:
    """T is not given back the key of the master where X is on record."""

    def meanwhile(stage: Stage) -> None:
        stage.repair("T", 20, 1)
        stage.extend("T", "2", 20, 0, 1, 2)

    return _in_flight(meanwhile)


@scene(compared_by_token, phantom_without_a_look)
def a_phantom_comes_late() -> bool:
    """Of five, 2 and 3 are wrong.  The phantom comes to 2 nearly a TTL later than to 4; there T was repaired and extended."""
    stage = Stage(5)
    stage.acquire("T", 10, 0, 1, 2, 3)
    stage.gone(2)
    stage.extend("T", "1", 10, 0, 1, 3)
    stage.gone(3)
    asked = stage.acquire("B", 20, 2, 3, 4)
    assert stage.verdict(asked) == "doubt"
    assert stage.phantom("B", 21, of(asked), 4, 3) == [True, True]
    stage.repair("T", 10, 2)
    assert stage.extend("T", "2", 10, 0, 1, 2) == [True] * 3
    stage.gone(2)
    stage.phantom("B", 21, of(asked), 2)
    stage.gone(2, 3, 4)
    return stage.granted("C", 41, stage.acquire("C", 40, 2, 3, 4))


@scene(fence_from_its_key)
def a_fence_key_is_lost() -> bool:
    """An old lease X is released late; the fence key of 0 is gone, and the record of A is not."""
    stage = Stage(3)
    stage.acquire("A", 11, 0, 1)
    stage.gone(0)
    del stage.masters[0].keys[FENCE]
    stage.release("X", 10, 0, 2)
    return stage.granted("B", 21, stage.acquire("B", 20, 0, 2))


@scene(fence_from_its_key)
def a_fence_was_never_raised_here() -> bool:
    """2 has the key of A by a repair, and its record by an extension.  C, an old lease, has a greater fence than is there."""
    stage = Stage(3)
    stage.acquire("A", 25, 0, 1)
    stage.repair("A", 25, 2)
    stage.masters[2].keys[FENCE].value = "20"
    stage.forgets(1)
    stage.extend("A", "1", 25, 0, 2)
    stage.gone(2)
    stage.release("C", 22, 1, 2)
    return stage.granted("B", 31, stage.acquire("B", 30, 1, 2))


@scene(marks_go_down)
def an_extension_of_before_comes_late() -> bool:
    """The second extension came to 0 and 2, and the first one to 1; then it comes to 0, late."""
    stage = Stage(3)
    stage.acquire("A", 10, 0, 1, 2)
    stage.extend("A", "1", 10, 1)
    assert stage.extend("A", "2", 10, 0, 2) == [True, True]
    stage.extend("A", "1", 10, 0)
    stage.gone(1, 0)
    return stage.granted("C", 21, stage.acquire("C", 20, 0, 1))


def leaves_no_record() -> list[Any]:
    """Who was given the lease by its token knows nothing of records: a client without this rule."""
    return [
        mock.patch.object(
            Stage, "extend", lambda stage, token, mark, fence, *to: stage.extend_without_a_record(token, *to)
        )
    ]


@scene(leaves_no_record)
def a_lease_is_handed_over() -> bool:
    """1 is out of reach of the process that extends it now, and ends in time; the clock of 0 is wrong."""
    stage = Stage(3)
    stage.acquire("A", 10, 0, 1, 2)
    stage.extend("A", "r1f", 10, 0, 2)
    stage.gone(0, 1)
    return stage.granted("C", 21, stage.acquire("C", 20, 0, 1))


@scene()
def marks_of_two_processes_agree_with_none() -> bool:
    """An extension of the one came to 1 only; the other's to 0 and 2."""
    stage = Stage(3)
    stage.acquire("A", 10, 0, 1, 2)
    assert stage.extend("A", "r1", 10, 1) == [True]
    assert stage.extend("A", "r2", 10, 0, 2) == [True, True]
    assert stage.extend("A", "7", 10, 0, 1, 2) == [False] * 3, "numbers do not come behind those"
    assert stage.extend("A", "r1", 10, 0) == [True], "late"
    stage.gone(0, 1)
    return stage.granted("C", 21, stage.acquire("C", 20, 0, 1))


@scene(VARIANTS["names-add-up"].patches)
def two_names_are_no_two_witnesses() -> bool:
    """A has both on 1 and 2; the clock of 2 jumps; then 1 is out of B's reach, and 3 is back."""
    stage = Stage(3, TWO)
    assert stage.granted("A", 10, stage.acquire("A", 10, 0, 1))
    stage.gone(1)
    return stage.granted("B", 21, stage.acquire("B", 20, 1, 2))


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__)
def test_nobody_is_let_in(play):
    assert not play(), play.__doc__


@pytest.mark.parametrize(("play", "broken"), SCENES, ids=lambda one: one.__doc__.split(" (")[0])
def test_a_broken_rule_lets_somebody_in(play, broken):
    with ExitStack() as stack:
        for patch in broken():
            stack.enter_context(patch)
        assert play(), broken.__doc__


def test_who_gives_it_back_is_not_on_record_any_more():
    """P4: else the next one needs a second round, or a TTL."""
    stage = Stage(1)
    stage.acquire("A", 10, 0)
    assert stage.masters[0].keys[GRANT].value == f"0 {TTL * 1000:.0f} 10 A"
    stage.extend("A", "3", 10, 0)
    assert stage.masters[0].keys[GRANT].value == f"3 {TTL * 1000:.0f} 10 A"
    stage.release("A", 10, 0)
    assert set(stage.masters[0].keys) == {FENCE}


# -- several names ---------------------------------------------------------------------------------------------------


def test_a_name_of_which_nothing_is_on_record_is_taken_with_the_one_that_is_over():
    """A had the one name, nobody the other.  `NONE` is what a master has shown of that one."""
    alone, stage = Stage(3), Stage(3, TWO)
    stage.masters = alone.masters
    alone.acquire("A", 10, 0, 1, 2)
    alone.gone(0, 1, 2)
    asked = stage.acquire("B", 20, 0, 1, 2)
    assert asked[0] == [3, b"10", [1, b"0", 30_000, b"A"]]
    assert stage.verdict(asked) == "confirmed"
    assert stage.settle("B", 21, [{"0 A"}, set()], 0) == [False], "what was not shown is not taken"
    assert stage.settle("B", 21, [{"0 A"}, {records.NONE}], 0, 1, 2) == [True] * 3
    assert {stage.masters[0].keys[lock].value for lock in TWO.locks} == {"B"}


def test_only_what_is_over_is_taken_back_by_a_release_to_keep():
    """R28: where only the record is left it goes, and nobody is kept out by a key that was not there."""
    stage = Stage(1)
    stage.acquire("A", 10, 0)
    stage.gone(0)
    stage.release("A", 10, 0, keep=5.0)
    assert set(stage.masters[0].keys) == {FENCE}
    with script(scripts.RELEASE_RECORDED, ("  if found == token then\n    local left = ARGV[3] and redis.call('PTTL', KEYS[i])",
                                           "  if found == token or whose == token then\n    local left = ARGV[3] and 5")):  # fmt: skip
        stage.acquire("X", 15, 0)
        stage.gone(0)
        stage.release("X", 15, 0, keep=5.0)
        assert LOCK in stage.masters[0].keys
        stage.gone(0)
    stage.acquire("B", 20, 0)
    stage.release("B", 20, 0, keep=5.0)
    assert stage.masters[0].keys[LOCK].value == "released:B"
    assert GRANT not in stage.masters[0].keys
