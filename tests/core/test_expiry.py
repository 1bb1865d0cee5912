"""What the answers of masters mean, where they have on record who had the name before (R35)."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from redlock._core import wire
from redlock._core.confirm.ballot import RECORDED
from redlock._core.confirm.expiry import Judgement, Record, judge
from redlock._core.kernel.ballot import Refusal
from tests.core.world import START, Master, World

# What one master may say: it took it; it refused, or has no vote; nothing yet; or a record of A or B with this mark.
CLEAN, REFUSED, NOTHING = "clean", "refused", "nothing"
FLAGS = ("A 0", "A 1", "B 0", "A r7")
SAID = (CLEAN, REFUSED, NOTHING, *FLAGS)


def record(flag: str, ttl: float = 10.0) -> Record:
    token, mark = flag.split()
    return Record(mark, token, ttl)


def of(*said: str) -> Judgement:
    """The judgement on one name; one answer for each master."""
    shown = {master: {0: record(one)} for master, one in enumerate(said) if one in FLAGS}
    return judge(len(said), said.count(CLEAN), shown, said.count(NOTHING))


def over(*flags: str) -> frozenset[tuple[int, str, str]]:
    return frozenset((0, *record(flag)[:2]) for flag in flags)


def witnessed(said: tuple[str, ...]) -> set[str]:
    """By subsets, as the proof has it: f + 1 masters that show the same, so one of them has an honest clock."""
    wrong = len(said) - (len(said) // 2 + 1)
    sets = combinations(range(len(said)), wrong + 1)
    same = {said[some[0]] for some in sets if len({said[one] for one in some}) == 1}
    return {flag for flag in same & set(FLAGS) if "r" not in flag or wrong == 0}


@pytest.mark.parametrize("masters", range(1, 7))
def test_every_set_of_answers(masters: int) -> None:
    """Which verdict, and when it stands."""
    need = masters // 2 + 1
    for said in product(SAID, repeat=masters):
        if list(said) != sorted(said):
            continue  # one order of each: it does not matter which master says what, see below
        clean, flags = said.count(CLEAN), [one for one in said if one in FLAGS]
        confirmed = clean + sum(flag in witnessed(said) for flag in flags) >= need
        got = of(*said)
        match got.verdict:
            case "clean":
                assert clean >= need
            case "confirmed":
                assert confirmed
                assert clean < need
                assert got.over == over(*witnessed(said))
            case "held":
                assert clean + len(flags) + said.count(NOTHING) < need
            case "open":
                assert NOTHING in said
                assert not confirmed
            case "doubt":
                assert NOTHING not in said
                assert clean + len(flags) >= need
                assert not confirmed
        assert of(*reversed(said)) == got


@pytest.mark.parametrize("masters", range(1, 6))
def test_a_verdict_stands_whatever_comes_after_it(masters: int) -> None:
    """R2: who goes on at once is told nothing by the missing answers that would change it; but it may be clean instead."""
    for said in product(SAID, repeat=masters):
        if list(said) == sorted(said) and NOTHING in said and (before := of(*said)).verdict != "open":
            at = said.index(NOTHING)
            for more in SAID:
                after = of(*said[:at], more, *said[at + 1 :])
                assert after.verdict in (before.verdict, "clean")
                assert after.over >= before.over or after.verdict == "clean"


def test_each_of_several_names_is_judged_by_itself() -> None:
    """A master is dismissed if all that it shows is; who shows A for the one name is no witness for the other."""
    a, b = record("A 0"), record("B 0")
    assert judge(3, 0, {0: {0: a, 1: b}, 1: {0: a, 1: b}}, 0).verdict == "confirmed"
    assert judge(3, 0, {0: {0: a}, 1: {1: a}}, 0).verdict == "doubt"
    assert judge(3, 0, {0: {0: a, 1: b}, 1: {0: a}}, 0).verdict == "doubt"
    assert judge(3, 1, {0: {0: a, 1: b}, 1: {0: a}}, 0) == Judgement("confirmed", over("A 0"))


# -- what an attempt leaves on masters -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("stopped", "leaves"), [(0.0, True), (1.9, True), (2.1, False)])
def test_a_client_that_was_stopped_keeps_the_name_from_none(stopped: float, leaves: bool) -> None:
    """For so many times `node_timeout`: others know more by then."""
    here = World(*[
        Master(0.01, {
            "acquire_recorded": [3, b"0", [1, stamp, 10_000, b"A"]], "confirm": [1, b"1"], "release_recorded": [1, 0],
        })
        for stamp in (b"0", b"1", b"2")
    ])  # fmt: skip
    here.later(0.005, lambda: setattr(here, "now", START + stopped * here.settings.node_timeout))
    spec = here.spec()._replace(keys=wire.keys_for("redlock:", ["a"], records=True), mode=RECORDED)
    assert isinstance(here.run(here.acquire(spec, deadline=START)), Refusal)
    assert ("confirm" in here.verbs()) is leaves


@pytest.mark.parametrize(("holders", "spread"), [((b"A", b"A", b"A"), 0.0), ((b"expired:A", b"A", b"A"), 0.25)])
def test_waiters_do_not_wake_at_one_moment_for_a_name_that_was_kept_from_all(
    holders: tuple[bytes, ...], spread: float
) -> None:
    here = World(
        *[Master(0.01, {"acquire_recorded": [0, b"0", holder, 5000], "release_recorded": [1, 0]}) for holder in holders]
    )
    spec = here.spec()._replace(keys=wire.keys_for("redlock:", ["a"], records=True), mode=RECORDED)
    refusal = here.run(here.acquire(spec, deadline=START))
    assert isinstance(refusal, Refusal)
    assert refusal.remaining == 5.0 + spread
