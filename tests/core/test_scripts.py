"""What each script promises on top of its file, by running it (R14, R16-R18, R20, P8)."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

from redlock import scripts
from redlock._core import wire
from redlock._core.acquire import Target, attempt
from redlock._core.ballots import Ballot, Grant
from redlock._core.refusals import ErrorReply
from tests.core.scripted_master import ErrorReplied, ScriptedMaster
from tests.core.world import START, WALL, Master, World

ONE = wire.keys_for("redlock:", ["a"])
TWO = wire.keys_for("redlock:", ["a", "b"])
BARE = wire.keys_for("redlock:", ["a", "b"], fencing=False)
A, B = TWO.locks
FA, FB = TWO.fences
# Of a holder "tok", for the first name.
CALLS = {
    "acquire": wire.acquire(ONE, "tok", 10.0, 5, 60.0),
    "fence": wire.fence(ONE, "tok", 5, 60.0),
    "extend": wire.extend(ONE, "tok", 10.0, 60.0),
    "renew": wire.renew([(ONE, "tok", 10.0)], 60.0),
    "repair": wire.repair(ONE, "tok", 10.0, 5, 60.0),
    "release": wire.release(ONE, "tok"),
    "status": wire.status(A),
}


def test_every_file_is_loaded_and_named_as_a_master_names_it() -> None:
    folder = Path(scripts.__file__).parent
    assert {script.name for script in scripts.ALL} == {file.stem for file in folder.glob("*.lua")} - {
        "readers",
        "records",
    }
    readers, records = ((folder / f"{name}.lua").read_text() for name in ("readers", "records"))
    for script in scripts.ALL:
        text = (folder / f"{script.name}.lua").read_text()
        if "-- (readers.lua)\n" in text:
            text = text.replace("-- (readers.lua)\n", readers)
        elif "R33" in text and script.name.endswith(("_shared", "mark")):
            contract, body = text.split("\n\n", 1)
            text = f"{contract}\n\n{readers}\n{body}"
        text = text.replace("-- (records.lua)\n", records)
        assert script.sha == hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


@pytest.mark.parametrize("script", scripts.ALL, ids=lambda script: script.name)
def test_every_script_starts_with_its_contract(script: scripts.Script) -> None:
    contract = script.text.split("\n\n")[0] + script.text.split("\nlocal")[0]
    for part in ("-- KEYS", "returns"):
        assert part in contract
    # whoever reads it from the hash slot of one key must find every key among KEYS (no key is made up)
    assert not re.search(r"redis\.call\('\w+', '", script.text)


@pytest.fixture(autouse=True, params=[True, False], ids=["modern", "old"])
def _modern(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a script promises it keeps on old servers, which lack a command, as well."""
    monkeypatch.setattr(ScriptedMaster, "modern", request.param)


@pytest.fixture
def master(_modern: None) -> ScriptedMaster:
    return ScriptedMaster()


def held_by(master: ScriptedMaster, a: str | None, b: str | None) -> None:
    for lock, token in ((A, a), (B, b)):
        if token is not None:
            master.set(lock, token, 1000)


def everything(master: ScriptedMaster) -> tuple[dict[bytes, Any], dict[bytes, int]]:
    return dict(master.values), dict(master.expiries)


# -- acquire -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [None, "499"])
def test_acquire_takes_all_names_and_stores_the_proposal(master: ScriptedMaster, before: str | None) -> None:
    """In place of a fence that is smaller, too."""
    if before is not None:
        master.set(FB, before, 5)
    assert master.run(wire.acquire(TWO, "tok", 10.0, 500, 60.0)) == [1, b"500"]
    assert (master.get(A), master.get(B)) == ("tok", "tok")
    assert (master.pttl(A), master.pttl(B)) == (10_000, 10_000)
    assert (master.get(FA), master.get(FB)) == ("500", "500")
    assert (master.pttl(FA), master.pttl(FB)) == (60_000, 60_000)


@pytest.mark.parametrize("fence", [500, 501, 900, 2**53 - 2])
def test_acquire_keeps_a_fence_that_is_not_smaller_and_answers_with_it(master: ScriptedMaster, fence: int) -> None:
    """R18: {2, fence}, for equal is not greater; but the names are taken."""
    master.set(FB, str(fence), 5)
    assert master.run(wire.acquire(TWO, "tok", 10.0, 500, 60.0)) == [2, str(fence).encode()]
    assert (master.get(A), master.get(B)) == ("tok", "tok")
    assert (master.get(FA), master.get(FB)) == (None, str(fence))
    assert master.pttl(FB) == 60_000  # R20: the life of the fence counts from the last grant


