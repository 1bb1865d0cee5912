"""Writes down what users may rely on, so that each change of it is seen in review: `tests/surface.txt`.

    python -m tools.surface [--write]

Every public name with its signature or its fields, the bases of exceptions, the options and exit codes of the commands,
the keys of a configuration file, and the names of metrics.  Without ``--write`` it shows how the file differs from what
there is.  Its exit code is 1 then.

Annotations are left out: `tests/typing` has what type checkers see.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import enum
import importlib
import inspect
import pkgutil
import sys
import types
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FILE: Final = Path(__file__).parents[1] / "tests" / "surface.txt"
COMMAND: Final = "python -m tools.surface --write"
PACKAGES: Final = ("redlock", "redlock.adapters", "redlock.compat", "redlock.fenced", "redlock.observe")
INTERNAL: Final = ("redlock.scripts",)  # the Lua scripts: docs/reference/wire.md says what of them may be relied on
SPECIAL: Final = (
    "__init__", "__call__", "__enter__", "__exit__", "__aenter__", "__aexit__", "__iter__", "__next__", "__aiter__",
    "__anext__", "__len__", "__getitem__",
)  # fmt: skip


def surface() -> str:
    parts = [*map(module, modules()), fixtures()]
    parts += [command("redlock-check"), command("redlock-run"), command("redlock-chaos"), configuration()]
    parts += [prometheus(), open_telemetry(), of_check()]
    told = [(title, [f"    {line}" for line in lines]) for title, lines in parts if lines]
    return "\n".join("\n".join([title, "", *lines, ""]) for title, lines in told)


# -- Python -----------------------------------------------------------------------------------------------------------


def modules() -> list[str]:
    found = {"redlock", "redlock.testing"}
    for package in PACKAGES:
        found |= {f"{package}.{one.name}" for one in pkgutil.iter_modules(importlib.import_module(package).__path__)}
    return sorted(one for one in found if "._" not in one and one not in INTERNAL)


def module(name: str) -> tuple[str, list[str]]:
    found = importlib.import_module(name)
    lines: list[str] = []
    for public in _names(found):
        thing = getattr(found, public)
        home = getattr(thing, "__module__", name)
        elsewhere = home != name and "._" not in home and home.startswith("redlock.") and home in modules()
        lines += [f"{public}: {home}.{public}"] if elsewhere else value(public, thing)
    return f"module {name}", lines


def _names(found: types.ModuleType) -> list[str]:
    """Those of ``__all__``, or else those that are defined there."""
    own = [
        name
        for name, value in vars(found).items()
        if not name.startswith("_")
        and not inspect.ismodule(value)
        and getattr(value, "__module__", found.__name__) in (found.__name__, "typing")
        and not (inspect.isclass(value) and value.__module__ != found.__name__)
        and name not in ("annotations", "TYPE_CHECKING", *vars(typing))
    ]
    return sorted(getattr(found, "__all__", own))


def value(name: str, thing: Any) -> list[str]:
    if inspect.isclass(thing):
        return [_headed(name, thing), *(f"    {line}" for line in members(thing))]
    if typing.get_origin(thing) is not None:
        return [f"{name} = {_alias(thing)}"]
    if inspect.isroutine(thing):
        return [function(name, thing)]
    return [f"{name} = {_default(thing)}"]


def _headed(name: str, kind: type[Any]) -> str:
    """Bases of which users know: those that are public, and those of Python."""
    bases = [base.__name__ for base in kind.__mro__[1:-1] if _is_known(base)]
    return f"class {name}" + (f"({', '.join(bases)})" if bases else "")


def _is_known(kind: type[Any]) -> bool:
    home = kind.__module__
    return kind is not BaseException and (home == "builtins" or (home.startswith("redlock") and "._" not in home))


def members(kind: type[Any]) -> Iterator[str]:
    fields: dict[str, object] = dict.fromkeys(getattr(kind, "_fields", ()), dataclasses.MISSING)
    fields |= getattr(kind, "_field_defaults", {})
    if dataclasses.is_dataclass(kind):
        fields = {field.name: field.default for field in dataclasses.fields(kind) if not field.name.startswith("_")}
    for name, default in fields.items():
        yield name if default is dataclasses.MISSING else f"{name} = {_default(default)}"
    for name in sorted(dir(kind)):
        if name in fields or not (name in SPECIAL or not name.startswith("_")):
            continue
        home = next(base for base in kind.__mro__ if name in vars(base))
        if home.__module__.startswith("redlock") and not (dataclasses.is_dataclass(kind) and name == "__init__"):
            yield _member(name, inspect.getattr_static(kind, name))


def _member(name: str, value: Any) -> str:
    if isinstance(value, (classmethod, staticmethod)):
        return f"{type(value).__name__} {function(name, value.__func__)}"
    if inspect.isfunction(value):
        return function(name, value)
    if isinstance(value, property):
        return f"property {name}"
    if inspect.isdatadescriptor(value) or not _is_plain(value):
        return name
    return f"{name} = {_default(value)}"


def function(name: str, function: Any) -> str:
    inner = inspect.unwrap(function)
    word = "async " if inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner) else ""
    return f"{word}{name}({', '.join(_parameters(inspect.signature(function)))})"


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    before: Any = None
    parameters = [one for one in signature.parameters.values() if one.name not in ("self", "cls")]
    for one in parameters:
        if before == one.POSITIONAL_ONLY != one.kind:
            yield "/"
        if one.kind == one.KEYWORD_ONLY and before not in (one.KEYWORD_ONLY, one.VAR_POSITIONAL):
            yield "*"
        stars = "*" * (one.kind == one.VAR_POSITIONAL) + "**" * (one.kind == one.VAR_KEYWORD)
        yield stars + one.name + ("" if one.default is one.empty else f"={_default(one.default)}")
        before = one.kind
    if parameters and before == inspect.Parameter.POSITIONAL_ONLY:
        yield "/"


def _alias(value: Any) -> str:
    if typing.get_origin(value) is typing.Literal:
        return f"Literal[{', '.join(map(repr, typing.get_args(value)))}]"
    if isinstance(value, types.UnionType) or typing.get_origin(value) is typing.Union:
        return " | ".join(_alias(one) for one in typing.get_args(value))
    return getattr(value, "__name__", type(value).__name__)


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


def _default(value: object) -> str:
    """``value``, the same in each run and with each Python."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, tuple) and not _is_plain(value):
        return f"({', '.join(map(_default, value))})"
    if _is_plain(value):
        return repr(value)
    return getattr(value, "__qualname__", f"<{type(value).__name__}>")


