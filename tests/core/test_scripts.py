"""What each script promises on top of its file, by running it (R14, R16-R18, R20, P8)."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from redlock import scripts
from redlock._core import pipeline, wire
from redlock._core.confirm import records
from redlock._core.outcomes import ErrorReply
from redlock._health.records import look_known, read_announced
from tests.core.scripted_master import ErrorReplied, ScriptedMaster
from tests.core.world import WALL
from tests.owners import proves

pytestmark = proves("R20")

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


FOLDER = Path(scripts.__file__).parent
FILES = sorted(FOLDER.rglob("*.lua"))
TAG = re.compile(r" --\[[a-z, ]+\]$")


def code(text: str) -> list[str]:
    """Its lines without comments, and without those that say nothing, as ``end`` and ``else``."""
    lines = [TAG.sub("", line).strip() for line in text.splitlines()]
    return [line for line in lines if len(line) > 12 and not line.startswith("--")]


def test_every_file_is_part_of_a_script_and_every_script_is_named_as_a_master_names_it() -> None:
    assert {script.verb for script in scripts.ALL} == {file.stem for file in FOLDER.glob("*.lua")}
    sent = {line for script in scripts.ALL for line in script.text.splitlines()}
    for file in FILES:
        lines = {TAG.sub("", line) for line in file.read_text().splitlines()}
        assert {line for line in lines if not re.fullmatch(r"-- \(\w+\.lua\)", line)} <= sent
    for script in scripts.ALL:
        assert script.sha == hashlib.sha1(script.text.encode(), usedforsecurity=False).hexdigest()
    assert (
        len({script.sha for script in scripts.ALL}) == len({script.name for script in scripts.ALL}) == len(scripts.ALL)
    )


# By the version of the wire.
LIBRARIES = {"redlock_1": "8850610fd9c5a364"}


def test_a_client_that_finds_the_version_of_its_wire_finds_what_it_means() -> None:
    """R44: it calls a library that has the right name, whatever text that has."""
    said = scripts.library()[1]
    assert said == LIBRARIES.get(scripts.LIBRARY), (
        f"{scripts.LIBRARY} is another one: raise WIRE or, if nothing is released with it, or keys, arguments, answers "
        f"and effects of all functions are the same, update this fingerprint: {said}"
    )


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_starts_with_its_contract_and_names_only_what_there_is(file: Path) -> None:
    text = file.read_text()
    contract = re.sub(r"^(-- \(\w+\.lua\).*\n)+\n", "", text)
    assert contract.startswith("-- ")
    assert {f"{name}.lua" for name in re.findall(r"^-- \((\w+)\.lua\)", text, re.MULTILINE)} <= {
        one.name for one in FILES if one.parent.name == "fragments"
    }
    policies = {one for tag in re.findall(r" --\[(.*)\]$", text, re.MULTILINE) for one in tag.split(", ")}
    assert {one.removeprefix("not ") for one in policies} <= {"shared", "fair", "recorded", "resumed"}


def test_the_scripts_stay_small_and_say_nothing_twice() -> None:
    """A line of code that stands in two files is to become a fragment.  Lines of up to 12 characters do not count."""
    texts = {file: file.read_text() for file in FILES}
    assert sum(text.count("\n") for text in texts.values()) <= 1250
    files = Counter(line for text in texts.values() for line in set(code(text)))
    twice = [line for text in texts.values() for line in code(text) if files[line] > 1]
    assert len(twice) <= 80, sorted(twice)


def test_a_composition_has_what_its_policies_ask_for_and_nothing_else() -> None:
    plain, ordered = scripts.compose("acquire"), scripts.compose("acquire", "fair", "recorded")
    assert scripts.compose("acquire", "fair", "recorded") is ordered
    assert (plain.name, ordered.name, ordered.verb) == ("acquire", "acquire_fair_recorded", "acquire")
    assert repr(ordered) == "<Script acquire_fair_recorded>"
    assert not set(code(plain.text)) & set(code((FOLDER / "fragments" / "turn.lua").read_text()))
    assert set(code((FOLDER / "fragments" / "turn.lua").read_text())) <= set(code(ordered.text))
    assert set(code(plain.text)) <= set(code(scripts.compose("acquire", "fair").text))


def asked(call: wire.Call, *before: wire.Call) -> list[str]:
    """The commands that the script of ``call`` asks for on its usual way."""

    class Asked(ScriptedMaster):
        def command(self, name: str, *args: Any) -> Any:
            commands.append(name)
            return super().command(name, *args)

    master, commands = Asked(), list[str]()
    for one in before:
        master.run(one)
    del commands[:]
    master.run(call)
    return commands


def test_the_usual_way_is_the_shortest_and_who_keeps_no_records_pays_nothing_for_them() -> None:
    if not ScriptedMaster.modern:
        return
    keys = wire.keys_for("redlock:", ["a"], records=True)
    recorded = records.acquire(keys, "tok", 10.0, 5, 60.0)
    assert asked(CALLS["acquire"]) == ["SET", "SET"]
    assert asked(CALLS["release"], CALLS["acquire"]) == ["GET", "DEL", "PUBLISH"]
    assert asked(CALLS["renew"], CALLS["acquire"]) == ["GET", "PEXPIRE", "PEXPIRE"]
    assert asked(recorded) == ["SET", "SET", "SET"]
    assert asked(records.release(keys, "tok"), recorded) == ["GET", "DEL", "PUBLISH"]
    for script in scripts.USUAL:
        assert not {"recorded(", "forget(", "extension("} & set(re.findall(r"\w+\(", script.text))


@pytest.mark.parametrize("script", scripts.ALL, ids=lambda script: script.name)
def test_every_script_starts_with_its_contract(script: scripts.Script) -> None:
    contract = script.text.split("\n\n")[0] + script.text.split("\nlocal")[0]
    for part in ("-- KEYS", "returns"):
        assert part in contract
    # whoever reads it from the hash slot of one key must find every key among KEYS (no key is made up)
    assert not re.search(r"redis\.call\('\w+', '", script.text)


@pytest.mark.parametrize("name", sorted(pipeline.IN_ORDER))
def test_a_call_for_no_names_changes_nothing(name: str) -> None:
    [script] = [one for one in scripts.ALL if one.name == name]
    master = ScriptedMaster()
    assert not isinstance(master.run(wire.nothing(script)), ErrorReply)
    assert not master.values


@pytest.fixture(autouse=True, params=[True, False], ids=["modern", "old"])
def _modern(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a script promises it keeps on old servers, which lack a command, as well."""
    monkeypatch.setattr(ScriptedMaster, "modern", request.param)


