"""Several ask at once, and nobody gets a majority: that is no answer to "is it taken?" (C3).

Each of them is refused, by attempts that fail as well.  Who waits tries again after its pause (R25).  Who only tries,
or whose time is up, would be told that somebody has the lock, and a job that was to run once would run nowhere.  So it
tries again, up to `MOST` times, whatever its deadline is.

What shows that several have asked: no token has a majority, and masters that voted have granted it to more than one.
Where one token is all that is seen, the others may just be down, and somebody does have the lock.

Between two attempts there is a random pause: up to twice what the attempt took, and twice as much each time.  Pauses
that are shorter than an attempt keep nobody apart.  So a single try takes five attempts and pauses of fourteen
`node_timeout` at the very most, and 35 times as long as an attempt where masters answer soon.  Nearly always the second
attempt decides it.

Over links of 1 ms to one master and 15 ms to the others 3 to 8 clients that try at once all fail without this.  With
two more attempts 6 of 1,500 rounds have no winner, with three more none, and this makes four.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redlock._core.effects import Timeout, wait

if TYPE_CHECKING:
    from redlock._core.effects import Op
    from redlock._core.settings import MastersSettings

MOST = 4
_LONGEST = 4  # the longest pause, in `node_timeout`


class Collisions:
    """Those of one operation whose time is up."""

    __slots__ = ("_number", "_settings")

    def __init__(self, settings: MastersSettings) -> None:
        self._settings = settings
        self._number = 0

    def try_again(self, at: float, took: float) -> Op[bool]:
        """Wait until it is worth another attempt; one has failed at ``at``, after ``took`` seconds.  False: never."""
        if self._number == MOST:
            return False
        self._number += 1
        until = at + min(took * 2**self._number, _LONGEST * self._settings.node_timeout) * self._settings.random()
        while not isinstance((yield from wait(until, quiet=True)), Timeout):
            pass  # a late event of the failed attempt
        return True
