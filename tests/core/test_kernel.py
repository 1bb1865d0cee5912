"""The kernel can be read: it is short, it knows no policy, and basic scenes run most of it."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redlock._core import kernel
from redlock._core.acquire import Target, acquire
from redlock._core.kernel.extension import extend
from redlock._core.kernel.release import release
from redlock._core.lease import LeaseState
from tests.core.world import START, Master, World, down

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FILES = sorted(Path(kernel.__file__).parent.glob("*.py"))
MOST_LINES = 900
# Below it, or of all operations alike.  None of these is a policy.
KNOWS = {"doubt", "effects", "kernel", "lease", "local_queue", "notes", "outcomes", "settings", "tokens", "wire"}
LEAST_RUN = 0.6

GREATER, HELD = [2, b"9999999999999999"[:15]], [0, b"0", b"x", 500]


def acquired(*masters: Master, released: bool = True) -> None:
    """One acquire, an extension, and the release."""
    world = World(*masters)
    spec = world.spec(ttl=10.0)
    lease = LeaseState(spec, clock=lambda: world.now, mine=lambda: True)
    target = Target(world.settings, spec)
    outcome = world.run(acquire(target, START, world.now, lambda grant: target.granted(lease, grant)))
    if released and type(outcome).__name__ == "Grant":
        world.run(extend(world.settings, spec, lease, 10.0, world.now))
        world.run(release(world.settings, spec, lease))


def silent() -> Master:
    return Master(9.0)


SCENES: dict[str, Callable[[], object]] = {
    "all grant": lambda: acquired(*[Master(0.01)] * 5),
    "two hang": lambda: acquired(*[Master(0.01)] * 3, silent(), silent()),
    "two are down": lambda: acquired(*[Master(0.01)] * 3, down(), down()),
    "it is held": lambda: acquired(*[Master(0.01, {"acquire": HELD})] * 5),
    "three hang": lambda: acquired(*[Master(0.01)] * 2, *[silent()] * 3),
    "they are too late": lambda: acquired(*[Master(0.24)] * 5),
    "a greater fence": lambda: acquired(*[Master(0.01, {"acquire": GREATER})] * 5),
    "two have lost the key": lambda: acquired(*[Master(0.01)] * 3, *[Master(0.01, {"extend": [0, b""]})] * 2),
    "it was lost": lambda: acquired(*[Master(0.01, {"extend": [0, b"x"]})] * 5),
}


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
        for scene in SCENES.values():
            scene()
    finally:
        sys.settrace(before)
    there = {(file, line) for file, lines in wanted.items() for line in lines}
    share = len(run & there) / len(there)
    assert share >= LEAST_RUN, f"{share:.0%} of {len(there)} statements"
