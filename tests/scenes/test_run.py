"""`redlock-run`: its command has ended before its lease is over, and what becomes of the lock then (P6, C23, R36)."""

from __future__ import annotations

import pytest

from tests.bench import scene
from tests.owners import proves

MARGIN = 0.4  # of a TTL of eight seconds: SIGKILL comes so much before its end
one = scene(worlds=["threads"])


@proves("C23")
@one
def test_a_command_that_does_not_heed_sigterm_is_killed_before_its_lease_is_over_where_all_masters_hang(at):
    run = at.run("job", "--ttl", "8", "--grace", "2")
    yield from at.until(lambda: run.works)
    yield at.sleep(20.0)
    at.freeze()
    until = run.true_time(run.lease.valid_until) - MARGIN
    yield from at.until(lambda: run.done)
    assert at.exactly(until - 2.0)
    assert run.works
    yield from at.until(lambda: not run.works)
    assert at.exactly(until)
    at.thaw()
    yield from at.until(lambda: run.exited)
    assert run.code == 70


@one
def test_max_hold_is_how_long_a_command_may_run_and_nobody_else_has_the_lock_during_its_grace(at):
    run = at.run("job", "--ttl", "8", "--grace", "2.5", "--max-hold", "3", obeys=1.0)
    yield from at.until(lambda: run.works, tick=0.001)
    began = at.now
    yield from at.until(lambda: run.done)
    assert at.exactly(began + 3.0)  # not the time that is left of it when the grace is taken off
    yield at.sleep(0.9)
    assert at.keys() == 5  # P1
    yield from at.until(lambda: not run.works)
    assert at.exactly(began + 4.0)
    yield from at.until(lambda: run.exited)
    assert run.code == 70
    yield from at.none_left()  # it is released, not left to its TTL


@one
def test_masters_that_hang_during_the_grace_of_max_hold_do_not_lengthen_it(at):
    run = at.run("job", "--ttl", "8", "--grace", "4", "--max-hold", "7")
    yield from at.until(lambda: run.works)
    began = at.now
    yield at.sleep(2.0)
    at.freeze()
    until = run.true_time(run.lease.valid_until) - MARGIN
    assert until < began + 10.0  # the end of the lease is sooner (P1)
    yield from at.until(lambda: not run.works)
    assert at.exactly(until)
    at.thaw()


@one
def test_nothing_ends_what_a_command_has_left_behind_while_the_lock_is_released(at):
    run = at.run("job", "--ttl", "8", "--grace", "2", "--node-timeout", "2.6", lasts=5.4)
    yield from at.until(lambda: run.works)
    yield at.sleep(2.0)
    at.freeze()  # before it is renewed
    until = run.true_time(run.lease.valid_until)
    yield from at.until(lambda: not run.works)
    assert until - at.now < 2.6  # the release takes longer, as nobody answers
    yield from at.until(lambda: run.exited)
    assert at.now > until - MARGIN
    assert not run.done
    assert run.code == 0
    at.thaw()


@pytest.mark.parametrize("mode", [[], ["--shared"], ["--slots", "1"], ["--hold-at-least", "1"], ["--confirm-expiry"]])
@pytest.mark.parametrize("why", ["max-hold", "outage"])
@scene(worlds=["threads"], slots=1)
def test_after_a_loss_the_name_stays_taken_for_the_guard_and_not_for_a_whole_ttl_more(at, why, mode):
    """R36: what the command has under way gets that time to arrive."""
    held = ["--max-hold", "0.2"] if why == "max-hold" else []
    run = at.run("job", "--ttl", "12", "--guard", "6", "--grace", "1", *mode, *held, obeys=0.0)
    yield from at.until(lambda: run.works)
    if why == "outage":
        at.freeze(3)
    yield from at.until(lambda: not run.works)
    ended = at.now
    yield from at.until(lambda: run.exited)
    assert run.code == 70
    left = at.left("redlock:job#0" if "--slots" in mode else "redlock:job")[3 if why == "outage" else 0 :]
    # A reader cannot keep the name so: its last renewal counts.
    longest = 18.2 if "--shared" in mode else 6.1
    assert all(6.0 <= at.now - ended + seconds <= longest for seconds in left), (left, at.now - ended)
    yield at.sleep(20.0)
    at.thaw()