def fixtures() -> tuple[str, list[str]]:
    from redlock.testing import plugin  # noqa: PLC0415 - here: most of what is told of needs no pytest

    return "fixtures of pytest", sorted(name for name in vars(plugin) if name.startswith("redlock_"))


# -- commands ---------------------------------------------------------------------------------------------------------


def command(name: str) -> tuple[str, list[str]]:
    from chaos.__main__ import COMMANDS, parser  # noqa: PLC0415
    from redlock._cli import arguments, check, run  # noqa: PLC0415

    made: dict[str, Any] = {
        "redlock-check": (check.parser, check),
        "redlock-run": (run.parser, run, arguments),
        "redlock-chaos": (lambda: parser(*COMMANDS),),
    }
    found, homes = made[name][0](), made[name][1:]
    codes = [f"{code} = {value}" for home in homes for code, value in vars(home).items()
             if type(value) is int and code.isupper() and not code.startswith("_")]  # fmt: skip
    said = (found.epilog or "").partition("exit codes:")[2].partition("\n\n")[0].strip().splitlines()
    return f"command {name}", [
        *_arguments(found, ""), "exit codes:", *(f"    {line.strip()}" for line in [*said, *codes])
    ]  # fmt: skip


def _arguments(parser: argparse.ArgumentParser, of: str) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield f"{of}{name}"
                yield from _arguments(inner, f"{of}{name} ")
            continue
        what = [f"{of}{', '.join(action.option_strings) or action.metavar or action.dest}"]
        if action.option_strings and action.nargs != 0:
            what.append(str(action.metavar or action.dest.upper()))
        what += [f"nargs={action.nargs}"] * (action.nargs not in (None, 0))
        if action.choices is not None:
            what.append("{" + ",".join(map(str, action.choices)) + "}")
        if action.default not in (None, False, argparse.SUPPRESS) and _is_plain(action.default):
            what.append(f"= {action.default!r}")
        yield " ".join(what)