@pytest.mark.parametrize("keys", [TWO, BARE], ids=["fenced", "bare"])
def test_acquire_takes_none_if_somebody_holds_one(master: ScriptedMaster, keys: wire.Keys) -> None:
    master.set(B, "ann", 3000)
    before = everything(master)
    assert master.run(wire.acquire(keys, "tok", 10.0, 500, 60.0)) == [0, b"0", b"ann", 3000]
    assert everything(master) == before


@pytest.mark.parametrize("keys", [ONE, TWO], ids=["one name", "two names"])
def test_acquire_is_granted_once_more_to_its_own_token(master: ScriptedMaster, keys: wire.Keys) -> None:
    """R10: its answer was lost.  Whether the fence that is there is its own nobody can tell, so it is not (R18)."""
    call = wire.acquire(keys, "tok", 10.0, 500, 60.0)
    assert master.run(call) == [1, b"500"]
    master.expiries[A.encode()] = 3000
    assert master.run(call) == [2, b"500"]
    assert (master.get(A), master.pttl(A)) == ("tok", 10_000)
    assert master.get(FA) == "500"
    # And not where somebody else has one of them.
    master.set(keys.locks[-1], "ann", 3000)
    assert master.run(call) == [0, b"500", b"ann", 3000]


def test_occupy_gives_its_own_token_the_slot_that_it_has(master: ScriptedMaster) -> None:
    """R10: its answer was lost.  And no second slot is taken."""
    keys = [wire.keys_for("redlock:", [f"job#{slot}"]) for slot in range(3)]
    group = tuple(one.locks[0] for one in keys)
    fences = wire.Keys((), tuple(one.fences[0] for one in keys))
    call = wire.occupy(group, (0, 1, 2), fences, "tok", 10.0, 500, 60.0)
    master.set(group[0], "ann", 3000)
    assert master.run(call) == [1, b"500", 1]
    master.expiries[group[1].encode()] = 3000
    assert master.run(call) == [2, b"500", 1]
    assert [master.get(key) for key in group] == ["ann", "tok", None]
    assert master.pttl(group[1]) == 10_000


@pytest.mark.parametrize(("a", "b", "answer"), [
    ((b"ann", 3000), (b"bob", 4000), [b"bob", 4000]),
    ((b"ann", 4000), (b"bob", 3000), [b"ann", 4000]),
    ((b"ann", -1), (b"bob", 3000), [b"ann", -1]),
    ((b"ann", 3000), (b"bob", -1), [b"bob", -1]),
])  # fmt: skip
def test_acquire_tells_the_holder_that_lasts_longest(
    master: ScriptedMaster, a: tuple[bytes, int], b: tuple[bytes, int], answer: list[object]
) -> None:
    master.set(A, a[0].decode(), a[1])
    master.set(B, b[0].decode(), b[1])
    master.set(FA, "7")
    assert master.run(wire.acquire(TWO, "tok", 10.0, 500, 60.0)) == [0, b"7", *answer]


def test_acquire_without_fencing_touches_no_fence(master: ScriptedMaster) -> None:
    assert master.run(wire.acquire(BARE, "tok", 10.0, 0, 60.0)) == [1, b"0"]
    assert set(master.values) == {A.encode(), B.encode()}


@pytest.mark.parametrize("fence", [
    "abc", "-5", "1.5", "", "9007199254740991", "9007199254740992", "1e5", "0x10", "0x00000000000005f",
    "1.00000000000e15", [b"a list"],
])  # fmt: skip
@pytest.mark.parametrize(("script", "holder"), [("acquire", None), ("acquire", "tok"), ("fence", "tok")])
def test_a_fence_that_is_not_one_is_an_error(
    master: ScriptedMaster, script: str, holder: str | None, fence: str | list[bytes]
) -> None:
    """From 2**53 on a Lua number is not exact, and order would be lost silently; so 2**53 - 1 has no successor.

    A free name stays free, and what somebody wrote there stays.
    """
    master.set(FA, fence)
    held_by(master, holder, None)
    before = dict(master.values)
    for proposal in (5, WALL):
        call = wire.acquire(ONE, "tok", 10.0, proposal, 60.0)
        with pytest.raises(ErrorReplied, match=r"BADFENCE .*fence"):
            master.run(call if script == "acquire" else wire.fence(ONE, "tok", proposal, 60.0))
    assert master.values == before


