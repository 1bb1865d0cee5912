"""A lock that nobody else gets for a while after a grant, whatever becomes of its holder (R28)."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time

import pytest
from tenacity.wait import wait_fixed

import redlock
from redlock import ConfigurationError, LockLost, NotAcquired, QuorumUnreachable
from tests.servers.commands import CHECK, RUN, environment, run
from tests.servers.look import all_up, eventually, kill, lock_keys, nothing_left, take

NEW = "--no-restart-guard"
LEAST = 1.5  # seconds
# Takes the lock, says when it began to, and is killed there; or gives it back, and is killed then.
JOB = """
import sys, time, redlock
urls, least, release = sys.argv[1].split(","), float(sys.argv[2]), sys.argv[3] == "after"
with redlock.Masters(urls, restart_guard=False) as masters:
    lock = masters.lock("job", ttl=3.0, hold_at_least=least)
    began = time.monotonic()
    lock.acquire()
    if release:
        lock.release()
    print(began, flush=True)
    sys.stdin.read()
"""


def values(servers) -> list[str]:
    return [keys["redlock:job"][0] for keys in servers.keys() if keys and "redlock:job" in keys]


def next_grant(world, servers, **options) -> float:
    """When somebody else gets it who tries all the time."""
    with world.Masters(servers.urls, restart_guard=False) as others:
        lock = others.lock("job", ttl=10, retry=wait_fixed(0.005), **options)
        take(lock, timeout=30)
        at = time.monotonic()
        lock.release()
    return at


def test_a_release_before_that_gives_it_to_nobody(world, redlock_servers, masters):
    eventually(lambda: all_up(masters))
    lock = masters.lock("job", ttl=10, hold_at_least=LEAST)
    began = time.monotonic()
    lease = take(lock)
    lock.release()
    assert not lease.valid
    assert not lease.lost
    assert next_grant(world, redlock_servers) - began > LEAST
    eventually(lambda: nothing_left(redlock_servers))


def test_who_waits_comes_back_then_and_not_at_the_end_of_the_ttl(world, redlock_servers, masters):
    eventually(lambda: all_up(masters))
    lock = masters.lock("job", ttl=60, hold_at_least=LEAST, owner="web-3/7")
    take(lock)
    lock.release()
    clients = [redlock_servers.client(i) for i in range(5)]
    eventually(lambda: all((client.get("redlock:job") or b"released:").startswith(b"released:") for client in clients))
    began = time.monotonic()
    with world.Masters(redlock_servers.urls, restart_guard=False) as others:
        eventually(lambda: all_up(others))
        waiter = others.lock("job", ttl=60, retry=wait_fixed(60))  # only what it was told brings it back
        take(waiter, timeout=40)
        assert time.monotonic() - began < 30
        waiter.release()


def test_who_is_refused_is_told_why_and_for_how_long(world, redlock_servers, masters):
    eventually(lambda: all_up(masters))
    lock = masters.lock("job", ttl=30, hold_at_least=20, owner="web-3/7")
    lease = take(lock)
    lock.release()
    assert lock.acquire(timeout=0) is None  # not even the one who had it
    with pytest.raises(NotAcquired) as caught, masters.lock("job", timeout=0.0):
        pass
    assert re.search(r"released by web-3/7, and kept from others for up to \d+\.\d s$", caught.value.message)
    refused = [vote.reason for vote in caught.value.votes if vote.outcome == "held"]
    assert refused[0].startswith(f"released by web-3/7 ({lease.token[:8]}…), and kept from others for ")
    status = masters.status("job")
    assert status.released
    assert (status.token, status.owner) == (f"released:{lease.token}", "web-3/7")
    assert 0 < status.remaining < 20.3
    assert masters.lock("job").locked()
    with masters.lock("other"):
        assert not masters.status("other").released
    assert not masters.status("free").released


def test_what_was_released_is_no_lease_that_could_be_resumed(redlock_servers, masters):
    """A token that was copied from a status: it would extend the time, or give the name away early."""
    eventually(lambda: all_up(masters))
    take(lock := masters.lock("job", ttl=30, hold_at_least=20))
    lock.release()
    seen = masters.status("job").token
    assert seen.startswith("released:")
    with pytest.raises(ConfigurationError, match="allowed is the token of a lease"):
        masters.lock("job", token=seen)
    assert masters.status("job").released


def test_nobody_is_told_of_such_a_release(redlock_servers):
    """There is nothing to take yet (R24)."""
    with redlock.Masters(redlock_servers.urls, restart_guard=False) as masters:
        pubsub = redlock_servers.client(0).pubsub()
        pubsub.subscribe("redlock:job:released")
        assert pubsub.get_message(timeout=5)["type"] == "subscribe"
        with masters.lock("job", ttl=10, hold_at_least=5):
            pass
        eventually(lambda: values(redlock_servers)[:1] and values(redlock_servers)[0].startswith("released:"))
        assert pubsub.get_message(timeout=0.2) is None
        pubsub.close()


@pytest.mark.parametrize("when", ["before", "after"])
def test_whose_holder_is_killed(world, redlock_servers, when):
    """Right before its release the lease protects, right after it what the release left."""
    with subprocess.Popen(
        [sys.executable, "-c", JOB, ",".join(redlock_servers.urls), str(LEAST), when],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(),
    ) as job:  # fmt: skip
        assert job.stdout is not None
        began = float(job.stdout.readline())  # all processes have this clock
        job.send_signal(signal.SIGKILL)
    assert next_grant(world, redlock_servers) - began > (LEAST if when == "after" else 2.9)
    eventually(lambda: nothing_left(redlock_servers))


def test_an_attempt_that_fails_leaves_nothing(redlock_servers, masters):
    """A rollback deletes, as always."""
    eventually(lambda: all_up(masters))
    kill(redlock_servers, 3)
    with pytest.raises(QuorumUnreachable):
        masters.lock("job", ttl=30, hold_at_least=20).acquire(timeout=0)
    eventually(lambda: not any(lock_keys(redlock_servers)[3:]), 5)


def test_a_lease_that_was_held_for_too_long_is_kept_as_well(world, redlock_servers, masters):
    """C7: its keys are given back, and nobody gets them before the time."""
    lock = masters.lock("job", ttl=10, max_hold=0.2, hold_at_least=LEAST)
    began = time.monotonic()
    lease = take(lock)
    eventually(lambda: lease.lost)
    assert next_grant(world, redlock_servers) - began > LEAST
    with pytest.raises(LockLost):
        lock.release()


def test_the_token_owns_nothing_any_more(redlock_servers, masters):
    eventually(lambda: all_up(masters))
    lock = masters.lock("job", ttl=30, hold_at_least=20, auto_extend=False)
    lease = take(lock)
    other = masters.lock("job", token=lease.token, fence=lease.fence)
    lock.release()
    with pytest.raises(LockLost) as caught:
        other.extend()
    assert caught.value.reason == "expired"
    assert any("it was released" in vote.reason for vote in caught.value.votes)
    assert all(value == f"released:{lease.token}" for value in values(redlock_servers))


def test_a_lease_that_was_handed_over_is_kept_by_whoever_releases_it(redlock_servers, masters):
    eventually(lambda: all_up(masters))
    giver = masters.lock("job", ttl=30, auto_extend=False)
    lease = take(giver)
    other = masters.lock("job", ttl=30, token=lease.token, fence=lease.fence, hold_at_least=10)
    other.extend()
    other.release()
    eventually(lambda: values(redlock_servers) == [f"released:{lease.token}"] * 5)


def test_a_job_runs_at_most_once_in_a_period(redlock_servers):
    """On two machines whose clocks are apart; see docs/howto/once-per-period.md."""
    period, apart, grace, count = 1.5, 0.45, 0.2, 4
    least = 0.7  # more than `apart` and `grace`, less than the period less both
    first = int(time.time() / period) + 3  # both have started by then, unless this machine is very busy
    machines = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.servers.periods",
             *map(str, (ahead, period, least, grace, first, count)), *redlock_servers.urls],
            stdout=subprocess.PIPE, text=True, env=environment(),
        ) for ahead in (0.0, apart)
    ]  # fmt: skip
    ran = [int(number) for machine in machines for number in machine.communicate(timeout=120)[0].split()]
    assert [machine.returncode for machine in machines] == [0, 0]
    assert len(ran) == len(set(ran)), sorted(ran)
    assert set(ran) <= set(range(first, first + count))


# -- entered again (R26) -----------------------------------------------------------------------------


def test_the_last_release_keeps_it_whichever_lock_that_goes_through(redlock_servers, masters):
    eventually(lambda: all_up(masters))
    outer, inner = masters.lock("job", ttl=30, hold_at_least=20), masters.lock("job", ttl=30)
    take(outer)
    take(inner)
    outer.release()
    assert not values(redlock_servers)[0].startswith("released:")
    inner.release()
    eventually(lambda: [value[:9] for value in values(redlock_servers)] == ["released:"] * 5)


# -- the commands ------------------------------------------------------------------------------------


def test_who_asks_for_more_than_the_lease_has_is_refused(masters):
    with masters.lock("job", ttl=30, hold_at_least=5):
        with masters.lock("job", ttl=30, hold_at_least=5), masters.lock("job", ttl=30, hold_at_least=1):
            pass
        with pytest.raises(ConfigurationError, match="with hold_at_least=5, and asks for hold_at_least=6"):
            masters.lock("job", ttl=30, hold_at_least=6).acquire()


def test_it_cannot_be_extended_to_less(masters):
    lock = masters.lock("job", ttl=30, hold_at_least=5)
    lease = take(lock)
    with pytest.raises(ConfigurationError, match=r"ttl=4: allowed is at least hold_at_least \(5 s\)"):
        lock.extend(4)
    assert lease.ttl == 30
    lock.extend(5)
    lock.release()


def test_redlock_run_runs_once_in_a_period(redlock_servers):
    command = [*RUN, NEW, "job", "--no-wait", "--hold-at-least", "40", "--verbose", "--owner", "cron-1"]
    first = run([*command, "--", "echo", "ran"], redlock_servers.urls)
    assert (first.returncode, first.stdout) == (0, "ran\n"), first.stderr
    assert "TTL 40 s" in first.stderr  # at least that
    assert re.search(r"released 'job'; nobody else gets it for another \d+\.\d s", first.stderr)
    second = run([*command, "--", "echo", "ran"], redlock_servers.urls)
    assert (second.returncode, second.stdout) == (75, ""), second.stderr
    assert re.search(r"'job' was released by cron-1, and nobody gets it for \d+\.\d s more", second.stderr)
    listed = run([*CHECK, NEW, "--held"], redlock_servers.urls)
    assert re.search(r"^job +cron-1, released +\d+\.\d s +[345] of 5 +0$", listed.stdout, re.MULTILINE), listed.stdout


@pytest.mark.parametrize(("options", "said"), [
    (["--hold-at-least", "20", "--ttl", "10"], "--hold-at-least 20: allowed is at most --ttl, 10 s"),
    (["--hold-at-least", "100"], "--hold-at-least 100: allowed is at most max_ttl, 60 s"),
    (["--hold-at-least", "-1"], "--hold-at-least"),
])  # fmt: skip
def test_redlock_run_refuses_more_than_the_ttl(redlock_servers, options, said):
    done = run([*RUN, NEW, "job", *options, "--", "echo", "ran"], redlock_servers.urls)
    assert (done.returncode, done.stdout) == (64, "")
    assert said in done.stderr
