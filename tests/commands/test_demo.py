"""What the README tells people to run does run, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", *arguments], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
    return done.stdout


def test_demo():
    output = run("examples.demo")
    for part in (
        "fencing token",
        "NotAcquired: 'invoice:42' not acquired in 1 attempt: held by",
        "extended: valid for",
        "QuorumUnreachable: 'invoice:42' not acquired in 1 attempt: at least 3 of 5 masters did not vote",
        "quarantined",
        "more than",
        "Lock keys left on the masters that are up: 0",
    ):
        assert part in output
