"""Where a Docker daemon can be had: the five masters of ``compose/`` are started, broken and removed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NoReturn

import pytest

from tests.compose.programs import COMPOSE, ENVIRONMENT, run


def missing(what: str) -> NoReturn:
    if os.environ.get("REDLOCK_TEST_REQUIRE_DOCKER"):
        pytest.fail(f"{what}, and REDLOCK_TEST_REQUIRE_DOCKER forbids to skip", pytrace=False)
    pytest.skip(what)


@pytest.fixture
def temporary():
    """A short one, for sockets stand in it.  Nothing may be left there."""
    folder = Path(tempfile.mkdtemp(prefix="try-"))
    yield folder
    left = sorted(folder.iterdir())
    shutil.rmtree(folder, ignore_errors=True)
    assert left == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize("overlays", [[], ["tls"], ["volatile"], ["app"]], ids=lambda overlays: "-".join(overlays) or "plain")
def test_it_works(overlays, temporary):
    done = run(COMPOSE / "try.sh", *overlays, TMPDIR=str(temporary))
    if done.returncode == 69:
        missing(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-2:] == ["-- all was as it should be", "-- removing everything"]


@pytest.mark.timeout(900)
def test_nothing_is_left_of_one_that_was_interrupted(temporary):
    process = subprocess.Popen(
        [str(COMPOSE / "try.sh")], env={**ENVIRONMENT, "TMPDIR": str(temporary)}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    with process.stdout:
        said = [next(process.stdout, "")]
        while said[-1] and "healthy masters" not in said[-1]:
            said.append(next(process.stdout, ""))
        process.terminate()
        said += process.stdout
    if process.wait() == 69:
        missing("".join(said).strip())
    assert process.returncode == 143, "".join(said)
    until = time.monotonic() + 30
    while servers(temporary) and time.monotonic() < until:
        time.sleep(0.1)
    assert servers(temporary) == []


def servers(temporary: Path) -> list[str]:
    """Processes that have to do with that folder."""
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in found.splitlines() if str(temporary) in line]
