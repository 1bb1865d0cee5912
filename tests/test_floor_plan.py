"""Arrows point down: who may import whom inside ``redlock`` and ``chaos``, read from the source of every file.

The plan of ``redlock`` is the drawing in docs/design.md, which also names every file; that of ``chaos`` stands here.
How imports are judged:

- one inside a function is an import: it runs, only later.  It cannot make a cycle, though: two files of one room may know
  each other, as `Masters.lock` and `MultiLock` do; across rooms it is an arrow;
- one under ``if TYPE_CHECKING:`` does not run, so it brings no clock into the core and cannot make a cycle; but it is an
  arrow, for who reads the file has to know the other one;
- in the core no files make a circle, of whatever imports: each of them can be read with those below it alone;
- ``importlib.import_module``, ``__import__``, ``exec`` and ``eval`` could bring anything, so the core has none of them.
"""

from __future__ import annotations

import ast
import graphlib
import re
from dataclasses import dataclass
from importlib.util import resolve_name
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
PACKAGES = ("redlock", "chaos")
PAGE = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")


def drawn(page: str) -> list[dict[str, set[str]]]:
    """The floors of the drawing, from the bottom up: the rooms of each, and the files in them.

    A room begins a line, and more of its files follow in indented lines; ``#`` begins a remark, ``|`` ends a floor.
    """
    drawing = re.search(r"^## The shape\n.*?^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert drawing is not None
    floors: list[dict[str, set[str]]] = [{}]
    room = ""
    for line in drawing[1].splitlines():
        words = line.partition("#")[0].split()
        if words[:1] == ["|"]:
            floors.insert(0, {})
        elif words:
            if not line.startswith(" "):
                name = words.pop(0).removesuffix(".py").removesuffix("/")
                room = "redlock" if name == "__init__" else f"redlock.{name}"
            floors[0].setdefault(room, set()).update(words)
    return floors


# Above `redlock`, from the bottom up.  A room may import from the floors below, and from itself.
CHAOS: tuple[tuple[str, ...], ...] = (
    ("chaos", "chaos.faults", "chaos.specification", "chaos.second"),  # the second judge knows nothing of the first
    ("chaos.history", "chaos.lists"),
    # the judge is as pure as the core: no clock, no file
    ("chaos.judge", "chaos.control", "chaos.scopes", "chaos.proof"),
    ("chaos.summary", "chaos.settings", "chaos.mutants"),
    ("chaos.report", "chaos.plan", "chaos.scenarios", "chaos.variants", "chaos.fleets"),
    ("chaos.check", "chaos.names", "chaos.backends", "chaos.clients", "chaos.databases", "chaos.pulse"),
    ("chaos.explore", "chaos.export"),
    ("chaos.cast", "chaos.growth", "chaos.prove"),  # who starts those who work
    ("chaos.nemesis",),  # who breaks
    ("chaos.session",),
    ("chaos.launch",),  # starts sessions, and has them judged
    ("chaos.run",),
    ("chaos.ci", "chaos.catalogue"),
    ("chaos.__main__",),  # imports no command before it is asked for
)
FLOOR = {room: number for number, rooms in enumerate([*drawn(PAGE), *CHAOS]) for room in rooms}

# Above the public names everything uses only these; testing, observe and adapters are public as well.
GUESTS = ("redlock._cli", "redlock.testing", "redlock.observe", "redlock.adapters", "redlock.compat", "redlock.fenced")
PUBLIC = ("redlock", "redlock.testing", "redlock.observe", "redlock.adapters", "redlock.compat", "redlock.fenced")
# redlock-check asks addresses of which no `Masters` can be made yet: it learns from them which max_ttl they have.
# FixedMasters have to know which script they are asked to run, and LocalMasters hand on the options of `Masters`.
# Both may start servers, and say where there are none.
# redlock-run says which masters may not have heard of a release: that stands in the table of outcomes.
ALSO = {
    "redlock._cli": ("redlock._health", "redlock._local", "redlock._system.platform", "redlock.errors"),
    "redlock.testing": ("redlock.scripts", "redlock._local", "redlock._lock.typed", "redlock._system.platform"),
}
# The judge must not depend on what is judged.
APART = (
    "chaos.history", "chaos.judge", "chaos.summary", "chaos.report", "chaos.check", "chaos.__main__",
    "chaos.specification", "chaos.lists", "chaos.fleets", "chaos.scopes", "chaos.mutants", "chaos.explore", "chaos.export",
    "chaos.proof", "chaos.prove", "chaos.second",
)  # fmt: skip
# Breaks the library on purpose, so it alone may know what is private there.
BREAKS = "chaos.variants"

# What these may take from the standard library: nothing in here knows the time or the world.  A list
# of what is allowed needs no thought about what else could be a clock.
PURE_ROOMS = {"redlock._core": "the core", "chaos.judge": "the judge", "chaos.plan": "the plan"}
PURE_ROOMS |= {"chaos.specification": "the specification", "chaos.lists": "the lists"}
PURE = frozenset((
    "__future__", "abc", "bisect", "collections", "contextlib", "copy", "dataclasses", "enum", "functools", "heapq",
    "itertools", "math", "operator", "re", "string", "types", "typing",
))  # fmt: skip
# Besides: retry knows tenacity and chance, and the plan has its own chance, which follows from the seed that it is handed.
EXCEPT = (("tenacity", "redlock._core.retry"), ("random", "redlock._core.retry"), ("random", "chaos.plan"))
# The rooms of ours that the core may use: `_system` stands below it, but has a clock.
CORE = "redlock._core"
# Rooms in which each file can be read with those below it alone.
OPEN = (CORE,)
CORE_USES = ("redlock.errors", "redlock.options", "redlock.scripts", CORE)
DOORS = frozenset(("__import__", "exec", "eval", "compile", "open", "import_module"))


@dataclass(frozen=True)
class Import:
    """``target`` is what is imported, as far as it can be a module: with the name after ``import``."""

    source: str
    target: str
    line: int
    type_only: bool
    deferred: bool  # inside a function: it runs when that does

    def __str__(self) -> str:
        return f"{self.source}:{self.line} imports {self.target}"


def imports(module: str, source: str, *, is_package: bool) -> Iterator[Import]:
    """What one module imports, wherever in the file; a call that could import anything is an import of ``open()``."""
    package = module if is_package else module.rpartition(".")[0]

    def visit(node: ast.AST, *, type_only: bool, deferred: bool) -> Iterator[Import]:
        targets: list[str] = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            home = resolve_name("." * node.level + (node.module or ""), package)
            targets = [f"{home}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and (door := _door(node.func)):
            targets = [f"{door}()"]
        for target in targets:
            yield Import(module, target, getattr(node, "lineno", 0), type_only, deferred)
        deferred = deferred or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        is_check = isinstance(node, ast.If) and ast.unparse(node.test).removeprefix("typing.") == "TYPE_CHECKING"
        types = node.body if isinstance(node, ast.If) and is_check else []
        for child in ast.iter_child_nodes(node):  # what stands under its `else` does run
            yield from visit(child, type_only=type_only or child in types, deferred=deferred)

    yield from visit(ast.parse(source), type_only=False, deferred=False)


def _door(function: ast.expr) -> str:
    name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
    # re.compile is no door: a method of something that may be imported is judged by that import
    is_one = name in DOORS and (isinstance(function, ast.Name) or name in ("__import__", "import_module"))
    return name if is_one else ""


def sources() -> dict[str, tuple[str, bool]]:
    """Every module of the packages: its source, and whether it is a package."""
    found = {}
    for file in (file for package in PACKAGES for file in (ROOT / package).rglob("*.py")):
        parts = file.relative_to(ROOT).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        found[".".join(parts[:-1] if is_package else parts)] = (file.read_text(encoding="utf-8"), is_package)
    return found


def under(module: str, room: str) -> bool:
    return module == room or module.startswith(room + ".")


def room_of(target: str) -> str | None:
    """The longest room whose name it begins with.  A public name of the package itself leads to its ``__init__``."""
    rooms = [room for room in FLOOR if room not in PACKAGES and under(target, room)]
    public = re.fullmatch(r"(redlock|chaos)\.[^._]\w*", target)
    return max(rooms, key=len) if rooms else target if target in PACKAGES else public[1] if public else None


def violations(modules: dict[str, tuple[str, bool]]) -> list[str]:
    """Everything that is wrong with the plan, one line each."""
    wrong = []
    runs: dict[str, set[str]] = {}
    reads: dict[str, set[str]] = {}
    for module, (source, is_package) in sorted(modules.items()):
        own = room_of(module)
        if own is None or (own in PACKAGES and module != own):
            wrong.append(f"{module} is in no room: put it on the plan")
            continue
        for one in imports(module, source, is_package=is_package):
            if under(one.target, "redlock") or under(one.target, "chaos"):
                wrong.extend(_arrow(one, own))
                if not one.type_only and not one.deferred:
                    runs.setdefault(module, set()).update(_modules(one, modules))
                if own in OPEN:
                    reads.setdefault(module, set()).update(_modules(one, modules))
            elif own in PURE_ROOMS:
                wrong.extend(_impure(one, PURE_ROOMS[own]))
    return wrong + ([*_circle("cycle", runs)] or [*_circle("circle of files", reads)])


def _circle(what: str, graph: dict[str, set[str]]) -> Iterator[str]:
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        yield f"{what}: " + " -> ".join(error.args[1])


def _arrow(one: Import, own: str) -> list[str]:
    other = room_of(one.target)
    if other is None:
        return [f"{one}, which is in no room"]
    if other == own:
        return []
    if under(own, "chaos") and under(other, "redlock"):
        if own in APART:
            return [f"{one}: who judges is apart from what is judged"]
        return [] if other in PUBLIC or own == BREAKS else [f"{one}: only public names up there"]
    if own in GUESTS:
        allowed = other in PUBLIC or any(under(one.target, also) for also in ALSO.get(own, ()))
        return [] if allowed and FLOOR[other] < FLOOR[own] else [f"{one}: only public names up there"]
    if FLOOR[other] >= FLOOR[own]:
        return [f"{one}: {'sideways' if FLOOR[other] == FLOOR[own] else 'upwards'}"]
    return [f"{one}: not in the core"] if own == CORE and other not in CORE_USES else []


def _impure(one: Import, room: str) -> list[str]:
    if one.target.endswith("()"):
        return [f"{one}: that can bring anything into {room}"]
    top = one.target.split(".")[0]
    return [] if top in PURE or one.type_only or (top, one.source) in EXCEPT else [f"{one}: not in {room}"]


def _modules(one: Import, modules: dict[str, tuple[str, bool]]) -> set[str]:
    """The module that is meant: ``from redlock._core import wire`` means a module, of a name its home."""
    meant = one.target if one.target in modules else one.target.rpartition(".")[0]
    return ({meant} & modules.keys()) - {one.source}


def undrawn(page: str) -> set[tuple[str, str]]:
    """The files that are missing in the drawing, and those that only it has: the room and the name of each."""
    floors = drawn(page)
    shown = {(room, name) for floor in floors for room, names in floor.items() for name in names or {""}}
    there = set()
    for file in (*ROOT.glob("redlock/**/*.py"), *ROOT.glob("redlock/**/*.lua")):
        *folders, name = file.relative_to(ROOT).with_suffix("").parts
        room = ".".join(folders)
        for whole in (CORE, "redlock.scripts"):  # one room, with folders in it
            if under(room, whole):
                room, name = whole, "/".join((*folders[2:], name))
        if room == "redlock":
            there.add((room if name == "__init__" else f"{room}.{name}", ""))
        elif not name.endswith("__init__"):
            there.add((room, name))
    return shown ^ there


def test_the_house_stands() -> None:
    assert violations(sources()) == []


def test_the_drawing_shows_every_file_and_no_other() -> None:
    assert undrawn(PAGE) == set()


def test_chaos_has_no_name_for_itself() -> None:
    """In the wheel it is `redlock.chaos`."""
    absolute = r"^ *(?:from|import) chaos\b.*"
    assert re.findall(absolute, "import os\n    from chaos import run\n", re.MULTILINE) == ["    from chaos import run"]
    for module, (source, _) in sources().items():
        if under(module, "chaos"):
            assert not re.findall(absolute, source, re.MULTILINE), module


def test_all_of_it_was_looked_at() -> None:
    """A test that reads no file is green as well."""
    assert {"redlock._core.acquire", *(room for floor in CHAOS for room in floor)} <= sources().keys()


# -- that it can fail --------------------------------------------------------------------------------

MADE_UP = "redlock._core.made_up"
TYPING = "from typing import TYPE_CHECKING\n"


def verdict(modules: dict[str, str]) -> list[str]:
    """The violations in a house of these alone."""
    return violations({name: (text, name in PACKAGES) for name, text in modules.items()})


@pytest.mark.parametrize(("module", "source", "word"), [
    # In the core: nothing of the world, however it is spelled.
    (MADE_UP, "import math, time as innocent", "not in the core"),
    (MADE_UP, "class Room:\n    async def later():\n        from random import anything", "not in the core"),
    (MADE_UP, TYPING + "if TYPE_CHECKING:\n    pass\nelse:\n    import time", "not in the core"),
    (MADE_UP, "from .._system.clock import now", "not in the core"),
    (MADE_UP, "eval(\"__import__('time')\")", "into the core"),
    (MADE_UP, 'self.builtins.__import__("time")', "into the core"),
    ("redlock._core.retry", "import tenacity, time", "not in the core"),
    # Arrows that do not point down.
    (MADE_UP, TYPING + "if TYPE_CHECKING:\n    from redlock._io import x", "upwards"),
    ("redlock.options", "from redlock import scripts", "sideways"),
    ("redlock._lock.made_up", "from redlock import AsyncMultiLock", "upwards"),
    ("redlock._cli.check", "from redlock import _connect", "public"),
    ("redlock.testing.made_up", "from redlock._health.checkup import check", "public"),
    ("redlock.utilities", "", "no room"),
    ("redlock._io.made_up", "from redlock import _helpers", "no room"),
    ("chaos.judge.made_up", "from ..summary import summarize", "upwards"),
    ("chaos.judge.made_up", "from redlock import Masters", "apart"),
    ("chaos.judge.made_up", "open('history.jsonl')", "into the judge"),
    ("chaos.clients.made_up", "from redlock._core.kernel import quorum", "public"),
])  # fmt: skip
def test_what_is_wrong_is_found(module: str, source: str, word: str) -> None:
    [line] = verdict({module: source})
    assert word in line
    assert module in line


def test_a_cycle() -> None:
    cycle = {"redlock._io.a": "from . import b", "redlock._io.b": "from . import c"}
    [line] = verdict({**cycle, "redlock._io.c": "try:\n    from .a import name\nexcept ImportError:\n    pass"})
    assert line.startswith("cycle: ")
    assert "_io.a" in line


@pytest.mark.parametrize("second", [
    TYPING + "if TYPE_CHECKING:\n    from . import a", "async def later():\n    from .a import name",
])  # fmt: skip
def test_what_does_not_run_makes_none_but_in_the_core(second: str) -> None:
    assert verdict({"redlock._io.a": "from . import b", "redlock._io.b": second}) == []
    [line] = verdict({"redlock._core.a": "from . import b", "redlock._core.b": second})
    assert line.startswith("circle of files: ")


@pytest.mark.parametrize(("there", "instead"), [
    ("_health/ ", "_lock_/ "), ("_connect.py ", "_events.py "), ("acquire ", ""), ("acquire ", "acquire  made_up "),
])  # fmt: skip
def test_a_drawing_that_is_not_true(there: str, instead: str) -> None:
    assert there in PAGE
    assert undrawn(PAGE.replace(there, instead, 1))