@pytest.fixture
def master(_modern: None) -> ScriptedMaster:
    return ScriptedMaster()


# -- one call ----------------------------------------------------------------------------------------

# The keys, as the states below call them.
OTHERS, THIRD = wire.keys_for("redlock:", ["c"]), wire.keys_for("redlock:", ["d"])
TO = {
    "A": A, "B": B, "C": OTHERS.locks[0], "D": THIRD.locks[0], "FA": FA, "FB": FB, "FC": OTHERS.fences[0],
    "FD": THIRD.fences[0], "M": wire.ANNOUNCEMENT + "redlock:",
}  # fmt: skip
LEASES = "C=tic/9 FC=500/9 D=tac/9 FD=500/9"  # of others in the same round
LONGER = "C=tic/3000 FC=500/60000 D=tac/4000 FD=500/60000"
BOTH, KEPT = "A=tok/10000 B=tok/10000", "A=released:tok/4000 B=released:tok/4000"
MOST = 2**53 - 1


def acquire(keys: wire.Keys = TWO, proposal: int = 500, who: str = "tok") -> wire.Call:
    return wire.acquire(keys, who, 10.0, proposal, 60.0)


def held_by(a: str | None, b: str | None, *more: str) -> str:
    return " ".join([*(f"{key}={who}/1000" for key, who in (("A", a), ("B", b)) if who is not None), *more])


