"""Every promise that is cited anywhere is defined in docs/concepts/promises.md, every rule in docs/rules.md, once.

A citation is a number alone, as in ``(R13)`` or ``P1-P8``.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import groupby

import pytest

from redlock._core.renewals import RENEWALS
from tests.docs.pages import DOCS, ROOT

RULES = DOCS / "rules.md"
PROMISES = DOCS / "concepts" / "promises.md"
# Whatever is written by people, in these places.
PLACES = ("redlock", "chaos", "benchmarks", "compose", "examples", "tools", "tests", "docs")
KINDS = {".py", ".lua", ".md", ".sh", ".yml", ".c"}

_DEFINED = re.compile(r"^(?:- \*\*([RC]\d+)\*\* \S|\| (P\d+) \S)", re.MULTILINE)
_CITED = re.compile(r"\b[PRC]\d+\b")
_RENEWED = re.compile(r"[Rr]enew[^.]{,60} (?:a|every) (half|third|quarter) of (?:its|that|the)\b")
_SECTION = re.compile(r"\bsections? \d+", re.IGNORECASE)
_LINTER = re.compile(r"# noqa: [\w, ]+")  # its C901 is no rule of ours
_THIS = "tests/docs/test_rules.py"


def defined():
    found = [_DEFINED.findall(page.read_text(encoding="utf-8")) for page in (PROMISES, RULES)]
    return [rule or promise for rules in found for rule, promise in rules]


def places():
    inside = (path for place in PLACES for path in (ROOT / place).rglob("*"))
    for path in sorted([*inside, *ROOT.glob("*.md")]):
        name = path.relative_to(ROOT).as_posix()
        built = {"_build", "__pycache__", "secrets", "version_0_1"} & set(path.parts)  # the last one is frozen
        if path.is_file() and path.suffix in KINDS and not built and name != _THIS:
            yield path


def unresolved(text):
    """Where ``text`` cites what is not there: the lines, and what they cite."""
    known = set(defined())
    found = []
    for number, line in enumerate(_LINTER.sub("", text).splitlines(), start=1):
        wrong = [cited for cited in _CITED.findall(line) if cited not in known] + _SECTION.findall(line)
        if wrong:
            found.append(f"line {number}: {', '.join(wrong)}")
    return found


def test_all_prose_says_how_early_a_lease_is_renewed():
    """R15: a dozen places say it, for each is read alone."""
    said = Counter(part for path in places() for part in _RENEWED.findall(" ".join(path.read_text("utf-8").split())))
    assert said.keys() == {{2: "half", 3: "third", 4: "quarter"}[RENEWALS]}
    assert said.total() > 10


def test_every_number_is_defined_once_and_none_is_left_out():
    numbers = defined()
    series = {letter: [int(one[1:]) for one in ones] for letter, ones in groupby(numbers, key=lambda one: one[0])}
    assert list(series) == ["P", "R", "C"]
    for letter, found in series.items():
        assert sorted(found) == [*range(1, found[-1] + 1)], letter
    assert len(series["P"]) >= 8
    assert len(series["R"]) >= 26
    assert len(series["C"]) >= 32


def test_every_rule_that_is_cited_is_there():
    found = {path.relative_to(ROOT).as_posix(): unresolved(path.read_text(encoding="utf-8")) for path in places()}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize("text", [
    '"""Released on all masters (R99)."""',
    "said (R13, C33) and kept",
    "Section 5: refused where it is given",
    "return 1  # noqa: C901 - R0 says so",
])  # fmt: skip
def test_one_that_is_not_is_noticed(text):
    assert len(unresolved(f"(R13)\n{text}\n")) == 1


def test_code_of_every_kind_is_looked_at():
    looked_at = {path.relative_to(ROOT).as_posix() for path in places()}
    assert {
        "redlock/_core/acquire.py", "redlock/scripts/acquire.lua", "chaos/judge/live.py", "tests/README.md",
        "docs/design.md", "CONTRIBUTING.md", "tests/bench/variants/client.py",
    } <= looked_at  # fmt: skip


def test_one_page_has_the_promises():
    """They were on four, and no two said the same."""
    said = "leases on one name are never valid at the same time"
    found = [page.relative_to(ROOT).as_posix() for page in [ROOT / "README.md", *DOCS.rglob("*.md")]
             if said in " ".join(page.read_text(encoding="utf-8").split()) and "_build" not in page.parts]  # fmt: skip
    assert found == ["docs/concepts/promises.md"]
