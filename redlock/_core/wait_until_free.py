"""Waits until a name is free, and takes nothing.

Like a waiter that wants the lock, it listens, looks again, and then waits for an announced release, for the end of the
holder's TTL, or for its own pause (R24).  Only what the masters say at a look counts.  It stands in no line, so it
keeps nobody from the lock, and nobody keeps it from looking.

Also considered: to believe the announcements.  That would save a round trip, but a forged message would be believed as
well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redlock._core import quorum, wire
from redlock._core.effects import Listen, Op, Timeout, wait
from redlock._core.inspect import Look
from redlock._core.outages import Patience
from redlock._core.retry import BETWEEN_LOOKS, delay
from redlock._core.subscriptions import Subscription

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenacity.wait import wait_base

    from redlock._core.quorum import Tally
    from redlock._core.settings import MastersSettings


def wait_until_free(
    settings: MastersSettings,
    names: tuple[str, ...],
    prefix: str,
    deadline: float,
    began: float,
    pauses: wait_base = BETWEEN_LOOKS,
) -> Op[tuple[str | None, Tally]]:
    """Look until every name is free or ``deadline`` has passed: at least once, and once more at the deadline.

    ``began``: now.  Without a deadline an outage ends it, as it ends an acquire (`Patience`).

    Returns the first name that was not seen to be free, None if all were, and the votes of the last look.
    """
    keys = [prefix + name for name in names]
    subscription: Subscription | None = None
    patience = Patience(deadline, began, settings.outage_timeout)
    failed = 0  # looks since a release was announced
    while True:
        free, look, at = yield from _look(settings, keys)
        settings.outages.attempted(look.tally, at)
        if free == len(keys):
            return None, look.tally
        ends = patience.after(at, took_part=not look.tally.unreachable)
        if at >= ends or look.tally.misconfigured:  # C1
            return names[free], look.tally
        failed += 1
        until = min(at + delay(pauses, failed), ends)
        if look.remaining is not None:
            until = min(until, at + look.remaining + quorum.ROUNDING)
        if subscription is None:
            subscription = Subscription(keys, len(settings.masters), watches=True)
            yield Listen(subscription)
        subscription.refused(look.in_the_way())
        if (yield from _pause(subscription, until, outage=look.tally.unreachable)):
            failed = 0
        subscription.attempting()


def _look(settings: MastersSettings, keys: Sequence[str]) -> Op[tuple[int, FreeLook, float]]:
    """Look at one name after the other, up to the first that is not free.

    Returns how many are free, the last look, and when it ended.
    """
    free = 0
    while True:
        look = FreeLook(settings, wire.status(keys[free]))
        at = yield from look.ask()
        free += look.free
        if not look.free or free == len(keys):
            return free, look, at


def _pause(subscription: Subscription, until: float, *, outage: bool) -> Op[bool]:
    """Wait until there is reason to look again.  Returns True if the reason is an announced release."""
    while outage or not (subscription.look or subscription.released):  # no release ends an outage
        if isinstance((yield from wait(until)), Timeout):
            return False
    return subscription.released > 0


class FreeLook(Look):
    """The round that asks whether a name is free.  It ends once a majority says so; else all are waited for."""

    @property
    def free(self) -> bool:
        """Whether a majority of masters has no holder for the name."""
        return self._free() >= self.tally.need

    @property
    def remaining(self) -> float | None:
        """Seconds until a majority may be free if nobody extends.  None: that cannot be known."""
        left = sorted(seen.remaining for master, seen in self.seen.items() if self.tally.outcome(master) == "held")
        missing = self.tally.need - self._free()
        return left[missing - 1] if 0 < missing <= len(left) else None

    def in_the_way(self) -> list[int]:
        """One of these masters has to change its answer (`Subscription.refused`)."""
        return [master for master in self.tally.in_the_way() if self.tally.outcome(master) != "free"]

    def ends(self, at: float) -> bool:
        if not (self.free or self.tally.complete):
            return False
        self.ended_at = at
        self.open = False
        return True

    def _free(self) -> int:
        return sum(self.tally.outcome(master) == "free" for master in self.seen)
