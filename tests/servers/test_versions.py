"""Clients of the version before and of this one on the same masters (docs/upgrading.md), by what they say on the wire.

First each script of the one on what each script of the other has left on a master, then whole leases.  The version
before is 0.1.0: its scripts, run as its clients run them.
"""

from pathlib import Path

import pytest
from redis.exceptions import ResponseError

from redlock import scripts
from redlock._core import wire
from redlock._core.confirm import records
from redlock._core.fair import tickets
from tests.servers.look import eventually
from tests.servers.waiter import Waiting

BEFORE = {file.stem: file.read_text("utf-8") for file in Path(__file__).with_name("version_0_1").glob("*.lua")}
KEYS = wire.keys_for("redlock:", ["job"])
(LOCK,), (FENCE,), _ = KEYS
RECORDED = wire.keys_for("redlock:", ["job"], records=True)
(GRANT,) = RECORDED.grants
LONGEST = wire.ANNOUNCEMENT + "redlock:"
OURS, THEIRS, WAITER = "a" * 40, "b" * 40, "c" * 40
HOUR = 3600.0
OLD = {
    "acquire": ([LOCK, FENCE], ["1", THEIRS, "30000", "5", "60000"]),
    "fence": ([LOCK, FENCE], ["1", THEIRS, "5", "60000"]),
    "extend": ([LOCK, FENCE], ["1", THEIRS, "30000", "60000"]),
    "repair": ([LOCK, FENCE], ["1", THEIRS, "30000", "5", "60000"]),
    "release": ([LOCK], [THEIRS]),
    "status": ([LOCK, FENCE], []),
}
NEW = {
    "acquire": wire.acquire(KEYS, OURS, 20.0, 9, HOUR),
    "fence": wire.fence(KEYS, OURS, 9, HOUR),
    "extend": wire.extend(KEYS, OURS, 20.0, HOUR),
    "renew": wire.renew([(KEYS, OURS, 20.0)], HOUR),
    "repair": wire.repair(KEYS, OURS, 20.0, 9, HOUR),
    "release": wire.release(KEYS, OURS),
    "release, held at least": wire.release(KEYS, OURS, 15.0),
    "acquire shared": wire.acquire_shared(KEYS, OURS, 20.0, 9, HOUR, 9),
    "extend shared": wire.extend_shared(KEYS, OURS, 20.0, HOUR),
    "repair shared": wire.repair_shared(KEYS, OURS, 20.0, 9, HOUR),
    "release shared": wire.release_shared(KEYS, OURS),
    "mark": wire.mark(KEYS, OURS, 20.0),
    "take the mark back": wire.mark(KEYS, OURS, 0.0),
    "occupy": wire.occupy(KEYS, (0,), KEYS, OURS, 20.0, 9, HOUR),
    "vacate": wire.vacate("redlock:job#", (0,), KEYS, OURS),
    "look": wire.look("redlock:", ["job"]),
    "status": wire.status(LOCK),
    "stand in line": tickets.stand(KEYS, WAITER, 9, HOUR, new=True),
    "leave the line": tickets.leave(KEYS, WAITER, HOUR),
    "acquire in order": tickets.acquire(KEYS, OURS, 20.0, 9, HOUR, WAITER),
    "acquire in order, recorded": tickets.acquire(RECORDED, OURS, 20.0, 9, HOUR, WAITER),
    "extend resumed": wire.extend_resumed(KEYS, OURS, 20.0, HOUR),
    "acquire recorded": records.acquire(RECORDED, OURS, 20.0, 9, HOUR),
    "settle": records.confirm(RECORDED, OURS, 20.0, 9, HOUR, [{records.NONE}]),
    "phantom": records.confirm(RECORDED, OURS, 20.0, 9, HOUR, [{records.NONE}], phantom=True),
    "extend recorded": records.extend(RECORDED, OURS, 20.0, HOUR, "1", 9),
    "renew recorded": records.renew([(RECORDED, OURS, 20.0, 9)], HOUR, "1"),
    "repair recorded": records.repair(RECORDED, OURS, 20.0, 9, HOUR),
    "release recorded": records.release(RECORDED, OURS, 0.0, 9),
    "occupy recorded": records.occupy(RECORDED, (0,), RECORDED, OURS, 20.0, 9, HOUR),
    "vacate recorded": records.vacate("redlock:job#", (0,), RECORDED, OURS, 0.0, 9),
    "acquire shared recorded": wire.acquire_shared(RECORDED, OURS, 20.0, 9, HOUR, 9),
    "extend shared recorded": wire.extend_shared(RECORDED, OURS, 20.0, HOUR),
    "repair shared recorded": wire.repair_shared(RECORDED, OURS, 20.0, 9, HOUR),
    "release shared recorded": wire.release_shared(RECORDED, OURS),
    "settle shared": records.confirm(RECORDED, OURS, 20.0, 9, HOUR, [{records.NONE}], shared=True),
}
# What of this version is on a master, by the scripts that have made it, and what undoes it.
STATES = {
    "a lock": (["acquire"], "release"),
    "a slot": (["occupy"], "vacate"),
    "a lock in order": (["stand in line", "acquire in order", "leave the line"], "release"),
    "a lock in order, on record": (["acquire in order, recorded"], "release recorded"),
    "a lock that is held at least": (["acquire", "release, held at least"], ""),
    "readers": (["acquire shared"], "release shared"),
    "a writer that waits": (["mark"], "take the mark back"),
    "a lock on record": (["acquire recorded", "extend recorded"], "release recorded"),
    "a slot on record": (["occupy recorded"], "vacate recorded"),
    "a name in doubt": (["phantom"], ""),
}