@pytest.mark.parametrize(("stored", "answer"), [
    (str(WALL - 1), [1, str(WALL).encode()]),
    (str(WALL), [2, str(WALL).encode()]),
    (str(WALL + 1), [2, str(WALL + 1).encode()]),
    ("7", [1, str(WALL).encode()]),
    ("0000000000000007", [1, str(WALL).encode()]),
])  # fmt: skip
def test_acquire_of_one_name(master: ScriptedMaster, stored: str, answer: list[Any]) -> None:
    """R16, R18; whichever way a server takes."""
    master.set(FA, stored, 5)
    assert master.run(wire.acquire(ONE, "tok", 10.0, WALL, 60.0)) == answer
    assert (master.get(A), master.pttl(A)) == ("tok", 10_000)
    assert master.get(FA) == answer[1].decode()
    assert master.pttl(FA) == 60_000


def test_large_fences_stay_exact(master: ScriptedMaster) -> None:
    assert master.run(wire.acquire(ONE, "tok", 10.0, 2**53 - 1, 60.0)) == [1, b"9007199254740991"]
    assert master.get(ONE.fences[0]) == "9007199254740991"


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ("9007199254740991", "9007199254740991"),  # nothing greater is exact
        ("abc", "abc"),
        ("x" * 1_000_000, "x" * 20),
        ("a\r\n\x1b[31m\xff", "a???[31m??"),  # of UTF-8; an error is one line
        ([b"a list"], "a value of another type"),
    ],
    ids=["the-greatest", "text", "huge", "binary", "another-type"],
)
@pytest.mark.parametrize("script", ["acquire", "fence", "status"])
def test_somebody_wrote_at_the_fence_key_and_is_told_apart_from_the_lock_key(
    master: ScriptedMaster, script: str, stored: Any, said: str
) -> None:
    master.set(A, "tok", 10)
    master.set(FA, stored)
    with pytest.raises(ErrorReplied) as caught:
        master.run(CALLS[script])
    assert str(caught.value) == f"BADFENCE {FA} does not hold a fencing token but {said}"


@pytest.mark.parametrize("script", ["acquire", "fence", "status"])
def test_a_fence_key_that_may_not_be_read_is_refused_as_the_master_says_it(master: ScriptedMaster, script: str) -> None:
    master.set(A, "tok", 10)
    master.forbidden = {FA.encode()}
    with pytest.raises(ErrorReplied, match=r"^NOPERM"):
        master.run(CALLS[script])


@pytest.mark.parametrize("size", [127, 128, 129, 1_000_000])
@pytest.mark.parametrize("script", ["acquire", "extend", "renew", "release", "status"])
def test_of_a_value_of_any_size_only_the_beginning_is_sent(master: ScriptedMaster, script: str, size: int) -> None:
    """Somebody keeps megabytes under a name: an answer that holds them would hold up all that stands behind it."""
    master.set(A, "x" * size, 9)
    shown = b"x" * min(size, 128)
    answers: dict[str, list[Any]] = {
        "acquire": [0, b"0", shown, 9], "extend": [0, shown], "renew": [shown], "release": [0, shown],
        "status": [shown, 9, b"0"],
    }  # fmt: skip
    assert master.run(CALLS[script]) == answers[script]
    assert master.get(A) == "x" * size  # P8


def test_a_fence_of_a_million_zeros_is_not_sent_either(master: ScriptedMaster) -> None:
    master.set(FA, "0" * 1_000_000 + "7")
    assert master.run(wire.status(A)) == [b"", -2, b"7"]


def test_tokens_are_compared_whole(master: ScriptedMaster) -> None:
    """Two that begin with the same 128 bytes are two."""
    master.set(A, "x" * 128 + "theirs", 9)
    assert master.run(wire.extend(ONE, "x" * 128 + "ours", 10.0, 60.0)) == [0, b"x" * 128]
    assert master.run(wire.release(ONE, "x" * 128)) == [0, b"x" * 128]
    assert master.get(A) is not None


