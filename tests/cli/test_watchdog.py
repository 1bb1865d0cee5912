"""What ends the command in time, whatever has become of redlock-run.  Real processes, no server."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

from redlock._cli import clock
from redlock._cli.watchdog import KILLED, TERMINATED, exists

# Ends by SIGTERM never, and has a child in its group that does not either.
STUBBORN = "trap '' TERM; (trap '' TERM; while :; do sleep 0.05; done) & echo ready; while :; do sleep 0.05; done"

# As redlock-run does: the watchdog first, then the command; what it is told is done, one line each.
HOLDER = """
import os, select, subprocess, sys
from redlock._cli import clock
from redlock._cli.watchdog import Watchdog
term, kill, command = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
with Watchdog() as dog:
    job = subprocess.Popen(["sh", "-c", command], process_group=0, stdout=subprocess.PIPE)
    job.stdout.readline()
    dog.order(job.pid, clock.now() + term, clock.now() + kill)
    print(job.pid, flush=True)
    while True:
        select.select([dog.news], [], [], 30)
        news = dog.heard()
        print(news.decode(), clock.now(), flush=True)
        if b"K" in news:
            break
    job.wait()
    print("reaped", job.returncode, flush=True)
"""


@contextlib.contextmanager
def holder(term: float, kill: float, command: str = STUBBORN):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(term), str(kill), command], stdout=subprocess.PIPE, text=True
    )
    group = 0
    try:
        assert process.stdout is not None
        group = int(process.stdout.readline())
        yield process, group
    finally:
        process.kill()
        process.communicate()
        with contextlib.suppress(ProcessLookupError):
            if group:
                os.killpg(group, signal.SIGKILL)


def gone(group: int, within: float) -> float:
    """When the last process of the group is gone; those that nobody waits for count as gone."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        if not exists(group) or _all_zombies(group):
            return clock.now()
        time.sleep(0.005)
    raise AssertionError(f"group {group} is still there after {within} s")


def _all_zombies(group: int) -> bool:
    states = subprocess.run(
        ["ps", "-A", "-o", "pgid=,stat="], capture_output=True, text=True, check=True
    ).stdout.split("\n")
    return all("Z" in line for line in states if line.split()[:1] == [str(group)])


def test_sigterm_then_sigkill_for_the_whole_group():
    with holder(0.3, 0.8) as (process, group):
        begun = clock.now()
        assert process.stdout is not None
        what, at = process.stdout.readline().split()
        assert what.encode() == TERMINATED
        assert float(at) - begun >= 0.25
        what, at = process.stdout.readline().split()
        assert what.encode() == KILLED
        assert float(at) - begun >= 0.75
        assert process.stdout.readline().split() == ["reaped", "-9"]
        gone(group, 5)
        assert process.wait(10) == 0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_also_when_redlock_run_itself_is_killed_or_stopped(how):
    """Killed: SIGTERM at once, for nobody renews any more.  Stopped: when the time has come."""
    with holder(0.5, 1.5) as (process, group):
        begun = clock.now()
        os.kill(process.pid, how)
        ended = gone(group, 20)
        assert ended - begun >= 1.2     # stubborn: not before SIGKILL


def test_who_listens_to_sigterm_goes_when_redlock_run_is_killed():
    with holder(50, 60, "echo ready; exec sleep 100") as (process, group):
        process.kill()
        gone(group, 20)


def test_a_group_that_is_stopped_hears_of_it():
    with holder(0.3, 60, "echo ready; exec sleep 100") as (process, group):
        os.killpg(group, signal.SIGSTOP)
        assert process.stdout is not None
        assert process.stdout.readline()[0].encode() == TERMINATED
        gone(group, 20)


def test_an_order_can_be_taken_back_until_sigterm_was_sent():
    code = """
import math, subprocess, time
from redlock._cli import clock
from redlock._cli.watchdog import Watchdog
with Watchdog() as dog:
    job = subprocess.Popen(["sleep", "100"], process_group=0)
    for _ in range(20):     # renewed again and again
        dog.order(job.pid, clock.now() + 0.5, clock.now() + 0.6)
        time.sleep(0.05)
    assert dog.heard() == b""
    assert job.poll() is None
    dog.order(job.pid, math.inf, math.inf)
    time.sleep(0.7)
    assert job.poll() is None
job.kill()
assert job.wait() == -9
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)


def test_it_is_gone_when_it_is_not_needed():
    code = """
import os
from redlock._cli.watchdog import Watchdog
with Watchdog():
    pass
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("no child")
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True)
    assert done.stdout == "no child\n"