@pytest.fixture
def master(redlock_servers):
    return redlock_servers.client(0)


def new(master, script):
    call = NEW[script]
    return master.eval(call.script.text, len(call.keys), *call.keys, *call.args)


def old(master, script, **changed):
    keys, args = OLD[script]
    return master.eval(
        BEFORE[script], len(keys), *keys, *[changed.get("token", THEIRS) if x == THEIRS else x for x in args]
    )


def kept(master):
    """What is at the key, to the last byte, and when that ends, in ms: one script, for time passes between two calls."""
    ends = "local t, left = redis.call('time'), redis.call('pttl', KEYS[1]) return left < 0 and left or t[1] * 1e3 + t[2] / 1e3 + left"
    return master.dump(LOCK), pytest.approx(master.eval(ends, 1, LOCK), abs=100)


def test_all_scripts_take_part():
    assert set(BEFORE) == {*OLD, "announce"}
    assert {call.script for call in NEW.values()} >= {
        script
        for script in (*scripts.USUAL, *scripts.RECORDED, scripts.LOOK)
        if script.name not in ("announce", "fleet", "known")
    }


@pytest.mark.parametrize("script", OLD)
@pytest.mark.parametrize("state", STATES)
def test_the_version_before_leaves_alone_what_is_there(master, state, script):
    """It is refused, by what it finds or by the type of the key: to its clients that is a holder, or a master without a vote."""
    made, undone = STATES[state]
    for step in made:
        new(master, step)
    there = kept(master)
    if state in ("readers", "a writer that waits"):
        with pytest.raises(ResponseError, match="WRONGTYPE"):
            old(master, script)
    else:
        answer = old(master, script)
        assert answer[0].decode().endswith(OURS) if script == "status" else answer[0] in (0, -1)
    assert kept(master) == there
    if undone:
        new(master, undone)
        assert old(master, "acquire")[0] in (1, 2), "and then it is free"


@pytest.mark.parametrize("script", NEW)
def test_this_version_leaves_alone_what_the_one_before_holds(master, script):
    old(master, "acquire")
    there = kept(master)
    answer = new(master, script)
    usual = script in ("mark", "take the mark back", "renew", "renew recorded")
    if script == "stand in line":
        assert answer[:3] == [1, b"9", 1], "behind who holds it"
    else:
        assert answer in ([1], [THEIRS.encode()]) if usual else answer[0] != 1
    assert kept(master) == there
    assert old(master, "extend") == [1]
    assert old(master, "release")[0] == 1
    new(master, "leave the line")
    assert new(master, "acquire")[0] in (1, 2), "and then it is free"


@pytest.mark.parametrize("by", ["the version before", "this one, without records"])
def test_who_keeps_no_records_takes_what_is_only_on_record_and_spoils_nothing(master, by):
    """R35: the lock key is gone, and nobody has released it.  What is on record stays, byte for byte, for those that mind it."""
    new(master, "acquire recorded")
    new(master, "extend recorded")
    on_record = master.get(GRANT)
    assert on_record == f"1 20000 9 {OURS}".encode()
    master.delete(LOCK)

    def run(script):
        return old(master, script) if by == "the version before" else without(master, script)

    assert run("acquire")[0] in (1, 2)
    assert new(master, "acquire recorded")[0] == 0, "held"
    assert run("extend") == [1]
    assert run("repair") in ([0], [1])  # by its fence
    assert run("release")[0] == 1
    assert master.get(GRANT) == on_record
    assert new(master, "acquire recorded")[0] == 3, "and then it is as it was: shown, and not taken"
    new(master, "release recorded")
    assert master.get(GRANT) is None


