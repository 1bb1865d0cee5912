"""The client as it ships: `Masters`, `AsyncMasters` and all behind them, on simulated masters."""

from __future__ import annotations

import gc
import re
import traceback
import weakref
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tests.bench.judge import Violation
from tests.bench.library import CORE, SHARED, Patch, text_of
from tests.bench.parameters import FAMILIES, FAULTS, alone, draw, slewed, struck, wrong_clocks
from tests.bench.run import Run, play
from tests.bench.users import User
from tests.bench.variants import VARIANTS, hunt
from tests.owners import proves
from tests.properties.profile import PROPERTY

SEEDS = 9
CHUNK = 3
MOST = 30  # seeds for a variant to be caught
# The library's: 10029545 and 10013994 (forks), 10008717, 10025523 and 10034497 (a Ctrl-C was lost), and a ticket of a master
# that had forgotten the script.  The others were judges', users', or an error in a log (10004998).
FOUND = (
    10_000_314, 50_000_112, 60_000_354, 10_000_405, 10_000_516, 50_000_240, 50_000_376, 50_001_602, 50_000_161, 50_000_964,
    10_000_519, 10_000_764, 10_000_796, 10_001_517, 10_001_881, 10_003_355, 10_004_446, 10_004_998, 10_008_717, 10_013_994,
    10_023_613, 10_025_523, 10_026_514, 10_026_964, 10_029_545, 10_034_497, 10_034_937, 10_048_460, 10_055_216, 10_060_029,
    10_062_616, 10_065_323, 10_088_330,
)  # fmt: skip


@pytest.mark.parametrize("threads", [True, False], ids=["threads", "tasks"])
def test_one_seed_is_one_run(threads):
    first, second = (play(alone(1, threads=threads)).world.lines() for _ in range(2))
    assert first == second
    assert any("granted" in line for line in first)
    broken, again = (play(draw(3, threads=threads, calm=False)).world.lines() for _ in range(2))
    assert broken == again


def test_nothing_of_a_run_stays():
    """Each has loaded its own copies of the library: a long run would need all memory, and ever more time to collect."""
    settings = [alone(1, threads=threads) for threads in (True, False)]
    settings += [
        draw(seed, threads=False, calm=False, faults=((fault, 3.0),))
        for fault in ("branch", "refuse")
        for seed in (0, 1)
    ]
    runs = [weakref.ref(play(setting)) for setting in settings]
    play(alone(1, threads=True))  # it collects what is left of those before
    assert [settings[number] for number, run in enumerate(runs) if run() is not None] == []


def _shown(value):
    """What changes where it counts or is filled."""
    value = getattr(value, "default", vars(value) if isinstance(value, type) else value)
    if isinstance(value, Mapping):
        return [_shown(one) for name, one in value.items() if name != "__builtins__"]
    return repr(getattr(value, "__self__", value))


def test_what_processes_share_keeps_nothing():
    after, _ = [], [*map(CORE.load, SHARED)]
    for seed in range(2, 4):
        play(wrong_clocks(seed))
        after.append({name: _shown(vars(CORE.modules[name])) for name in SHARED})
    assert after[0] == after[1]
    parts = ("_core", "_core.confirm", "_core.fair", "_core.kernel", "_health")
    folders = {"redlock", *(f"redlock.{one}" for one in parts)}
    assert {*CORE.modules} == {*SHARED, *folders}, "these are shared as well, and may keep something"


@proves("P1", "P2", "P5", "P7")
@pytest.mark.parametrize("threads", [True, False], ids=["threads", "tasks"])
@pytest.mark.parametrize("start", range(0, SEEDS, CHUNK))
def test_seeds_keep_every_promise(start, threads):
    grants = 0
    for seed in range(start, start + CHUNK):
        grants += play(draw(seed, threads=threads)).judge.grants
    assert grants > CHUNK, "so little is granted that nothing can go wrong"


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "shipped"])
def test_seeds_of_each_family_keep_every_promise(name):
    grants = sum(play(FAMILIES[name](seed)).judge.grants for seed in range(CHUNK))
    assert grants > CHUNK or name == "disagreeing", "so little is granted that nothing can go wrong"


@pytest.mark.broken
def test_seeds_with_slewed_clocks_see_a_client_that_counts_the_votes_of_fast_masters():
    """R43: what is measured is judged, and what nobody can have measured yet is not."""
    with pytest.raises(Violation, match="P1 exclusive"):
        for seed in range(4):
            setting = slewed(seed)  # played for long: few leases outlast the keys that a fast clock has ended
            base = replace(setting.base, masters=3, budget=50_000, duration=500 * setting.base.ttl)
            play(replace(setting, base=base), VARIANTS["rates-ignored"].patches)


