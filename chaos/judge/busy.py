"""When the machine hardly ran a client, as the observer says (`chaos.pulse`): whatever it was about may take that much longer."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ..history import OBSERVER
from .violation import later

if TYPE_CHECKING:
    from ..history import History


class Busy:
    def __init__(self, history: History) -> None:
        self._spans: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        for event in history.events:
            if (event.process, event.op) == (OBSERVER, "busy") and isinstance(event.detail, dict):
                for client in event.target:
                    self._spans[client].append((event.t, event.detail["until"]))
        self._of_any = sorted(span for spans in self._spans.values() for span in spans)

    def within(self, client: str, begin: float, end: float) -> bool:
        return any(t <= end and until >= begin for t, until in self._spans[client])

    def runs_for(self, seconds: float, since: float) -> float:
        """Until when: so many seconds in which it was so of no client."""
        at, left = since, seconds
        for t, until in self._of_any:
            if t - at >= left:
                break
            left -= max(0.0, t - at)
            at = max(at, until)
        return later(at, left)