def without(master, script):
    call = {
        "acquire": wire.acquire(KEYS, THEIRS, 20.0, 9, HOUR), "extend": wire.extend(KEYS, THEIRS, 20.0, HOUR),
        "repair": wire.repair(KEYS, THEIRS, 20.0, 9, HOUR), "release": wire.release(KEYS, THEIRS),
    }[script]  # fmt: skip
    return master.eval(call.script.text, len(call.keys), *call.keys, *call.args)


# -- leases ------------------------------------------------------------------------------------------


def everywhere(servers, script, **changed):
    return [old(servers.client(i), script, **changed) for i in range(5)]


HOLDS = {
    "a lock": lambda masters: masters.lock("job", ttl=30),
    "several names": lambda masters: masters.lock(["another", "job"], ttl=30),
    "a reader": lambda masters: masters.lock("job", ttl=30, shared=True),
}


@pytest.mark.parametrize("hold", HOLDS)
def test_they_take_turns(redlock_servers, masters, hold):
    """In both directions, and fences go on increasing (P1, P2)."""
    lock, fence = HOLDS[hold](masters), 0
    for _ in range(2):
        with lock as lease:
            for answer in (lock.extend(), lease):
                assert answer.valid
            if not lease.shared:
                ours = lease.token.encode()  # on each master: one may be late
                eventually(lambda: all(redlock_servers.client(i).get(LOCK) == ours for i in range(5)))  # noqa: B023
                assert all(
                    answer[0] == 0 and answer[2].decode() == lease.token
                    for answer in everywhere(redlock_servers, "acquire")
                )
            assert lease.fence > fence
            fence = lease.fence
        eventually(lambda: not any(redlock_servers.client(i).exists(LOCK) for i in range(5)))  # one may be late
        assert all(answer[0] in (1, 2) for answer in everywhere(redlock_servers, "acquire"))
        seen = max(int(answer[1]) for answer in everywhere(redlock_servers, "fence"))  # as R17: its second round
        settled = [
            redlock_servers.client(i).eval(BEFORE["fence"], 2, LOCK, FENCE, "1", THEIRS, str(seen + 1), "60000")
            for i in range(5)
        ]
        assert {int(answer[1]) for answer in settled} == {seen + 1}
        assert seen + 1 > fence
        fence = seen + 1
        assert lock.acquire(timeout=0) is None
        assert masters.status("job").token == THEIRS
        everywhere(redlock_servers, "release")


def test_each_wakes_the_other(redlock_servers, masters, master):
    """R24: the channel and the messages are the same."""
    channel = wire.channel(LOCK)
    everywhere(redlock_servers, "acquire")
    with master.pubsub(ignore_subscribe_messages=True) as ear:
        ear.subscribe(channel)
        waiting = Waiting(masters.lock("job", ttl=30))
        eventually(lambda: sum(redlock_servers.client(i).pubsub_numsub(channel)[0][1] for i in range(5)) == 6)
        assert sum(answer[1] for answer in everywhere(redlock_servers, "release")) == 6
        lease = waiting.end()
        heard: list[bytes] = []

        def both():
            heard.extend(filter(None, [(ear.get_message(timeout=1) or {}).get("data")]))
            return {THEIRS.encode(), lease.token.encode()} <= set(heard)

        eventually(both)


# -- max_ttl (R21) -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "then", "value", "ends"), [
    ((60.0, "new"), (60.0, "old"), 60_000, True),
    ((60.0, "new"), (30.0, "old"), 60_000, True),
    ((60.0, "new"), (90.0, "old"), 90_000, False),
    ((60.0, "old"), (60.0, "new"), 60_000, False),
    ((60.0, "old"), (30.0, "new"), 60_000, False),
    ((60.0, "old"), (90.0, "new"), 90_000, False),
])  # fmt: skip
def test_a_max_ttl_of_the_version_before_counts_for_as_long_as_it_is_there(master, first, then, value, ends):
    """Its clients say it once.  So it does not end by itself, and neither does a larger one that takes its place."""
    answer = None
    for max_ttl, version in (first, then):
        call = wire.announce("redlock:", max_ttl)
        answer = master.eval(BEFORE["announce"] if version == "old" else call.script.text, 1, LONGEST, *call.args)
    assert answer == value if then[1] == "old" else answer == [value, master.pttl(LONGEST)]
    assert int(master.get(LONGEST)) == value
    assert (master.pttl(LONGEST) > 0) is ends
