from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.build import Environment

ROOT = Path(__file__).parent.parent.parent


def built(source, kind, into):
    """What the build backend makes of ``source``: a "wheel" or an "sdist"."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(into)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = into.iterdir()
    return path


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    return built(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def sdist(tmp_path_factory):
    return built(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="session")
def wheel_of_sdist(sdist, tmp_path_factory):
    """What somebody builds who has no repository."""
    import tarfile  # noqa: PLC0415 - nobody else needs it

    source = tmp_path_factory.mktemp("source")
    with tarfile.open(sdist) as archive:
        archive.extractall(source, filter="data")
    (root,) = source.iterdir()
    return built(root, "wheel", tmp_path_factory.mktemp("wheel_of_sdist"))


@pytest.fixture(scope="session")
def environment(wheel, tmp_path_factory):
    """A fresh one, with the built wheel and what that asks for, and nothing else.  Who changes it puts that back."""
    made = Environment(tmp_path_factory.mktemp("environment") / "venv")
    made.install(f"{wheel}[local]")
    return made