def renewed(index: int) -> wire.Call:
    leases = [(OTHERS, "tic", 3.0), (THIRD, "tac", 4.0)]
    return wire.renew([*leases[:index], (TWO, "tok", 5.0), *leases[index:]], 60.0)


# What is not all ours, and whose it is then.
NOT_OURS = [
    (a, b, next((who.encode() for who in (a, b) if who not in (None, "tok")), b""))
    for a in ("tok", "ann", None) for b in ("tok", "ann", None) if (a, b) != ("tok", "tok")
]  # fmt: skip
SAME = None
TABLE: list[tuple[str, str, wire.Call, list[Any], str | None]] = [
    ("a free name is taken, and the proposal stored", "", acquire(), [1, b"500"], f"{BOTH} FA=500/60000 FB=500/60000"),
    ("in place of a fence that is smaller", "FB=499/5", acquire(), [1, b"500"], f"{BOTH} FA=500/60000 FB=500/60000"),
    # R18: equal is not greater; but the names are taken.  R20: the life of the fence counts from the last grant.
    *(("a fence that is not smaller stays", f"FB={fence}/5", acquire(), [2, b"%d" % fence], f"{BOTH} FB={fence}/60000")
      for fence in (500, 501, 900, MOST - 1)),
    *(("somebody holds one: none is taken", "B=ann/3000", acquire(keys), [0, b"0", b"ann", 3000], SAME)
      for keys in (TWO, BARE)),
    # R10: its answer was lost.  Whether the fence that is there is its own nobody can tell, so it is not (R18).
    ("its own token", "A=tok/3000 FA=500/9", acquire(ONE), [2, b"500"], "A=tok/10000 FA=500/60000"),
    ("its own token, twice", "A=tok/3 B=tok/3 FA=500/9 FB=500/9", acquire(), [2, b"500"],
     f"{BOTH} FA=500/60000 FB=500/60000"),
    ("its own token beside another", "A=tok/3 B=ann/3000 FA=500/9", acquire(), [0, b"500", b"ann", 3000], SAME),
    *(("the holder that lasts longest is told", f"A=ann/{a} B=bob/{b} FA=7", acquire(), [0, b"7", who, ms], SAME)
      for a, b, who, ms in ((3000, 4000, b"bob", 4000), (4000, 3000, b"ann", 4000), (-1, 3000, b"ann", -1),
                            (3000, -1, b"bob", -1))),
    ("no fence is touched without fencing", "", acquire(BARE, 0), [1, b"0"], BOTH),
    # Whichever way a server takes.
    *(("one name", f"FA={stored}/5", acquire(ONE, WALL), [verdict, b"%d" % left], f"A=tok/10000 FA={left}/60000")
      for stored, verdict, left in ((WALL - 1, 1, WALL), (WALL, 2, WALL), (WALL + 1, 2, WALL + 1), (7, 1, WALL),
                                    ("0000000000000007", 1, WALL))),
    ("large fences stay exact", "", acquire(ONE, MOST), [1, b"%d" % MOST], f"A=tok/10000 FA={MOST}/60000"),
    # fence
    ("a fence that is greater", f"{BOTH} FA=500/7", wire.fence(TWO, "tok", 501, 60.0), [1, b"501"],
     f"{BOTH} FA=501/60000 FB=501/60000"),
    *(("a fence that is not greater (R18)", f"{BOTH} FA=500/7", wire.fence(TWO, "tok", fence, 60.0), [0, b"500"], SAME)
      for fence in (500, 499)),
    *(("a fence of who is not the owner of each name", held_by(a, b, "FB=500/7"), wire.fence(TWO, "tok", 600, 60.0),
       [-1, b"500"], SAME) for a, b, _ in NOT_OURS),
    # extend: the TTL is set, not added (R12); the fence stays (R19), and lives on (R20)
    ("extended", "A=tok/9 B=tok/9 FA=500/7 FB=500/7", wire.extend(TWO, "tok", 3.0, 90.0), [1],
     "A=tok/3000 B=tok/3000 FA=500/90000 FB=500/90000"),
    *(("extended where not all is ours (R12, P8)", held_by(a, b, "FA=500/7"), wire.extend(keys, "tok", 10.0, 60.0),
       [0, who], SAME) for a, b, who in NOT_OURS for keys in (TWO, BARE)),
    # renew
    ("renewed, with and without fences", f"A=tok/9 B=tok/9 FA=500/7 FB=500/7 {LEASES}",
     wire.renew([(TWO, "tok", 3.0), (wire.keys_for("redlock:", ["d"], fencing=False), "tac", 5.0), (OTHERS, "tic", 4.0)],
                90.0), [1, 1, 1],
     "A=tok/3000 B=tok/3000 FA=500/90000 FB=500/90000 C=tic/4000 FC=500/90000 D=tac/5000 FD=500/9"),
    # ... and to the others of the round that is nothing
    *(("renewed where not all is ours (R12, P8)", held_by(a, b, "FA=500/7", LEASES), renewed(index),
       [*[1] * index, who, *[1] * (2 - index)], held_by(a, b, "FA=500/7", LONGER))
      for a, b, who in [*NOT_OURS, ("tic", "tic", b"tic")] for index in range(3)),
    # repair (R14): whatever fence is there, the name is given back, and the greater of the two stays
    *((f"repaired: {why}", f"{lock} FA={fence}/7" if fence else lock, wire.repair(ONE, "tok", 8.0, 500, 60.0), [1],
       f"A=tok/8000 FA={left}/60000")
      for why, lock, fence, left in (
          ("it forgot everything", "", "", "500"), ("it missed the acquire", "", "400", "500"),
          ("it lost the key only", "", "500", "500"), ("it has it", "A=tok/9", "500", "500"),
          ("it has it and a greater fence", "A=tok/9", "501", "501"),
          # of somebody who waits: the attempt was taken back, and its fence stays
          ("it forgot and somebody tried", "", "501", "501"), ("a fence beyond all", "", f"{2**53}", f"{2**53}"),
          ("a fence that is none", "", "abc", "abc"), ("what only Lua calls a number", "", "1e2", "1e2"))),
    *(("somebody holds it (P8)", f"A=ann/1000{fence}", wire.repair(ONE, "tok", 8.0, 500, 60.0), [0], SAME)
      for fence in ("", " FA=400/7", " FA=501/7")),
    # It was handed over and extended there: who had it before knows of no extension (C11, R37).
    ("repaired where it lives longer", "A=tok/9000 FA=500/7", wire.repair(ONE, "tok", 8.0, 500, 60.0), [1],
     "A=tok/9000 FA=500/60000"),
    # It was handed over by its token alone (C11).
    ("repaired: nobody knows its fence", "", wire.repair(ONE, "tok", 8.0, None, 60.0), [1], "A=tok/8000"),
    ("repaired: each name keeps its greater fence", "FA=900/7", wire.repair(TWO, "tok", 8.0, 500, 60.0), [1],
     "A=tok/8000 B=tok/8000 FA=900/60000 FB=500/60000"),
    *(("all names or none", "B=ann/1000", wire.repair(keys, "tok", 8.0, fence, 60.0), [0], SAME)
      for keys, fence in ((TWO, 500), (BARE, None))),
    ("repaired without fencing", "", wire.repair(BARE, "tok", 8.0, None, 60.0), [1], "A=tok/8000 B=tok/8000"),
    # release: what is ours goes, also where not all is (P7), and nothing else does (P8); the fence outlives the lock
    ("released", f"{BOTH} FA=500/9", wire.release(TWO, "tok"), [1, 6], "FA=500/9"),
    *(("released where not all is ours", held_by(a, b), wire.release(TWO, "tok"), [0, who],
       held_by(a if a != "tok" else None, b if b != "tok" else None)) for a, b, who in [*NOT_OURS, ("ann", "bob", b"bob")]),
    # R28: nobody is told, for there is nothing to take yet; never longer than the key would have lived, or for ever
    *(("released, and kept from everybody", f"A=tok/{left} B=tok/10000", wire.release(TWO, "tok", 4.0), [1, 0],
       f"A=released:tok/{ms} B=released:tok/4000") for left, ms in ((10_000, 4000), (3000, 3000), (-1, 4000))),
    *(("what is kept is nobody's", KEPT, call, answer, SAME) for call, answer in (
        (wire.release(TWO, "tok", 4.0), [0, b"released:tok"]), (wire.extend(TWO, "tok", 10.0, 60.0), [0, b"released:tok"]),
        (wire.repair(TWO, "tok", 10.0, 5, 60.0), [0]),
        (acquire(who="other"), [0, b"0", b"released:tok", 4000]))),
    # Not for a millisecond longer.  Redis has a key yet whose time is 0.
    ("a key that is at its end is not kept", "A=tok/0", wire.release(ONE, "tok", 4.0), [1, 0], SAME),
    ("kept is only what the caller has (P8)", "A=ann/3000 B=tok/10000", wire.release(TWO, "tok", 4.0), [0, b"ann"],
     "A=ann/3000 B=released:tok/4000"),
    ("kept is nothing of others", "A=ann/3000", wire.release(ONE, "gone", 4.0), [0, b"ann"], SAME),
    ("kept is nothing where nothing is", "", wire.release(ONE, "tok", 4.0), [0, b""], SAME),
    # status
    ("free", "", wire.status(A), [b"", -2, b"0"], SAME),
    ("held", "A=ann/2500 FA=77/5", wire.status(A), [b"ann", 2500, b"77"], SAME),
    # announce (R21): it lives for twice itself after the last client with it has announced it
    *((f"announced: {why}", f"M={stored}" if stored else "", wire.announce("redlock:", max_ttl), [largest, then],
       f"M={largest}/{then}")
      for why, stored, max_ttl, largest, then in (
          ("the first one", "", 60.0, 60_000, 120_000), ("the same again", "60000/70000", 60.0, 60_000, 120_000),
          ("raised at once", "60000/70000", 300.0, 300_000, 600_000),
          ("a smaller one takes and gives it no time", "60000/70000", 10.0, 60_000, 70_000),
          ("what is none is mended", "soon", 60.0, 60_000, 120_000),
          # A client of 0.1 says it once, and for good.
          ("for good", "60000", 60.0, 60_000, -1), ("for good and larger", "60000", 10.0, 60_000, -1),
          ("for good and smaller", "60000", 300.0, 300_000, -1))),
]  # fmt: skip