@pytest.mark.parametrize("script", ["acquire", "extend", "release", "repair", "fence"])
def test_a_key_of_another_type_is_an_error(master: ScriptedMaster, script: str) -> None:
    master.set(A, [b"a list"])
    with pytest.raises(ErrorReplied, match="WRONGTYPE"):
        master.run(CALLS[script])


@pytest.mark.parametrize("keys", [ONE, TWO], ids=["one", "several"])
def test_an_equal_proposal_is_not_taken_for_a_stored_one(master: ScriptedMaster, keys: wire.Keys) -> None:
    """R18.  Two clients may propose the same: the same microsecond, or both saw the same highest fence.

    The first had the lock and gave it back; the acquire of the second was on its way all the time.  The
    master does not accept its proposal, and has to say so.
    """
    world = World(Master())
    master.run(wire.acquire(keys, "first", 10.0, 500, 60.0))
    master.run(wire.release(keys, "first"))
    second = wire.acquire(keys, "second", 10.0, 500, 60.0)
    ballot = Ballot(world.settings, second, 500)
    assert ballot.answered(0, master.run(second), START)
    assert ballot.tally.won
    assert not ballot.stored


def test_two_grants_never_have_the_same_fence() -> None:
    """P2, with the proposals of two clients whose wall clocks show the same microsecond."""
    servers = [ScriptedMaster() for _ in range(3)]
    fences = []
    for _ in range(2):
        world = World(*[Master(0.01, dict.fromkeys(("acquire", "fence", "release"), server.run)) for server in servers])
        spec = world.spec("a")
        grant = world.run(attempt(world.settings, Target(spec)))
        assert isinstance(grant, Grant)
        fences.append(grant.fence)
        for server in servers:
            server.run(wire.release(spec.keys, grant.token))
    assert fences[0] == WALL
    assert fences[1] is not None
    assert fences[1] > WALL


# -- fence -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("proposal", "answer", "stored"), [(501, [1, b"501"], "501"), (500, [0, b"500"], "500"), (499, [0, b"500"], "500")]
)
def test_fence_accepts_only_what_is_greater(
    master: ScriptedMaster, proposal: int, answer: list[object], stored: str
) -> None:
    """R18: equal is not greater."""
    for lock in TWO.locks:
        master.set(lock, "tok", 10_000)
    master.set(FA, "500", 7)
    assert master.run(wire.fence(TWO, "tok", proposal, 60.0)) == answer
    assert master.get(FA) == stored
    assert master.get(FB) == (stored if answer[0] == 1 else None)
    assert master.pttl(FA) == (60_000 if answer[0] == 1 else 7)


@pytest.mark.parametrize("a", ["tok", "ann", None])
@pytest.mark.parametrize("b", ["tok", "ann", None])
def test_fence_only_for_the_owner_of_every_name(master: ScriptedMaster, a: str | None, b: str | None) -> None:
    held_by(master, a, b)
    master.set(FB, "500", 7)
    owner = (a, b) == ("tok", "tok")
    assert master.run(wire.fence(TWO, "tok", 600, 60.0)) == ([1, b"600"] if owner else [-1, b"500"])
    assert master.get(FB) == ("600" if owner else "500")


# -- extend ------------------------------------------------------------------------------------------


def test_extend_sets_the_ttl_and_keeps_the_fences_alive(master: ScriptedMaster) -> None:
    master.run(wire.acquire(TWO, "tok", 10.0, 500, 60.0))
    assert master.run(wire.extend(TWO, "tok", 3.0, 90.0)) == [1]
    assert [master.pttl(lock) for lock in TWO.locks] == [3000, 3000]  # set, not added
    assert [master.pttl(fence) for fence in TWO.fences] == [90_000, 90_000]
    assert [master.get(fence) for fence in TWO.fences] == ["500", "500"]  # R19


@pytest.mark.parametrize(("a", "b", "other"), [
    ("tok", None, b""), (None, "tok", b""), (None, None, b""), ("tok", "ann", b"ann"), ("ann", "tok", b"ann"),
    ("ann", None, b"ann"), (None, "ann", b"ann"),
])  # fmt: skip
@pytest.mark.parametrize("fences", [True, False])
def test_extend_changes_nothing_that_is_not_all_ours(
    master: ScriptedMaster, a: str | None, b: str | None, other: bytes, fences: bool
) -> None:
    """R12, P8: no key is made, none of somebody else's gets longer."""
    keys = TWO if fences else BARE
    held_by(master, a, b)
    master.set(FA, "500", 7)
    before = everything(master)
    assert master.run(wire.extend(keys, "tok", 10.0, 60.0)) == [0, other]
    assert everything(master) == before


