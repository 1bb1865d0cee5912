"""The library as one process has loaded it: a copy of its own, with other modules of the operating system.

Nothing of the copy that the tests have imported is changed, and processes share no state: neither a module's, nor what
belongs to threads.  What of the core has none is loaded once for all.  A copy may be loaded with one thing broken, and
with a step in front of each statement.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
from collections.abc import Iterable, Iterator, MutableSet
from pathlib import Path
from types import CodeType, ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import redlock
from redlock import scripts

if TYPE_CHECKING:
    from tests.bench.system import System

ROOT = Path(redlock.__file__).parent.parent
# Where threads meet: a thread may be preempted, or a Ctrl-C strike, in front of each statement here.
STEPPED = ("redlock._io", "redlock._lock", "redlock._cli.run", *(f"redlock._core.{one}" for one in (
    "exchange", "pipeline", "operation", "local_queue", "subscriptions", "schedule", "lease", "renewals",
)))  # fmt: skip
# Where nothing changes after it was loaded, and nothing happens between two statements; nor in what they import.
SHARED = ("redlock.errors", "redlock._events", "redlock.options", "redlock.scripts", *(f"redlock._core.{one}" for one in (
    "attributes", "confirm.expiry", "confirm.records", "effects", "fair.tickets", "fleet",
    "inspect", "kernel.ballot", "kernel.quorum", "kernel.rounds", "kernel.validity", "listing", "notes",
    "outages", "outcomes", "protocols", "rates", "readings", "sizes", "stop", "tokens", "voters", "wire",
)), *(f"redlock._health.{one}" for one in ("facts", "fleet", "records", "result", "rights", "verdict")))  # fmt: skip


class Patch(NamedTuple):
    """``old`` becomes ``new`` in the text of ``module``, wherever it stands there: a module, or a script (``acquire.lua``)."""

    module: str
    old: str
    new: str

    def applied(self, text: str) -> str:
        if self.old not in text:
            raise LookupError(f"{self.module} has no {self.old!r} any more: say anew how it is broken")
        return text.replace(self.old, self.new)


class OrderedSet(MutableSet[Any]):
    """A set that is walked in the order in which it was filled: an address must decide nothing."""

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self._items = dict.fromkeys(items)

    def __class_getitem__(cls, _: Any) -> Any:
        return cls

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"{{{', '.join(map(repr, self._items))}}}"

    def add(self, item: Any) -> None:
        self._items[item] = None

    def discard(self, item: Any) -> None:
        self._items.pop(item, None)

    def pop(self) -> Any:
        return self._items.popitem()[0]

    def copy(self) -> OrderedSet:
        return OrderedSet(self._items)

    def update(self, *others: Iterable[Any]) -> None:
        for other in others:
            self._items.update(dict.fromkeys(other))

    def difference(self, *others: Iterable[Any]) -> OrderedSet:
        without = {item for other in others for item in other}
        return OrderedSet(item for item in self._items if item not in without)

    def intersection(self, other: Iterable[Any]) -> OrderedSet:
        among = {*other}
        return OrderedSet(item for item in self._items if item in among)

    def difference_update(self, *others: Iterable[Any]) -> None:
        self._items = self.difference(*others)._items


class _Steps(ast.NodeTransformer):
    """Puts a call in front of each statement of each function."""

    def _stepped(self, body: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for statement in body:
            is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if not is_text and not isinstance(statement, (ast.Global, ast.Nonlocal)):
                call = ast.Expr(ast.Call(ast.Name("__step__", ast.Load()), [], []))
                found.append(ast.fix_missing_locations(ast.copy_location(call, statement)))
            found.append(statement)
        return found

    def _function(self, node: Any) -> Any:
        for inside in ast.walk(node):
            for part in ("body", "orelse", "finalbody"):
                body = getattr(inside, part, None)
                if isinstance(body, list):
                    setattr(inside, part, self._stepped(body))
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = _function  # noqa: N815


@functools.cache
def compiled(name: str, path: Path, steps: tuple[str, ...], patches: tuple[Patch, ...]) -> CodeType:
    text = path.read_text(encoding="utf-8")
    for patch in patches:
        text = patch.applied(text)
    tree = ast.parse(text, str(path))
    if name.startswith(steps):
        tree = _Steps().visit(tree)
    code: CodeType = compile(tree, str(path), "exec", dont_inherit=True)
    return code


@functools.cache
def file_of(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def text_of(module: str) -> str:
    """... or of a script, as it is sent."""
    if module.endswith(".lua"):
        return next(script.text for script in scripts.ALL if f"{script.name}.lua" == module)
    return file_of(module).read_text(encoding="utf-8")


def replaced(patches: Iterable[Patch]) -> dict[str, str]:
    """The scripts that these change, by name, with the text that masters run instead."""
    found: dict[str, str] = {}
    for patch in patches:
        if patch.module.endswith(".lua"):
            name = patch.module.removesuffix(".lua")
            found[name] = patch.applied(found.get(name) or text_of(patch.module))
    return found


class Library:
    """The modules of one copy, by name; loaded when they are asked for."""

    def __init__(self, system: System, *, steps: tuple[str, ...] = (), patches: tuple[Patch, ...] = ()) -> None:
        self.modules: dict[str, ModuleType] = {}
        self.system = system
        as_it_is = not any(name.startswith(steps) or name in {patch.module for patch in patches} for name in SHARED)
        self._shared = SHARED if as_it_is and system is not NOBODY else ()
        self._steps, self._patches = steps, patches
        step = system.process.step
        self._builtins = {**vars(builtins), "__import__": self._import, "__step__": step, "set": OrderedSet}

    def __getitem__(self, name: str) -> Any:
        return self.load(f"redlock.{name}")

    def load(self, name: str) -> ModuleType:
        module = self.modules.get(name)
        if module is not None:
            return module
        parent, _, child = name.rpartition(".")
        if parent:
            self.load(parent)
            if name in self.modules:  # which has imported it
                return self.modules[name]
        if name in self._shared:
            module = self.modules[name] = CORE.load(name)
            setattr(self.modules[parent], child, module)
            return module
        importlib.import_module(name)  # dataclasses look for it by name
        path, module = file_of(name), ModuleType(name)
        if path.name == "__init__.py":
            module.__path__ = [str(path.parent)]
        module.__package__ = name if path.name == "__init__.py" else parent
        if not path.exists():
            raise ModuleNotFoundError(f"no module {name}", name=name)
        module.__file__ = str(path)
        vars(module)["__builtins__"] = self._builtins
        self.modules[name] = module
        self.system.process.loading += 1  # nobody else may see half of a module
        try:
            patches = tuple(patch for patch in self._patches if patch.module == name)
            exec(compiled(name, path, self._steps, patches), vars(module))  # noqa: S102
        except BaseException:
            del self.modules[name]
            raise
        finally:
            self.system.process.loading -= 1
        self.system.loaded(self, name, module)
        if parent:
            setattr(self.modules[parent], child, module)
        return module

    def _import(self, name: str, where: Any = None, local: Any = None, wanted: Any = (), level: int = 0) -> ModuleType:
        if name.partition(".")[0] == "redlock":
            module = self.load(name)
            if not wanted:
                return self.modules["redlock"]
            for one in wanted:
                if not hasattr(module, one):
                    self.load(f"{name}.{one}")
            return module
        return self.system.modules.get(name) or builtins.__import__(name, where, local, wanted, level)


# What all processes have, and whose it is.
NOBODY: Any = SimpleNamespace(modules={}, process=SimpleNamespace(loading=0, step=None), loaded=lambda *_: None)
CORE = Library(NOBODY)
