"""What the README tells people to run does run, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys


def test_demo():
    demo = [sys.executable, "-W", "error", "-m", "examples.demo"]
    done = subprocess.run(demo, capture_output=True, text=True, timeout=180, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    for part in (
        "all five vote",
        "fencing token",
        "NotAcquired: 'invoice:42' not acquired in 1 attempt: held by",
        "extended: valid for",
        "QuorumUnreachable: 'invoice:42' not acquired in 1 attempt: at least 3 of 5 masters did not vote",
        "quarantined",
        "more than",
        "Lock keys left on the masters that are up: 0",
    ):
        assert part in done.stdout
