"""Subjects that hang, die or say no: each is a result, and none survives."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from benchmarks import peers
from benchmarks.lab import EFFORTS, Hung, Lab, Worker
from benchmarks.peers import LeftOut
from benchmarks.subjects import OURS, SOCKETS, Subject


def subject(program):
    return Subject("one", "ours", lambda words: [sys.executable, "-c", program, *words])


def opened(program):
    return Worker(subject(program), ["127.0.0.1:1"], 30.0, "name")


READY = "print('{\"ready\": true}', flush=True)\n"


def test_one_that_hangs_is_killed():
    worker = opened(READY + "import time; time.sleep(600)")
    worker.ready()
    with pytest.raises(Hung):
        worker.ask("cycles", 1, within=0.2)
    with pytest.raises(ProcessLookupError):
        os.kill(worker._process.pid, 0)


@pytest.mark.parametrize(("ends", "says"), [
    ("raise SystemExit('something is missing')", "it ended: something is missing"),
    ('print(\'{"error": "not today"}\', flush=True); input()', "not today"),
])  # fmt: skip
def test_one_that_dies_or_cannot_says_why(ends, says):
    worker = opened(f"{READY}input(); {ends}")
    worker.ready()
    with pytest.raises(LeftOut, match=says):
        worker.ask("cycles", 1)
    worker.close()


def test_one_that_cannot_be_started_is_left_out(redlock_servers):
    def never(_):
        raise LeftOut("there is none here")

    lab = Lab(redlock_servers, EFFORTS["tiny"], peers=True)
    missing = Subject("missing", "peer", never)
    dead = Subject("dead", "peer", lambda _: [sys.executable, "-c", "raise SystemExit('no such luck')"])
    with lab.open([missing, dead, SOCKETS]) as workers:
        assert [worker.subject for worker in workers] == [SOCKETS]
    assert lab.left_out == {"missing": "there is none here", "dead": "it ended: no such luck"}


@pytest.mark.parametrize("subject", OURS, ids=lambda subject: subject.title)
def test_one_that_hangs_while_it_connects_ends_with_whoever_asks(subject):
    """Its masters may be dead by then, and a lock waits for them as long as it takes."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        process = subprocess.Popen(
            subject.command([f"127.0.0.1:{silent.getsockname()[1]}", "30", "name"]), cwd=peers.ROOT, stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(peers.ROOT)},
        )  # fmt: skip
        try:
            silent.settimeout(30)
            silent.accept()[0].close()  # it has begun
            assert process.poll() is None
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()
