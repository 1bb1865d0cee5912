"""The hybrid logical clock that proposes fencing tokens (R16-R18).

Wall time makes a proposal greater than a fence that was granted long ago and forgotten.  "Highest seen + 1"
makes it greater than a fence from a client whose wall clock is ahead.  Order never rests on the clock: masters
store a proposal only if it is greater than the fence that they have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Lua counts in doubles, which are exact below 2**53.  In microseconds that is the year 2255.  A wall clock beyond
# half of it (2112) is broken, and must not use up the numbers of all other clients.
LIMIT = 2**52


class FenceClock:
    """Proposes fencing tokens that rise with time and exceed all that were seen so far.

    All locks of one `Masters` share it.  Two threads may get the same proposal: a master stores it once (R18),
    and the other attempt takes the second round.
    """

    __slots__ = ("_seen", "_wall_us")

    def __init__(self, wall_us: Callable[[], int]) -> None:
        self._wall_us = wall_us
        self._seen = 0

    def propose(self) -> int:
        proposal = max(min(self._wall_us(), LIMIT), self._seen + 1)
        self._seen = proposal
        return proposal

    def learn(self, fence: int) -> None:
        """Remember a fence that a master showed, in a grant or in a refusal.

        A fence from `LIMIT` on is not remembered.  It comes from a broken clock, and would spoil the proposals for
        all names.  The name that has such a fence takes a second round each time (R17).
        """
        if fence < LIMIT:
            self._seen = max(self._seen, fence)
