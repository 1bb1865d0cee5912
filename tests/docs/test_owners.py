"""The table of `tests/README.md` that says who proves what: every rule is in it, and what it names is there and cites the rule."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from chaos.history import MUST
from chaos.scenarios import SCENARIOS
from chaos.variants import VARIANTS
from tests.docs.pages import ROOT
from tests.docs.test_rules import defined

if TYPE_CHECKING:
    from pathlib import Path

TESTS = ROOT / "tests"
REAL = ("witness", "servers", "fenced", "adapters", "compat", "compose")
_ROW = re.compile(r"^\| ([PR]\d+) \| (\S+) \| (\S+) \| (\S+) \|$", re.MULTILINE)
_NOTHING = "-"


def rows(text: str) -> list[tuple[str, str, str, str]]:
    return [(rule, *(word.strip("`") for word in words)) for rule, *words in _ROW.findall(text)]


def wrong(row: tuple[str, str, str, str]) -> list[str]:
    """What does not hold of it."""
    rule, owner, witness, chaos = row
    found = [f"{file} does not cite {rule}" for file in {owner, witness} - {_NOTHING} if not cites(TESTS / file, rule)]
    if owner == _NOTHING:
        found.append(f"nobody proves {rule}")
    if witness != _NOTHING and witness.partition("/")[0] not in REAL:
        found.append(f"{witness} has no real servers")
    if chaos not in {_NOTHING, *MUST, *SCENARIOS, *VARIANTS}:
        found.append(f"chaos has no {chaos}")
    return found


def cites(file: Path, rule: str) -> bool:
    """By its number, or in a range such as R16-R19."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    ranges = re.findall(rf"\b{rule[0]}(\d+)[-\u2013]{rule[0]}(\d+)\b", text)
    return bool(re.search(rf"\b{rule}\b", text)) or any(int(a) <= int(rule[1:]) <= int(b) for a, b in ranges)


def test_every_rule_and_promise_has_an_owner():
    table = rows((TESTS / "README.md").read_text(encoding="utf-8"))
    assert [rule for rule, *_ in table] == [rule for rule in defined() if rule[0] != "C"]
    assert [what for row in table for what in wrong(row)] == []


@pytest.mark.parametrize("row", [
    ("P1", "core/test_retry.py", "-", "-"),  # does not cite it
    ("P1", "core/no_such.py", "-", "-"),
    ("P1", "-", "servers/test_queue.py", "exclusive"),
    ("R1", "core/test_quorum.py", "core/test_quorum.py", "-"),
    ("R1", "core/test_quorum.py", "-", "majority"),
])  # fmt: skip
def test_a_row_that_is_wrong_is_noticed(row):
    assert len(wrong(row)) == 1
