"""Files that machines elsewhere read: GitHub, Read the Docs, who cites.  They are checked here, and did not run here."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.packaging.conftest import ROOT
from tests.packaging.release import main, objections

TOOLS = Path(sys.executable).parent
WORKFLOWS = sorted(str(file.relative_to(ROOT)) for file in ROOT.glob(".github/workflows/*.yml"))
SCHEMAS = {  # those of one schema are checked together: the checker starts slowly
    "github-workflows": WORKFLOWS,
    "dependabot": [".github/dependabot.yml"],
    "readthedocs": [".readthedocs.yaml"],
    "citation-file-format": ["CITATION.cff"],
}


def _said(tool, *words):
    done = subprocess.run([TOOLS / tool, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr if done.returncode else ""


def fits(schema, *files):
    """What is wrong with the files."""
    return _said("check-jsonschema", "--builtin-schema", f"vendor.{schema}", *files)


def holes(path):
    """What `zizmor` finds in workflows: expressions in scripts, rights that nobody needs, actions that are not pinned."""
    return _said("zizmor", "--offline", "--quiet", "--no-progress", "--format", "plain", path)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_they_are_what_their_readers_know(schema):
    assert SCHEMAS[schema]
    assert not fits(schema, *SCHEMAS[schema])


def test_the_workflow_of_the_page_is_one(tmp_path):
    (text,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "chaos.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(text.splitlines()) <= 10
    file = tmp_path / "chaos.yml"
    file.write_text(text)
    assert not fits("github-workflows", file)


def test_no_holes():
    assert not holes(".")


def test_that_it_can_fail(tmp_path):
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    text = (ROOT / ".github" / "workflows" / "codeql.yml").read_text(encoding="utf-8")
    wrong = folder / "wrong.yml"
    wrong.write_text(text.replace("runs-on:", "run-on:"))
    assert fits("github-workflows", wrong)
    wrong.write_text(text.replace("steps:", "steps:\n      - run: echo ${{ github.event.pull_request.title }}"))
    assert "template-injection" in holes(tmp_path)


# -- what they call is there ---------------------------------------------------------------------------


def steps(file):
    for job in yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))["jobs"].values():
        yield from job.get("steps", ())


@pytest.mark.parametrize("file", WORKFLOWS)
def test_targets_and_files_that_workflows_name(file):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for step in steps(file):
        for line in step.get("run", "").splitlines():
            words = shlex.split(re.sub(r"\$\{\{.*?\}\}", "X", line))
            if words[:1] == ["make"]:
                targets = [one for one in words[1:] if re.fullmatch("[a-z-]+", one)]
                assert all(f"\n{one}:" in makefile for one in targets), line
            for word in words:
                if word.startswith("tests/"):
                    assert (ROOT / word).exists(), line


def test_hooks_call_what_is_there():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for hook in config["repos"][0]["hooks"]:
        program, *words = shlex.split(hook["entry"])
        assert f"\n{words[0]}:" in makefile if program == "make" else (ROOT / words[-1]).is_file()


def test_hosted_pages_are_built_from_what_is_declared():
    config = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text(encoding="utf-8"))
    install = config["build"]["jobs"]["install"][-1]
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    assert install.endswith("--group docs")
    assert "docs" in groups
    assert (ROOT / config["sphinx"]["configuration"]).is_file()


# -- a release -------------------------------------------------------------------------------------------

PROJECT = {"urls": {"Source": "https://example.org"}}
PACKAGE = '__version__ = "1.2.3"\n'
CHANGELOG = "# Changelog\n\n## Unreleased\n\n## 1.2.3 - 2026-01-02\n\n### Added\n\n- A.\n"
CITATION = "title: x\nversion: 1.2.3\ndate-released: 2026-01-02\n"


def test_nothing_is_in_the_way_of_a_release():
    assert objections("v1.2.3", PROJECT, PACKAGE, CHANGELOG, CITATION) == []


@pytest.mark.parametrize(("change", "says"), [
    ({"tag": "v1.2.4"}, "the tag is v1.2.4"),
    ({"project": {}}, "no [project.urls]"),
    ({"changelog": CHANGELOG.replace("1.2.3 - ", "1.2.2 - ")}, "no part for 1.2.3"),
    ({"changelog": CHANGELOG.replace("Unreleased\n", "Unreleased\n\n### Fixed\n\n- B.\n")}, "under Unreleased"),
    ({"citation": CITATION.replace("01-02", "01-03")}, "date-released: 2026-01-02"),
    ({"citation": CITATION.replace("1.2.3", "1.2.2")}, "version: 1.2.3"),
])  # fmt: skip
def test_what_is_in_the_way(change, says):
    given = {"tag": "v1.2.3", "project": PROJECT, "package": PACKAGE, "changelog": CHANGELOG, "citation": CITATION}
    found = objections(**given | change)
    assert any(says in one for one in found), found


def test_without_an_address_nothing_is_published(capsys):
    """Nobody has made one up; the program that the workflow runs says so."""
    assert main("v0.0.0") == 1
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert ("[project.urls]" in capsys.readouterr().err) == ("urls" not in project)


def test_who_cites_names_the_version_and_the_authors_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert [one["name"] for one in citation["authors"]] == [one["name"] for one in project["authors"]]
    assert (citation["title"], citation["license"]) == (project["name"], project["license"])
    released = re.findall(r"^## (\d+\.\d+\.\d+) - (.*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert (citation["version"], citation["date-released"]) == released[0]
