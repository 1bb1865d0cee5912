"""What the machine did is told from what the lock did: neither may pass for the other."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chaos import pulse
from chaos.clients.work import Worker
from chaos.history import Writer
from redlock import LockLost

ROOT = Path(__file__).parent.parent.parent


def record(directory, *, told, waited, released=None, struck=()):
    """A hold that ended at 10.0, in the files of a run, after the loss of one that could not be resumed."""
    with Writer(directory / "client-1.jsonl", "client-1") as writer:
        writer.write("lost", "info", t=7.0, lock="a", token="u", reason="expired")
        writer.write("acquire", "ok", t=8.0, lock="a", token="t", fence=1, valid_until=10.0)
        if released is not None:
            writer.write("release", "invoke", t=released, lock="a", token="t")
        if told is not None:
            writer.write("lost", "info", t=told, lock="a", token="t", reason="expired")
    (directory / "client-1.pulse").write_text("".join(json.dumps(one) + "\n" for one in waited) + "[12.0, 1")
    with Writer(directory / "nemesis.jsonl", "nemesis") as writer:
        for phase, t in struck:
            writer.write("stop", phase, t=t, target=["client-1", "client-2"])


@pytest.mark.parametrize(("told", "waited", "excused"), [
    pytest.param(10.2, [[9.9, 10.15, 0.2]], 1, id="it-waited-for-a-processor"),
    pytest.param(10.2, [[10.0, 10.1, 0.08], [10.1, 10.2, 0.08]], 1, id="now-and-again"),
    pytest.param(10.2, [[10.0, 10.1, 0.08]], 0, id="but-not-for-that-long"),
    pytest.param(10.2, [[9.0, 9.9, 0.9]], 0, id="but-before"),
    pytest.param(10.2, [[10.3, 10.9, 0.6]], 0, id="but-later"),
    pytest.param(10.2, [], 0, id="nothing-was-the-matter"),
    pytest.param(10.04, [[9.9, 10.1, 0.2]], 0, id="in-time"),
    pytest.param(10.9, [[9.9, 10.9, 0.9]], 1, id="to-the-end"),
    pytest.param(None, [[9.9, 11.0, 1.1]], 0, id="never-told"),
])  # fmt: skip
def test_only_what_the_machine_explains_is_excused(tmp_path, told, waited, excused):
    record(tmp_path, told=told, waited=waited)
    assert pulse.excuse(tmp_path, ["client-1", "client-9"], until=10.8) == excused
    lines = [json.loads(line) for line in (tmp_path / "machine.jsonl").read_text().splitlines()]
    stop = [("stop", "invoke", 10.0, "client-1"), ("stop", "ok", told, "client-1")]
    heals = told is not None and told < 10.8  # too late, it would be the last heal, with nobody to show `live` after it
    assert [(one["op"], one["phase"], one["t"], one["target"]) for one in lines] == stop[: excused and 1 + heals]
    assert all(one["fault"] == "machine" for one in lines), "nobody asked for it"


def test_when_the_machine_was_busy(tmp_path):
    """Half a second in which one client, and not several of them together, was not run for as long, its threads in sum."""
    waited = [[1.0, 1.1, 0.26], [1.2, 1.3, 0.26], [2.0, 2.1, 0.49], [9.75, 10.75, 2.0]]
    record(tmp_path, told=None, waited=waited)
    (tmp_path / "client-2.pulse").write_text("[2.2, 2.3, 0.49]\n")
    assert pulse.busy(tmp_path, ["client-1", "client-2", "client-9"]) == 4
    lines = [json.loads(line) for line in (tmp_path / "busy.jsonl").read_text().splitlines()]
    assert [(one["process"], one["t"], one["target"], one["detail"]) for one in lines] == [
        ("observer", t, "client-1", {"until": t + 0.5}) for t in (1.0, 9.5, 10.0, 10.5)
    ]


@pytest.mark.parametrize(("n", "more"), [(0, {"struck": [("invoke", 9.5), ("ok", 10.1)]}), (1, {"released": 10.01})])
def test_what_the_nemesis_did_needs_no_excuse_and_a_release_does_not_tell(tmp_path, n, more):
    record(tmp_path, told=10.2, waited=[[9.9, 10.2, 0.3]], **more)
    assert pulse.excuse(tmp_path, ["client-1"], until=10.8) == n


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel does not say who waits")
def test_waiting_is_noticed_and_sleeping_is_not(tmp_path):
    """A process whose main thread sleeps notes little; with more threads than processors it notes a lot."""
    program = textwrap.dedent("""
        import hashlib, os, pathlib, sys, threading, time
        from chaos.clients.watch import Pulse
        threading.Thread(target=Pulse(pathlib.Path(sys.argv[1])).beat, daemon=True).start()
        block, until = bytes(2**20), time.monotonic() + 2.0
        def burn():
            while time.monotonic() < until:
                hashlib.sha256(block)       # without the interpreter's lock
        threads = [threading.Thread(target=burn) for _ in range(int(sys.argv[2]) * (2 + (os.cpu_count() or 1)))]
        [thread.start() for thread in threads]
        time.sleep(2.0)
    """)
    noted = []
    for busy in (0, 2):
        file = tmp_path / f"{busy}.pulse"
        subprocess.run([sys.executable, "-c", program, str(file), str(busy)], cwd=ROOT, check=True, timeout=60)
        noted.append(sum(json.loads(line)[2] for line in file.read_text().splitlines()))
    assert noted[1] > 1.0
    assert noted[0] < noted[1] / 2


@pytest.mark.skipif(not Path("/proc/thread-self/schedstat").exists(), reason="this kernel does not say who waits")
def test_threads_count_that_end_between_two_looks_and_before_the_next_beat(tmp_path):
    program = textwrap.dedent("""
        import hashlib, os, pathlib, sys, threading, time
        from chaos.clients.watch import Pulse
        pulse = Pulse(pathlib.Path(sys.argv[1]))
        block, waited = bytes(2**18), []
        def burn():
            until = time.thread_time() + 0.002
            while time.thread_time() < until:
                hashlib.sha256(block)       # without the interpreter's lock
            waited.append(int(pathlib.Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9)
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        for _ in range(10):
            threads = [threading.Thread(target=burn) for _ in range(6)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
        pulse.look()
        print(sum(waited), flush=True)
        os.kill(os.getpid(), 9)
    """)
    file = tmp_path / "client.pulse"
    command = [sys.executable, "-c", program, str(file)]
    waited = float(subprocess.run(command, cwd=ROOT, check=False, timeout=60, capture_output=True).stdout)
    assert sum(json.loads(line)[2] for line in file.read_text().splitlines()) > waited


def test_of_a_loss_it_is_noted_first_how_long_the_machine_did_not_run_the_holder_for_it_may_be_killed_now():
    done: list[str] = []
    write, look = lambda op, *_, **__: done.append(op), lambda: done.append("look")
    worker: Any = SimpleNamespace(_given={}, _pulse=SimpleNamespace(look=look), _write=write)
    Worker._lost(worker, SimpleNamespace(token="t", name="a", loss=lambda: LockLost("")))
    assert done == ["look", "lost"]
