"""Arrows point down: who may import whom inside ``redlock`` and ``chaos``, read from the source of every file.

    chaos/                       the harness, see below: public names only
    _cli/   testing/   observe/  use the public names only; _cli also _health, which is what it shows
        redlock/__init__.py      names only
      _threads/   _asyncio/      not each other
             _base/              what the two have in common
            _health/             what the masters say of themselves, and what it means
      _connect.py  _events.py
             _core/              no clock, no randomness, no socket, no thread, no event loop
    options.py  scripts/  _clock.py  _installed.py  _thread.py  _url.py
           errors.py

    chaos/__main__.py            imports no command before it is asked for
      ci.py  catalogue.py
      run.py
      launch.py                  starts sessions, and has them judged
      session.py
      nemesis.py                 who breaks
      cast.py                    who starts those who work
      check.py  clients/         judging a history takes nothing of redlock: no client, no server
                backends/  names.py  pulse.py
      report/   plan.py  scenarios.py  variants.py
      summary.py  settings.py
      judge/    faults.py  control.py
      history.py
   The judge and the plan are as pure as the core: no clock, no file.  `variants` breaks the library, so it alone
   may know what is private there.

How imports are judged:

- one inside a function is an import: it runs, only later.  It cannot make a cycle, though: two files of
  one room may know each other, as `Masters.lock` and `MultiLock` do; across rooms it is an arrow;
- one under ``if TYPE_CHECKING:`` does not run, so it brings no clock into the core and cannot make a
  cycle; but it is an arrow, for whoever reads the file has to know the other one;
- ``importlib.import_module``, ``__import__``, ``exec`` and ``eval`` could bring anything, so the core has
  none of them.
"""

from __future__ import annotations

import ast
import graphlib
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("redlock", "chaos")

# From the bottom up.  A room may import from the floors below, and from itself.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("redlock.errors",),
    ("redlock.options", "redlock.scripts", "redlock._clock", "redlock._installed", "redlock._thread"),
    ("redlock._url",),
    ("redlock._core",),
    ("redlock._connect", "redlock._events"),
    ("redlock._health",),
    ("redlock._base",),
    ("redlock._threads", "redlock._asyncio"),
    ("redlock",),
    ("redlock._cli", "redlock.testing", "redlock.observe"),
    ("chaos", "chaos.history"),
    ("chaos.judge", "chaos.faults", "chaos.control"),
    ("chaos.summary", "chaos.settings"),
    ("chaos.report", "chaos.plan", "chaos.scenarios", "chaos.variants"),
    ("chaos.check", "chaos.names", "chaos.backends", "chaos.clients", "chaos.pulse"),
    ("chaos.cast",),
    ("chaos.nemesis",),
    ("chaos.session",),
    ("chaos.launch",),
    ("chaos.run",),
    ("chaos.ci", "chaos.catalogue"),
    ("chaos.__main__",),
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
PURE = frozenset(
    (
        "__future__",
        "abc",
        "bisect",
        "collections",
        "contextlib",
        "copy",
        "dataclasses",
        "enum",
        "functools",
        "heapq",
        "itertools",
        "math",
        "operator",
        "re",
        "string",
        "types",
        "typing",
    )
)
# The rooms of ours that the core may use: `_clock` stands below it, but is a clock.
CORE_USES = ("redlock.errors", "redlock.options", "redlock.scripts", "redlock._core")
TENACITY_AT = "redlock._core.retry"
# And the plan its own chance, which follows from the seed that it is handed.
CHANCE_AT = "chaos.plan"
# Breaks the library on purpose.
BREAKS = "chaos.variants"
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


