"""How soon another candidate leads when the leader is stopped, killed, or frozen."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

from benchmarks.peers import ROOT
from benchmarks.records import middle
from benchmarks.subjects import OURS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.lab import Lab
    from benchmarks.records import Record

TITLE = "Leaders"
MEASURE = "until another one leads"
_TTL: Final = 1.5
_STANDS: Final = 0.3  # seconds for the second one to be refused, and to wait


class Candidate:
    def __init__(self, world: str, urls: list[str]) -> None:
        command = [sys.executable, "-P", "-m", "benchmarks.workers.candidate", world, ",".join(urls), f"{_TTL:g}"]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0,
            env={"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        self._hear()

    def _hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def leads_at(self) -> float:
        """When it was elected; waits for that."""
        return float(self._hear())

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("stop\n")
        self._process.stdin.flush()

    def signal(self, number: int) -> Callable[[], None]:
        return lambda: self._process.send_signal(number)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout):
            assert file is not None
            with contextlib.suppress(BrokenPipeError):
                file.close()


# What is done to the leader, and whether only its TTL frees the name then.
_ENDS: Final[dict[str, tuple[Callable[[Candidate], Callable[[], None]], bool]]] = {
    "stop()": (lambda leader: leader.stop, False),
    "SIGTERM": (lambda leader: leader.signal(signal.SIGTERM), False),
    "kill -9": (lambda leader: leader.signal(signal.SIGKILL), True),
    "frozen": (lambda leader: leader.signal(signal.SIGSTOP), True),
}


def run(lab: Lab) -> Iterator[Record]:
    rounds = max(1, lab.effort.few // 3)
    for case, (end, by_ttl) in _ENDS.items():
        for subject, world in zip(OURS, ("threads", "asyncio"), strict=True):
            taken = []
            for number in range(rounds):
                lab.progress(f"{case}: {subject.title}: round {number + 1} of {rounds}")
                lab.reset()
                taken.append(_handover(lab.servers.urls[:5], world, end))
            scale, unit = (1 / _TTL, "TTL") if by_ttl else (1000.0, "ms")
            samples = [seconds * scale for seconds in taken]
            yield middle("leaders", case, subject.title, MEASURE, unit, samples)
    lab.progress("")


def _handover(urls: list[str], world: str, end: Callable[[Candidate], Callable[[], None]]) -> float:
    with contextlib.ExitStack() as stack:
        leader = Candidate(world, urls)
        stack.callback(leader.close)
        leader.leads_at()
        other = Candidate(world, urls)
        stack.callback(other.close)
        time.sleep(_STANDS)
        do = end(leader)
        at = time.monotonic()
        do()
        return other.leads_at() - at
