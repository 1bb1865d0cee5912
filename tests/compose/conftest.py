"""Where a Docker daemon can be had, and a folder in which nothing may be left."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from tests.compose.programs import COMPOSE, run


@pytest.fixture(scope="session")
def docker():
    """Skips where there is none and none can be started; fails with ``REDLOCK_TEST_REQUIRE_DOCKER``."""
    looked = run(COMPOSE / "daemon.sh", "--look")
    if looked.returncode == 0:
        return
    if os.environ.get("REDLOCK_TEST_REQUIRE_DOCKER"):
        pytest.fail(f"{looked.stderr.strip()}, and REDLOCK_TEST_REQUIRE_DOCKER forbids to skip", pytrace=False)
    pytest.skip(looked.stderr.strip())


@pytest.fixture
def temporary(docker):
    """A short one, for sockets stand in it.  No file and no process of it may be left, half a minute later."""
    folder = Path(tempfile.mkdtemp(prefix="try-"))
    yield folder
    until = time.monotonic() + 30
    while (left := _left(folder)) and time.monotonic() < until:
        time.sleep(0.1)
    shutil.rmtree(folder, ignore_errors=True)
    assert left == []


def _left(folder):
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    command = ["find", "/sys/fs/cgroup", "-type", "d", "-name", "redlock-compose-*"]
    groups = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    names = {path.name for path in folder.iterdir()}
    return [
        *(str(path) for path in sorted(folder.iterdir())),
        *(line for line in found.splitlines() if str(folder) in line),
        *(group for group in groups if Path(group).name in names),
    ]