# -- renew -------------------------------------------------------------------------------------------

OTHERS = wire.keys_for("redlock:", ["c"])
THIRD = wire.keys_for("redlock:", ["d"])


def test_renew_does_for_each_what_extend_does_for_one(master: ScriptedMaster) -> None:
    for keys, token in ((TWO, "tok"), (OTHERS, "tic")):
        master.run(wire.acquire(keys, token, 10.0, 500, 60.0))
    master.set(THIRD.locks[0], "tac", 10_000)
    bare = wire.keys_for("redlock:", ["d"], fencing=False)
    call = wire.renew([(TWO, "tok", 3.0), (bare, "tac", 5.0), (OTHERS, "tic", 4.0)], 90.0)
    assert master.run(call) == [1, 1, 1]
    assert [master.pttl(lock) for lock in (*TWO.locks, *bare.locks, *OTHERS.locks)] == [3000, 3000, 5000, 4000]
    assert [master.pttl(fence) for fence in (*TWO.fences, *OTHERS.fences)] == [90_000] * 3  # R20
    assert [master.get(fence) for fence in (*TWO.fences, *OTHERS.fences)] == ["500"] * 3  # R19
    assert master.get(THIRD.fences[0]) is None


@pytest.mark.parametrize(("a", "b", "answer"), [
    ("tok", None, b""), (None, "tok", b""), (None, None, b""), ("tok", "ann", b"ann"), ("ann", "tok", b"ann"),
    ("ann", None, b"ann"), (None, "ann", b"ann"), ("tic", "tic", b"tic"),
])  # fmt: skip
@pytest.mark.parametrize("index", [0, 1, 2])
def test_renew_changes_nothing_that_is_not_all_ours(
    master: ScriptedMaster, a: str | None, b: str | None, answer: bytes, index: int
) -> None:
    """R12, P8: no key is made, none of somebody else's gets longer; and to the others of the round that is nothing."""
    for keys, owner in ((OTHERS, "tic"), (THIRD, "tac")):
        master.run(wire.acquire(keys, owner, 10.0, 500, 60.0))
    held_by(master, a, b)
    master.set(FA, "500", 7)
    before = {key: (master.get(key), master.pttl(key)) for key in (A, B, FA, FB)}
    leases = [(OTHERS, "tic", 3.0), (THIRD, "tac", 4.0)]
    leases.insert(index, (TWO, "tok", 5.0))
    answers: list[object] = [1, 1]
    answers.insert(index, answer)
    assert master.run(wire.renew(leases, 60.0)) == answers
    assert {key: (master.get(key), master.pttl(key)) for key in (A, B, FA, FB)} == before
    assert (master.pttl(OTHERS.locks[0]), master.pttl(THIRD.locks[0])) == (3000, 4000)


def test_renew_with_a_key_of_another_type(master: ScriptedMaster) -> None:
    """It is an error of its lease alone, also where another name of that one has another holder."""
    master.run(wire.acquire(OTHERS, "tic", 10.0, 500, 60.0))
    master.set(A, [b"a list"])
    master.set(B, "ann", 1000)
    error, ours = master.run(wire.renew([(TWO, "tok", 3.0), (OTHERS, "tic", 3.0)], 60.0))
    assert isinstance(error, ErrorReply)
    assert error.code == "WRONGTYPE"
    assert ours == 1
    assert (master.pttl(B), master.pttl(OTHERS.locks[0])) == (1000, 3000)


def test_renew_and_extend_say_the_same() -> None:
    """Of any holders of two names: the one is the other, for several."""
    for a in ("tok", "ann", None):
        for b in ("tok", "bob", None):
            alone, together = ScriptedMaster(), ScriptedMaster()
            for one in (alone, together):
                held_by(one, a, b)
                for fence in TWO.fences:
                    one.set(fence, "5", 1000)
            [said] = together.run(wire.renew([(TWO, "tok", 3.0)], 60.0))
            assert alone.run(wire.extend(TWO, "tok", 3.0, 60.0)) == ([1] if said == 1 else [0, said])
            assert (alone.values, alone.expiries) == (together.values, together.expiries)


