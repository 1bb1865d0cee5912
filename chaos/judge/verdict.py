"""All verdicts on one history, and what follows for the one that must hold."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ..history import MUST, Must
from .clean import clean, inspections
from .exclusive import exclusive
from .faults import never_struck
from .fenced import fenced, without_fence
from .handover import ends, handover
from .holds import Hold, holds
from .kept import kept, renewed
from .live import last_heal, live
from .order import judged, order
from .prompt import prompt
from .slots import of_groups, slots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..history import History
    from .violation import Violation

Outcome: TypeAlias = Literal["passed", "violated", "unknown"]
LISTED: Final = 100  # violations of a kind; the rest is counted, or one broken lock would make a report of 100 MB
EXIT_CODES: Final[dict[Outcome, int]] = {"passed": 0, "violated": 1, "unknown": 2}


@dataclass(frozen=True, slots=True)
class Ruling:
    """What became of one promise.

    ``violations`` are the first ones of them, ``count`` is how many there are.
    ``vacuous``: it holds because nothing happened that could have broken it.  ``crashed``: the judge
    did, and nothing is known.  ``note`` says why in these cases, and where the outcome is unknown.
    """

    name: Must
    outcome: Outcome
    violations: tuple[Violation, ...] = ()
    note: str = ""
    vacuous: bool = False
    crashed: bool = False
    count: int = 0

    def as_dict(self) -> dict[str, object]:
        return {
            "outcome": self.outcome,
            "vacuous": self.vacuous,
            "note": self.note,
            "count": self.count,
            "violations": [violation.as_dict() for violation in self.violations],
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """A ruling on each of `MUST`, whatever was demanded, and on what was besides; `outcome` is about what was.

    A breach that was proven stays proven, so ``violated`` beats ``unknown``, and that beats ``passed``.
    Only a history without any hold is ``unknown`` whatever else was found.
    """

    must: tuple[Must, ...]
    rulings: tuple[Ruling, ...]
    note: str = ""  # why nothing is proven, if nothing is
    never_struck: tuple[str, ...] = ()  # faults that were asked for
    missed: tuple[str, ...] = ()  # those of them that were asked for by name
    unbroken: tuple[Must, ...] = ()  # what a lock that is broken on purpose has to violate, and did not

    @property
    def outcome(self) -> Outcome:
        if self.note:
            return "unknown"
        outcomes = {ruling.outcome for ruling in self.rulings if ruling.name in self.must}
        if "violated" in outcomes:
            return "violated"
        return "unknown" if self._reasons() else "passed"

    @property
    def why(self) -> str:
        """Why nobody knows, in words; empty where somebody does."""
        return self.note or "; ".join(self._reasons()) if self.outcome == "unknown" else ""

    def _reasons(self) -> list[str]:
        reasons = [
            f"{one.name}: {one.note}"
            for one in self.rulings
            if one.outcome == "unknown" and (one.name in self.must or one.crashed)
        ]
        if self.missed:
            reasons.append(f"{', '.join(self.missed)} never struck, and had been asked for by name")
        if self.unbroken:
            reasons.append(
                f"{', '.join(self.unbroken)} had to be violated, as the lock is broken on purpose, and was not"
            )
        return reasons

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.outcome]

    def __getitem__(self, name: Must) -> Ruling:
        return next(ruling for ruling in self.rulings if ruling.name == name)

    def as_dict(self) -> dict[str, object]:
        return {
            "outcome": self.outcome,
            "note": self.note,
            "why": self.why,
            "must": list(self.must),
            "never_struck": list(self.never_struck),
            "rulings": {ruling.name: ruling.as_dict() for ruling in self.rulings},
        }


def judge(history: History, must: Iterable[Must] | None = None) -> Verdict:
    """The rulings on ``history``; ``must`` is what has to hold, what its header says unless given."""
    demanded = history.header.must if must is None else tuple(must)
    names = tuple(dict.fromkeys((*MUST, *demanded, *history.header.breaks)))
    try:
        held = holds(history)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is no pass
        note = _crash(error)
        return Verdict(demanded, tuple(Ruling(name, "unknown", note=note, crashed=True) for name in names), note)
    rulings = tuple(_rule(name, history, held) for name in names)
    proves = any(hold.end > hold.start for hold in held)
    idle = never_struck(history)
    return Verdict(
        demanded,
        rulings,
        "" if proves else "no lock was ever held, so this history proves nothing",
        never_struck=idle,
        missed=tuple(name for name in idle if name in history.header.must_strike),
        unbroken=tuple(one.name for one in rulings if one.name in history.header.breaks and one.outcome != "violated"),
    )


def _rule(name: Must, history: History, held: list[Hold]) -> Ruling:
    try:
        number = itertools.count()
        every = (one for one, _ in zip(_JUDGES[name](history, held), number, strict=False))
        found = tuple(heapq.nsmallest(LISTED, every, key=lambda one: one.at))
        if found:
            return Ruling(name, "violated", found, count=next(number))
        missing = without_fence(history) if name == "fenced" else ()
        if missing:
            grants = "1 grant has" if len(missing) == 1 else f"{len(missing)} grants have"
            return Ruling(name, "unknown", note=f"{grants} no fence, the first in line {missing[0].line}")
        if name == "live" and last_heal(history) is None:
            return Ruling(name, "passed", note="no fault was healed", vacuous=True)
        if name == "clean" and not inspections(history):
            return Ruling(name, "passed", note="no master was inspected", vacuous=True)
        if name == "kept" and not renewed(held):
            return Ruling(name, "passed", note="no lease was renewed", vacuous=True)
        if name == "handover" and next(ends(history, held), None) is None:
            return Ruling(name, "passed", note="no leader has ended early", vacuous=True)
        if name == "order" and not judged(history):
            return Ruling(
                name, "passed", note="no client waited in line, except while the machine was busy", vacuous=True
            )
        if name == "slots" and next(of_groups(history, held), None) is None:
            return Ruling(name, "passed", note="no slot was held", vacuous=True)
        return Ruling(name, "passed")
    except Exception as error:  # noqa: BLE001 - likewise
        return Ruling(name, "unknown", note=_crash(error), crashed=True)


def _crash(error: Exception) -> str:
    return f"the judge crashed: {type(error).__name__}: {error}"


_JUDGES: Final[dict[Must, Callable[[History, list[Hold]], Iterable[Violation]]]] = {
    "exclusive": lambda _, held: exclusive(held),
    "fenced": lambda history, _: fenced(history),
    "prompt": prompt,
    "live": lambda history, _: live(history),
    "clean": clean,
    "kept": kept,
    "handover": handover,
    "slots": slots,
    "order": order,
}
