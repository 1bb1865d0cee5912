"""The kernel can be read: it is short, it knows no policy, and basic scenes run most of it."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redlock._core import kernel
from redlock._core.kernel.ballot import Grant
from tests.core.test_rollback import WAYS
from tests.core.world import START, Single, gone, ours, taken

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES = sorted(Path(kernel.__file__).parent.glob("*.py"))
MOST_LINES = 900
# Below it, or of all operations alike.  None of these is a policy.
KNOWS = {"doubt", "effects", "kernel", "lease", "local_queue", "notes", "outcomes", "settings", "tokens", "wire"}
LEAST_RUN = 0.6

# Of acquires; each that is granted is extended and released.
SCENES = [*WAYS.values(), [*[ours()] * 3, *[gone()] * 2], [taken()] * 5]


def statements(file: Path) -> set[int]:
    """The lines of the statements in functions: those of classes and imports run in any case."""
    lines = set()
    for function in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
                if isinstance(node, ast.stmt) and node is not function and not text:
                    lines.add(node.lineno)
    return lines


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


def test_basic_scenes_run_most_of_it() -> None:
    wanted = {str(file): statements(file) for file in FILES}
    run: set[tuple[str, int]] = set()

    def trace(frame: Any, event: str, _: object) -> Any:
        if frame.f_code.co_filename not in wanted:
            return None
        if event == "line":
            run.add((frame.f_code.co_filename, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for masters in SCENES:
            scene = Single(*masters)
            if isinstance(scene.world.run(scene.world.acquire(scene.spec, deadline=START)), Grant):
                scene.extend()
                scene.release()
    finally:
        sys.settrace(before)
    there = {(file, line) for file, lines in wanted.items() for line in lines}
    share = len(run & there) / len(there)
    assert share >= LEAST_RUN, f"{share:.0%} of {len(there)} statements"