# -- repair ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lock", "fence", "left"), [
    pytest.param(None, None, "500", id="forgot-everything"),
    pytest.param(None, "400", "500", id="missed-the-acquire"),
    pytest.param(None, "500", "500", id="lost-the-key-only"),
    pytest.param("tok", "500", "500", id="has-it"),
    pytest.param("tok", "501", "501", id="has-it-and-a-greater-fence"),
    # of somebody who waits: the attempt was taken back, and its fence stays
    pytest.param(None, "501", "501", id="forgot-and-somebody-tried"),
    pytest.param(None, str(2**53), str(2**53), id="a-fence-beyond-all"),
    pytest.param(None, "abc", "abc", id="a-fence-that-is-none"),
    pytest.param(None, "1e2", "1e2", id="what-only-lua-calls-a-number"),
])  # fmt: skip
def test_repair(master: ScriptedMaster, lock: str | None, fence: str | None, left: str) -> None:
    """R14: whatever fence is there, the name is given back, and the greater of the two stays."""
    if lock is not None:
        master.set(A, lock, 1000)
    if fence is not None:
        master.set(FA, fence, 7)
    assert master.run(wire.repair(ONE, "tok", 8.0, 500, 60.0)) == [1]
    assert (master.get(A), master.pttl(A)) == ("tok", 8000)
    assert (master.get(FA), master.pttl(FA)) == (left, 60_000)


@pytest.mark.parametrize("fence", [None, "400", "501"])
def test_repair_changes_nothing_where_somebody_holds_it(master: ScriptedMaster, fence: str | None) -> None:
    """P8."""
    master.set(A, "ann", 1000)
    if fence is not None:
        master.set(FA, fence, 7)
    before = everything(master)
    assert master.run(wire.repair(ONE, "tok", 8.0, 500, 60.0)) == [0]
    assert everything(master) == before


def test_repair_of_a_lease_whose_fence_nobody_knows_stores_none(master: ScriptedMaster) -> None:
    """It was handed over by its token alone (C11)."""
    assert master.run(wire.repair(ONE, "tok", 8.0, None, 60.0)) == [1]
    assert (master.get(A), master.get(FA)) == ("tok", None)


def test_each_name_keeps_its_own_greater_fence(master: ScriptedMaster) -> None:
    master.set(FA, "900", 7)
    assert master.run(wire.repair(TWO, "tok", 8.0, 500, 60.0)) == [1]
    assert (master.get(FA), master.get(TWO.fences[1])) == ("900", "500")


def test_repair_gives_all_names_or_none(master: ScriptedMaster) -> None:
    master.set(B, "ann", 1000)
    assert master.run(wire.repair(TWO, "tok", 8.0, 500, 60.0)) == [0]
    assert master.get(A) is None
    assert master.run(wire.repair(BARE, "tok", 8.0, None, 60.0)) == [0]
    master = ScriptedMaster()
    assert master.run(wire.repair(BARE, "tok", 8.0, None, 60.0)) == [1]
    assert set(master.values) == {A.encode(), B.encode()}  # without fencing there is no fence key


# -- release -----------------------------------------------------------------------------------------


def test_release_deletes_and_tells_whoever_waits(master: ScriptedMaster) -> None:
    master.run(wire.acquire(TWO, "tok", 10.0, 500, 60.0))
    master.listeners = 3
    assert master.run(wire.release(TWO, "tok")) == [1, 6]
    assert (master.get(A), master.get(B)) == (None, None)
    assert master.published == [(f"{A}:released".encode(), b"tok"), (f"{B}:released".encode(), b"tok")]
    assert master.get(FA) == "500"  # the fence outlives the lock


@pytest.mark.parametrize(("a", "b", "other", "left"), [
    (None, None, b"", []),
    ("tok", None, b"", []),
    ("ann", "tok", b"ann", ["ann"]),
    ("tok", "ann", b"ann", ["ann"]),
    ("ann", None, b"ann", ["ann"]),
    ("ann", "bob", b"bob", ["ann", "bob"]),
])  # fmt: skip
def test_release_leaves_the_keys_of_others_alone(
    master: ScriptedMaster, a: str | None, b: str | None, other: bytes, left: list[str]
) -> None:
    """P8; and what is ours goes, also where not all is (P7)."""
    held_by(master, a, b)
    assert master.run(wire.release(TWO, "tok")) == [0, other]
    assert [value.decode() for value in master.values.values()] == left
    assert len(master.published) == [a, b].count("tok")


