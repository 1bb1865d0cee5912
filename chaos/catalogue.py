"""``redlock-chaos list``: backends, faults, scenarios and broken variants, and what of it works here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import databases
from .backends import BACKENDS
from .faults import FAULTS, GROUPS
from .run import lacks
from .scenarios import beyond_model, in_model
from .variants import VARIANTS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It has none."""
    parser.description = "What there is, and what of it works on this machine."


def main(args: argparse.Namespace) -> int:  # noqa: ARG001
    for backend in BACKENDS.values():
        why = backend.unavailable()
        missing = [f"cannot do {fault}: {reason}" for fault, reason in lacks(backend).items()]
        state = f"does not work here: {why}" if why is not None else "; ".join(["works here", *missing])
        _section(f"backend {backend.NAME}", [(backend.WHAT, state)], width=0)
    why = databases.unavailable()
    _section("database of transactions", [("PostgreSQL", "works here" if why is None else f"not here: {why}")])
    _section(
        "faults",
        (
            (one.name, f"{one.kind}: {one.what}{'' if one.in_model else ' (beyond the model)'}")
            for one in FAULTS.values()
        ),
    )
    _section("groups of faults", ((name, ", ".join(of)) for name, of in GROUPS.items()))
    _section("scenarios in which everything must hold", ((one.name, one.what) for one in in_model()))
    _section(
        "scenarios beyond the model, which must show what breaks, and never fencing",
        ((one.name, f"{one.what} (shows: {one.shows})") for one in beyond_model()),
    )
    _section(
        "broken variants, which must be caught",
        ((one.name, f"{one.what}; breaks {one.breaks} in {one.scenario}") for one in VARIANTS.values()),
    )
    return 0


def _section(title: str, rows: Iterable[tuple[str, str]], width: int = 24) -> None:
    print(f"{title}:")
    for name, what in rows:
        print(f"  {name:{width}} {what}" if width else f"  {name}\n  {what}")
    print()