REPLID, OTHER_ID = "a" * 40, "b" * 40
NOW = 1_700_000_000_000  # ms on a scripted master's clock


def says(second: int, role: str = "master") -> bytes:
    return f"# Replication\r\nrole:{role}\r\nmaster_replid:{REPLID}\r\nsecond_repl_offset:{second}\r\n".encode()


@pytest.mark.parametrize(("info", "record", "forbidden", "answer", "kept"), [
    pytest.param(says(-1), None, "", [REPLID, -1], None, id="never-a-replica-so-nothing-is-written"),
    pytest.param(says(5), None, "", [REPLID, 0], f"{REPLID} {NOW}", id="the-first-client-records-it"),
    pytest.param(says(5), f"{REPLID} {NOW - 70_000}", "", [REPLID, 70_000], f"{REPLID} {NOW - 70_000}", id="known-for-long"),
    pytest.param(says(5), f"{OTHER_ID} {NOW - 70_000}", "", [REPLID, 0], f"{REPLID} {NOW}", id="that-is-about-other-data"),
    pytest.param(says(5), f"{REPLID} {NOW + 70_000}", "", [REPLID, 0], f"{REPLID} {NOW}", id="its-clock-was-set-back"),
    pytest.param(says(5), "nonsense", "", [REPLID, 0], f"{REPLID} {NOW}", id="nonsense"),
    pytest.param(says(5), None, "{redlock:}:replid", [REPLID, 0], None, id="it-may-not-be-written"),
    pytest.param(says(5), f"{REPLID} {NOW - 70_000}", "TIME", [REPLID, 0], f"{REPLID} {NOW - 70_000}", id="no-time"),
    pytest.param(says(-1), None, "INFO", ["", -1], None, id="no-info"),
    pytest.param(b"role:master\r\n", None, "", ["", -1], None, id="a-server-without-an-id"),
])  # fmt: skip
def test_since_when_clients_know_whose_data_it_has(
    master: ScriptedMaster, info: bytes, record: str | None, forbidden: str, answer: list[Any], kept: str | None
) -> None:
    """R21: the record is there for those who come later."""
    key, master.info = wire.known_key("redlock:"), info
    if record is not None:
        master.set(key, record)
    master.forbidden = {forbidden.encode()}
    said = master.run(wire.known("redlock:"))
    assert said == [one.encode() if isinstance(one, str) else one for one in answer]
    assert master.get(key) == kept
    if kept is not None:  # it never ends, and says the same to those who look without the script
        assert master.pttl(key) == -1
    if not forbidden and kept is not None:
        text = dict(line.split(":") for line in info.decode().split("\r\n") if ":" in line)
        assert look_known(text, kept.encode(), NOW / 1000) == wire.read_known(said)