def test_release_goes_on_behind_a_key_of_another_type(master: ScriptedMaster) -> None:
    """P7: what is the caller's goes, and the error says that something was not."""
    master.run(wire.acquire(TWO, "tok", 10.0, 500, 60.0))
    master.set(A, [b"a list"])
    with pytest.raises(ErrorReplied, match="WRONGTYPE"):
        master.run(wire.release(TWO, "tok"))
    assert master.get(B) is None


@pytest.mark.parametrize(("left", "keep", "ms"), [
    (10_000, 4.0, 4000),
    (3000, 4.0, 3000),  # never longer than the key would have lived
    (-1, 4.0, 4000),  # ... for ever: somebody has taken its expiry away
])  # fmt: skip
def test_release_may_keep_the_names_from_everybody(master: ScriptedMaster, left: int, keep: float, ms: int) -> None:
    """R28; and nobody is told, for there is nothing to take yet."""
    master.set(A, "tok", left)
    master.set(B, "tok", 10_000)
    master.listeners = 3
    assert master.run(wire.release(TWO, "tok", keep)) == [1, 0]
    assert (master.get(A), master.pttl(A)) == ("released:tok", ms)
    assert (master.get(B), master.pttl(B)) == ("released:tok", 4000)
    assert master.published == []
    assert master.run(wire.release(TWO, "tok", keep)) == [0, b"released:tok"]
    assert master.run(wire.extend(TWO, "tok", 10.0, 60.0)) == [0, b"released:tok"]
    assert master.run(wire.repair(TWO, "tok", 10.0, 5, 60.0)) == [0]
    assert master.run(wire.acquire(TWO, "other", 10.0, 5, 60.0))[0] == 0
    assert (master.get(A), master.pttl(A)) == ("released:tok", ms)


def test_release_keeps_no_key_that_is_at_its_end(master: ScriptedMaster) -> None:
    """R28: not for a millisecond longer.  Redis has a key yet whose time is 0."""
    master.set(A, "tok", 0)
    assert master.run(wire.release(ONE, "tok", 4.0)) == [1, 0]
    assert (master.get(A), master.pttl(A)) == ("tok", 0)


def test_release_keeps_only_what_the_caller_has(master: ScriptedMaster) -> None:
    """P8."""
    master.set(A, "ann", 3000)
    master.set(B, "tok", 10_000)
    assert master.run(wire.release(TWO, "tok", 4.0)) == [0, b"ann"]
    assert (master.get(A), master.pttl(A)) == ("ann", 3000)
    assert (master.get(B), master.pttl(B)) == ("released:tok", 4000)
    assert master.run(wire.release(ONE, "gone", 4.0)) == [0, b"ann"]
    assert master.run(wire.release(wire.keys_for("redlock:", ["c"]), "tok", 4.0)) == [0, b""]
    assert master.get("redlock:c") is None


def test_release_works_where_publishing_is_not_permitted(master: ScriptedMaster) -> None:
    master.run(wire.acquire(ONE, "tok", 10.0, 500, 60.0))
    master.may_publish = False
    assert master.run(wire.release(ONE, "tok")) == [1, 0]
    assert master.get(A) is None


# -- status and announce -----------------------------------------------------------------------------


def test_status_changes_nothing(master: ScriptedMaster) -> None:
    assert wire.read_status(master.run(wire.status(A))) == wire.Seen("", 0.0, 0)
    master.set(A, "ann", 2500)
    master.set(FA, "77", 5)
    before = everything(master)
    assert wire.read_status(master.run(wire.status(A))) == wire.Seen("ann", 2.5, 77)
    assert everything(master) == before


def test_an_empty_value_is_a_holder_for_status_as_it_is_for_acquire(master: ScriptedMaster) -> None:
    """Somebody has set the key by hand: a status that says "free" while each acquire is refused helps nobody."""
    master.set(A, "", 2500)
    assert wire.read_status(master.run(wire.status(A))) == wire.Seen("''", 2.5, 0)
    (seen,) = wire.read_look(master.run(wire.look("redlock:", [A.removeprefix("redlock:")])), 1)
    assert isinstance(seen, wire.Seen)
    assert seen._replace(listeners=None) == wire.Seen("''", 2.5, 0)


