"""A lease is kept, or it is lost: when, why, who is told, and what stays (P6, R12, R13, R15, C7-C9)."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest

from tests.bench import scene
from tests.owners import proves


@proves("P6")
@scene()
def test_a_lease_that_is_not_renewed_is_lost_at_its_end(at):
    told: list[float] = []
    lock = at.masters.lock("job", ttl=1.5, auto_extend=False, on_lost=lambda _: told.append(at.now))
    began = at.now
    lease = yield lock.acquire
    assert (yield partial(lease.wait_lost, 5))
    assert at.exactly(began + 1.5 - 0.017)  # R6: less the drift; P6: no later
    yield at.sleep(0.1)
    assert len(told) == 1  # C9
    error = yield from at.raises(at.errors.LockLost, lock.release)
    assert error.reason == "expired"


@proves("C9")
@scene()
def test_a_lease_is_lost_in_time_although_every_master_hangs(at):
    told: list[float] = []
    lock = at.masters.lock("job", ttl=1.5, on_lost=lambda _: told.append(at.now))
    began = at.now
    lease = yield lock.acquire
    at.freeze()
    assert (yield partial(lease.wait_lost, 5))
    assert at.exactly(began + 1.5 - 0.017)  # P6
    assert lease.loss().reason == "unreachable"
    at.thaw()
    yield from at.raises(at.errors.LockLost, lock.release, match="could not be renewed")
    yield at.sleep(2.0)
    assert len(told) == 1
    assert at.keys() == 0  # P7


@proves("C7")
@scene()
def test_max_hold_ends_a_lease_and_gives_its_keys_back(at):
    told: list[float] = []
    lock = at.masters.lock("job", ttl=10.0, max_hold=3.0, on_lost=lambda _: told.append(at.now))
    began = at.now
    lease = yield lock.acquire
    assert (yield partial(lease.wait_lost, 10))
    assert at.exactly(began + 3.0)  # C7
    assert lease.loss().reason == "max_hold"
    yield at.sleep(0.2)
    assert len(told) == 1
    assert at.keys() == 0


@scene()
def test_an_extension_without_answers_takes_nothing_away(at):
    lock, lease = yield from at.held("job", ttl=5.0, then=0.1)
    before = lease.valid_until
    at.freeze(3)
    caught = yield from at.raises(at.errors.NotExtended, lock.extend, match="valid for another")
    assert [vote.outcome for vote in caught.votes].count("timeout") == 3
    assert lease.valid_until == before  # R13
    assert lease.valid
    at.thaw(3)
    yield at.sleep(0.5)
    assert (yield lock.extend).valid_until > before
    yield lock.release


@scene()
def test_a_lease_is_renewed_while_a_level_that_asks_for_that_is_inside(at):
    """R26: its time ran out in there, without a word."""
    lease = yield at.masters.lock("job", ttl=3.0, auto_extend=False).acquire
    inner = at.masters.lock("job", ttl=3.0)
    assert (yield inner.acquire) is lease
    yield at.sleep(10.0)
    assert lease.valid
    yield inner.release
    began = at.now
    assert (yield partial(lease.wait_lost, 5))
    assert at.now - began < 3.0


@proves("R15")
@scene()
def test_a_lease_whose_owner_has_ended_without_releasing_is_renewed_no_more(at):
    leases: list[Any] = []

    def takes():
        leases.append((yield at.masters.lock("job", ttl=1.5).acquire))

    yield from at.done(takes())
    began = at.now
    assert (yield partial(leases[0].wait_lost, 5))  # R15: the watchdog dies with its owner
    assert at.now - began < 1.5
    other = at.masters.lock("job", ttl=10.0)
    yield partial(other.acquire, timeout=5)  # P3
    yield other.release


@scene()
def test_a_hold_that_is_not_bound_outlives_its_thread_or_task_and_any_other_releases_it(at):
    lock = at.masters.lock("job", ttl=3.0, bound=False)

    yield from at.done(lock.acquire)
    yield at.sleep(10.0)
    assert lock.owned()  # C10: its renewer watches no owner
    assert (yield partial(lock.extend, 2.0)).valid
    yield from at.done(lock.release)
    assert not lock.owned()
    yield from at.raises(at.errors.NotHeld, lock.release)
    yield from at.none_left()


@scene()
def test_a_process_that_was_stopped_beyond_its_ttl_finds_its_lease_lost_at_the_first_look(at):
    told: list[float] = []
    _, lease = yield from at.held("job", ttl=1.5, on_lost=lambda _: told.append(at.now))
    stopped = at.now
    at.stop(at.client, 3.0)
    yield at.sleep(0.001)
    assert at.exactly(stopped + 3.0)
    assert not lease.valid  # P6
    assert lease.lost
    yield at.sleep(0.2)
    assert len(told) == 1


@scene()
def test_an_on_lost_that_raises_is_logged_and_ends_nothing_else(at):
    told: list[Any] = []

    def raises(_):
        raise ZeroDivisionError

    def exits(_):  # in a thread of the library there is nothing to exit from; a loop ends by it
        raise SystemExit if at.threads else ZeroDivisionError

    at.expects("ZeroDivisionError", "SystemExit")
    for name, on_lost in (("a", raises), ("b", exits), ("c", told.append)):
        yield at.masters.lock(name, ttl=1.5, auto_extend=False, on_lost=on_lost).acquire
    kept = at.masters.lock("kept", ttl=3.0)
    lease = yield kept.acquire
    yield at.sleep(10.0)
    assert len(told) == 1
    assert lease.valid
    yield kept.release


@proves("C8")
@scene()
def test_a_release_is_no_loss_in_the_log(at):
    for options in ({}, {"guard": 1.0}, {"hold_at_least": 1.0}, {"shared": True}):
        lock, _ = yield from at.held(f"job-{len(options)}-{[*options]}", ttl=3.0, **options)
        yield at.sleep(1.0)  # its renewer has looked at it: else a release takes it out before that
        yield lock.release
    yield at.sleep(10.0)
    assert at.log == []


# -- what is logged --------------------------------------------------------------------------------------


def losses(at):
    return [text for text in at.log if "was lost" in text]


@scene()
@pytest.mark.parametrize(("what", "options", "how", "ran"), [
    ("it expires", {}, "it expired", True),
    ("it is released too late", {}, "it expired", True),
    ("its thread or task has ended", {"auto_extend": True}, "it expired", False),
    ("it is taken", {"auto_extend": True}, "another client holds it", True),
    ("it is taken", {"auto_extend": True, "shared": True}, "another client holds it", True),
    ("it is found taken", {}, "another client holds it", True),
    ("it is found gone", {}, "it expired", False),
    ("all hang", {"auto_extend": True}, "it could not be renewed in time", True),
    ("it lasts", {"max_hold": 0.5}, "max_hold was reached", True),
])  # fmt: skip
def test_a_loss_is_logged_once_with_its_reason_and_whether_its_body_still_ran(at, what, options, how, ran):
    lock = at.masters.lock("job", owner="web-3/17", **{"ttl": 3.0, "auto_extend": False, **options})
    if "ended" in what:
        yield from at.done(lock.acquire)
    else:
        yield lock.acquire
    yield at.sleep(0.1)
    if "taken" in what or "gone" in what:
        at.put("redlock:job", None if "gone" in what else "another")
    if "found" in what:
        yield from at.raises(at.errors.LockLost, lock.release if "gone" in what else lock.extend)
    at.freeze(5 if what == "all hang" else 0)
    yield at.sleep(4.0)
    at.thaw()
    if "late" in what:
        yield from at.raises(at.errors.LockLost, lock.release)
    yield at.sleep(1.0)
    (text,) = losses(at)
    assert text.startswith(f"WARNING the lease on 'job' was lost: {how}")
    assert "by web-3/17" in text
    assert f"fencing token {lock.lease.fence}" in text
    assert ("its body still ran" in text, "its body had ended" in text) == (ran, not ran)
    assert not re.search("[0-9a-f]{40}", text)  # a token releases


@scene()
@pytest.mark.parametrize("slot", [True, False])
def test_a_slot_and_several_names_are_one_lease_in_the_log(at, slot):
    options: dict[str, Any] = {"ttl": 1.5, "auto_extend": False}
    lock = at.masters.slots("a", limit=1, **options) if slot else at.masters.lock(["a", "b"], **options)
    yield lock.acquire
    yield at.sleep(4.0)
    (text,) = losses(at)
    assert ("'a#0'" if slot else "'a, b'") in text
    assert "held for 1.5 s" in text


@scene()
def test_a_loss_that_is_found_right_before_masters_are_closed_is_told_and_logged(at):
    told: list[Any] = []
    lock, _ = yield from at.held("job", on_lost=told.append, then=0.1)
    at.put("redlock:job", None)
    yield from at.raises(at.errors.LockLost, lock.release)
    yield at.masters.close
    yield at.sleep(0.1)
    assert len(losses(at)) == len(told) == 1  # C9
