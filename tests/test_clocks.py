"""Which tests sleep, or look at a wall clock: hardly any, for on a busy machine they fail, or prove less than they say.

Time is virtual in `scenes/` and on the loop of `asyncio/virtual.py`: what is written there as a sleep is none.  Witnesses,
commands and adapters meet real processes, and may look at a clock.  Elsewhere a test waits for what must happen
(`eventually`, `soon`).
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
MAY = ("scenes", "witness", "commands", "adapters")
VIRTUAL = "tests.asyncio.virtual"
CLOCKS = {
    "sleep", "time.sleep", "asyncio.sleep", "time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns",
    "time.perf_counter", "time.clock_gettime", "monotonic", "perf_counter", "clock.now", "datetime.now", "punctually", "Watch",
}  # fmt: skip


def looks(node: ast.AST) -> bool:
    """``asyncio.sleep(0)`` is a turn of the loop, and no time."""
    if not isinstance(node, ast.Call) or (node.args and ast.unparse(node.args[0]) == "0"):
        return False
    return ast.unparse(node.func) in CLOCKS


def looking(text: str) -> list[str]:
    """The tests in a file with this text that do."""
    tree = ast.parse(text)
    if any(isinstance(node, ast.ImportFrom) and node.module == VIRTUAL for node in ast.walk(tree)):
        return []
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [one.name for one in functions if one.name.startswith("test_") and any(map(looks, ast.walk(one)))]


def test_hardly_any_test_looks_at_a_clock():
    found = {
        f"{path.relative_to(TESTS)}::{name}"
        for path in TESTS.rglob("*.py")
        if path.relative_to(TESTS).parts[0] not in MAY
        for name in looking(path.read_text(encoding="utf-8"))
    }
    assert {one for one in found if one.startswith("servers/")} == set()
    assert len(found) <= 10, found


@pytest.mark.parametrize(("line", "does"), [
    ("time.sleep(0.1)", True),
    ("began = time.monotonic()", True),
    ("await asyncio.sleep(1)", True),
    ("await asyncio.sleep(0)", False),
    ("redis.time()", False),
])  # fmt: skip
def test_what_a_look_is(line, does):
    assert looking(f"async def test_it():\n    {line}\ndef helper():\n    time.sleep(1)\n") == ["test_it"] * does
