"""A lease goes on in another process, and nothing of it is left in the first one (C11, R46)."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from tests.bench import scene
from tests.owners import proves

TTL = 4.0


@proves("C11")
@scene()
def test_who_hands_a_lease_over_hears_no_alarm_one_ttl_later():
    """Whoever has it goes on for as long as it takes, and gives it to the next one."""
    handed: list[str] = []
    told: list[Any] = []

    def gives(at):
        lock = at.masters.lock("job", ttl=TTL, on_lost=told.append)

        def body(lease):
            yield at.sleep(1.2 * TTL)  # it was renewed
            handed.append(lease.hand_over())
            assert (lease.valid, lease.lost) == (False, False)
            yield at.sleep(2 * TTL)

        yield at.within(lock, body)
        yield at.sleep(TTL)
        assert (told, at.log) == ([], [])

    def takes(at):
        yield from at.until(lambda: handed)

        def body(lease):
            assert lease.valid  # extended already
            yield at.sleep(3 * TTL)
            assert (lease.valid, at.keys()) == (True, 5)

        yield at.within(at.masters.resume(handed[0]), body)
        yield from at.none_left()

    return [gives, takes]


@scene()
@pytest.mark.parametrize("bound", [True, False], ids=["bound", "not bound"])
@pytest.mark.parametrize("auto_extend", [True, False], ids=["renewed", "not renewed"])
def test_a_text_that_is_lost_leaves_the_name_for_one_ttl(at, bound, auto_extend):
    """Nothing is renewed, given back or told of; the lease and its lock say that it has ended."""
    told: list[Any] = []
    lock = at.masters.lock("job", ttl=TTL, bound=bound, auto_extend=auto_extend, on_lost=told.append)
    began = at.now

    def body(lease):
        yield at.sleep(TTL / 5)  # before its first renewal
        lease.hand_over()
        assert not lock.owned()
        for call in (lock.release, lock.extend):
            yield from at.raises(at.errors.NotHeld, call)
        assert (yield lease.wait_lost) is False
        with pytest.raises(at.errors.LockLost, match="handed over"):
            lease.hand_over()
        yield from at.until(lambda: at.keys() == 0)
        assert at.exactly(began + TTL)
        yield at.sleep(TTL)
        assert (lease.valid, lease.lost, lease.remaining()) == (False, False, 0.0)

    yield at.within(lock, body)
    assert (told, at.log) == ([], [])


@scene()
@pytest.mark.parametrize("extended", [0, 2])  # besides
@pytest.mark.parametrize("lags", [0.01, 0.2, 1.0, 8.0])
def test_the_release_of_another_process_comes_before_the_acquire(lags, extended):
    """R10, P7: what order no connection keeps, for the way of the first process to one master is slow."""
    handed: list[str] = []
    released: list[float] = []

    def gives(at):
        yield partial(at.masters.status, "job")
        at.cut([4], answers=False)
        lease = yield at.masters.lock("job", ttl=10.0).acquire
        handed.append(lease.hand_over())
        yield from at.until(lambda: released)
        yield at.sleep(lags)
        at.heal([4], answers=False)
        yield from at.until(lambda: at.keys() == 1, tick=0.0005)  # the acquire
        yield at.sleep(8 * 0.25)  # the longest pause
        assert at.keys() == 0

    def takes(at):
        yield from at.until(lambda: handed)
        lock = at.masters.resume(handed[0])
        yield lock.acquire
        for _ in range(extended):  # a master that answers last gets the key back one extension later
            yield lock.extend
            yield at.sleep(0.1)
        yield lock.release
        released.append(at.now)

    return [gives, takes]


@scene()
def test_a_token_that_came_another_way_is_kept_by_both_until_one_releases():
    given: list[Any] = []
    released: list[float] = []

    def gives(at):
        lock, lease = yield from at.held("job", ttl=TTL)
        given.append(lease)
        yield from at.until(lambda: released)
        assert lease.valid
        yield partial(lease.wait_lost, TTL)
        assert at.now - released[0] < TTL / 2  # R13: at its next renewal
        assert lease.loss().reason == "expired"
        yield from at.raises(at.errors.LockLost, lock.release)

    def takes(at):
        yield from at.until(lambda: given)
        lock = at.masters.resume("job", token=given[0].token, fence=given[0].fence, ttl=TTL)
        assert (lock.lease, lock.owned()) == (None, False)
        lease = yield lock.acquire
        yield at.sleep(2 * TTL)
        assert (lock.owned(), lease.fence) == (True, given[0].fence)
        yield lock.release
        released.append(at.now)

    return [gives, takes]


def gives(handed, **options):
    """Takes the lock, and hands it over at once."""

    def life(at):
        lease = yield at.masters.lock("job", ttl=TTL, **options).acquire
        handed.append(lease.hand_over())

    return life


@proves("R46")
@scene()
def test_whoever_resumes_too_late_or_with_another_token_is_told_that_it_is_lost():
    """And takes nothing: the next holder has the name, and keeps it."""
    handed: list[str] = []
    told: list[Any] = []

    def late(at):
        yield from at.until(lambda: handed)
        yield from at.until(lambda: at.keys() == 0)
        resumed = at.masters.resume(handed[0], on_lost=told.append)
        yield from at.raises(at.errors.LockLost, at.within(resumed), match="it expired")
        lease = yield at.masters.lock("job", ttl=TTL).acquire
        others = at.masters.resume("job", token="0" * 40, fence=lease.fence, ttl=TTL)
        for one in (resumed, others):
            yield from at.raises(at.errors.LockLost, one.acquire, match="another client holds it")
            assert not one.owned()
        yield at.sleep(2 * TTL)
        assert (lease.valid, at.values(), told) == (True, [lease.token] * 5, [])

    return [gives(handed), late]


@scene()
def test_without_a_quorum_it_cannot_be_told_and_is_tried_again():
    handed: list[str] = []

    def takes(at):
        yield partial(at.masters.status, "job")
        yield from at.until(lambda: handed)
        lock, began = at.masters.resume(handed[0]), at.now
        at.freeze(3)
        yield from at.raises(at.errors.QuorumUnreachable, lock.acquire, match="try again before its TTL has passed")
        assert at.exactly(began + 0.25)
        at.thaw(3)
        yield at.sleep(0.5)
        assert (yield lock.acquire).valid
        yield lock.release

    return [gives(handed), takes]


@scene()
def test_readers_hand_over_as_readers():
    """R33; a token does not say what it is, and in the wrong mode nothing changes."""
    handed: list[str] = []

    def takes(at):
        yield from at.until(lambda: handed)
        token = json.loads(handed[0])["token"]
        wrong = at.masters.resume("job", token=token, ttl=TTL)
        yield from at.raises(at.errors.ConfigurationError, wrong.acquire, "belongs to a reader: resume it with shared")
        lock = at.masters.resume(handed[0])
        assert (yield lock.acquire).shared
        assert (yield partial(at.masters.status, "job")).shared == (token,)
        yield lock.release

    return [gives(handed, shared=True), takes]


@scene()
def test_what_is_left_of_hold_at_least_is_kept_by_the_next_holder():
    """R28."""
    handed: list[str] = []
    began: list[float] = []

    def takes(at):
        began.append(at.now)
        yield from at.until(lambda: handed)
        yield at.within(at.masters.resume(handed[0]))
        assert at.keys() == 5
        yield at.masters.lock("job", ttl=TTL).acquire
        assert at.exactly(began[0] + 3.0 + 0.032)

    return [gives(handed, hold_at_least=3.0), takes]


@scene()
def test_an_extension_under_way_of_the_first_process_takes_no_time_from_the_next_one():
    """Its shorter TTL comes to three masters behind the first extension of the next process."""
    handed: list[str] = []

    def gives(at):
        lock, lease = yield from at.held("job", ttl=20.0, auto_extend=False, bound=False)
        at.cut(3)
        job = yield at.begin(at.raises(at.errors.LockLost, partial(lock.extend, TTL)))
        yield at.sleep(0.1)
        handed.append(lease.hand_over())
        yield from at.until(lambda: at.over(job))
        yield at.sleep(1.0)
        at.heal(3)

    def takes(at):
        yield from at.until(lambda: handed)
        lock = at.masters.resume(handed[0], auto_extend=False)
        lease = yield lock.acquire
        yield at.sleep(2.0)  # by then it has come
        assert lease.ttl == TTL
        assert sum(left > lease.remaining() for left in at.left()) == 5
        yield lock.release

    return [gives, takes]