class Reader(ast.NodeVisitor):
    """Collects the imports of one module, wherever in the file they stand."""

    def __init__(self, module: str, *, is_package: bool) -> None:
        self.module = module
        self.package = module if is_package else module.rpartition(".")[0]
        self.imports: list[Import] = []
        self.doors: list[Import] = []
        self._type_only = False
        self._deferred = False

    def _found(self, target: str, node: ast.stmt | ast.expr) -> Import:
        return Import(self.module, target, node.lineno, self._type_only, self._deferred)

    def _add(self, target: str, node: ast.stmt) -> None:
        self.imports.append(self._found(target, node))

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        before, self._deferred = self._deferred, True
        self.generic_visit(node)
        self._deferred = before

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = node.module or ""
        if node.level:
            parts = self.package.split(".")
            parents = parts[: len(parts) - node.level + 1]
            base = ".".join([*parents, base] if base else parents)
        for alias in node.names:
            self._add(f"{base}.{alias.name}", node)

    def visit_If(self, node: ast.If) -> None:
        test = node.test
        name = test.id if isinstance(test, ast.Name) else test.attr if isinstance(test, ast.Attribute) else ""
        if name != "TYPE_CHECKING":
            self.generic_visit(node)
            return
        before, self._type_only = self._type_only, True
        for child in node.body:
            self.visit(child)
        self._type_only = before
        for child in node.orelse:  # this does run
            self.visit(child)

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
        # re.compile is no door: a method of something that may be imported is judged by that import
        if name in DOORS and (isinstance(function, ast.Name) or name in ("__import__", "import_module")):
            self.doors.append(self._found(f"{name}()", node))
        self.generic_visit(node)


def read(module: str, source: str, *, is_package: bool = False) -> Reader:
    reader = Reader(module, is_package=is_package)
    reader.visit(ast.parse(source))
    return reader


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
    graph: dict[str, set[str]] = {}
    for module, (source, is_package) in sorted(modules.items()):
        reader = read(module, source, is_package=is_package)
        own = room_of(module)
        if own is None:
            wrong.append(f"{module} is in no room: put it on the plan")
            continue
        graph[module] = set()
        for one in reader.imports:
            if any(under(one.target, package) for package in PACKAGES):
                wrong.extend(_arrow(one, own))
                if not one.type_only and not one.deferred:
                    graph[module].update(_modules(one, modules))
            elif own in PURE_ROOMS:
                wrong.extend(_impure(one, PURE_ROOMS[own]))
        if own in PURE_ROOMS:
            wrong.extend(f"{door}: that can bring anything into {PURE_ROOMS[own]}" for door in reader.doors)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        wrong.append("cycle: " + " -> ".join(error.args[1]))
    return wrong


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
    if own == "redlock._core" and other not in CORE_USES:
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


def test_the_house_stands() -> None:
    assert violations(sources()) == []


def test_all_of_it_was_looked_at() -> None:
    """A test that reads no file is green as well."""
    found = sources()
    assert {"redlock", "redlock.errors", "redlock.scripts", "redlock._core.acquire", "chaos.judge.holds"} <= set(found)
    assert len(found) == len(files())
    arrows = [one.target for one in read("redlock._core.acquire", found["redlock._core.acquire"][0]).imports]
    assert "redlock._core.wire" in arrows


# -- that it can fail --------------------------------------------------------------------------------


def verdict(module: str, source: str, more: dict[str, str] | None = None) -> list[str]:
    """The violations in a house of one module, and perhaps some ``more``."""
    return violations({name: (text, name in PACKAGES) for name, text in {module: source, **(more or {})}.items()})


CORE = "redlock._core.made_up"


@pytest.mark.parametrize(
    "name",
    [
        "time",
        "datetime",
        "calendar",
        "sched",
        "random",
        "secrets",
        "uuid",
        "socket",
        "select",
        "selectors",
        "ssl",
        "threading",
        "_thread",
        "concurrent.futures",
        "multiprocessing",
        "asyncio",
        "signal",
        "os",
        "os.path",
        "sys",
        "io",
        "subprocess",
        "queue",
        "contextvars",
        "logging",
        "importlib",
        "ctypes",
        "redis",
        "redis.asyncio",
        "hiredis",
        "tenacity",
        "tenacity.wait",
        "anyio",
        "numpy",
    ],
)
@pytest.mark.parametrize(
    "form",
    [
        "import {0}",
        "import math, {0} as innocent",
        "from {0} import *",
        "from {0} import anything as innocent",
        "def later():\n    import {0}",
        "async def later():\n    from {0} import anything",
        "class Room:\n    import {0}",
        "try:\n    import {0}\nexcept ImportError:\n    pass",
        "if True:\n    import {0}",
        "from typing import TYPE_CHECKING\nif not TYPE_CHECKING:\n    import {0}",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    pass\nelse:\n    import {0}",
    ],
)
def test_the_core_takes_nothing_of_the_world(name: str, form: str) -> None:
    [line] = verdict(CORE, form.format(name))
    assert CORE in line
    assert name in line
    assert "not in the core" in line


