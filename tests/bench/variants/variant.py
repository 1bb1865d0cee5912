"""What a broken library is, and how it is caught."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tests import bench
from tests.bench.judge import Violation
from tests.bench.library import ROOT
from tests.bench.run import play

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.bench.library import Patch
    from tests.bench.parameters import Setting


@dataclass(frozen=True)
class Variant:
    """``what`` is broken, with the rule that it breaks.

    Caught by one scene (``"test_loss.test_max_hold_ends_a_lease"``) or another test (``"core/test_rounds.py"``), or
    where only chance meets it by a seed of ``setting`` from ``first`` on, with one of the invariants ``expected``.
    """

    what: str
    expected: tuple[str, ...]
    setting: Callable[[int], Setting] | None
    patches: tuple[Patch, ...]
    first: int = 0
    scene: str = ""


def broken(what: str, scene: str, *patches: Patch) -> Variant:
    """A variant that this scene, or this test, is red for."""
    return Variant(what, (), None, patches, scene=scene)


def seeded(
    what: str, expected: tuple[str, ...], setting: Callable[[int], Setting], *patches: Patch, first: int = 0
) -> Variant:
    """A variant that a seed from ``first`` on violates one of the ``expected`` invariants with."""
    return Variant(what, expected, setting, patches, first)


@dataclass(frozen=True)
class Caught:
    """What catches a variant, and how."""

    by: str
    text: str
    seconds: float


# What a scene raises where the library misbehaves, and not where a patch is no Python.
_RED = ("AssertionError", "Violation", "ExceptionGroup")


def hunt(variant: Variant, most: int) -> Caught | None:
    """Play its scene, or up to ``most`` seeds until an invariant that fits catches the variant."""
    began = time.process_time()
    if ".py" in variant.scene:
        text = fails(variant.scene, variant.patches)
        return None if text is None else Caught(f"`{variant.scene}`", text, time.process_time() - began)
    if variant.setting is None:
        caught = next(red(variant.scene, variant.patches), None)
        return None if caught is None else Caught(f"`{variant.scene}`", caught, time.process_time() - began)
    for seed in range(variant.first, variant.first + most):
        try:
            play(variant.setting(seed), variant.patches)
        except Violation as violation:
            if violation.invariant in variant.expected:
                by = f"`{violation.invariant}`, seed {seed}"
                return Caught(by, str(violation), time.process_time() - began)
    return None


def red(name: str, patches: tuple[Patch, ...]) -> Iterator[str]:
    """Each case of this scene that fails with ``patches``, and how."""
    for text, test in cases(name):
        try:
            with bench.broken(patches):
                test()
        except Exception as error:
            if type(error).__name__ in _RED or type(error).__module__ == "redlock.errors":
                yield f"{text}: {error!r}"
            else:
                raise


def fails(test: str, patches: tuple[Patch, ...]) -> str | None:
    """Run a test of ``tests/`` in a process of its own, with this library: how it fails."""
    environment = {**os.environ, "REDLOCK_PATCHES": json.dumps(patches)}
    options = ["-x", "-q", "-p", "tests.breaking", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, f"tests/{test}"]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if run.returncode not in (0, 1):
        raise RuntimeError(f"{test} cannot be run:\n{run.stdout}{run.stderr}")
    return run.stdout if run.returncode else None


def cases(name: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What pytest would make of this test: one for each value of its parameters."""
    module, _, function = name.rpartition(".")
    test = getattr(importlib.import_module(f"tests.scenes.{module}"), function)
    marks = [mark.args for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    choices = [[_given(names, value) for value in values] for names, values, *_ in marks]
    for chosen in itertools.product(*choices):
        given = {key: value for one in chosen for key, value in one.items()}
        yield f"{name}{[*given.values()]}", partial(test, **given)


def _given(names: Any, value: Any) -> dict[str, Any]:
    names = [one.strip() for one in names.split(",")] if isinstance(names, str) else names
    values = value.values if hasattr(value, "marks") else (value,) if len(names) == 1 else value
    return dict(zip(names, values, strict=True))