def test_a_replica_says_nothing_but_that(master: ScriptedMaster) -> None:
    """Also one that takes writes: a new one may come from its master at any time."""
    master.info = says(-1, role="slave")
    with pytest.raises(ErrorReplied, match="READONLY"):
        master.run(wire.known("redlock:"))


def put(master: ScriptedMaster, state: str) -> None:
    """``A=tok/3000``: at the first lock key stands "tok", for so many ms; without a time for ever."""
    for word in state.split():
        key, _, rest = word.partition("=")
        value, _, ms = rest.partition("/")
        master.set(TO[key], value, int(ms) if ms else -1)


@pytest.mark.parametrize(("why", "before", "call", "answer", "after"), [
    pytest.param(*row, id=f"{row[0]}-{number}") for number, row in enumerate(TABLE)
])  # fmt: skip
def test_what_a_call_does(
    master: ScriptedMaster, why: str, before: str, call: wire.Call, answer: list[Any], after: str | None
) -> None:
    """Its answer, every key, how long each lives, and whom it tells."""
    master.listeners = 3
    put(master, before)
    lost = dict(master.values)
    assert master.run(call) == answer, why
    expected = ScriptedMaster()
    put(expected, before if after is None else after)
    assert (master.values, master.expiries) == (expected.values, expected.expiries)
    gone = [(f"{key.decode()}:released".encode(), value) for key, value in lost.items() if key not in master.values]
    assert master.published == gone


