"""Mutants: one small change of a file each, as a patch (`tests/bench/library.py`); which ones are drawn follows from the seed."""

from __future__ import annotations

import ast
import random
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.bench.library import ROOT, Patch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HERE: Final = Path(__file__).parent
TRUSTED: Final = HERE / "trusted.toml"

_COMPARED: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
_CALCULATED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip
_CALLED: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
_DELETED: Final = (ast.Expr, ast.Assign, ast.AugAssign, ast.Delete, ast.Raise)


class Mutant(NamedTuple):
    """``where``, ``line`` and ``what`` are for people; ``patch`` is the change."""

    file: str
    where: str  # the function or class
    line: int
    what: str
    patch: Patch

    @property
    def name(self) -> str:
        """The same, whatever its line is by now."""
        return f"{self.file}: {self.where}: {self.what}"


def patterns() -> list[str]:
    listed: list[dict[str, str]] = tomllib.loads(TRUSTED.read_text(encoding="utf-8"))["trusted"]
    return [one["files"] for one in listed]


def inside(file: str) -> bool:
    return any(Path(file).match(pattern) for pattern in patterns())


def files(*, trusted: bool) -> list[str]:
    """Python files of the library, by their paths."""
    found = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("redlock/**/*.py"))
    return [file for file in found if inside(file) == trusted]


def module_of(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def drawn(seed: int, count: int, among: Sequence[str]) -> list[Mutant]:
    """So many of all that these files have."""
    every = [one for file in among for one in mutants(file)]
    chance = random.Random(f"mutants {seed}")  # noqa: S311 - it is no secret
    return chance.sample(every, min(count, len(every)))


def mutants(file: str) -> list[Mutant]:
    text = (ROOT / file).read_text(encoding="utf-8")
    tree = ast.parse(text)
    whole = _Text(file, text, tree)
    return [whole.mutant(node, to) for one in _run(tree) for node, to in _changes(one)]


class _Text:
    def __init__(self, file: str, text: str, tree: ast.Module) -> None:
        self._file, self._text = file, text
        self._named = [
            one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        ]
        self._starts = [0]
        for line in text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._module = module_of(file)

    def _at(self, line: int, column: int) -> int:
        start = self._starts[line - 1]
        return start + len(self._text[start : self._starts[line]].encode()[:column].decode())

    def _where(self, line: int) -> str:
        around = [one for one in self._named if one.lineno <= line <= (one.end_lineno or 0)]
        return ".".join(one.name for one in sorted(around, key=lambda one: one.lineno))

    def mutant(self, node: Any, to: ast.AST) -> Mutant:
        start, end = self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)
        new = ast.unparse(to)
        if isinstance(to, ast.expr):
            new = f"({new})"
        # As much of what is before it as makes it the only one.
        first = start
        while self._text.count(self._text[first:end]) > 1:
            first = max(0, self._text.rfind("\n", 0, first))
        patch = Patch(self._module, self._text[first:end], self._text[first:start] + new)
        return Mutant(
            self._file, self._where(node.lineno), node.lineno, f"`{ast.unparse(node)}` becomes `{new}`", patch
        )


# -- what runs -------------------------------------------------------------------------------------------------


def _run(node: ast.AST) -> Iterator[ast.AST]:
    """What decides something: neither annotations, nor what only type checkers read, nor texts for people."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in (
            "annotation",
            "returns",
            "decorator_list",
            "type_comment",
            "keywords" if isinstance(node, ast.ClassDef) else "",
        ):
            continue
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, ast.AST) and not _is_silent(one):
                yield from _run(one)


def _is_silent(node: ast.AST) -> bool:
    match node:
        case ast.If(test=ast.Name("TYPE_CHECKING")) | ast.Expr(value=ast.Constant()):
            return True
        case (
            ast.Assign(targets=[ast.Name("__all__" | "__slots__")]) | ast.JoinedStr() | ast.Import() | ast.ImportFrom()
        ):
            return True
        case ast.MatchValue():  # a pattern may have no brackets
            return True
        case ast.AnnAssign(value=None) | ast.AnnAssign(annotation=ast.Name("TypeAlias")) | ast.Assert():
            return True
    return False


# -- what becomes of it ----------------------------------------------------------------------------------------


def _changes(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """What is replaced, and by what."""
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        yield node.test, ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Constant):
        yield from ((node, ast.Constant(value)) for value in _other_than(node.value))
    else:
        yield from ((node, other) for other in _others(node))
    if isinstance(node, _DELETED):
        yield node, ast.Pass()


def _others(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(ops=[op]):
            yield from (ast.Compare(node.left, [other()], node.comparators) for other in _COMPARED[type(op)])
        case ast.BoolOp():
            yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
            for left_out in range(len(node.values)):
                rest = [one for number, one in enumerate(node.values) if number != left_out]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.BinOp() if type(node.op) in _CALCULATED:
            yield ast.BinOp(node.left, _CALCULATED[type(node.op)](), node.right)
        case ast.AugAssign() if type(node.op) in _CALCULATED:
            yield ast.AugAssign(node.target, _CALCULATED[type(node.op)](), node.value)
        case ast.Call(func=ast.Name(name)) if name in _CALLED:
            yield ast.Call(ast.Name(_CALLED[name]), node.args, node.keywords)
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield ast.Return(ast.Constant(None))
        case ast.Continue() | ast.Break():
            yield ast.Break() if isinstance(node, ast.Continue) else ast.Continue()
        case _:
            pass


def _other_than(value: object) -> tuple[Any, ...]:
    match value:
        case bool():
            return (not value,)
        case 0 | 1:
            return (value + 1,)
        case int() | float():
            return (value + 1, 0)
        case str() if " " not in value:  # else it is for people
            return (f"{value}!",)
        case _:
            return ()
