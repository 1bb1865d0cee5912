"""Arrows point down: who may import whom inside ``redlock`` and ``chaos``, read from the source of every file.

``FLOORS`` is the plan.  docs/design.md draws the floors of ``redlock`` and all of their files; tests below hold the drawing
against the plan, and the plan against the files.

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
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).parent.parent
PACKAGES = ("redlock", "chaos")

# From the bottom up.  A room may import from the floors below, and from itself.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("redlock.errors",),
    ("redlock.options", "redlock.scripts", "redlock._clock", "redlock._installed", "redlock._thread"),
    ("redlock._url",),
    ("redlock._core",),  # no clock, no randomness, no socket, no thread, no event loop
    ("redlock._connect",),
    ("redlock._health",),
    ("redlock._base",),
    ("redlock._threads", "redlock._asyncio"),  # not each other
    ("redlock",),  # `redlock/__init__.py`: names only
    ("redlock._cli", "redlock.testing", "redlock.observe"),
    ("chaos", "chaos.history"),
    ("chaos.judge", "chaos.faults", "chaos.control"),  # the judge is as pure as the core: no clock, no file
    ("chaos.summary", "chaos.settings"),
    ("chaos.report", "chaos.plan", "chaos.scenarios", "chaos.variants"),
    ("chaos.check", "chaos.names", "chaos.backends", "chaos.clients", "chaos.pulse"),
    ("chaos.cast",),  # who starts those who work
    ("chaos.nemesis",),  # who breaks
    ("chaos.session",),
    ("chaos.launch",),  # starts sessions, and has them judged
    ("chaos.run",),
    ("chaos.ci", "chaos.catalogue"),
    ("chaos.__main__",),  # imports no command before it is asked for
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}

# Above the public names everything uses only these; testing and observe are public as well.
GUESTS = ("redlock._cli", "redlock.testing", "redlock.observe")
PUBLIC = ("redlock", "redlock.testing", "redlock.observe")
# What else a guest may use: redlock-check asks addresses of which no `Masters` can be made yet, for it
# learns from them which max_ttl they have.
ALSO = {"redlock._cli": ("redlock._health",)}

# Who judges must not depend on what is judged.
APART = ("chaos.history", "chaos.judge", "chaos.summary", "chaos.report", "chaos.check", "chaos.__main__")

# What these may take from the standard library: nothing in here knows the time or the world.  A list
# of what is allowed needs no thought about what else could be a clock.
PURE_ROOMS = {"redlock._core": "the core", "chaos.judge": "the judge", "chaos.plan": "the plan"}
PURE = frozenset((
    "__future__", "abc", "bisect", "collections", "contextlib", "copy", "dataclasses", "enum", "functools", "heapq",
    "itertools", "math", "operator", "re", "string", "types", "typing",
))  # fmt: skip
# The rooms of ours that the core may use: `_clock` stands below it, but is a clock.
CORE = "redlock._core"
CORE_USES = ("redlock.errors", "redlock.options", "redlock.scripts", CORE)
TENACITY_AT = "redlock._core.retry"
# And the plan its own chance, which follows from the seed that it is handed.
CHANCE_AT = "chaos.plan"
# Breaks the library on purpose, so it alone may know what is private there.
BREAKS = "chaos.variants"
DOORS = frozenset(("__import__", "exec", "eval", "compile", "open", "import_module"))

TYPE_CHECKS = ("TYPE_CHECKING", "typing.TYPE_CHECKING")

DRAWING = ROOT / "docs" / "design.md"


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


@dataclass(frozen=True)
class Reader:
    """What one module imports, wherever in the file, and what in it could import anything."""

    imports: list[Import]
    doors: list[Import]


def read(module: str, source: str, *, is_package: bool = False) -> Reader:
    package = module if is_package else module.rpartition(".")[0]
    reader = Reader([], [])

    def visit(node: ast.AST, *, type_only: bool, deferred: bool) -> None:
        targets: list[str] = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            home = resolve_name("." * node.level + (node.module or ""), package)
            targets = [f"{home}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and (door := _door(node.func)):
            reader.doors.append(Import(module, f"{door}()", node.lineno, type_only, deferred))
        if isinstance(node, ast.stmt):
            reader.imports.extend(Import(module, target, node.lineno, type_only, deferred) for target in targets)
        deferred = deferred or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        types = node.body if isinstance(node, ast.If) and ast.unparse(node.test) in TYPE_CHECKS else []
        for child in ast.iter_child_nodes(node):  # what stands under its `else` does run
            visit(child, type_only=type_only or child in types, deferred=deferred)

    visit(ast.parse(source), type_only=False, deferred=False)
    return reader


def _door(function: ast.expr) -> str:
    name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
    # re.compile is no door: a method of something that may be imported is judged by that import
    is_one = name in DOORS and (isinstance(function, ast.Name) or name in ("__import__", "import_module"))
    return name if is_one else ""


def sources() -> dict[str, tuple[str, bool]]:
    """Every module of the packages: its source, and whether it is a package."""
    found = {}
    for file in files():
        parts = file.relative_to(ROOT).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        found[".".join(parts[:-1] if is_package else parts)] = (file.read_text(encoding="utf-8"), is_package)
    return found


def files() -> list[Path]:
    return [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]


def under(module: str, room: str) -> bool:
    return module == room or module.startswith(room + ".")


def room_of(module: str) -> str | None:
    """The room that a module belongs to: the longest one whose name it begins with."""
    rooms = [room for room in FLOOR if room not in PACKAGES and under(module, room)]
    return max(rooms, key=len) if rooms else module if module in PACKAGES else None


def target_room(target: str) -> str | None:
    """The room an import leads to.  A public name of the package itself leads to its ``__init__``."""
    room = room_of(target)
    if room is None and target.startswith("redlock.") and target.count(".") == 1 and target[8] != "_":
        return "redlock"
    return room


def violations(modules: dict[str, tuple[str, bool]]) -> list[str]:
    """Everything that is wrong with the plan, one line each."""
    wrong = []
    runs: dict[str, set[str]] = {}
    reads: dict[str, set[str]] = {}
    for module, (source, is_package) in sorted(modules.items()):
        reader = read(module, source, is_package=is_package)
        own = room_of(module)
        if own is None:
            wrong.append(f"{module} is in no room: put it on the plan")
            continue
        runs[module], reads[module] = set(), set()
        for one in reader.imports:
            if any(under(one.target, package) for package in PACKAGES):
                wrong.extend(_arrow(one, own))
                if not one.type_only and not one.deferred:
                    runs[module].update(_modules(one, modules))
                if own == CORE:
                    reads[module].update(_modules(one, modules))
            elif own in PURE_ROOMS:
                wrong.extend(_impure(one, PURE_ROOMS[own]))
        if own in PURE_ROOMS:
            wrong.extend(f"{door}: that can bring anything into {PURE_ROOMS[own]}" for door in reader.doors)
    cycles = [*_circle("cycle", runs)] or [*_circle("circle of files in the core", reads)]
    return wrong + cycles


def _circle(what: str, graph: dict[str, set[str]]) -> Iterator[str]:
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        yield f"{what}: " + " -> ".join(error.args[1])


def _arrow(one: Import, own: str) -> list[str]:
    other = target_room(one.target)
    if other is None:
        return [f"{one}, which is in no room"]
    if other == own:
        return []
    if under(own, "chaos") and under(other, "redlock"):
        if own in APART:
            return [f"{one}: who judges is apart from what is judged"]
        return [] if other in PUBLIC or own == BREAKS else [f"{one}: only public names up there"]
    if own in GUESTS:
        allowed = (*PUBLIC, *ALSO.get(own, ()))
        return [] if other in allowed and FLOOR[other] < FLOOR[own] else [f"{one}: only public names up there"]
    if FLOOR[other] == FLOOR[own]:
        return [f"{one}: sideways"]
    if FLOOR[other] > FLOOR[own]:
        return [f"{one}: upwards"]
    if own == CORE and other not in CORE_USES:
        return [f"{one}: not in the core"]
    return []


def _impure(one: Import, room: str) -> list[str]:
    top = one.target.split(".")[0]
    if top in PURE or one.type_only or (top, one.source) in (("tenacity", TENACITY_AT), ("random", CHANCE_AT)):
        return []
    return [f"{one}: not in {room}"]


def _modules(one: Import, modules: dict[str, tuple[str, bool]]) -> set[str]:
    """The module that is meant: ``from redlock._core import wire`` means a module, of a name its home."""
    if one.target in modules:
        return {one.target} - {one.source}
    home = one.target.rpartition(".")[0]
    return {home} - {one.source} if home in modules else set()


def empty_rooms(rooms: Iterable[str]) -> list[str]:
    """Those that have no file."""
    paths = {room: ROOT.joinpath(*room.split(".")) for room in rooms}
    return [room for room, path in paths.items() if not {path.with_suffix(".py"), path / "__init__.py"} & set(files())]


def drawn(page: str) -> list[dict[str, set[str]]]:
    """The floors of the drawing, from the top down: the rooms of each, and what is in them.

    A room begins a line, and more of its files follow in lines that are indented; ``#`` begins a remark, ``|`` ends a floor.
    """
    drawing = re.search(r"^## The shape\n.*?^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert drawing is not None
    floors: list[dict[str, set[str]]] = [{}]
    inside: set[str] = set()
    for line in drawing[1].splitlines():
        words = line.partition("#")[0].split()
        if words[:1] == ["|"]:
            floors.append({})
        elif words:
            if not line.startswith(" "):
                inside = floors[-1].setdefault(words.pop(0), set())
            inside.update(words)
    return floors


def planned() -> list[dict[str, set[str]]]:
    """The same, from the plan and the files."""
    floors: list[dict[str, set[str]]] = []
    for rooms in reversed(FLOORS):
        floor: dict[str, set[str]] = {}
        for room in rooms:
            if under(room, "redlock"):
                path = ROOT.joinpath(*room.split("."))
                if room == "redlock":
                    floor["__init__.py"] = set()
                elif path.is_dir():
                    inside = [*path.glob("*.py"), *path.glob("*.lua")]
                    floor[f"{path.name}/"] = {file.stem for file in inside if file.name != "__init__.py"}
                else:
                    floor[f"{path.name}.py"] = set()
        if floor:
            floors.append(floor)
    return floors


def test_the_house_stands() -> None:
    assert violations(sources()) == []


def test_all_of_it_was_looked_at() -> None:
    """A test that reads no file is green as well."""
    found = sources()
    assert {"redlock", "redlock.errors", "redlock.scripts", "redlock._core.acquire", "chaos.judge.holds"} <= set(found)
    assert len(found) == len(files())
    arrows = [one.target for one in read("redlock._core.acquire", found["redlock._core.acquire"][0]).imports]
    assert "redlock._core.wire" in arrows


def test_every_room_is_there() -> None:
    assert empty_rooms(FLOOR) == []


def test_the_drawing_shows_the_plan_and_every_file() -> None:
    assert drawn(DRAWING.read_text(encoding="utf-8")) == planned()


# -- that it can fail --------------------------------------------------------------------------------


def verdict(module: str, source: str, more: dict[str, str] | None = None) -> list[str]:
    """The violations in a house of one module, and perhaps some ``more``."""
    return violations({name: (text, name in PACKAGES) for name, text in {module: source, **(more or {})}.items()})


MADE_UP = "redlock._core.made_up"
TYPING = "from typing import TYPE_CHECKING\n"


@pytest.mark.parametrize("name", [
    "time", "random", "secrets", "socket", "threading", "asyncio", "signal", "os.path", "sys", "importlib", "redis.asyncio",
    "tenacity.wait", "numpy",
])  # fmt: skip
def test_the_core_takes_nothing_of_the_world(name: str) -> None:
    [line] = verdict(MADE_UP, f"import {name}")
    assert MADE_UP in line
    assert name in line
    assert "not in the core" in line


@pytest.mark.parametrize("source", [
    "import math, time as innocent",
    "from time import *",
    "from time import anything as innocent",
    "def later():\n    import time",
    "async def later():\n    from time import anything",
    "class Room:\n    import time",
    "try:\n    import time\nexcept ImportError:\n    pass",
    "if True:\n    import time",
    TYPING + "if not TYPE_CHECKING:\n    import time",
    TYPING + "if TYPE_CHECKING:\n    pass\nelse:\n    import time",
    "from redlock import _clock",
    "import redlock._clock",
    "from redlock._clock import now",
    "from .. import _clock",
    "from .._clock import now",
    "def later():\n    from redlock import _clock",
])  # fmt: skip
def test_however_it_is_spelled(source: str) -> None:
    [line] = verdict(MADE_UP, source)
    assert "not in the core" in line


@pytest.mark.parametrize("source", [
    'import importlib\nimportlib.import_module("time")',
    'from importlib import import_module as innocent\ninnocent("time")',
    '__import__("time")',
    'def later():\n    return __import__("time").time()',
    'exec("import time")',
    "eval(\"__import__('time')\")",
    'import builtins\nbuiltins.__import__("time")',
    'open("/proc/uptime")',
])  # fmt: skip
def test_no_door_is_left_open(source: str) -> None:
    assert verdict(MADE_UP, source)


def test_one_file_may_ask_tenacity() -> None:
    retry = sources()[TENACITY_AT][0]
    assert "tenacity" in retry
    assert verdict(TENACITY_AT, retry) == []
    assert verdict(TENACITY_AT, retry + "\nimport random\n") != []
    # its types may be named elsewhere, for that runs nothing
    assert verdict(MADE_UP, TYPING + "if TYPE_CHECKING:\n    import tenacity") == []


@pytest.mark.parametrize(("module", "source", "word"), [
    (MADE_UP, "from redlock._connect import Endpoint", "upwards"),
    (MADE_UP, "import redlock", "upwards"),
    (MADE_UP, "def later():\n    from redlock._threads import driver", "upwards"),
    (MADE_UP, TYPING + "if TYPE_CHECKING:\n    from redlock._threads import x", "upwards"),
    (MADE_UP, "from .._threads.driver import Driver", "upwards"),
    ("redlock.errors", "from redlock import scripts", "upwards"),
    ("redlock.options", "from redlock import scripts", "sideways"),
    ("redlock._connect", "from redlock._threads import driver", "upwards"),
    ("redlock._health.made_up", "from redlock._base.masters import MastersBase", "upwards"),
    ("redlock._threads.made_up", "from redlock._asyncio.driver import Driver", "sideways"),
    ("redlock._asyncio.made_up", "def later():\n    from redlock import _threads", "sideways"),
    ("redlock._asyncio.made_up", "from redlock import AsyncMultiLock", "upwards"),
    ("redlock._cli.check", "from redlock import _connect", "public"),
    ("redlock._cli.check", "import redlock.scripts", "public"),
    ("redlock._cli.check", "from redlock.testing import LocalMasters", "public"),
    ("redlock.testing.made_up", "from redlock._health.checkup import check", "public"),
    ("redlock.testing.made_up", "def later():\n    import redlock._threads.driver", "public"),
    ("redlock.testing.made_up", "from chaos import history", "public"),
    ("redlock.observe.made_up", "from redlock._core.events import LockAcquired", "public"),
    ("redlock.utilities", "", "no room"),
    ("redlock._threads.made_up", "from redlock import _helpers", "no room"),
    (MADE_UP, "from chaos.history import read", "upwards"),
    ("chaos.made_up", "", "no room"),
    ("chaos.history", "from chaos.judge import judge", "upwards"),
    ("chaos.history", "from redlock import Masters", "apart"),
    ("chaos.judge.made_up", "from redlock import Masters", "apart"),
    ("chaos.judge.made_up", "from ..summary import summarize", "upwards"),
    ("chaos.judge.made_up", "from pathlib import Path", "not in the judge"),
    ("chaos.judge.made_up", "open('history.jsonl')", "into the judge"),
    ("chaos.check", "from redlock.testing import LocalMasters", "apart"),
    ("chaos.plan", "import time", "not in the plan"),
    ("chaos.clients.made_up", "from redlock._core import quorum", "public"),
    ("chaos.nemesis", "from chaos.session import main", "upwards"),
])  # fmt: skip
def test_an_arrow_that_does_not_point_down(module: str, source: str, word: str) -> None:
    [line] = verdict(module, source)
    assert word in line
    assert module in line


@pytest.mark.parametrize(("module", "source"), [
    (MADE_UP, "import math\nfrom collections.abc import Callable\nfrom redlock._core import quorum\nfrom redlock import scripts"),
    (MADE_UP, "from . import quorum\nfrom ..errors import Vote\nfrom .wire import Call"),
    (MADE_UP, "import re\nPATTERN = re.compile('a')\nclass Door:\n    def open(self): ...\nDoor().open()"),
    (MADE_UP, "import typing\nif typing.TYPE_CHECKING:\n    import socket"),
    (MADE_UP, "'import time'  # import time"),
    ("redlock._threads.made_up", "import time\nfrom redlock import _clock, _connect, options\nfrom . import another"),
    ("redlock._connect", "import redis, hiredis, os\nfrom redlock._core.effects import Send"),
    ("redlock._cli.check", "from redlock import Masters\nfrom redlock._cli import output\nfrom redlock._health import checkup"),
    ("redlock.testing.made_up", "from redlock import Masters\nfrom redlock.testing import local"),
    ("redlock.observe.made_up", "import prometheus_client\nfrom redlock import Event\nfrom redlock.observe import _measures"),
    ("redlock", "from redlock._threads.lock import MultiLock\nfrom redlock.errors import LockLost"),
    ("chaos.judge.made_up", "import math\nfrom chaos.history import Event\nfrom chaos.judge.holds import Hold"),
    ("chaos.check", "import sys, os\nfrom chaos import report\nfrom chaos.history import read"),
    ("chaos.plan", "import random\nfrom chaos.settings import Settings"),
    ("chaos.variants", "from redlock._core import quorum"),
    ("chaos.clients.made_up", "from redlock import Masters\nfrom chaos import variants"),
])  # fmt: skip
def test_an_arrow_that_does(module: str, source: str) -> None:
    assert verdict(module, source) == []


@pytest.mark.parametrize(("first", "second"), [
    ("from redlock._threads import b", "from redlock._threads import a"),
    ("import redlock._threads.b", "from redlock._threads.a import name"),
    ("from . import b", "try:\n    from .a import name\nexcept ImportError:\n    pass"),
    ("from . import c", "from .a import name"),
])  # fmt: skip
def test_a_cycle(first: str, second: str) -> None:
    more = {"redlock._threads.b": second, "redlock._threads.c": "from . import b"}
    [line] = verdict("redlock._threads.a", first, more)
    assert line.startswith("cycle: ")
    assert "_threads.a" in line
    assert "_threads.b" in line


@pytest.mark.parametrize("second", [
    TYPING + "if TYPE_CHECKING:\n    from . import a",
    "def later():\n    from . import a",
    "async def later():\n    from .a import name",
])  # fmt: skip
def test_what_does_not_run_makes_none_but_in_the_core(second: str) -> None:
    assert verdict("redlock._threads.a", "from . import b", {"redlock._threads.b": second}) == []
    [line] = verdict("redlock._core.a", "from . import b", {"redlock._core.b": second})
    assert line.startswith("circle of files in the core: ")


def test_a_room_without_a_file() -> None:
    assert empty_rooms(("redlock._core", "redlock._events", "redlock._url")) == ["redlock._events"]


@pytest.mark.parametrize(("there", "instead"), [
    ("_health/ ", "_base_/ "),
    ("_connect.py ", "_events.py "),
    ("acquire ", ""),
    ("acquire ", "acquire  made_up "),
    ("\n   |\n_health/ ", "\n_health/ "),
])  # fmt: skip
def test_a_drawing_that_is_not_true(there: str, instead: str) -> None:
    page = DRAWING.read_text(encoding="utf-8")
    assert there in page
    assert drawn(page.replace(there, instead, 1)) != planned()