def configuration() -> tuple[str, list[str]]:
    from redlock._cli import config  # noqa: PLC0415

    return "file for --config", [*config.KEYS, *(f"masters[].{key}" for key in config.KEYS_OF_A_MASTER)]


# -- metrics ----------------------------------------------------------------------------------------------------------


def _told(observer: Any) -> None:
    """Something happens, so that each metric has a value."""
    import redlock  # noqa: PLC0415

    votes = (redlock.Vote("10.0.0.1:6379", "granted", 0.001),)
    lease = ("a", "0" * 40, 1)
    for event in (
        redlock.MasterUp("10.0.0.1:6379", 0.0),
        redlock.LockAcquired(*lease, 1, 0.1, votes),
        redlock.LeaseExtended(*lease, 1.0, votes),
        redlock.LockReleased(*lease, 1.0, votes),
        redlock.LeaseLost(*lease, "expired", 1.0),
        redlock.QuorumLost(votes),
        redlock.QuorumBack(),
        redlock.MastersDisagree(("a",), (("b",),), refused=True),
    ):
        observer(event)


def _metrics(found: Iterable[tuple[str, str, Iterable[str]]]) -> list[str]:
    return sorted(f"{kind} {name}{{{','.join(sorted(set(labels)))}}}" for kind, name, labels in found)


def prometheus() -> tuple[str, list[str]]:
    from prometheus_client import CollectorRegistry  # noqa: PLC0415

    from redlock.observe.prometheus import PrometheusObserver  # noqa: PLC0415

    registry = CollectorRegistry()
    _told(PrometheusObserver(registry, label=str))
    families = [
        (one.type, one.name, (label for sample in one.samples for label in sample.labels if label != "le"))
        for one in registry.collect()
    ]
    return "metrics of PrometheusObserver(label=…)", _metrics(families)


def open_telemetry() -> tuple[str, list[str]]:
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader  # noqa: PLC0415

    from redlock.observe.otel import OpenTelemetryObserver  # noqa: PLC0415

    reader = InMemoryMetricReader()
    _told(OpenTelemetryObserver(MeterProvider([reader]), label=str))
    data: Any = reader.get_metrics_data()
    found = data.resource_metrics[0].scope_metrics[0].metrics
    instruments = [
        (type(one.data).__name__.lower(), one.name, (key for point in one.data.data_points for key in point.attributes))
        for one in found
    ]
    return "metrics of OpenTelemetryObserver(label=…)", _metrics(instruments)


def of_check() -> tuple[str, list[str]]:
    from redlock import Finding, Health, MasterHealth, Probe, QuorumHealth  # noqa: PLC0415
    from redlock._cli.prometheus import exposition  # noqa: PLC0415

    wrong = (Finding("warning", "slow", "", ""),)
    one = MasterHealth("", "", votes=True, reachable=True, version="8", latency_ms=1, uptime_s=1, used_memory=1,
                       clock_offset_ms=1, findings=wrong)  # fmt: skip
    quorum = QuorumHealth(1, 1, 1, 0, 60.0, Probe(ok=True, seconds=0.1))
    samples = exposition(Health("OK", "", quorum, (one,), wrong)).splitlines()
    names = [sample.rpartition(" ")[0] for sample in samples if not sample.startswith("#")]
    split = [name.partition("{") for name in names]
    return "metrics of redlock-check --prometheus", _metrics(
        ("gauge", name, (label.partition("=")[0] for label in labels.rstrip("}").split(",") if label))
        for name, _, labels in split
    )


# ---------------------------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.surface", description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    text = surface()
    kept = FILE.read_text(encoding="utf-8") if FILE.exists() else ""
    if parser.parse_args().write:
        FILE.write_text(text, encoding="utf-8")
    elif text != kept:
        print(*difflib.unified_diff(kept.splitlines(), text.splitlines(), FILE.name, "what there is", lineterm="", n=2),
              sep="\n")  # fmt: skip
        print(f"The public surface has changed.  If that is wanted: {COMMAND}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
