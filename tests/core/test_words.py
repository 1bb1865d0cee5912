"""What users read names who acts: the client, the master, the waiter, the lease.  Errors, log records, findings, help."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(file for folder in ("redlock", "chaos") for file in (ROOT / folder).rglob("*.py"))
KEPT = ("by nobody: the last lease may still be valid",)  # there is no holder to name
WORST = (
    r"\b(nobody|somebody|anybody|everybody|everyone|whoever|whatever it)\b",
    r"\b(those|they|it) stands?\b|\bthose who\b",
    r"\b(is|are|was|were|been) (not |never )?told\b",
    r"\bhears? of\b",
    r"\b(is|are|was) over\b(?! or has failed)",
    r"\bmeanwhile\.?$|\bas ever\b|\bby now\b",
    r"\b(to )?have it alone\b",
    r"\bwas had\b|\bhas to be had\b",
    r"\bthat is there\b",
    r"(^|: |, )what (is|was|has|would|it|they)\b",
    r"(^|: |, )who (is|has|waits|stands)\b",
    r"\{self\.",  # not an f-string: its reader sees the name of a field
)


def visible(text: str) -> list[str]:
    """The strings of a file that are sentences, f-strings with `{}` for their fields; docstrings are left out."""
    tree = ast.parse(text)
    left = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    left |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    found = []
    for node in ast.walk(tree):
        if id(node) in left:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
        elif isinstance(node, ast.JoinedStr):
            found.append("".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values))
    return [said for said in found if " " in said.strip()]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_texts_for_users_name_who_acts(file):
    wrong = [
        f"{pattern}: {said}"
        for said in visible(file.read_text())
        for pattern in WORST
        if re.search(pattern, said, re.IGNORECASE) and not said.startswith(KEPT)
    ]
    assert not wrong, "name the client, the master, the operation, the waiter or the lease:\n" + "\n".join(wrong)
