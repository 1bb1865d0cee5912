"""What the core is given to call: inboxes, which drivers make, and an observer, `Observer` of `_lock/observer.py`.

This file imports nothing of the core.  So an ``event`` is an `Event`, a ``grant`` a `Grant`, a ``refusal`` a `Refusal`,
a ``lease`` a `LeaseState`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections import deque

    from redlock.errors import Vote


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
    def waits(self, name: str, waiter: int) -> None: ...
    def waited(self, name: str, waiter: int) -> None: ...
    def extended(self, lease: Any, *, renewed: bool = False) -> None: ...
    def released(self, name: str, lease: Any) -> None: ...
    def lost(self, lease: Any) -> None: ...
    def master_down(self, master: str, reason: str) -> None: ...
    def master_up(self, master: str, quarantined: float) -> None: ...
    def master_clock(self, master: str, rate: float, quarantined: float) -> None: ...
    def quorum_lost(self, votes: tuple[Vote, ...]) -> None: ...
    def quorum_back(self) -> None: ...
    def masters_disagree(self, masters: tuple[str, ...], others: tuple[frozenset[str], ...], refused: bool) -> None: ...
    def masters_agree(self) -> None: ...
