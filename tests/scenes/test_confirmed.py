"""An expiry is confirmed by more than one clock (R35): which client is granted the name, and when (P3, P4)."""

from __future__ import annotations

import random
from contextlib import suppress
from functools import partial

import pytest
from tenacity.wait import wait_fixed

from tests.bench import scene
from tests.owners import proves

TTL = 10.0
LOCK, GRANT = "redlock:job", "{redlock:job}:grant"


# -- wrong clocks ----------------------------------------------------------------------------------------


def one_has_it(*, first, second, wrong, missed, how="lock"):
    """The ``first`` masters are out of reach of A, who has the name, and the ``second`` ones of B, who tries.

    Its second extension has ``missed`` some: there the key ends in time.  One is ``wrong``.
    ``how``: with a slot; or B wants to read.
    """
    tries: list[int] = []

    def made(masters, **options):
        return masters.slots("job", limit=1, **options) if how == "slots" else masters.lock("job", **options)

    def has(at):
        at.cut(first)
        lock = made(at.masters, ttl=TTL, auto_extend=False)
        lease = yield lock.acquire
        if missed:
            yield lock.extend
            yield at.sleep(1.0)
            at.cut(missed)
            yield lock.extend
            yield from at.until(lambda: not any(at.values()[one] for one in missed))
        at.put(LOCK + "#0" * (how == "slots"), None, masters=[wrong])  # its clock has jumped
        tries.append(wrong)
        yield from at.until(lambda: not tries)
        assert lease.valid
        at.heal([*first, *missed])
        with suppress(at.errors.LockLost):  # where the client that was refused has left the name to none
            yield lock.release

    def is_refused(at):
        at.cut(second)
        yield from at.until(lambda: tries)
        options = {"shared": True} if how == "shared" else {}
        assert (yield partial(made(at.masters, ttl=TTL, **options).acquire, timeout=0)) is None
        tries.clear()
        at.heal(second)

    return [has, is_refused]


@proves("R35")
@scene(confirm=True)
def test_kleppmanns_client_is_refused():
    """A has the name on three of five, the clock of one of these jumps, and the other two are out of B's reach."""
    return one_has_it(first=[3, 4], second=[0, 1], wrong=2, missed=[])


@scene(confirm=True, masters=3)
@pytest.mark.parametrize("how", ["lock", "slots", "shared"])
def test_kleppmanns_client_is_refused_by_three_masters(how):
    return one_has_it(first=[2], second=[0], wrong=1, missed=[], how=how)


@scene(confirm=True, masters=3)
def test_two_masters_that_show_different_extensions_are_no_two_witnesses():
    """The last extension has missed a master, where the key ends in time; the clock of another one jumps."""
    return one_has_it(first=[], second=[0], wrong=1, missed=[2])


# -- how long --------------------------------------------------------------------------------------------


def left(at, name, master, record, ends=0.0):
    """What a holder that vanished has left: the mark and the token on record, and its key for so many seconds."""
    if record is not None:
        mark, token = record.split()
        at.put(f"{{redlock:{name}}}:grant", f"{mark} {TTL * 1000:.0f} 5 {token}", masters=[master], ttl=1000.0)
        if ends > 0:
            at.put(f"redlock:{name}", token, masters=[master], ttl=ends)


def takes(at, *, most, name="job", **options):
    """TTLs until a client has the name, which it gives back at once.  99: it was refused."""
    began, lock = at.now, at.masters.lock(name, ttl=TTL, **options)
    lease = yield partial(lock.acquire, timeout=most * TTL)
    took = (at.now - began) / TTL
    if lease is not None:
        yield lock.release
    return 99.0 if lease is None else took


@pytest.mark.parametrize("masters", [3, 5, 6])
def test_a_lone_client_waits_for_two_and_a_half_ttls_at_most(masters):
    """In a state that no run may ever lead to: any records, any keys that end within a TTL."""

    @scene(confirm=True, masters=masters)
    def waits(at):
        chance = random.Random(masters)
        records = [None, "0 T", "1 T", "0 U", "r7 T", "0 expired:P", "0 expired:Q"]
        for number in range(12):
            for master in range(masters):
                ends = chance.choice([0.0, TTL, chance.uniform(0, TTL), TTL - chance.uniform(0, 0.05)])
                left(at, f"job-{number}", master, chance.choice(records), ends)
            assert (yield from takes(at, most=6, name=f"job-{number}", retry=wait_fixed(TTL / 20))) <= 2.5

    waits(world="threads")


# What is on record on three masters, which are down, and how many TTLs the next one waits at least and at most.
RECORDS = {
    "a writer": [
        (["1 T", "1 T", "1 T"], [], 0.0, 0.1), (["1 T", "1 T", "0 T"], [2], 0.0, 0.1), (["2 T", "1 T", "0 T"], [], 1.0, 1.3),
    ],
    # At once, if more clocks than one say that it is over; else after one TTL, and not after the life of a record (R33).
    "readers": [
        (["1 T", "1 T", "0 T"], [], 0.0, 0.1), (["0 T", "1 T", "2 T"], [], 1.0, 1.3), (["0 T", "1 T", "1 T"], [2], 1.0, 1.3),
    ],
}  # fmt: skip


@scene(confirm=True, masters=3)
@pytest.mark.parametrize("who", RECORDS)
def test_behind_a_client_that_keeps_no_records_or_has_vanished(at, who):
    """It has released the name, and what was on record before stays: that costs a round, or a TTL."""
    for records, down, least, most in RECORDS[who]:
        at.kill(down)
        for master, record in enumerate(records):
            left(at, "job", master, record)
        took = yield from takes(at, most=6, shared=who == "readers")
        assert least <= took < most, records
        at.start(down, remember=True)
        yield at.sleep(3.0)
        at.put(GRANT, None)
        at.put(LOCK, None)


@scene(confirm=True, masters=3)
def test_a_client_that_only_tries_waits_for_a_key_that_ends_soon(at):
    """Else its attempt leaves a phantom, a moment before it could have been told that the lease has ended."""
    for master, (record, ends) in enumerate([("1 T", 0.2), ("1 T", 0.0), ("0 T", 0.0)]):
        left(at, "job", master, record, ends)
    assert (yield from takes(at, most=0)) < 0.3 / TTL


@scene(confirm=True, masters=3)
def test_waiters_get_through_in_little_more_than_one_ttl():
    """Each is near to another master, and they leave one phantom: where each left its own, no two masters would agree."""
    names = [f"job-{number}" for number in range(6)]

    def waits(at, near):
        for master in range(3):
            at.far(master, 0.0003 if master == near else 0.004)
        if near == 1:
            yield at.sleep(0.9)
            for name in names:
                for master, (record, ends) in enumerate([("1 T", 1.0), ("1 T", 1.0), ("0 T", 0.5)]):
                    left(at, name, master, record, ends)
            at.kill([0])
        yield at.sleep(1.0 - at.now)
        took: list[float] = []

        def one(name):
            took.append((yield from takes(at, most=6, name=name, retry=wait_fixed(TTL / 5))))

        for name in names:
            yield at.begin(one(name))
        yield from at.until(lambda: len(took) == len(names))
        # One pause, the phantom and its spread of `node_timeout`, three rounds of at most that, and milliseconds.
        assert max(took) < 1 / 5 + 1 + 4 * 0.025 + 0.001, sorted(took)

    return [partial(waits, near=near) for near in (1, 2)]
