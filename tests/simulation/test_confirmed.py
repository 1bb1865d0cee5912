"""How long a name is blocked where an expiry is confirmed by more than one clock (R35, P3, P4), and who is let in."""

from __future__ import annotations

import random
from typing import Any
from unittest import mock

import pytest

from redlock import scripts
from redlock._core import retry, wire
from redlock._core.confirm import ConfirmingBallot, ConfirmingTarget, PhantomRound
from redlock._core.effects import Send
from tests.simulation.actor import Actor
from tests.simulation.invariants import PREFIX
from tests.simulation.master import Key
from tests.simulation.network import ANSWERS, REQUESTS, Link
from tests.simulation.scene import client_of, quiet
from tests.simulation.variants import script

TTL = 30.0
KEYS = wire.keys_for(PREFIX, ["a"], records=True)


class Waiter(Actor):
    """Tries once, or waits, and notes when it was granted the name, in TTLs.  It releases at once."""

    def __init__(self, client: Any, granted: list[float]) -> None:
        super().__init__(client)
        self._granted = granted

    def _acquired(self, task: Any, outcome: Any, interrupted: BaseException | None) -> None:
        super()._acquired(task, outcome, interrupted)
        if self.acquired:
            self._granted.append(self.world.now / TTL)


class Keeper(Actor):
    """Keeps what it gets."""

    def _plan_hold(self, *_: Any) -> None:
        pass


def stage(masters: int, eager: float = 0.05) -> Any:
    run = quiet(masters=masters, confirm=True, node_timeout=1.0, eager=eager)
    run.world.run(1.0)
    return run


def put(run: Any, master: int, record: tuple[str, str] | None, ends: float | None = None) -> None:
    """``record``: a mark and a token.  ``ends``: the key of that token goes so many seconds from now."""
    there = run.masters[master]
    now = there.tick()
    if record is not None:
        mark, token = record
        there.keys[KEYS.grants[0]] = Key(f"{mark} {TTL * 1000:.0f} 5 {token}", now + 10**9)
        if ends is not None and ends > 0:
            there.keys[KEYS.locks[0]] = Key(token, now + round(ends * 1000))


# -- Kleppmann's story -----------------------------------------------------------------------------------------------


def kleppmann(*, confirm: bool) -> bool:
    """A has the name on 1, 2 and 3.  The clock of 3 jumps, 4 and 5 are back, 1 and 2 are cut off.  Whether B is let in."""
    run = quiet(masters=5, confirm=confirm, node_timeout=1.0, eager=0.02, faults=(("jump", 1.0),))  # P1 is not judged
    a, b = client_of(run), client_of(run)
    for client, masters in ((a, (3, 4)), (b, (0, 1))):
        for master in masters:
            client.links[master].cut(REQUESTS, ANSWERS)
    holder, other = Keeper(a), Keeper(b)
    holder.acquire(["a"], TTL, 0.0)
    run.world.run(run.world.now + 2.0)
    assert holder.acquired
    run.masters[2].step(2 * TTL)
    other.acquire(["a"], TTL, 0.0)
    run.world.run(run.world.now + 4.0)
    assert holder.hold is not None
    assert holder.hold.lease.valid
    return bool(other.acquired)


def test_kleppmann_is_refused():
    assert not kleppmann(confirm=True)


def test_without_this_rule_he_is_let_in():
    assert kleppmann(confirm=False)


def restarted() -> bool:
    """A has the name on 2 and 3.  2 restarts empty, and its clock jumps.  Whether B is let in, who has met none of them before."""
    run = quiet(masters=3, guard=True, node_timeout=1.0, eager=0.02)
    a = client_of(run)
    a.links[0].cut(REQUESTS, ANSWERS)
    holder = Keeper(a)
    holder.acquire(["a"], TTL, 0.0)
    run.world.run(run.world.now + 2.0)
    assert holder.acquired
    run.masters[1].stop()
    run.masters[1].start(remember=False)
    run.masters[1].step(4 * TTL)
    other = Keeper(client_of(run))
    other.acquire(["a"], TTL, 0.0)
    run.world.run(run.world.now + 4.0)
    return bool(other.acquired)


def test_an_uptime_by_a_clock_that_is_ahead_counts_for_less():
    """R21: most masters have another time, so it may have been up for hardly any."""
    assert not restarted()


# -- how long ----------------------------------------------------------------------------------------------------------


def blocked(masters: int, seed: int) -> float:
    """How long a lone client waits in a state that no run may ever lead to: any records, any keys that end in a TTL."""
    run, chance = stage(masters), random.Random(f"{masters} {seed}")
    marks = [None, ("0", "T"), ("1", "T"), ("0", "U"), ("r7", "T"), ("0", "expired:P"), ("0", "expired:Q")]
    for master in range(masters):
        ends = chance.choice([None, TTL, chance.uniform(0, TTL), TTL - chance.uniform(0, 0.05)])
        put(run, master, chance.choice(marks), ends)
    granted: list[float] = []
    before = run.world.now / TTL
    client = client_of(run)
    Waiter(client, granted).acquire(["a"], TTL, 6 * TTL)
    run.world.run(run.world.now + 6 * TTL)
    return granted[0] - before if granted else 99.0


@pytest.mark.parametrize("masters", [3, 5, 6])
def test_a_lone_client_waits_for_two_and_a_half_ttls_at_most(masters):
    assert max(blocked(masters, seed) for seed in range(15)) <= 2.5


