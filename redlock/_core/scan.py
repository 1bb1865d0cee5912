"""Finds the names that have a key on one master, step by step (R29).

A step looks at `COUNT` keys, so that a master is never busy with it for long, however many keys it has.  A master that
is late is asked again: one late answer in a thousand steps is no outage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from redlock._core import wire
from redlock._core.effects import Timeout, wait
from redlock._core.rounds import GRANTED, Round

if TYPE_CHECKING:
    from redlock._core.effects import Op
    from redlock._core.quorum import Tally
    from redlock._core.rounds import RoundEnd
    from redlock._core.settings import MastersSettings
    from redlock._core.wire import Scanned
    from redlock.errors import Outcome

COUNT = 500  # keys; a master is busy with them for a quarter of a millisecond
_TRIES = 3


class Step(Round):
    """One step on one master."""

    _end: ClassVar[RoundEnd] = "complete"
    found: Scanned | None = None

    def read(self, master: int, value: Any) -> tuple[Outcome, str]:  # noqa: ARG002 - only one is asked
        self.found = wire.read_scan(value)
        return GRANTED


def scan(settings: MastersSettings, master: int, cursor: str, pattern: str) -> Op[tuple[Scanned | None, Tally]]:
    """The step at ``cursor``.  None: the master did not take it; the votes say why."""
    tries = 0
    while True:
        step = Step(settings, wire.scan(cursor, pattern, COUNT), to=frozenset((master,)))
        at = yield from step.ask()
        tries += 1
        if step.found is not None or step.tally.outcome(master) != "timeout" or tries == _TRIES:
            return step.found, step.tally
        while not isinstance((yield from wait(at + settings.node_timeout)), Timeout):
            pass