@pytest.mark.parametrize("call", [
    CALLS["extend"], CALLS["release"], wire.extend_shared(ONE, "tok", 10.0, 60.0), wire.release_shared(ONE, "tok"),
    CALLS["renew"],
])  # fmt: skip
def test_an_empty_value_is_a_holder_for_who_has_lost_the_name_to_it(master: ScriptedMaster, call: wire.Call) -> None:
    """Else its loss would be "expired" where it is taken (R13)."""
    master.set(A, "", 2500)
    answer = master.run(call)
    said = wire.read_renew(answer, 1)[0] if call.script is scripts.RENEW else wire.read_owned(answer)
    assert said == wire.NotOwned("''")
    assert (master.get(A), master.pttl(A)) == ("", 2500)


@pytest.mark.parametrize(("stored", "left", "max_ttl", "largest", "then"), [
    pytest.param("", 0, 60.0, 60.0, 120_000, id="the-first-one"),
    pytest.param("60000", 70_000, 60.0, 60.0, 120_000, id="the-same-again"),
    pytest.param("60000", 70_000, 300.0, 300.0, 600_000, id="raised-at-once"),
    pytest.param("60000", 70_000, 10.0, 60.0, 70_000, id="a-smaller-one-takes-and-gives-it-no-time"),
    # A client of 0.1 says it once, and for good.
    pytest.param("60000", -1, 60.0, 60.0, -1, id="for-good"),
    pytest.param("60000", -1, 10.0, 60.0, -1, id="for-good-and-larger"),
    pytest.param("60000", -1, 300.0, 300.0, -1, id="for-good-and-smaller"),
])  # fmt: skip
def test_announce(master: ScriptedMaster, stored: str, left: int, max_ttl: float, largest: float, then: int) -> None:
    """R21: it lives for twice itself after the last client with it has announced it."""
    key = "redlock-max-ttl:redlock:"
    if stored:
        master.set(key, stored, left)
    answer = wire.read_announce(master.run(wire.announce("redlock:", max_ttl)))
    assert answer == wire.Announced(largest, then / 1000 if then >= 0 else float("inf"))
    assert (master.get(key), master.pttl(key)) == (str(int(largest * 1000)), then)


@pytest.mark.parametrize("value", ["9007199254740992", "99999999999999999999", "1e300", "inf"])
def test_announce_refuses_what_no_client_can_have_announced(master: ScriptedMaster, value: str) -> None:
    """It may stand where the largest was, which is not for the next client to guess; and it would not come back as it is."""
    key = "redlock-max-ttl:redlock:"
    master.set(key, value)
    with pytest.raises(ErrorReplied, match=f"^BADMAXTTL {key} does not hold the max_ttl of a client: delete it"):
        master.run(wire.announce("redlock:", 60.0))
    assert master.get(key) == value
    with pytest.raises(ValueError, match="unexpected answer"):
        wire.read_announced(value.encode())


def test_announce_refuses_what_is_no_string_in_the_same_words(master: ScriptedMaster) -> None:
    """A lock key of another type is something else, and cured by something else."""
    key = "redlock-max-ttl:redlock:"
    master.set(key, [b"a list"])
    with pytest.raises(ErrorReplied, match=f"^BADMAXTTL {key} does not hold the max_ttl of a client: delete it"):
        master.run(wire.announce("redlock:", 60.0))
    assert master.values[key.encode()] == [b"a list"]
    master.forbidden = {key.encode()}
    with pytest.raises(ErrorReplied, match=r"^NOPERM"):
        master.run(wire.announce("redlock:", 60.0))


@pytest.mark.parametrize(
    "value", ["9007199254740991", "300000", "3e5", "60000", "1000", "0", "-5", "1.5", "nan", "soon", ""]
)
def test_what_is_announced_is_read_from_the_key_as_by_the_script(master: ScriptedMaster, value: str) -> None:
    """By a check, which writes nothing."""
    master.set("redlock-max-ttl:redlock:", value)
    largest = wire.read_announce(master.run(wire.announce("redlock:", 60.0)))
    assert max(60.0, wire.read_announced(value.encode())) == largest.max_ttl


def test_announce_mends_a_value_that_is_none(master: ScriptedMaster) -> None:
    master.set("redlock-max-ttl:redlock:", "soon")
    assert master.run(wire.announce("redlock:", 60.0)) == [60_000, 120_000]
