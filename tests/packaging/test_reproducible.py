"""Two builds of one commit are the same files, on any machine and for any user."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys

import pytest

from tests.packaging.conftest import ROOT

SOURCES = ("redlock", "chaos", "share", "docs", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md")


def hashes(folder, epoch, umask, *kinds):
    """Built in a copy in ``folder``, whose files are new, by somebody with another umask and another hash seed."""
    source = folder / "source"
    source.mkdir(parents=True)
    for name in SOURCES:
        there = ROOT / name
        if there.is_dir():
            ignore = shutil.ignore_patterns("__pycache__", "_build")
            shutil.copytree(there, source / name, ignore=ignore, copy_function=shutil.copyfile)
        else:
            shutil.copyfile(there, source / name)
    shutil.copyfile(ROOT / ".gitignore", source / ".gitignore")
    for number, file in enumerate(sorted(source.rglob("*"), reverse=epoch % 2 == 0)):
        os.utime(file, (number, number + epoch))
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", *(f"-t{kind}" for kind in kinds), "-d", str(folder / "dist")],
        cwd=source, umask=umask, capture_output=True, text=True, check=False,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": str(umask + 1), "TZ": f"X{umask % 12}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted((folder / "dist").iterdir())}


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    return hashes(tmp_path_factory.mktemp("here"), 1_790_000_000, 0o022, "sdist", "wheel")


def test_two_builds_are_the_same(once, tmp_path):
    assert sorted(name.rpartition(".")[2] for name in once) == ["gz", "whl"]
    assert hashes(tmp_path / "deeper" / "elsewhere", 1_790_000_000, 0o077, "sdist", "wheel") == once


def test_the_time_that_is_given_is_in_there(once, tmp_path):
    """So the test above compares something: builds that differ in anything have other hashes."""
    ((name, other),) = hashes(tmp_path, 1_790_000_002, 0o022, "wheel").items()
    assert other != once[name]
