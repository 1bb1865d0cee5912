"""``python -m tests.docs.owners``: the table of `tests/PAGE.md` that says who proves what, from marks and variants."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict

from tests.bench.variants import VARIANTS
from tests.docs.pages import ROOT
from tests.docs.test_rules import defined

TESTS = ROOT / "tests"
PAGE = TESTS / "owners.md"
# What chaos has of a rule: what it judges, or the scenario or the broken variant that is about it.
CHAOS = dict(
    pair.split("=") for pair in ["P1=exclusive", "P2=fenced", "P3=live", "P4=live", "P5=amnesia-guarded", "P6=prompt", "P7=clean", "P8=no-owner-check", "R1=minority", "R5=wall-clock", "R8=one-token", "R9=no-rollback", "R10=clean", "R11=clean", "R12=resurrecting-extension", "R14=no-repair", "R16=fence-by-maximum", "R17=fenced", "R18=fenced", "R19=fenced", "R21=amnesia-guarded", "R22=amnesia", "R31=resigns-late", "R32=slots", "R33=counts-no-readers", "R34=records-every-list", "R35=trusts-expiry", "R39=without-fence-row", "R42=in-order", "R44=functions", "R43=slewed"]
)  # fmt: skip
_TABLE = re.compile(r"\| rule \|.*", re.DOTALL)
_RULE = re.compile(r"\b[PRC]\d+\b")


def marked(kind):
    """The tests with this mark, by rule: ``scenes/test_loss.py::test_x``, or the file alone."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if f"{kind}(" in text:
            name = path.relative_to(TESTS).as_posix()
            for where, rule in _marks(ast.parse(text), kind):
                found[rule].append(f"{name}::{where}" if where else name)
    return found


def _marks(tree, kind):
    for node in tree.body:
        calls = node.decorator_list if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else []
        name = getattr(node, "name", "")
        if isinstance(node, ast.Assign):
            name = getattr(node.targets[0], "id", "")
            calls = node.value.elts if isinstance(node.value, ast.List) else [node.value]
            if name.startswith("test_"):  # a scene that is played with other settings: proves(...)(scene(...)(...))
                calls = [getattr(call, "func", call) for call in calls]
            name = "" if name == "pytestmark" else name
        for call in calls:
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == kind:
                for rule in call.args:
                    yield name, ast.literal_eval(rule)


def breaks():
    """By rule the variants that break it, each with the test that is red for it."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for name, one in VARIANTS.items():
        by = one.scene or "simulation/test_shipped.py"
        by = by if ".py" in by else "scenes/{}.py::{}".format(*by.split(".", 1))
        for rule in dict.fromkeys(_RULE.findall(" ".join((one.what, *one.expected)))):
            found[rule].append((name, by))
    return found


def turned_red(owner, rule, broken):
    """The first variant of ``rule`` for which this owner is red."""
    for name, by in broken[rule]:
        if by == owner or by.startswith(f"{owner}::") or owner.startswith(f"{by}::"):
            return name
    return None


def table():
    owners, witnesses, broken = marked("proves"), marked("witness"), breaks()
    lines = ["| rule | proved in | turned red by | on real servers | chaos |", "|---|---|---|---|---|"]
    for rule in defined():
        owner = owners[rule][0] if owners[rule] else ""
        words = (owner, turned_red(owner, rule, broken), next(iter(witnesses[rule]), None), CHAOS.get(rule))
        lines.append(f"| {rule} | {' | '.join(f'`{_short(word)}`' if word else '-' for word in words)} |")
    return "\n".join(lines) + "\n"


def _short(word):
    return word.replace("::test_", "::")


def written(text):
    return _TABLE.sub(lambda _: table(), text, count=1)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.exit(0)