# -- what does not fit into a row --------------------------------------------------------------------


def test_occupy_gives_its_own_token_the_slot_that_it_has(master: ScriptedMaster) -> None:
    """R10: its answer was lost.  And no second slot is taken."""
    keys = [wire.keys_for("redlock:", [f"job#{slot}"]) for slot in range(3)]
    group = tuple(one.locks[0] for one in keys)
    fences = wire.Keys((), tuple(one.fences[0] for one in keys))
    call = wire.occupy(wire.Keys(group, ()), (0, 1, 2), fences, "tok", 10.0, 500, 60.0)
    master.set(group[0], "ann", 3000)
    assert master.run(call) == [1, b"500", 1]
    master.set(group[1], "tok", 3000)
    assert master.run(call) == [2, b"500", 1]
    assert [master.get(key) for key in group] == ["ann", "tok", None]
    assert master.pttl(group[1]) == 10_000


OF_FENCES = [
    (None, acquire(ONE, 5)), (None, acquire(ONE, WALL)), ("tok", acquire(ONE, 5)), ("tok", acquire(ONE, WALL)),
    ("tok", wire.fence(ONE, "tok", 5, 60.0)), ("tok", wire.fence(ONE, "tok", WALL, 60.0)),
]  # fmt: skip


@pytest.mark.parametrize(("stored", "said", "calls"), [
    # From 2**53 on a Lua number is not exact, and order would be lost silently; so 2**53 - 1 has no successor.
    *((one, one, OF_FENCES) for one in ("-5", "1.5", "", "9007199254740992", "1e5", "0x10")),
    *((one, one[:8], OF_FENCES) for one in ("0x00000000000005f", "1.00000000000e15")),
    *((stored, said, [*OF_FENCES, ("tok", CALLS["status"])]) for stored, said in (
        ("9007199254740991", "9007199254740991"),
        ("abc", "abc"),
        ("x" * 1_000_000, "x" * 8),
        ("a\r\n\x1b[3\xff and more", "a???[3??"),  # of UTF-8; an error is one line
        ([b"a list"], "a value of another type"))),
], ids=lambda value: ascii(value)[:20] if isinstance(value, str) else None)  # fmt: skip
def test_what_somebody_wrote_at_a_fence_key_is_an_error_and_stays(
    master: ScriptedMaster, stored: Any, said: str, calls: Any
) -> None:
    """A free name stays free.  The error names the key of the fence, not the one of the lock."""
    for holder, call in calls:
        master.keys.clear()
        master.set(FA, stored)
        if holder is not None:
            master.set(A, holder, 1000)
        before = dict(master.values)
        with pytest.raises(ErrorReplied) as caught:
            master.run(call)
        assert str(caught.value) == f"BADFENCE {FA} does not hold a fencing token but {said}"
        assert master.values == before
        master.forbidden = {FA.encode()}
        with pytest.raises(ErrorReplied, match=r"^NOPERM"):  # as the master says it
            master.run(call)
        master.forbidden = set()


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


