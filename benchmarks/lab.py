"""Where measurements are made: masters, processes to measure, and how much effort is put into it.

Designs that were considered. *pytest-benchmark*, *pyperf* and *asv* measure one thing after the other, so that on a
machine with other work a ratio compares two moments.  *Everything in one process* gives that interleaving, but one
subject then collects the garbage of another, memory and processor time cannot be told apart, and the other libraries'
dependencies mix with ours.  So every subject, ours and the limits too, is a process that answers requests of one line
(`workers.serve`), and whoever asks them in turn has interleaved rounds.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import random
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from benchmarks.peers import ROOT, LeftOut
from benchmarks.subjects import PEERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.subjects import Subject
    from redlock.testing import LocalMasters

TTL: Final = 30.0
_OPENS: Final = 60.0  # seconds for a subject to start and connect
_SLACK: Final = 60.0  # seconds beyond what a request takes by itself: more, and it hangs
_LAST: Final = 200


@dataclass(frozen=True, slots=True)
class Effort:
    """How much of everything."""

    name: str
    rounds: int  # of a comparison
    few: int  # rounds of what is slow or many
    cycles: int  # acquire and release, in a round
    lasts: float  # seconds of load
    patience: float  # seconds until a subject "did not return"
    renewal: float  # seconds for which held leases are watched
    long_renewal: float  # and those with a long TTL; 0: not at all
    many: int  # objects, where their memory is measured
    imports: int  # processes
    masters: tuple[int, ...]  # how many, for what is measured with several numbers of them
    hurry: bool = False  # others are measured in the first and the last case alone


EFFORTS: Final = {
    effort.name: effort
    for effort in (
        Effort("tiny", 1, 1, 2, 0.05, 0.5, 0.2, 0.0, 20, 1, (5, 1), hurry=True),
        Effort("quick", 9, 2, 40, 0.3, 2.0, 2.0, 0.0, 2000, 5, (5, 1, 3, 7, 9), hurry=True),
        Effort("full", 61, 9, 60, 1.0, 12.0, 6.0, 20.0, 10_000, 15, (5, 1, 3, 7, 9)),
    )
}


class Hung(Exception):  # noqa: N818 - not an error but a result
    """No answer in time; the process has been killed."""


class Worker:
    """A subject in a process of its own."""

    def __init__(self, subject: Subject, addresses: Sequence[str], ttl: float, name: str) -> None:
        self.subject = subject
        command = subject.command([",".join(addresses), f"{ttl:g}", name])
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        # A group of its own: a Ctrl-C is for whoever asks, and when that one ends, these see the end of their input.
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            env={**os.environ, "PYTHONPATH": ""} if subject.kind == "peer" else {**os.environ, "PYTHONPATH": str(ROOT)},
            process_group=0,
        )
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def ready(self) -> None:
        """It has connected."""
        try:
            self.hear(_OPENS)
        except Hung:
            raise LeftOut(f"it did not connect within {_OPENS:g} s") from None

    def ask(self, *words: object, within: float = _SLACK) -> dict[str, Any]:
        """The answer.  Raises `Hung` after that many seconds, and `LeftOut` if it says that it cannot."""
        self.tell(*words)
        return self.hear(within)

    def tell(self, *words: object) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `hear` says why
            self._process.stdin.write(" ".join(map(str, words)) + "\n")
            self._process.stdin.flush()

    def hear(self, within: float) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=within)
        except queue.Empty:
            self.close()
            raise Hung from None
        if not line:
            self._process.wait()
            self._complaints.seek(0)
            said = self._complaints.read().decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise LeftOut(f"it ended: {said[-1][-_LAST:]}")
        answer: dict[str, Any] = json.loads(line)
        if answer.keys() == {"error"}:
            raise LeftOut(answer["error"])
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for file in (self._process.stdin, self._process.stdout, self._complaints):
            assert file is not None
            with contextlib.suppress(BrokenPipeError):
                file.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")


class Lab:
    """Nine masters, scenarios use the first few, and the subjects that are measured on them."""

    def __init__(self, servers: LocalMasters, effort: Effort, *, peers: bool) -> None:
        self.servers = servers
        self.effort = effort
        self.left_out = {} if peers else {subject.title: "it was not asked for" for subject in PEERS}
        self._numbers = itertools.count()
        self.random = random.Random(20)  # an order that can be repeated

    def addresses(self, masters: int = 5) -> list[str]:
        return [f"127.0.0.1:{port}" for port in self.servers.ports[:masters]]

    @contextlib.contextmanager
    def open(
        self, subjects: Sequence[Subject], addresses: Sequence[str] | None = None, *, ttl: float = TTL
    ) -> Iterator[list[Worker]]:
        """Those of the subjects that can be measured here, connected; ended afterwards, whatever happens."""
        with contextlib.ExitStack() as stack:
            started: list[Worker] = []  # all at the same time, for interpreters take theirs to start
            for subject in subjects:
                if subject.title in self.left_out:
                    continue
                try:
                    name = f"lock-{next(self._numbers)}"
                    worker = Worker(subject, addresses or self.addresses(), ttl, name)
                except LeftOut as why:
                    self._leave_out(subject, str(why))
                else:
                    stack.callback(worker.close)
                    started.append(worker)
            workers: list[Worker] = []
            for worker in started:
                try:
                    worker.ready()
                except LeftOut as why:
                    self._leave_out(worker.subject, str(why))
                else:
                    workers.append(worker)
            yield workers

    @contextlib.contextmanager
    def apart(self) -> Iterator[bool]:
        """What is opened meanwhile has a processor of its own, the masters have the others.  False: not here."""
        everywhere = os.sched_getaffinity(0) if hasattr(os, "sched_setaffinity") else set()
        if len(everywhere) < 2:
            yield False
            return
        masters, own = self.servers.pids, {min(everywhere)}
        try:
            for pid in masters:
                os.sched_setaffinity(pid, everywhere - own)
            os.sched_setaffinity(0, own)
            yield True
        finally:
            for pid in (0, *masters):
                os.sched_setaffinity(pid, everywhere)

    def _leave_out(self, subject: Subject, why: str) -> None:
        """For the rest of the run."""
        self.left_out[subject.title] = why
        self.say(f"  {subject.title} is left out: {why}")

    def compared(
        self,
        workers: Sequence[Worker],
        limits: Callable[[Subject], Sequence[Worker]],
        measure: Callable[[Worker], dict[str, Any]],
        rounds: int,
    ) -> dict[str, list[tuple[dict[str, Any], ...]]]:
        """For each worker (by its title) its answers, each followed by those of its limits from right before it.

        The order is drawn for every round, so that nobody always comes after the same one.
        """
        answers: dict[str, list[tuple[dict[str, Any], ...]]] = {one.subject.title: [] for one in workers}
        for worker in workers:
            measure(worker)  # caches, scripts, the first of everything
        for number in range(rounds):
            self.progress(f"round {number + 1} of {rounds}")
            for worker in self.random.sample(workers, len(workers)):
                bases = [measure(limit) for limit in limits(worker.subject)]
                answers[worker.subject.title].append((measure(worker), *bases))
        self.progress("")
        return answers

    def say(self, text: str) -> None:
        self.progress("")
        print(text, flush=True)

    @staticmethod
    def progress(text: str) -> None:
        """What is being done, on a terminal."""
        if sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    def reset(self) -> None:
        """Masters as they were started; a lock that somebody has left on them would be in the way."""
        self.servers.reset()
        time.sleep(0.05)
