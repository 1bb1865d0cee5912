"""When which fault was in force."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..history import NEMESIS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ..history import Event, History

# What a process cannot do anything during (C27).
STOPPED: Final = ("stop",)
STOPPED_OR_KILLED: Final = ("stop", "kill")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault on one target, from when it struck until it was healed; ``healed`` None: it never was."""

    struck: Event
    target: str  # "" where none was named
    healed: Event | None = None

    @property
    def op(self) -> str:
        return self.struck.op

    @property
    def name(self) -> str:
        """What it was asked for as: ``crash`` kills a client, and ``kill`` a master."""
        return self.struck.fault or self.op

    @property
    def begin(self) -> float:
        return self.struck.t

    @property
    def failed(self) -> bool:
        """It was tried, and did not strike."""
        return self.healed is not None and self.healed.phase == "fail"

    @property
    def end(self) -> float:
        return math.inf if self.healed is None else self.healed.t


def faults(history: History) -> list[Fault]:
    """One for each target, in the order in which they struck.

    What did not strike (``fail``) is over at once; what nobody knows (``info``) of goes on.
    """
    found: list[Fault] = []
    open_: dict[tuple[str, str], list[int]] = {}
    for event in history.events:
        if event.process != NEMESIS:
            continue
        for target in event.target or ("",):
            if event.phase == "invoke":
                open_.setdefault((event.op, target), []).append(len(found))
                found.append(Fault(event, target))
            elif event.phase in ("ok", "fail"):
                for number in open_.pop((event.op, target), ()):
                    found[number] = Fault(found[number].struck, target, event)
    return found


def never_struck(history: History) -> tuple[str, ...]:
    """Of the faults that were asked for."""
    struck = {fault.name for fault in faults(history) if not fault.failed}
    return tuple(name for name in history.header.faults if name not in struck)


class Hindered:
    """Which processes could do nothing, and when."""

    def __init__(self, found: Iterable[Fault], ops: Collection[str]) -> None:
        self._of: dict[str, list[Fault]] = {}
        for fault in found:
            if fault.op in ops:
                self._of.setdefault(fault.target, []).append(fault)

    def within(self, process: str, begin: float, end: float) -> bool:
        """Was it, at any moment from ``begin`` to ``end``, both included?"""
        return any(fault.begin <= end and fault.end >= begin for fault in self._of.get(process, ()))
