"""Broken locks, by name: what the simulation must be able to see.

Each breaks one rule by patching one small thing in the core, in a script or in the driver, and says
which invariants fit.  A simulation that is green for one of these would prove nothing by being green.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest import mock

from tests.simulation import master
from tests.simulation.parameters import (
    Parameters,
    draw,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redlock import scripts


@dataclass(frozen=True)
class Variant:
    """One way to get it wrong.  ``fixed``: parameters that let it show soon, beside those of ``drawn``."""

    name: str
    why: str
    expected: frozenset[str]
    patches: Callable[[], list[Any]]
    fixed: dict[str, Any] = field(default_factory=dict)
    drawn: Callable[..., Parameters] = draw

    def parameters(self, seed: int) -> Parameters:
        return self.drawn(seed, **self.fixed)

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for patch in self.patches():
                stack.enter_context(patch)
            yield


def variant(
    name: str, *expected: str, drawn: Callable[..., Parameters] = draw, **fixed: Any
) -> Callable[[Callable[[], list[Any]]], None]:
    def add(patches: Callable[[], list[Any]]) -> None:
        why = (patches.__doc__ or "").strip()
        VARIANTS[name] = Variant(name, why, frozenset(expected), patches, fixed, drawn)

    return add


VARIANTS: dict[str, Variant] = {}


def script(which: scripts.Script, *changes: tuple[str, str]) -> Any:
    """A script with another text; the change must match, or the variant would not be broken."""
    text = which.text
    for old, new in changes:
        assert old in text, f"{which.name}.lua has no {old!r} any more"
        text = text.replace(old, new)
    return mock.patch.dict(master.REPLACED, {which.name: text})