def crowded(seed: int) -> float:
    """Thirty wait for a name whose holder has vanished.  Its last extension missed a master, and one is down now.

    Returns the TTLs from the end of the lease to the next grant.
    """
    run, chance = stage(3, eager=0.2), random.Random(f"crowd {seed}")
    for master in range(3):
        put(run, master, ("0" if master == 2 else "1", "T"), TTL * (2 / 3 if master == 2 else 1.0))
    run.masters[0].stop()

    def delay(link: Link) -> float:
        """Each client is near to one master."""
        far = abs(run.clients.index(link.client) % 3 - link.master.index) if link.client in run.clients else 0
        return 0.0003 if not far else (0.005 + 0.012 * far) * chance.uniform(1.0, 1.05)

    granted: list[float] = []
    with mock.patch.object(Link, "delay", delay), mock.patch.object(retry, "chance", chance):
        for client in [client_of(run) for _ in range(30)]:
            run.world.after(chance.uniform(0.0, 0.5), Waiter(client, granted).acquire, ["a"], TTL, 20 * TTL)
        while not granted and run.world.now < 4 * TTL:
            run.world.run(run.world.now + TTL / 4)
    return granted[0] - 1.0 if granted else 99.0


def anywhere() -> Any:
    """A phantom goes to all masters at once, and each client is nearest to another one."""
    correct = ConfirmingBallot.place_phantom

    def place_phantom(ballot: Any, spec: Any, token: str, at: float) -> Any:
        for effect in correct(ballot, spec, token, at):
            if isinstance(effect, PhantomRound):
                there = {one for one in range(3) if ballot.tally.outcome(one) == "granted" or one in ballot.shown}
                yield Send(effect.call, to=frozenset(there))
                return
            yield effect

    return mock.patch.object(ConfirmingBallot, "place_phantom", place_phantom)


def test_a_crowd_gets_through_in_little_more_than_one_ttl():
    """One phantom, for they all leave it on the same master first."""
    assert max(crowded(seed) for seed in (0, 6, 10)) <= 1.2


@pytest.mark.parametrize("seed", [6, 10])
def test_where_a_phantom_goes_anywhere_first_a_crowd_splits_it(seed):
    """Nobody's is on f + 1 masters then, and after one TTL all begin anew."""
    with anywhere():
        assert crowded(seed) > 2.0


def released_without_it(*marks: str, down: int = 3) -> float:
    """TTLs until the next one has it, after a client that keeps no records has released it: what is on record stays."""
    run = stage(3)
    for master, mark in enumerate(marks):
        put(run, master, (mark, "T"))
    for master in run.masters[down:]:
        master.stop()
    granted: list[float] = []
    before = run.world.now / TTL
    Waiter(client_of(run), granted).acquire(["a"], TTL, 6 * TTL)
    run.world.run(run.world.now + 6 * TTL)
    return granted[0] - before if granted else 99.0


def test_what_a_client_without_it_has_released_costs_a_round_or_a_ttl():
    assert released_without_it("1", "1", "1") < 0.1
    assert released_without_it("1", "1", "0", down=2) < 0.1
    assert 1.0 <= released_without_it("2", "1", "0") < 1.3


def test_a_phantom_that_is_not_confirmed_itself_is_left_again_and_again():
    """What the bound of two and a half TTLs rests on: f + 1 masters show the same phantom."""
    of_each_another = ("'0 ' .. ttl", "'r' .. redis.call('TIME')[2] .. ' ' .. ttl")
    with script(scripts.SETTLE, of_each_another):
        assert released_without_it("2", "1", "0") > 2.5


def late() -> float:
    """One master's key ends a moment after the others': seconds that one who only tries waits for it; 99: in vain."""
    run = stage(3)
    for master, (mark, ends) in enumerate([("1", 0.2), ("1", -0.5), ("0", -0.5)]):
        put(run, master, (mark, "T"), ends)
    granted: list[float] = []
    before = run.world.now
    Waiter(client_of(run), granted).acquire(["a"], TTL, 0.0)
    run.world.run(run.world.now + 3 * TTL)
    return granted[0] * TTL - before if granted else 99.0


def test_a_key_that_ends_soon_is_waited_for():
    """Else the attempt leaves a phantom, a moment before it could have been told."""
    assert late() < 1.0
    with mock.patch.object(ConfirmingTarget, "_again", property(lambda _: True, lambda *_: None)):
        assert late() == 99.0


# -- readers (R33) -------------------------------------------------------------------------------------------------------


class Reader(Waiter):
    """Wants to read."""

    def _reads(self) -> bool:
        return True


def reads_after(*records: tuple[str, str], down: int = 3) -> float:
    """TTLs until a reader gets in, behind a writer that vanished: these are its records."""
    run = quiet(masters=3, confirm=True, node_timeout=1.0, eager=0.05, readers=1.0)
    run.world.run(1.0)
    for master, record in enumerate(records):
        put(run, master, record)
    for master in run.masters[down:]:
        master.stop()
    granted: list[float] = []
    before = run.world.now / TTL
    Reader(client_of(run), granted).acquire(["a"], TTL, 4 * TTL)
    run.world.run(run.world.now + 4 * TTL)
    return granted[0] - before if granted else 99.0


def test_readers_come_in_behind_a_writer_that_vanished():
    """At once, if more clocks than one say that it is over; else after one TTL, and not after the life of a record."""
    assert reads_after(("1", "T"), ("1", "T"), ("0", "T")) < 0.1
    assert 1.0 <= reads_after(("0", "T"), ("1", "T"), ("2", "T")) < 1.3
    assert 1.0 <= reads_after(("0", "T"), ("1", "T"), ("1", "T"), down=2) < 1.3
    with (
        mock.patch.object(ConfirmingBallot, "confirmed", property(lambda ballot: False)),
        mock.patch.object(ConfirmingBallot, "place_phantom", return_value=()),
    ):
        assert reads_after(("1", "T"), ("1", "T"), ("0", "T")) == 99.0, "as long as there is a record"
