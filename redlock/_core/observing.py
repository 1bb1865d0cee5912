"""What an observer is told: the interface that settings carry.  The only one is `Observer` in `_lock/observer.py`.

This file imports nothing of the core, for nearly all of it carries settings.  So what is told is ``Any`` here: a
``grant`` is a `Grant`, a ``refusal`` a `Refusal`, a ``lease`` a `LeaseState`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from redlock.errors import Vote


class Observing(Protocol):
    """It never waits, and raises nothing that a caller has to handle."""

    def acquired(self, name: str, grant: Any, began: float, seconds: float) -> None: ...

    def refused(self, name: str, refusal: Any, began: float, seconds: float) -> None: ...

    def extended(self, lease: Any, *, renewed: bool = False) -> None: ...

    def released(self, name: str, lease: Any) -> None: ...

    def lost(self, lease: Any) -> None: ...

    def master_down(self, master: str, reason: str) -> None: ...

    def master_up(self, master: str, quarantined: float) -> None: ...

    def quorum_lost(self, votes: tuple[Vote, ...]) -> None: ...

    def quorum_back(self) -> None: ...

    def masters_disagree(self, masters: tuple[str, ...], others: tuple[frozenset[str], ...], refused: bool) -> None: ...

    def masters_agree(self) -> None: ...
