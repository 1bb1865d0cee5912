"""docs/redlock-check.md has what the code has: every finding, every field, every metric, every option."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from pathlib import Path

import pytest

from redlock import Finding, Health, MasterHealth, MastersList, Probe, QuorumHealth
from redlock._cli import check, prometheus, run
from redlock._health import fleet, verdict

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGE = (DOCS / "redlock-check.md").read_text(encoding="utf-8")


def codes_of_the_code():
    source = inspect.getsource(verdict) + inspect.getsource(fleet)
    found = re.findall(r'(?:Finding\(\s*"(?:critical|warning)",|level,)\s*"([a-z-]+)"', source)
    found += re.findall(r'^        "([a-z-]+)",$', source, re.MULTILINE)  # of the table of failures
    found += re.findall(r'(?:return|code, message, advice =) "([a-z-]+)", ', source)
    return set(found) - {"critical", "warning"}


def test_every_finding_is_explained_and_nothing_else():
    table = PAGE[PAGE.index("| code |") : PAGE.index("A master without persistence")]
    documented = set(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE))
    assert len(documented) > 15
    assert documented == codes_of_the_code()


def test_the_json_has_the_fields_of_the_records():
    [example] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    document = json.loads(example)
    for kind, part in (
        (Health, {name: value for name, value in document.items() if name != "schema"}),
        (QuorumHealth, document["quorum"]),
        (Probe, document["quorum"]["probe"]),
        (MasterHealth, document["masters"][0]),
        (Finding, document["findings"][0]),
        (MastersList, document["fleet"][0]),
    ):
        assert list(part) == [field.name for field in dataclasses.fields(kind)]


def test_every_metric_is_named():
    names = re.findall(r'yield \(?\s*"(\w+)"', inspect.getsource(prometheus))
    assert len(names) > 15
    for name in names:
        assert f"redlock_{name}" in PAGE or f"`{name.removeprefix('master')}`" in PAGE, name


@pytest.mark.parametrize(("page", "parser"), [("redlock-check.md", check.parser()), ("redlock-run.md", run.parser())])
def test_every_option_is_on_the_page(page, parser):
    text = (DOCS / page).read_text(encoding="utf-8")
    for action in parser._actions:
        for option in action.option_strings:
            assert option in ("-h", "--help", "-v") or option in text, option
