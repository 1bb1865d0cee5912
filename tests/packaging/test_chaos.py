"""The chaos harness from the wheel: the commands of the workflow in docs/chaos.md, in an empty folder."""

from __future__ import annotations

import json
import os
import re
import subprocess

import pytest
import yaml

from tests.packaging.conftest import ROOT

pytestmark = pytest.mark.timeout(900)


def workflow():
    """What the page tells people to copy."""
    (text,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "chaos.md").read_text(encoding="utf-8"), re.DOTALL)
    return yaml.safe_load(text)


@pytest.fixture(scope="module")
def bare(environment):
    return environment


@pytest.fixture(scope="module")
def folder(bare, wheel, tmp_path_factory):
    """Where the workflow has been.  Only what it installs is not from an index."""
    made = tmp_path_factory.mktemp("empty")
    install, run = (step["run"] for step in workflow()["jobs"]["chaos"]["steps"] if "run" in step)
    assert install == 'pip install "$(ls redlock_quorum-*.whl)[chaos]"'
    bare.install(f"{wheel}[chaos]")  # as that does where the wheel is in the folder
    done = sh(bare, run, made)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 of 2 as they must be" in done.stdout
    return made


def sh(environment, command, cwd):
    """As a workflow runs it, with no trace of the repository."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "REDLOCK"))}
    path = f"{environment.python.parent}{os.pathsep}{kept['PATH']}"
    return subprocess.run(
        ["bash", "-e", "-c", command], cwd=cwd, env={**kept, "PATH": path}, capture_output=True,
        text=True, check=False, timeout=600,
    )  # fmt: skip


def test_it_kills_masters_and_catches_a_broken_lock(bare, folder):
    """The workflow ran both; the histories say what happened, and are judged again."""
    kill, minority = (f"chaos-out/{name}/history.jsonl" for name in ("kill", "variant-minority"))
    sound = sh(bare, f"redlock-chaos check {kill}", folder)
    assert sound.returncode == 0, sound.stdout + sound.stderr
    assert re.search('"op": ?"kill"', (folder / kill).read_text())
    broken = sh(bare, f"redlock-chaos check {minority} --must exclusive", folder)
    assert broken.returncode == 1, broken.stdout + broken.stderr
    assert (folder / "chaos-out" / "kill" / "timeline.html").stat().st_size


def test_it_says_how_it_is_called(bare, folder):
    done = sh(bare, "redlock-chaos --help", folder)
    assert "usage: redlock-chaos " in done.stdout
    assert "python -m" not in done.stdout
    listed = sh(bare, "redlock-chaos list", folder)
    assert listed.returncode == 0, listed.stderr
    assert "it needs the folder compose/ of the repository" in listed.stdout


def test_the_extra_brings_a_server(bare, folder):
    """So that nothing else need be installed."""
    looks = "import os; os.environ['PATH'] = ''; from redlock.testing import find_server; print(find_server())"
    done = bare.program(looks)
    assert done.stdout.startswith(str(bare.site)), done.stderr
    assert folder.is_dir()


def test_settings_of_ones_own(bare, folder):
    """One run, with a verdict in JSON; what it says to type again can be typed."""
    command = "redlock-chaos run --backend proxy --masters 3 --ttl 1 --duration 4 --faults kill --seed 5 --out mine"
    done = sh(bare, command, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "again: redlock-chaos run " in done.stdout
    assert json.loads((folder / "mine" / "verdict.json").read_text())["outcome"] == "passed"
