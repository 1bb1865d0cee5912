"""What is said to be supported is what CI runs, in the three places where it is written."""

from __future__ import annotations

import ast
import re
import tomllib

import pytest

import redlock
from tests.packaging.conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
RELEASED = re.findall(r"^## (\d+\.\d+\.\d+) - (\d{4}-\d\d-\d\d)$", CHANGELOG, re.MULTILINE)


def constant(name):
    """Of the noxfile, whose own import needs nox."""
    for node in ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
            return ast.literal_eval(node.value)
    raise AssertionError(name)


def in_workflow(key):
    """Every list of the matrix that has this name."""
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    return [re.findall(r"[\w.-]+", found) for found in re.findall(rf"^ +{key}: \[(.*)\]$", text, re.MULTILINE)]


def test_one_version():
    """The newest one of the changelog is that of the package, or the one before it; the build and the pages read it there."""
    assert [date for _, date in RELEASED] == sorted((date for _, date in RELEASED), reverse=True)
    numbers, dev, _ = redlock.__version__.partition(".dev")
    newest = [int(number) for number in RELEASED[0][0].split(".")]
    assert ([int(number) for number in numbers.split(".")] > newest) if dev else (numbers == RELEASED[0][0])
    assert CHANGELOG.index("## Unreleased") < CHANGELOG.index(f"## {RELEASED[0][0]}")
    assert "version" in PROJECT["dynamic"]


def test_the_scripts_of_every_version_before_this_one_are_kept():
    """Clients of both meet on the same masters (docs/upgrading.md)."""
    kept = {folder.name for folder in (ROOT / "tests" / "servers").glob("version_*")}
    before = [version for version, _ in RELEASED if version != redlock.__version__]
    assert before
    assert kept == {"version_{}_{}".format(*version.split(".")) for version in before}


def test_every_heading_of_the_changelog_is_one_that_its_format_knows():
    known = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.*)$", CHANGELOG, re.MULTILINE)) <= known


def test_pythons():
    pythons = constant("PYTHONS")
    assert in_workflow("python") == [pythons]
    said = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", one)]
    assert set(said) <= set(pythons)  # the newest is tried before it is promised
    assert said[0] == pythons[0] == constant("OLDEST_PYTHON")
    assert PROJECT["requires-python"] == f">={pythons[0]}"


def test_servers():
    *whole, some = in_workflow("server")
    assert whole == [constant("SERVERS"), constant("OLDEST_SERVERS")]
    assert {*constant("OLDEST_SERVERS"), *some} == {*constant("WHEELS"), *constant("SOURCES")}


def test_every_dependency_has_a_lower_bound_that_can_be_pinned():
    extras = PROJECT["optional-dependencies"]
    for bound in (*PROJECT["dependencies"], *(one for extra in extras.values() for one in extra)):
        assert re.fullmatch(r"[a-z-]+(\[[a-z]+\])?>=[0-9.]+(,<[0-9]+)?(; sys_platform != 'win32')?", bound), bound


def test_systems():
    """Those that are claimed run tests. On the other one no lock is taken, and what works there is tested."""
    said = {one.rpartition(" :: ")[2] for one in PROJECT["classifiers"] if one.startswith("Operating System")}
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    runs = {word for word in ("ubuntu", "macos", "windows") if f"runs-on: {word}-" in text}
    assert (said, runs) == ({"Linux", "MacOS"}, {"ubuntu", "macos", "windows"})
    _, _, windows = text.partition("runs-on: windows-")
    assert "pytest -q tests/windows" in windows.partition("runs-on:")[0]


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_all_workflows_pin_an_action_alike():
    pins = {pin for file in WORKFLOWS for pin in re.findall(r"uses: ([\w/-]+)@(.*)", file.read_text(encoding="utf-8"))}
    assert len(pins) == len({action for action, _ in pins}), sorted(pins)


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_the_actions_are_pinned(file):
    used = [one for one in re.findall(r"uses: (.*)", file.read_text(encoding="utf-8")) if not one.startswith("./")]
    assert used
    for one in used:
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[0-9.]+", one), one