@pytest.mark.parametrize(
    "source",
    [
        'import importlib\nimportlib.import_module("time")',
        'from importlib import import_module\nimport_module("time")',
        'from importlib import import_module as innocent\ninnocent("time")',
        '__import__("time")',
        'def later():\n    return __import__("time").time()',
        'exec("import time")',
        "eval(\"__import__('time')\")",
        'import builtins\nbuiltins.__import__("time")',
        'open("/proc/uptime")',
    ],
)
def test_no_door_is_left_open(source: str) -> None:
    assert verdict(CORE, source)


@pytest.mark.parametrize(
    "source",
    [
        "from redlock import _clock",
        "import redlock._clock",
        "from redlock._clock import now",
        "from .. import _clock",
        "from .._clock import now",
        "def later():\n    from redlock import _clock",
    ],
)
def test_the_clock_of_this_process_is_a_clock(source: str) -> None:
    [line] = verdict(CORE, source)
    assert "not in the core" in line


def test_one_file_may_ask_tenacity() -> None:
    retry = sources()[TENACITY_AT][0]
    assert "tenacity" in retry
    assert verdict(TENACITY_AT, retry) == []
    assert verdict(TENACITY_AT, retry + "\nimport random\n") != []
    # its types may be named elsewhere, for that runs nothing
    assert verdict(CORE, "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import tenacity") == []


@pytest.mark.parametrize(
    "source",
    [
        "import math\nfrom collections.abc import Callable\nfrom redlock._core import quorum\nfrom redlock import scripts",
        "from . import quorum\nfrom ..errors import Vote\nfrom .wire import Call",
        "import re\nPATTERN = re.compile('a')\nclass Door:\n    def open(self): ...\nDoor().open()",
        "import typing\nif typing.TYPE_CHECKING:\n    import socket",
        "'import time'  # import time",
    ],
)
def test_and_nothing_else_is_objected_to(source: str) -> None:
    assert verdict(CORE, source) == []


