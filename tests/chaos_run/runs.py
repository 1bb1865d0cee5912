"""Starting the harness, to look at what it does and at what it leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

from chaos.backends import BACKENDS
from tests.servers.needs import missing

ROOT = Path(__file__).parents[2]
# What `make compose` is for, and needs Docker, has tests of its own: tests/compose/test_chaos.py.
OF_PROCESSES = [name for name in BACKENDS if name != "compose"]


def needs(backend):
    why = BACKENDS[backend].unavailable()
    if why is not None:
        missing(f"the backend {backend}: {why}")


def struck(backend, out):
    """What became of each fault that ``backend`` can make."""
    needs(backend)
    program = [sys.executable, str(Path(__file__).with_name("strikes.py")), backend, str(out)]
    ran = subprocess.run(
        BACKENDS[backend].command(["env", f"PYTHONPATH={ROOT}", *program]),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return dict(map(json.loads, out.read_text().splitlines()))


class Run:
    """A run that is recognized by a word in the environment of all its processes."""

    def __init__(self, backend, tmp_path, scratch=None):
        needs(backend)
        self.mark = f"CHAOS_TEST_RUN={uuid.uuid4()}"
        self._seen = {}  # by pid, when it began
        self.scratch = scratch or tmp_path / "scratch"
        self.scratch.mkdir(exist_ok=True)
        self.log = (tmp_path / "log").open("w+")
        name, value = self.mark.split("=")
        self.process = subprocess.Popen(
            # A shell that has put these tests into the background has them ignore Ctrl-C.
            ["env", "--default-signal=INT", sys.executable, "-m", "chaos", "run", "--backend", backend, "--seed", "5", "--duration", "60",
             "--faults", "stop,pause", "--lanes", "2", "--ttl", "1", "--clients", "4", "--out", str(tmp_path / "out")],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT,
            env={**os.environ, name: value, "TMPDIR": str(self.scratch)},
        )  # fmt: skip

    def alive(self):
        """The processes of this run, with what they are.

        A server writes its title over its environment: it is known by its parent, and from then on by itself.
        """
        began, parents, ours = {}, {}, set()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    state, parent, *rest = (entry / "stat").read_text().rpartition(")")[2].split()
                    if state == "Z":
                        continue
                    pid = int(entry.name)
                    began[pid], parents[pid] = rest[17], int(parent)
                    if self._seen.get(pid) == began[pid] or self.mark.encode() in (
                        entry / "environ"
                    ).read_bytes().split(b"\0"):
                        ours.add(pid)
        while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
            ours |= more
        self._seen = {pid: began[pid] for pid in ours}
        found = {}
        for pid in ours:
            with suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
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
        found = sorted(pid for pid, words in self.alive().items() if "chaos.clients" in words)
        return found[1:]  # the first one is their parent

    def kill(self, word):
        """The first process of those with this word in their command."""
        os.kill(min(pid for pid, words in self.alive().items() if word in words), signal.SIGKILL)

    def close(self):
        for pid in self.alive():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()


def state(pid):
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return None
