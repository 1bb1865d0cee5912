"""What the README tells people to run does run, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
import time


def run(*arguments: str, seconds: float) -> str:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
    assert time.monotonic() - began < seconds
    return done.stdout


def test_demo():
    output = run("examples.demo", seconds=15)
    for part in (
        "fencing token",
        "NotAcquired: 'invoice:42' not acquired in 1 attempt: held by",
        "extended: valid for",
        "QuorumUnreachable: 'invoice:42' not acquired in 1 attempt: 3 of 5 masters took no part",
        "quarantined",
        "more than",
        "Lock keys left on the masters that are up: 0",
    ):
        assert part in output


def test_benchmark():
    """With tiny numbers, so that it cannot rot; its figures are nobody's business here."""
    assert run("benchmarks.bench", "--rounds", "1", "--cycles", "3", seconds=30).count("median ratio") == 14
