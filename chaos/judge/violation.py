"""What a judge found, with the lines that prove it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..history import Event

# A clock of nanoseconds: sums of seconds are compared without the error of the addition.
_DIGITS: Final = 9


@dataclass(frozen=True, slots=True)
class Violation:
    """One breach.  ``at`` is when it could first be seen, ``events`` are the offending ones in order of time."""

    sentence: str
    at: float
    events: tuple[Event, ...]
    lock: str | None = None

    def as_dict(self) -> dict[str, object]:
        return {
            "at": self.at,
            "lock": self.lock,
            "sentence": self.sentence,
            "events": [event.as_dict() for event in self.events],
        }


def violation(sentence: str, at: float, *events: Event | None, lock: str | None = None) -> Violation:
    """Events that are None or named twice are left out."""
    lines = {event.line: event for event in events if event is not None}
    return Violation(sentence, at, tuple(sorted(lines.values(), key=lambda event: (event.t, event.line))), lock)


def later(t: float, seconds: float) -> float:
    """``t`` plus ``seconds``, as a time of a history would be written."""
    return round(t + seconds, _DIGITS)


def short(token: str | None) -> str:
    """Enough of a token to recognise it."""
    return "no token" if token is None else token if len(token) <= 8 else token[:8] + "…"  # noqa: PLR2004


def stamp(t: float) -> str:
    return f"t={t:.6f}"