def test_a_violation_says_how_to_see_it_again():
    """The seed, all that was drawn from it, and the end of the trace."""
    with pytest.raises(Violation) as caught:
        for seed in range(MOST):
            play(
                draw(seed),
                (Patch("release.lua", "redis.pcall('GET', KEYS[1]) == ARGV[1]", "redis.pcall('GET', KEYS[1])"),),
            )
    (note,) = caught.value.__notes__
    assert "python -m tests.simulation --family shipped --trace" in note
    assert "Parameters(seed=" in note
    assert "VIOLATION P8" in note


@pytest.mark.long
@settings(PROPERTY, max_examples=30)
@given(
    seed=st.integers(0, 2**32), faults=st.dictionaries(st.sampled_from(FAULTS), st.sampled_from((0.05, 0.3, 1.0)), max_size=4),
    masters=st.integers(1, 7), clients=st.integers(1, 4), names=st.integers(1, 3), users=st.integers(1, 8),
)  # fmt: skip
def test_any_schedule_keeps_every_promise(seed, faults, masters, clients, names, users):
    """What no seed would draw, and made small where it fails."""
    fixed = {"masters": masters, "clients": clients, "names": names, "budget": 400, "faults": tuple(faults.items())}
    play(draw(seed, calm=False, besides={"users": users}, **fixed))


def test_found_a_thread_that_lost_the_lead_just_before_it_would_sleep():
    """An impatient follower took the lead between two looks, and `acquire` raised an AssertionError."""
    play(draw(4, threads=True, calm=True, more=False, besides={"preempted": 0.05, "naps": 0.0005, "users": 8}))


@pytest.mark.parametrize("seed", FOUND)
def test_found_in_long_runs(seed):
    play(draw(seed))


def test_found_a_slot_that_others_saw_before_its_lease_was_granted():
    """Who asked for a slot in another thread got an AttributeError.  Here the thread sleeps just there."""
    grants = "        lease.granted(grant._replace(place=None))\n"
    asleep = Patch("redlock._core.slots.target", grants, f"        __import__('time').sleep(0.05)\n{grants}")
    play(draw(4, threads=True, calm=True, more=False, slots=3, names=1, faults=(), besides={"users": 8}), (asleep,))


@pytest.mark.parametrize("threads", [True, False], ids=["threads", "tasks"])
def test_interrupted_anywhere_and_once_more_in_the_cleanup(threads):
    """R11: it leaves no key and no place in line, and its program knows at once."""
    strikes = 0
    for seed in range(CHUNK):
        lines = play(struck(seed, threads=threads)).world.lines(10**6)
        strikes += sum("Ctrl-C" in line or "fault: cancel" in line for line in lines)
    assert strikes > 20 * CHUNK


class Walker(User):
    """It is struck in the first step of an operation, in the second one of the next, and so on."""

    what, struck = "", 0

    def life(self):
        while (yield from self._struck_in(self.struck + 1)):
            self.struck += 1
            if self.struck % 50 == 0:
                gc.collect()  # from a hundred leases on their context is searched, in steps that are not of the operation
        while not self.client.stopping:
            yield partial(self.client.kind.sleep, 5.0)
        yield from super().life()

    def _body(self):
        yield from ()

    def _struck_in(self, step):
        client, what, struck, where = self.client, self.what, False, ""
        make = partial(client.masters.slots, limit=1) if what == "slots" else client.masters.lock
        lock, other = (make("lock-0", ttl=16.0) for _ in range(2))
        once = partial(lock.acquire, blocking=False)
        election, calls = client.masters.leader("lock-0", ttl=16.0), list[str]()

        def leads(*_):
            calls.append("begins")
            election.stop()
            yield from ()

        stands = partial(client.kind.stand, election, leads, on_stopped=lambda _: calls.append("ends"))
        loops = partial(client.kind.lead, election, leads)
        inside = partial(client.kind.within, other if what == "level" else lock, lambda _: self._body())
        if what in ("extend", "release", "level"):
            yield lock.acquire
        for server in client.servers[:3]:
            server.master.refuses = "OOM" if what == "refused" else ""
        client.main.interrupt_in = step
        try:
            ways = {"refused": once, "level": inside, "with": inside, "leads": stands, "terms": loops}
            yield ways.get(what) or getattr(lock, what, lock.acquire)
        except KeyboardInterrupt as error:
            struck, client.strikes = True, []
            where = traceback.extract_tb(error.__traceback__)[-3].name
        except client.errors.QuorumUnreachable:
            assert what == "refused"
        client.main.interrupt_in = None
        for server in client.servers:
            server.master.refuses = ""
        yield partial(client.kind.sleep, 0.1)  # its frames have gone with the error
        if (what, calls) == ("leads", ["begins"]):
            assert where == "_say_stopped"  # R31: in front of the call, where the interpreter looks for no signals
        assert not other.owned()
        assert lock.owned() or what not in ("extend", "level"), f"step {step} has taken something away (R13, R26)"
        if lock.owned() and not (struck and what in ("acquire", "__enter__")):  # else nobody knows that it is
            yield lock.release
        for _ in range(40):  # a connection may have to be made anew
            yield partial(client.kind.sleep, 0.1)
            if not any(master.tick() and client.judge._locks(master) for master in client.judge.masters):
                break
        else:
            raise AssertionError(f"struck in step {step} it leaves something (R11)")
        assert (yield partial(other.acquire, timeout=0)), f"struck in step {step} it stays in line (R23)"
        yield other.release
        return struck


