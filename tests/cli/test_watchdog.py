"""What ends the command in time, whatever has become of redlock-run.  Real processes, no server."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

import pytest

from redlock._cli.guard import KILLED, TERMINATED
from tests.servers.look import alive, eventually
from tests.servers.process import run

# Ends by SIGTERM never, and has a child in its group that does not either.
STUBBORN = "trap '' TERM; (trap '' TERM; while :; do sleep 0.05; done) & echo ready; while :; do sleep 0.05; done"

# As redlock-run does; what it is told is done, one line each.
HOLDER = """
import os, select, subprocess, sys
from redlock._cli import clock
from redlock._cli.watchdog import Watchdog
term, kill, command = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
read, write = os.pipe()
def begin():
    os.dup2(write, 1)
    os.execvp("sh", ["sh", "-c", command])
dog = Watchdog(begin)
dog.wait_until_ready()
os.close(write)
open(read).readline()
ordered = clock.now()
dog.order(ordered + term, ordered + kill)
print(dog.group, dog.pid, ordered, flush=True)
while True:
    dog.wait()
    news = dog.heard()
    if news:
        print(news.decode(), clock.now(), flush=True)
    if b"K" in news:
        break
while (status := dog.status()) is None:
    dog.wait()
print("reaped", os.waitstatus_to_exitcode(status), flush=True)
dog.close()
"""


@contextlib.contextmanager
def holder(term: float, kill: float, command: str = STUBBORN):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(term), str(kill), command], stdout=subprocess.PIPE, text=True
    )
    group = 0
    try:
        assert process.stdout is not None
        *numbers, ordered = process.stdout.readline().split()
        group, guard = map(int, numbers)
        yield process, group, guard, float(ordered)  # when it ordered the end
    finally:
        process.kill()
        process.communicate()
        with contextlib.suppress(ProcessLookupError):
            if group:
                os.killpg(group, signal.SIGKILL)


def gone(group: int) -> bool:
    """Those that nobody waits for count as gone."""
    listed = subprocess.run(["ps", "-A", "-o", "pgid=,stat="], capture_output=True, text=True, check=True).stdout
    return all("Z" in line for line in listed.splitlines() if line.split()[:1] == [str(group)])


def test_sigterm_then_sigkill_for_the_whole_group():
    with holder(0.3, 0.8) as (process, group, _, begun):
        what, at = process.stdout.readline().split()
        assert what.encode() == TERMINATED
        assert float(at) - begun >= 0.3
        what, at = process.stdout.readline().split()
        assert what.encode() == KILLED
        assert float(at) - begun >= 0.8
        assert process.stdout.readline().split() == ["reaped", "-9"]
        eventually(lambda: gone(group))
        assert process.wait(10) == 0


def test_a_group_that_is_stopped_hears_of_it():
    with holder(0.3, 60, "echo ready; exec sleep 100") as (process, group, _, _):
        os.killpg(group, signal.SIGSTOP)
        assert process.stdout.readline()[0].encode() == TERMINATED
        eventually(lambda: gone(group))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the kernel does not do that")
def test_when_both_are_killed_the_kernel_ends_the_command():
    """Also one that does not heed SIGTERM; its children are another matter."""
    with holder(50, 60) as (process, group, guard, _):
        os.kill(guard, signal.SIGSTOP)  # so that it does nothing before it is killed
        process.kill()
        process.wait()
        assert alive(group)
        os.kill(guard, signal.SIGKILL)
        eventually(lambda: not alive(group))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the kernel does not do that")
@pytest.mark.parametrize("when", ["before", "after"])
def test_also_when_the_guard_is_killed_before_the_command_has_asked_for_that(when):
    """Between fork and prctl nobody would tell it: so it looks whose child it is (before), and is told from then on (after)."""
    code = f"""
import ctypes, os, signal, sys, time
from redlock._cli import watchdog
from redlock._cli.watchdog import Watchdog
load = ctypes.CDLL
def loaded(*args):
    if {when!r} == "before":
        os.kill(os.getppid(), signal.SIGKILL)
        while os.getppid() == guard:
            time.sleep(0.01)
    return load(*args)
ctypes.CDLL = loaded
read, write = os.pipe()
def begin():
    os.write(write, b"begun")
    time.sleep(100)
fork = os.fork
def forked():
    global guard
    guard = os.getpid()
    return fork()
os.fork = forked
try:
    dog = Watchdog(begin)
except ChildProcessError:       # it has perhaps not told us of the command
    assert {when!r} == "before"
os.close(write)
if {when!r} == "after":
    assert os.read(read, 5) == b"begun"
    os.kill(dog.pid, signal.SIGKILL)
assert os.read(read, 5) == b"", "it has begun"
"""
    done = run("-c", code)
    assert done.returncode == 0, done.stderr


def test_it_is_another_program_without_our_arguments_and_secrets():
    code = """
import os, subprocess, sys
from redlock._cli.watchdog import Watchdog
dog = Watchdog(lambda: os.execvp("sleep", ["sleep", "100"]))
dog.wait_until_ready()
print(subprocess.run(["ps", "-o", "args=", "-p", str(dog.pid)], capture_output=True, text=True).stdout)
if os.path.exists("/proc/self/environ"):
    print(open(f"/proc/{dog.pid}/environ").read())
dog.close()
"""
    environment = {"REDLOCK_PASSWORD": "geheim", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = run("-c", code, "redlock-run", "a-name", environment=environment)
    assert done.stdout.startswith("redlock-guard ")
    for word in ("redlock-run", "a-name", "geheim"):
        assert word not in done.stdout


def test_an_order_can_be_taken_back_until_sigterm_was_sent():
    code = """
import math, os, time
from redlock._cli import clock
from redlock._cli.watchdog import Watchdog
dog = Watchdog(lambda: os.execvp("sleep", ["sleep", "100"]))
dog.wait_until_ready()
for _ in range(20):     # renewed again and again
    dog.order(clock.now() + 4.0, clock.now() + 4.1)
    time.sleep(0.01)
assert dog.heard() == b""
assert dog.status() is None
dog.order(math.inf, math.inf)
time.sleep(4.2)
assert dog.status() is None
os.kill(dog.group, 9)
while (status := dog.status()) is None:
    dog.wait()
assert status == 9
dog.close()
"""
    done = run("-W", "error", "-c", code)
    assert done.returncode == 0, done.stderr


def test_it_is_gone_when_it_is_not_needed():
    code = """
import os
from redlock._cli.watchdog import Watchdog
Watchdog(lambda: os.read(0, 1)).close()
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("no child")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.stdout == "no child\n"
