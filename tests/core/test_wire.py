"""The wire contract (docs/reference/wire.md): keys, milliseconds, and answers that are what they should be, or not."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from redlock import scripts
from redlock._core import wire
from redlock._core.confirm import records
from redlock._core.confirm.expiry import Record
from redlock._core.outcomes import ErrorReply
from redlock._health.records import look_known
from tests.properties.profile import PROPERTY

# -- keys --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "fence"), [
    ("redlock:a", "{redlock:a}:fence"),
    ("redlock:{user}:a", "redlock:{user}:a:fence"),
    ("{a}", "{a}:fence"),
    ("{a}{b}", "{a}{b}:fence"),
    ("a{b}c", "a{b}c:fence"),
    ("{", "{{}:fence"),
    ("}", "{}}:fence"),
    # An empty tag is none, and the whole key is hashed.
    ("{}", "{{}}:fence"),
    ("a{}b", "{a{}b}:fence"),
    # Redis looks no further than the first brace, so neither is this a tag.
    ("{}{b}", "{{}{b}}:fence"),
    ("a}b{c", "{a}b{c}:fence"),
    ("a}b{c}d", "a}b{c}d:fence"),
    ("a{b", "{a{b}:fence"),
    ("a{{b}}c", "a{{b}}c:fence"),
])  # fmt: skip
def test_fence_key(key: str, fence: str) -> None:
    assert wire.fence_key(key) == fence


@PROPERTY
@given(st.lists(st.text(alphabet="ab:-", min_size=1, max_size=6), unique=True, min_size=1))
def test_keys_of_different_names_differ(names: list[str]) -> None:
    keys = wire.keys_for("redlock:", names)
    assert keys.locks == tuple("redlock:" + name for name in names)
    assert len({*keys.locks, *keys.fences}) == 2 * len(names)


def test_without_fencing_there_are_no_fence_keys() -> None:
    assert wire.keys_for("", ["a", "b"], fencing=False) == wire.Keys(("a", "b"), ())


@pytest.mark.parametrize("prefix", ["redlock:", "", "{app}:", "a{"])
def test_the_record_of_an_id_is_where_fences_may_be_and_no_lock(prefix: str) -> None:
    """R21: who may use fences needs no other right for it."""
    key = wire.known_key(prefix)
    assert key.startswith(prefix if "}" in prefix else f"{{{prefix}")
    assert wire.name_of(prefix, key.encode()) is None


def test_a_name_in_braces_is_one_of_a_lock() -> None:
    """Without a prefix its key begins and ends as the keys beside some locks do."""
    assert wire.name_of("", b"{job}") == "{job}"
    assert wire.name_of("", b"{job}:fence") is None


def test_a_name_in_braces_is_a_lock() -> None:
    """Without a prefix its key looks like the keys beside a lock, and is none."""
    assert wire.name_of("", b"{job}") == "{job}"
    assert wire.name_of("", b"{job}:fence") is None


@pytest.mark.parametrize(("message", "slot"), [(b"3 t", 3), (b"3 ", None), (b"3", None), (b"x t", None), (b"", None)])
def test_the_slot_that_an_announcement_names(message, slot):
    assert wire.announced_slot(message) == slot


@pytest.mark.parametrize(("info", "record", "known"), [
    ({}, b"", None),
    ({"master_replid": "a"}, b"a 5000", wire.Known("a", None)),
    ({"master_replid": "a", "second_repl_offset": "-1"}, b"", wire.Known("a", None)),
    ({"master_replid": "a", "second_repl_offset": "1"}, b"a 5000", wire.Known("a", 4.0)),
    ({"master_replid": "a", "second_repl_offset": "1"}, b"b 5000", wire.Known("a", 0.0)),
    ({"master_replid": "a", "second_repl_offset": "1"}, b"a 10000", wire.Known("a", 0.0)),
    ({"master_replid": "a", "second_repl_offset": "1"}, b"a x", wire.Known("a", 0.0)),
    ({"master_replid": "a", "second_repl_offset": "1"}, b"", wire.Known("a", 0.0)),
])  # fmt: skip
def test_what_is_known_by_looking(info: dict[str, str], record: bytes, known: wire.Known | None) -> None:
    assert look_known(info, record, 9.0) == known


# -- milliseconds ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "ms"), [
    (30.0, "30000"), (0.07, "70"), (0.0701, "71"), (0.001, "1"), (0.0001, "1"), (0.0, "1"), (1.1, "1100"),
    (0.29, "290"), (1.005, "1005"), (4.35, "4350"), (3600.0, "3600000"), (1e6, "1000000000"), (2.0000001, "2001"),
])  # fmt: skip
def test_milliseconds(seconds: float, ms: str) -> None:
    assert wire.milliseconds(seconds) == ms


@PROPERTY
@given(st.floats(0.001, 1e5))
def test_a_key_outlives_what_it_guards_by_less_than_a_millisecond(seconds: float) -> None:
    kept = int(wire.milliseconds(seconds)) / 1000
    assert seconds - 1e-8 <= kept < seconds + 0.001


@pytest.mark.parametrize("max_ttl", [1 / 3, 1.1 * 3, 60.0005])
def test_the_own_announcement_is_no_difference(max_ttl: float) -> None:
    """R21: else every connection of a fleet with this one setting warns of two."""
    from redlock._core.voters import Facts, Voters  # noqa: PLC0415

    announced = wire.read_announce([int(word) for word in wire.announce("redlock:", max_ttl).args])
    voters = Voters(["redis-a:6379"], max_ttl, restart_guard=True)
    assert voters.admit(0, Facts("run", 1000, announced=announced), 0.0) is None


# -- requests ----------------------------------------------------------------------------------------

KEYS = wire.keys_for("p:", ["a", "b"])
BARE = wire.keys_for("p:", ["a"], fencing=False)
BOTH = ("p:a", "p:b", "{p:a}:fence", "{p:b}:fence")
NOTED = wire.keys_for("p:", ["a"], records=True)
THREE = ("p:a", "{p:a}:fence", "{p:a}:grant")
WEEK = "604800000"


@pytest.mark.parametrize(("call", "script", "keys", "args"), [
    (wire.acquire(KEYS, "t", 2.5, 77, 60.0), scripts.ACQUIRE, BOTH, ("2", "t", "2500", "77", "60000")),
    (wire.acquire(BARE, "t", 2.5, 0, 60.0), scripts.ACQUIRE, ("p:a",), ("1", "t", "2500", "0", "60000")),
    (wire.fence(KEYS, "t", 78, 60.0), scripts.FENCE, BOTH, ("2", "t", "78", "60000")),
    (wire.extend(KEYS, "t", 2.5, 60.0), scripts.EXTEND, BOTH, ("2", "t", "2500", "60000")),
    (wire.renew([(KEYS, "t", 2.5), (BARE, "u", 30.0)], 60.0), scripts.RENEW, (*BOTH, "p:a"),
     ("60000", "2", "2", "t", "2500", "1", "0", "u", "30000")),
    (wire.repair(KEYS, "t", 2.5, 77, 60.0), scripts.REPAIR, BOTH, ("2", "t", "2500", "77", "60000")),
    (wire.repair(BARE, "t", 2.5, None, 60.0), scripts.REPAIR, ("p:a",), ("1", "t", "2500", "0", "60000")),
    (wire.release(KEYS, "t"), scripts.RELEASE, ("p:a", "p:b"), ("t",)),
    (wire.release(KEYS, "t", 1.5), scripts.RELEASE, ("p:a", "p:b"), ("t", "1500")),
    (wire.status("p:a"), scripts.STATUS, ("p:a", "{p:a}:fence"), ("1000",)),
    (wire.look("p:", ["a", "b"]), scripts.LOOK, ("p:a", "p:b", "{p:a}:fence", "{p:b}:fence"), ("50",)),
    (wire.acquire_shared(KEYS, "t", 2.5, 77, 60.0, 9), scripts.ACQUIRE_SHARED, BOTH, ("2", "t", "2500", "77", "60000", "9")),
    (wire.extend_shared(KEYS, "t", 2.5, 60.0), scripts.EXTEND_SHARED, BOTH, ("2", "t", "2500", "60000")),
    (wire.repair_shared(KEYS, "t", 2.5, 77, 60.0), scripts.REPAIR_SHARED, BOTH, ("2", "t", "2500", "77", "60000")),
    (wire.release_shared(KEYS, "t"), scripts.RELEASE_SHARED, ("p:a", "p:b"), ("t",)),
    (wire.mark(KEYS, "t", 2.5), scripts.MARK, ("p:a", "p:b"), ("t", "2500")),
    (wire.mark(KEYS, "t", 0.0), scripts.MARK, ("p:a", "p:b"), ("t", "0")),
    (wire.scan("7", "p:*", 500), scripts.SCAN, (), ("7", "p:*", "500")),
    (wire.announce("p:", 2.5), scripts.ANNOUNCE, ("redlock-max-ttl:p:",), ("2500", "5000")),
    (wire.extend_resumed(BARE, "t", 2.5, 60.0), scripts.EXTEND_RESUMED, ("p:a", "{p:a}:grant"), ("1", "t", "2500", "60000")),
    (wire.occupy(KEYS, (1,), BARE, "t", 2.5, 77, 60.0), scripts.OCCUPY, ("p:a", "p:b"), ("2", "t", "2500", "77", "60000", "1")),
    (wire.vacate("p:g", (0, 1), KEYS, "t"), scripts.VACATE, ("p:a", "p:b"), ("t", "p:g:released", "0", "0", "1")),
    # with records (R35): they live for a week, or as long as fences
    (records.acquire(NOTED, "t", 2.5, 77, 60.0), scripts.ACQUIRE_RECORDED, THREE, ("1", "t", "2500", "77", "60000", WEEK)),
    (records.extend(NOTED, "t", 2.5, 1e6, "9", 77), scripts.EXTEND_RECORDED, THREE,
     ("1", "t", "2500", "1000000000", "1000000000", "9", "77")),
    (records.renew([(NOTED, "t", 2.5, 77), (NOTED, "u", 3.0, None)], 60.0, "9"), scripts.RENEW_RECORDED, THREE * 2,
     ("60000", WEEK, "9", "1", "t", "2500", "77", "1", "u", "3000", "")),
    (records.repair(NOTED, "t", 2.5, 77, 60.0), scripts.REPAIR_RECORDED, THREE, ("1", "t", "2500", "77", "60000")),
    (records.release(NOTED, "t", 1.5, 77), scripts.RELEASE_RECORDED, ("p:a", "{p:a}:grant"), ("t", "77", "1500")),
    (records.occupy(NOTED, (1,), BARE, "t", 2.5, 77, 60.0), scripts.OCCUPY_RECORDED, ("p:a", "{p:a}:grant"),
     ("1", "t", "2500", "77", "60000", WEEK, "1")),
    (records.vacate("p:g", (0, 1), NOTED, "t", 1.5, 77), scripts.VACATE_RECORDED, ("p:a", "{p:a}:grant"),
     ("t", "p:g:released", "1500", "77", "0", "1")),
    (records.confirm(NOTED, "t", 2.5, 77, 60.0, [{"1 u", "-"}]), scripts.CONFIRM, THREE,
     ("1", "t", "77", "60000", WEEK, "2500", "t", "2", "-", "1 u")),
    (records.confirm(NOTED, "t", 2.5, 77, 60.0, [["-"]], phantom=True, shared=True), scripts.CONFIRM_SHARED, THREE,
     ("1", "t", "77", "60000", WEEK, "2500", "expired:t", "1", "-")),
], ids=lambda value: value.name if isinstance(value, scripts.Script) else "")  # fmt: skip
def test_request(call: wire.Call, script: scripts.Script, keys: tuple[str, ...], args: tuple[str, ...]) -> None:
    assert (call.script, call.keys, call.args) == (script, keys, args)


# -- replies -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reader", "value", "answer"), [
    (wire.read_acquire, [1, b"77"], wire.Taken(77, stored=True)),
    (wire.read_acquire, [1, b"0"], wire.Taken(0, stored=True)),
    (wire.read_acquire, [2, b"77"], wire.Taken(77, stored=False)),
    (wire.read_acquire, [0, b"77", b"ann", 2500], wire.Held(77, "ann", 2.5)),
    (wire.read_acquire, [0, b"0", b"ann", -1], wire.Held(0, "ann", math.inf)),
    (wire.read_acquire, [0, b"0", b"ann", -2], wire.Held(0, "ann", 0.0)),
    (wire.read_acquire, [0, b"0", b"\xff", 1], wire.Held(0, "\\xff", 0.001)),
    # It could turn a page red, or forge a line.  In quotes it is no token of ours, whatever stands in front.
    (wire.read_acquire, [0, b"0", b"\xff\x00", 1], wire.Held(0, r"'\xff\x00'", 0.001)),
    # An empty value keeps others away as any other does.
    (wire.read_acquire, [0, b"0", b"", 1000], wire.Held(0, "''", 1.0)),
    (wire.read_status, [b"", 1000, b"0"], wire.Seen("''", 1.0, 0)),
    (wire.read_status, [b"", -1, b"0"], wire.Seen("''", math.inf, 0)),
    (wire.read_owned, [0, b"\x1b[31m\r\n"], wire.NotOwned(r"'\x1b[31m\r\n'")),
    (wire.read_status, [b"a\tb", 100, b"9", "\u202e".encode()], wire.Seen(r"'a\tb'", 0.1, 9, (r"'\u202e'",))),
    *((wire.read_fence, [verdict, b"88"], (verdict, 88)) for verdict in (1, 0, -1)),
    (wire.read_owned, [1], wire.Owned()),
    (wire.read_owned, [1, 4], wire.Owned(4)),
    (wire.read_owned, [0, b""], wire.NotOwned("")),
    (wire.read_owned, [0, b"ann"], wire.NotOwned("ann")),
    (wire.read_owned, [0, b"\xfe"], wire.NotOwned("\\xfe")),
    (wire.read_owned, [-1], wire.OtherMode(reads=True)),
    (wire.read_owned, [-2], wire.OtherMode(reads=False)),
    (wire.read_status, [b"", -2, b"0"], wire.Seen("", 0.0, 0)),
    (wire.read_status, [b"ann", 100, b"9"], wire.Seen("ann", 0.1, 9)),
    (wire.read_status, [b"ann", -1, b"9"], wire.Seen("ann", math.inf, 9)),
    (wire.read_announce, [2500, 4000], wire.Announced(2.5, 4.0)),
    (wire.read_announce, [1, 2], wire.Announced(0.001, 0.002)),
    (wire.read_known, [b"abc", -1], wire.Known("abc", None)),
    (wire.read_known, [b"abc", 2500], wire.Known("abc", 2.5)),
    (records.read_flagged, [3, b"7", [1, b"9", 2500, b"t"], [3, b"r8", 1, b"u"]],
     (7, {0: Record("9", "t", 2.5), 2: Record("r8", "u", 0.001)}, ())),
    (records.read_flagged, [3, b"7", [1, b"9", 2500, b"t"], [-2, 1500]], (7, {0: Record("9", "t", 2.5)}, (0.0, 1.5))),
    # The largest number that a script can count to is none too many.
    (wire.read_announce, [2**53 - 1, -1], wire.Announced((2**53 - 1) / 1000, math.inf)),
    (wire.read_status, [b"ann", 2**53 - 1, b"1"], wire.Seen("ann", (2**53 - 1) / 1000, 1)),
    (wire.read_acquire, [0, b"1", b"ann", 2**53 - 1], wire.Held(1, "ann", (2**53 - 1) / 1000)),
    (wire.read_status, [b"ann", -(10**400), b"1"], wire.Seen("ann", 0.0, 1)),
])  # fmt: skip
def test_an_answer(reader: Any, value: Any, answer: Any) -> None:
    read = reader(value)
    assert (type(read), read) == (type(answer), answer)  # as tuples two of them may be equal


ERROR = ErrorReply("WRONGTYPE x")


@pytest.mark.parametrize(("value", "others"), [
    ([1], {}),
    ([1, 1, 1], {}),
    ([1, b"", 1], {1: wire.NotOwned("")}),
    ([b"ann", 1, b"\xfe"], {0: wire.NotOwned("ann"), 2: wire.NotOwned("\\xfe")}),
    ([1, ERROR], {1: ERROR}),
])  # fmt: skip
def test_read_renew(value: Any, others: dict[int, Any]) -> None:
    read = wire.read_renew(value, len(value))
    assert read == others
    assert {index: type(answer) for index, answer in read.items()} == {
        index: type(answer) for index, answer in others.items()
    }


@pytest.mark.parametrize("value", [[], [1], [1, 1, 1], [1, 0], [1, None], [1, "x"], [1, [b""]], 1, b"", ERROR])
def test_an_answer_for_two_leases_that_is_none(value: Any) -> None:
    """One too few or too many, and nobody knows whose is whose."""
    with pytest.raises(wire.BadReply, match="unexpected answer"):
        wire.read_renew(value, 2)


def read_renew(value: Any) -> Any:
    """Of more leases than any nonsense here has parts."""
    return wire.read_renew(value, 64)


READERS = [
    wire.read_acquire, wire.read_fence, wire.read_owned, read_renew, wire.read_status, wire.read_announce, wire.read_known,
    wire.read_time, wire.read_scan,
]  # fmt: skip
NONSENSE = [
    None, -1, 0, b"OK", "OK", [], [None], [2], [3, b"1"], [2, b"x"], [2, b"1", b"ann", 5], [1, 1, 1], [1, None],
    [b"1", b"x"], [[1, b"2"]], {1: b"2"}, 1.5, ErrorReply("ERR x"), [ErrorReply("ERR x")], [0, b"x", b"ann", 5],
    [1, b"x"], [1, b""], [0, b"1", b"ann", None], [0, b"1", None, 5], [0], [-4], [b"ann", 5, b"x"],
    [b"ann", None, b"1"], [1, b"9" * 5000], [1, b"+5"], [1, b"1_0"],
]  # fmt: skip


@pytest.mark.parametrize("value", NONSENSE, ids=lambda value: repr(value)[:30])
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_nonsense_is_a_ValueError(reader: Any, value: Any) -> None:  # noqa: N802
    with pytest.raises(ValueError):
        reader(value)


integers = st.integers(-(2**63), 2**63 - 1)  # what the protocol's integers can be
replies = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        integers,
        st.sampled_from([-1, 0, 1]),
        st.floats(),
        st.binary(max_size=8),
        st.text(max_size=8),
        st.sampled_from([b"0", b"77", b"", ErrorReply("ERR x"), ErrorReply("")]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(st.integers(), inner, max_size=2)),
    max_leaves=10,
)


@PROPERTY
@given(replies)
def test_a_hostile_master_cannot_raise_anything_else(value: Any) -> None:
    for reader in READERS:
        with contextlib.suppress(ValueError):
            reader(value)


@pytest.mark.parametrize("number", [2**53, 10**400], ids=["inexact", "absurd"])
def test_nor_by_a_number_that_is_too_large(number: int) -> None:
    """RESP3 has big numbers, and hiredis makes ints of them: those do not even fit into a float."""
    readers: dict[Any, Any] = {
        wire.read_acquire: [0, b"1", b"ann", number], wire.read_status: [b"ann", number, b"1"],
        wire.read_announce: [number, 1],
    }  # fmt: skip
    for reader, value in readers.items():
        with pytest.raises(wire.BadReply) as caught:
            reader(value)
        assert len(str(caught.value)) < 200
