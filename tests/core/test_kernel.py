"""The kernel can be read: it is short, and it knows no policy."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

from redlock._core import kernel

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES = sorted(Path(kernel.__file__).parent.glob("*.py"))
MOST_LINES = 900
# Below it, or of all operations alike.  None of these is a policy.
KNOWS = {"doubt", "effects", "kernel", "lease", "local_queue", "notes", "outcomes", "settings", "tokens", "wire"}


def test_it_is_short() -> None:
    lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in FILES)
    assert lines <= MOST_LINES


def test_it_cites_no_rule_of_a_policy() -> None:
    cited = {int(number) for file in FILES for number in re.findall(r"\bR(\d+)\b", file.read_text(encoding="utf-8"))}
    assert {1, 2, 6, 8, 9, 10, 11, 12, 13, 14, 16, 17, 18} <= cited
    assert max(cited) <= 22


def _imported() -> Iterator[str]:
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("redlock._core"):
                rest = (node.module or "").split(".")[2:]
                yield from rest[:1] or [alias.name for alias in node.names]


def test_it_knows_no_policy() -> None:
    assert set(_imported()) <= KNOWS
