"""Where the events of one operation arrive.  A driver makes it; the core keeps it for later, and puts into it.

This file imports nothing of the core, so an event is ``Any`` here: see `Event` in `_core/effects.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections import deque


class Inbox(Protocol):
    """The inbox of an operation that asks masters, or hears of releases."""

    def put(self, event: Any) -> None:
        """Deliver ``event``, and wake the operation."""


class LineInbox(Inbox, Protocol):
    """The inbox of an operation that stands in the line of its process, until it is its `Turn`."""

    events: deque[Any]

    def wake(self) -> object:
        """Have the operation look at its events."""