class Closer(Walker):
    """... in `close`, and then it closes again."""

    def _struck_in(self, step):
        client, struck = self.client, False
        yield client.masters.lock("lock-0", ttl=16.0).acquire
        client.main.interrupt_in = step
        try:
            yield client.masters.close
        except KeyboardInterrupt:
            struck, client.strikes = True, []
        client.main.interrupt_in = None
        yield client.masters.close
        client.run.closed(client)
        for master in client.judge.masters:
            master.keys.clear()  # it was held, and stays for its TTL
        client.masters = client.make()
        return struck


@proves("R11")
@pytest.mark.long
@pytest.mark.parametrize(
    "what",
    ["acquire", "refused", "extend", "level", "release", "with", "__enter__", "slots", "leads", "terms", "close"],
)
def test_struck_in_every_step(what, monkeypatch):
    """R11, in threads; `tests/asyncio/test_ways_in.py` has it for tasks."""
    kind = Closer if what == "close" else Walker
    monkeypatch.setattr(Run, "user", type("Walker", (kind,), {"what": what}))
    besides = {"preempted": 1e-9, "naps": 1e-9, "stepped": ("redlock._core", "redlock._io", "redlock._lock")}
    more = {"ttl": 16.0, "max_ttl": 16.0, "node_timeout": 0.25, "duration": 2e3, "budget": 10**6, "faults": ()}
    (walker,) = play(alone(0, threads=True, besides=besides, **more)).clients[0].users
    assert getattr(walker, "struck", 0) > 100


class Leaver(User):
    """Closes its masters while one of them refuses a release, and the next ones when that one is well again."""

    left = 0

    def life(self):
        yield from (self._refused, self._well, super().life)[self.left]()

    def _refused(self):
        client, server = self.client, self.client.servers[0]
        lock, began = client.masters.lock("lock-0", ttl=16.0), client.world.now
        hold = client.judge.given(client, (yield lock.acquire), began, None, True)
        server.master.refuses = "MISCONF"
        client.judge.ended(hold)
        yield lock.release
        client.judge.back(hold, ours=True)
        self.left = 1
        client.leave()

    def _well(self):
        self.client.servers[0].master.refuses = ""
        self.client.servers[0].well_since = self.client.world.now
        yield partial(self.client.kind.sleep, 8.0)
        self.left = 2
        self.client.leave()


@pytest.mark.parametrize("threads", [True, False], ids=["threads", "tasks"])
def test_what_was_out_of_reach_when_masters_were_closed_is_excused_when_the_next_ones_are(threads, monkeypatch):
    monkeypatch.setattr(Run, "user", Leaver)
    setting = alone(0, threads=threads, ttl=16.0, max_ttl=16.0, node_timeout=0.25, duration=64.0, faults=())
    assert play(setting).judge.unreached


class Dropper(User):
    """Has begun a coroutine by hand that has its grant, closes its masters, and throws it away."""

    dropped = False

    def life(self):
        yield from (super().life if self.dropped else self._drops)()

    def _drops(self):
        client, lock = self.client, self.client.masters.lock("lock-0", ttl=16.0)
        yield lock.acquire
        yield lock.release
        late: Any = SimpleNamespace(random=lambda: 1.0, choice=max)
        self.dropped, self.chance = True, late
        client.loop.call_later(3 * client.longest_way, client.leave)
        yield from self._dropped("lock-0", {"ttl": 16.0, "owner": "it"}, 0.0)
        self.chance = client.chance


def test_what_a_coroutine_was_granted_that_nobody_ran_before_its_masters_were_closed_is_held(monkeypatch):
    monkeypatch.setattr(Run, "user", Dropper)
    setting = alone(0, threads=False, ttl=16.0, max_ttl=16.0, node_timeout=0.25, duration=64.0, faults=())
    assert play(setting).judge.excused


@pytest.mark.broken
@pytest.mark.parametrize("name", VARIANTS)
def test_a_broken_client_is_caught(name):
    assert hunt(VARIANTS[name], MOST), f"its scene, or {MOST} seeds, have not seen: {VARIANTS[name].what}"


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_finds_what_it_breaks(name):
    for patch in VARIANTS[name].patches:
        text = text_of(patch.module)
        assert patch.applied(text) != text


def test_each_variant_stands_in_the_table():
    text = Path(__file__).parent.with_name("bench").joinpath("variants.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| (.*?) \| ", text, re.MULTILINE)
    assert rows == [(name, one.what) for name, one in VARIANTS.items()], "python -m tests.simulation --variants"