def test_release_goes_on_behind_a_key_of_another_type(master: ScriptedMaster) -> None:
    """P7: what is the caller's goes, and the error says that something was not."""
    master.run(wire.acquire(TWO, "tok", 10.0, 500, 60.0))
    master.set(A, [b"a list"])
    with pytest.raises(ErrorReplied, match="WRONGTYPE"):
        master.run(wire.release(TWO, "tok"))
    assert master.get(B) is None


def test_release_works_where_publishing_is_not_permitted(master: ScriptedMaster) -> None:
    master.run(wire.acquire(ONE, "tok", 10.0, 500, 60.0))
    master.may_publish = False
    assert master.run(wire.release(ONE, "tok")) == [1, 0]
    assert master.get(A) is None


def test_an_empty_value_is_a_holder(master: ScriptedMaster) -> None:
    """Set by hand.  A status must not say "free" while each acquire is refused.

    A lease that has lost its name to such a key did not lose it by expiry (R13).
    """
    master.set(A, "", 2500)
    assert wire.read_status(master.run(wire.status(A))) == wire.Seen("''", 2.5, 0)
    (seen,) = wire.read_look(master.run(wire.look("redlock:", [A.removeprefix("redlock:")])), 1)
    assert isinstance(seen, wire.Seen)
    assert seen._replace(listeners=None) == wire.Seen("''", 2.5, 0)
    for call in (
        CALLS["extend"], CALLS["release"], wire.extend_shared(ONE, "tok", 10.0, 60.0), wire.release_shared(ONE, "tok"),
    ):  # fmt: skip
        assert wire.read_owned(master.run(call)) == wire.NotOwned("''")
    assert wire.read_renew(master.run(CALLS["renew"]), 1) == {0: wire.NotOwned("''")}
    assert (master.get(A), master.pttl(A)) == ("", 2500)


@pytest.mark.parametrize("value", ["9007199254740992", "99999999999999999999", "1e300", "inf", [b"a list"]])
def test_announce_refuses_what_no_client_can_have_announced(master: ScriptedMaster, value: Any) -> None:
    """It may stand where the largest was, which is not for the next client to guess; and it would not come back as it is.

    A lock key of another type is something else, and cured by something else.
    """
    key = "redlock-max-ttl:redlock:"
    master.set(key, value)
    before = dict(master.values)
    with pytest.raises(ErrorReplied, match=f"^BADMAXTTL {key} does not hold the max_ttl of a client: delete it"):
        master.run(wire.announce("redlock:", 60.0))
    assert master.values == before
    if isinstance(value, str):
        with pytest.raises(ValueError, match="unexpected answer"):
            read_announced(value.encode())
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
    assert max(60.0, read_announced(value.encode())) == largest.max_ttl
