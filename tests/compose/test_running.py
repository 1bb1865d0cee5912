"""Where a Docker daemon runs already: see `running.py`."""

from __future__ import annotations

import pytest

from tests.compose.programs import COMPOSE, RUNNING, run


@pytest.mark.longest
@pytest.mark.timeout(600)
def test_a_daemon_that_runs_is_used_and_has_nothing_left(temporary):
    """As on a machine with Docker: try.sh and the harness in turn, to the end, killed, interrupted."""
    done = run(COMPOSE / "daemon.sh", *RUNNING, TMPDIR=str(temporary))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "nothing is left", done.stdout + done.stderr


@pytest.mark.timeout(300)
def test_what_is_left_is_noticed(temporary):
    """Something that is in use cannot be removed, and whoever is told 0 would believe that it was."""
    done = run(COMPOSE / "daemon.sh", *RUNNING, "leave", TMPDIR=str(temporary))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "left behind: " in done.stdout
