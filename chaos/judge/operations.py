"""Which invocation an answer belongs to.

A worker of a process, or a process without workers, does one thing of a kind to a lock at a time.  An
invocation that is followed by another one was given up, as by a process that died.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..history import Event, History


@dataclass(frozen=True, slots=True)
class Operation:
    """``end`` is None if it never ended.  ``invoke`` is None if that was not recorded: it took no time then."""

    invoke: Event | None
    end: Event | None

    @property
    def began(self) -> float:
        event = self.invoke or self.end
        assert event is not None  # noqa: S101 - one of the two is there
        return event.t


def operations(history: History, op: str) -> Iterator[Operation]:
    """All of the kind ``op``, in the order in which they ended; those that did not end come last."""
    open_: dict[tuple[str, str | None, str | None], Event] = {}
    given_up: list[Event] = []
    for event in history.events:
        if event.op != op or not event.by_client:
            continue
        of = event.process, event.worker, event.lock
        before = open_.pop(of, None)
        if before is None and event.phase != "invoke":  # which slot it is, is known when it is granted
            before = open_.pop((event.process, event.worker, (event.lock or "").rpartition("#")[0]), None)
        if event.phase == "invoke":
            open_[of] = event
            if before is not None:
                given_up.append(before)
        else:
            yield Operation(before, event)
    for event in (*given_up, *open_.values()):
        yield Operation(event, None)
