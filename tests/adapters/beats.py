"""Beats and workers of Celery, with three masters and a broker of their own, for a test that kills, freezes and stops them."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from redlock import Masters
from redlock.testing import LocalMasters
from tests.servers import look

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


class Run(NamedTuple):
    """One run of the task: the fire that it was sent for, when it ran, the process that sent it, and the message."""

    fire: int
    at: float
    sender: int
    message: str


class Fleet:
    """Masters, a broker, and the processes of Celery.  All of it ends with the ``with``."""

    def __init__(self, folder, **environment):
        self.folder = folder
        self.beats: dict[int, subprocess.Popen[bytes]] = {}  # by their number; the last one that had it
        self.servers = LocalMasters(3)
        self._broker = LocalMasters(1)
        self._environment = environment
        self._processes: list[subprocess.Popen[bytes]] = []
        self._ends = contextlib.ExitStack()

    def __enter__(self):
        self._ends.enter_context(self.servers)
        self._ends.enter_context(self._broker)
        self.masters = self._ends.enter_context(Masters(self.servers.urls, restart_guard=False))
        self.environment = {
            **os.environ,
            "REDLOCK_MASTERS": ",".join(self.servers.urls),
            "BEATS_BROKER": self._broker.urls[0],
            "BEATS_FOLDER": str(self.folder),
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            **self._environment,
        }
        return self

    def __exit__(self, *_):
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._ends.close()

    def start_worker(self, name, processes):
        self._start(name, "worker", "--concurrency", str(processes), "--hostname", f"{name}@%h", "--without-mingle")

    def start_beat(self, number, **environment):
        self.beats[number] = self._start(
            f"beat-{number}",
            *("beat", "--scheduler", "redlock.adapters.celery:LeaderScheduler"),
            *("--schedule", str(self.folder / f"schedule-{number}"), "--pidfile", ""),
            **environment,
        )

    def leader(self):
        """The number of the beat that leads."""
        owner = self.masters.status("celery-beat").owner or ""
        return {f"{socket.gethostname()}/{beat.pid}": number for number, beat in self.beats.items()}.get(owner)

    def wait_for_leader(self, *, other_than=None):
        leader: int = eventually(lambda: (number := self.leader()) != other_than and number)
        return leader

    def runs(self):
        return [
            Run(round(datetime.fromisoformat(fire).timestamp()), float(at), int(sender), message)
            for fire, at, sender, message in map(str.split, self.lines("fires"))
        ]

    def wait_for_fires(self, count):
        """Until so many more have run."""
        wanted = len(self.runs()) + count
        eventually(lambda: len(self.runs()) >= wanted)

    def lines(self, file):
        path = self.folder / file
        return path.read_text().splitlines() if path.exists() else []

    def logs(self):
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.log")))

    def _start(self, name, command, *arguments, **environment):
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "celery", "--app", "beats_app", "--workdir", str(HERE), command, "--loglevel", "INFO", *arguments],
                cwd=ROOT,
                env={**self.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )  # fmt: skip
        self._processes.append(process)
        return process


eventually = partial(look.eventually, seconds=90.0)


def counted(runs):
    """The fires that were sent twice, and those that never were: by messages, for a broker may deliver one twice."""
    messages: dict[int, set[str]] = {
        fire: set() for fire in range(min(run.fire for run in runs), max(run.fire for run in runs) + 1)
    }
    for run in runs:
        messages[run.fire].add(run.message)
    return [fire for fire, sent in messages.items() if len(sent) > 1], [
        fire for fire, sent in messages.items() if not sent
    ]
