"""Nothing survives a run, whoever is killed and when: no process, hence no server and no namespace; no file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

from chaos.backends import BACKENDS
from tests.servers.needs import missing

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


class Run:
    """A run that is recognized by a word in the environment of all its processes."""

    def __init__(self, backend, tmp_path):
        why = BACKENDS[backend].unavailable()
        if why is not None:
            missing(f"the backend {backend}: {why}")
        self.mark = f"CHAOS_TEST_RUN={uuid.uuid4()}"
        self.scratch = tmp_path / "scratch"
        self.scratch.mkdir()
        self.log = (tmp_path / "log").open("w+")
        name, value = self.mark.split("=")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "chaos", "run", "--backend", backend, "--seed", "5", "--duration", "60",
             "--faults", "stop,pause", "--lanes", "2", "--ttl", "1", "--clients", "4", "--out", str(tmp_path / "out")],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT,
            env={**os.environ, name: value, "TMPDIR": str(self.scratch)},
        )  # fmt: skip

    def alive(self):
        """The processes of this run, with what they are."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    if self.mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                        found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        return found

    def said(self):
        self.log.seek(0)
        return self.log.read()

    def wait_until(self, what, within=40.0):
        until = time.monotonic() + within
        while not what():
            assert time.monotonic() < until, f"still there: {self.alive()}"
            assert self.process.poll() is None, self.said()
            time.sleep(0.05)

    def nothing_is_left(self, within=20.0):
        until = time.monotonic() + within
        while self.alive() or list(self.scratch.iterdir()):
            assert time.monotonic() < until, (self.alive(), list(self.scratch.iterdir()))
            time.sleep(0.05)

    def clients(self):
        return [pid for pid, words in self.alive().items() if "chaos.clients" in words]

    def close(self):
        for pid in self.alive():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()


@pytest.fixture(params=BACKENDS)
def run(request, tmp_path):
    run = Run(request.param, tmp_path)
    yield run
    run.close()


@pytest.mark.parametrize("after", [0.0, 0.15, 0.4, 0.8, 1.5])
def test_killed_while_it_starts(run, after):
    time.sleep(after)
    run.process.kill()
    run.nothing_is_left()


def test_killed_while_clients_and_servers_are_stopped(run):
    """What is stopped cannot notice that it is alone."""
    run.wait_until(lambda: any(_state(pid) == "T" for pid in run.clients()))
    run.process.kill()
    run.nothing_is_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(run, number):
    run.wait_until(run.clients)
    run.process.send_signal(number)
    assert run.process.wait(30) in (2, -number)
    run.nothing_is_left()


def test_its_session_is_killed(run):
    """The harness itself crashes: an unknown outcome, and nothing is left."""
    run.wait_until(run.clients)
    sessions = [pid for pid, words in run.alive().items() if "-m chaos.session" in words and "unshare" not in words]
    os.kill(min(sessions), signal.SIGKILL)
    assert run.process.wait(30) == 2
    assert "the session ended with status" in run.said()
    run.nothing_is_left()


def test_a_client_that_dies_by_itself_is_a_failure_of_the_harness(run):
    run.wait_until(lambda: len(run.clients()) == 4)
    os.kill(run.clients()[0], signal.SIGTERM)
    assert run.process.wait(60) == 2
    assert "ended with status -15" in run.said()
    run.nothing_is_left()


def _state(pid):
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return None