@pytest.mark.parametrize(
    ("module", "source", "word"),
    [
        (CORE, "from redlock._connect import Dial", "upwards"),
        (CORE, "from redlock import MultiLock", "upwards"),
        (CORE, "import redlock", "upwards"),
        (CORE, "def later():\n    from redlock._threads import driver", "upwards"),
        (CORE, "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from redlock._threads import x", "upwards"),
        (CORE, "from .._threads.driver import Driver", "upwards"),
        ("redlock.errors", "from redlock import scripts", "upwards"),
        ("redlock.errors", "from redlock._core import quorum", "upwards"),
        ("redlock.options", "from redlock._core.quorum import majority", "upwards"),
        ("redlock.options", "from redlock import scripts", "sideways"),
        ("redlock.scripts", "import redlock._core.wire", "upwards"),
        ("redlock._connect", "from redlock._threads import links", "upwards"),
        ("redlock._connect", "from redlock import _events", "sideways"),
        ("redlock._threads.made_up", "from redlock._asyncio.driver import Driver", "sideways"),
        ("redlock._asyncio.made_up", "def later():\n    from redlock import _threads", "sideways"),
        ("redlock._asyncio.made_up", "from redlock import AsyncMultiLock", "upwards"),
        ("redlock._threads.made_up", "from redlock.testing import LocalMasters", "upwards"),
        ("redlock._cli.check", "from redlock._core.electorate import Electorate", "public"),
        ("redlock._cli.check", "from redlock import _connect", "public"),
        ("redlock._cli.check", "from redlock.options import seconds", "public"),
        ("redlock._cli.check", "import redlock.scripts", "public"),
        ("redlock._cli.check", "from redlock.testing import LocalMasters", "public"),
        ("redlock.testing.made_up", "from redlock._cli import run", "public"),
        ("redlock.testing.made_up", "from redlock._health.checkup import check", "public"),
        ("redlock._health.made_up", "from redlock._base.masters import MastersBase", "upwards"),
        ("redlock._core.made_up", "from redlock._health import verdict", "upwards"),
        ("redlock.observe.made_up", "from redlock._core.events import LockAcquired", "public"),
        ("redlock.observe.made_up", "from redlock.testing import LocalMasters", "public"),
        ("redlock.testing.made_up", "def later():\n    import redlock._threads.links", "public"),
        ("redlock.utilities", "", "no room"),
        ("redlock._threads.made_up", "from redlock import _helpers", "no room"),
        ("redlock.testing.made_up", "from chaos import history", "public"),
        ("redlock._core.made_up", "from chaos.history import read", "upwards"),
        ("chaos.made_up", "", "no room"),
        ("chaos.history", "from chaos.judge import judge", "upwards"),
        ("chaos.history", "from redlock import Masters", "apart"),
        ("chaos.judge.made_up", "from redlock import Masters", "apart"),
        ("chaos.judge.made_up", "from redlock._core.quorum import majority", "apart"),
        ("chaos.judge.made_up", "from ..summary import summarize", "upwards"),
        ("chaos.judge.made_up", "import time", "not in the judge"),
        ("chaos.judge.made_up", "from pathlib import Path", "not in the judge"),
        ("chaos.judge.made_up", "open('history.jsonl')", "into the judge"),
        ("chaos.summary", "from chaos.report import text", "upwards"),
        ("chaos.check", "from redlock.testing import LocalMasters", "apart"),
        ("chaos.report.made_up", "from chaos.check import main", "upwards"),
        ("chaos.plan", "import time", "not in the plan"),
        ("chaos.plan", "from chaos.backends import rig", "upwards"),
        ("chaos.clients.made_up", "from redlock._core import quorum", "public"),
        ("chaos.clients.made_up", "from chaos.cast import Cast", "upwards"),
        ("chaos.nemesis", "from chaos.session import main", "upwards"),
    ],
)
def test_an_arrow_that_does_not_point_down(module: str, source: str, word: str) -> None:
    lines = verdict(module, source)
    assert len(lines) == 1, lines
    assert word in lines[0]
    assert module in lines[0]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "redlock._threads.made_up",
            "import socket, time\nfrom redlock import _clock, _connect, options\nfrom redlock._core import wire",
        ),
        ("redlock._threads.made_up", "from . import another"),
        ("redlock._connect", "import redis, hiredis, os\nfrom redlock._core.effects import Failure"),
        (
            "redlock._cli.check",
            "import redlock\nfrom redlock import Masters, ConfigurationError\nfrom redlock._cli import output",
        ),
        ("redlock._cli.check", "from redlock._health.checkup import check"),
        ("redlock.testing.made_up", "from redlock import Masters\nfrom redlock.testing import local"),
        (
            "redlock.observe.made_up",
            "import prometheus_client\nfrom redlock import Event\nfrom redlock.observe import _measures",
        ),
        ("redlock", "from redlock._threads.lock import MultiLock\nfrom redlock.errors import LockLost"),
        ("redlock.options", "from redlock.errors import ConfigurationError"),
        ("chaos.judge.made_up", "import math\nfrom chaos.history import Event\nfrom chaos.judge.holds import Hold"),
        ("chaos.report.made_up", "import json\nfrom chaos.judge import Verdict\nfrom chaos import summary"),
        ("chaos.check", "import sys, os\nfrom chaos import report\nfrom chaos.history import read"),
        ("chaos.plan", "import random\nfrom chaos.settings import Settings"),
        ("chaos.variants", "from redlock._core import quorum"),
        ("chaos.clients.made_up", "from redlock import Masters\nfrom chaos import variants"),
    ],
)
def test_an_arrow_that_does(module: str, source: str) -> None:
    assert verdict(module, source) == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("from redlock._core import loop_b", "from redlock._core import loop_a"),
        ("import redlock._core.loop_b", "from redlock._core.loop_a import name"),
        ("from . import loop_b", "try:\n    from .loop_a import name\nexcept ImportError:\n    pass"),
    ],
)
def test_a_cycle(first: str, second: str) -> None:
    lines = verdict("redlock._core.loop_a", first, {"redlock._core.loop_b": second})
    assert len(lines) == 1, lines
    assert lines[0].startswith("cycle: ")
    assert "loop_a" in lines[0]
    assert "loop_b" in lines[0]


def test_a_longer_cycle() -> None:
    rest = {"redlock._core.b": "from . import c", "redlock._core.c": "from .a import name"}
    [line] = verdict("redlock._core.a", "from . import b", rest)
    assert line.startswith("cycle: ")


@pytest.mark.parametrize(
    "second",
    [
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from redlock._core import loop_a",
        "def later():\n    from redlock._core import loop_a",
        "async def later():\n    from redlock._core import loop_a",
    ],
)
def test_what_does_not_run_in_a_circle_is_none(second: str) -> None:
    assert verdict("redlock._core.loop_a", "from redlock._core import loop_b", {"redlock._core.loop_b": second}) == []
