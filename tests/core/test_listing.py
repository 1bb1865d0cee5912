"""Which keys are locks, and the two scripts of a list (R29)."""

from __future__ import annotations

import math
from functools import partial

import pytest
from hypothesis import example, given, strategies as st

from redlock import QuorumUnreachable
from redlock._core import wire
from redlock._core.listing import Listing
from redlock._core.outcomes import ErrorReply
from redlock._core.voters import Facts
from redlock._core.wire import Seen
from tests.core.scripted_master import ScriptedMaster
from tests.core.world import START, Master, World
from tests.properties.profile import PROPERTY

prefixes = st.sampled_from(["redlock:", "", "{x}:", "p*", "redlock-max"])


@PROPERTY
@example("", "redlock-fleet:")
@given(prefixes, st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30))
def test_every_name_is_found_at_its_key_and_its_other_keys_are_none(prefix, name):
    keys = wire.keys_for(prefix, [name])
    (lock,), (fence,) = keys.locks, keys.fences
    assert wire.name_of(prefix, fence.encode()) is None
    assert wire.name_of(prefix, (wire.ANNOUNCEMENT + prefix).encode()) is None
    announces = lock.startswith(("redlock-max-ttl:", "redlock-fleet:"))  # if the prefix is empty
    if not announces and not name.endswith("}:fence") and not lock.endswith(":fence"):
        assert wire.name_of(prefix, lock.encode()) == name


@pytest.mark.parametrize(("key", "name"), [
    *((key, None) for key in (b"redlock:", b"redlock:\xff", b"redlock:" + 513 * b"x", b"redlock:a\0b", b"other:a", b"")),
    # It may end like a fence.
    *((b"redlock:" + name.encode(), name) for name in ("a:fence", "fence", ":fence", "{a:fence", "{a}b:tickets")),
])  # fmt: skip
def test_what_is_a_name(key, name):
    assert wire.name_of("redlock:", key) == name


def test_a_look_is_the_status_of_each():
    master = ScriptedMaster()
    master.set("p:a", "ann", 3000)
    master.set("{p:a}:fence", "0017", 9000)
    master.set("p:b", "x" * 200)
    master.set("{p:b}:fence", "no number")
    master.set("p:c", [b"a list"])
    answer = wire.read_look(master.run(wire.look("p:", ["a", "b", "c", "d"])), 4)
    assert answer[:2] == [Seen("ann", 3.0, 17, (), 0), Seen("x" * 128, float("inf"), 0, (), 0)]
    assert isinstance(answer[2], ErrorReply)
    assert answer[2].code == "WRONGTYPE"
    assert answer[3] == Seen("", 0.0, 0, (), 0)


@pytest.mark.parametrize(("read", "value"), [
    *((wire.read_scan, value) for value in
      (None, [], [1], [b"0", b"a"], [b"x", []], [b"0", [1]], [b"0", [b"a"], 1], [b"-1", []])),
    *((partial(wire.read_look, names=2), value) for value in
      (None, [], [1, 2], [[b"a", 1, b"1"]], [[b"a", 1, b"1"], [b"a", b"1", 1]])),
])  # fmt: skip
def test_what_is_no_answer(read, value):
    with pytest.raises(wire.BadReply):
        read(value)


def listed(world):
    listing = Listing(world.settings, "redlock:", "*")
    found = []
    while (piece := world.run(listing.more())) is not None:
        found += [status.name for status in piece]
    return found


def has(*names):
    seen = [[b"somebody" if name in names else b"", 5000 if name in names else -2, b"0"] for name in "ab"]
    return Master(
        0.01, {"scan": [b"0", [f"redlock:{name}".encode() for name in names]], "look": seen[: len(names) or 1]}
    )


def test_a_master_that_may_have_forgotten_locks_was_not_searched():
    """R21, R29: 'a' is on the first two, the first has restarted without it, and the second does not answer."""
    silent = Master(math.inf, has().says)
    world = World(has(), silent, has(), guard=True)
    assert listed(world) == []
    world = World(has(), silent, has(), guard=True)
    world.settings.voters.admit(0, Facts("restarted", 1), START)
    with pytest.raises(QuorumUnreachable, match="2 of 3 masters did not vote") as caught:
        listed(world)
    assert [vote.outcome for vote in caught.value.votes][:2] == ["quarantined", "timeout"]


def test_who_may_not_scan_is_told_the_command_whose_rule_has_that_right():
    """R29: without --held it prints the rule of the locks alone, which this user has."""
    refused = Master(
        0.01, {"scan": ErrorReply("NOPERM User lister has no permissions to run the 'scan' command").failure()}
    )
    with pytest.raises(QuorumUnreachable, match=r"ACL SETUSER user \+scan") as caught:
        listed(World(refused, refused, refused))
    assert "--acl --held prints the rule" in str(caught.value)
    assert "--acl prints" not in str(caught.value)
