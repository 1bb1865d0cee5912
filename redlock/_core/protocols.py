"""What the core is given to call: inboxes, which drivers make, and an observer, `Observer` of `_lock/observer.py`.

This file imports nothing of the core: so events, grants, refusals and leases are ``Any`` here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections import deque


class Inbox(Protocol):
    """The inbox of an operation that asks masters, or listens to releases."""

    def put(self, event: Any) -> None:
        """Deliver ``event``, and wake the operation."""


class LineInbox(Inbox, Protocol):
    """The inbox of an operation that waits in the line of its process, until it is its `Turn`."""

    events: deque[Any]

    def wake(self) -> object:
        """Have the operation take its events."""


class Observing(Protocol):
    """The calls to an observer.  They never wait, and raise nothing that a caller has to handle."""

    def acquired(self, name: str, grant: Any, began: float, seconds: float) -> None: ...
    def refused(self, name: str, refusal: Any, began: float, seconds: float) -> None: ...
    def extended(self, lease: Any, *, renewed: bool = False) -> None: ...
    def released(self, name: str, lease: Any) -> None: ...
    def lost(self, lease: Any) -> None: ...

    def tell(self, kind: str, *fields: Any) -> None:
        """The event ``kind`` of `_events.py`, with its fields."""
