"""Watches who holds a name, and takes nothing (R41).

Each step begins with a look, and ends with the first one that shows something new.  In between it listens, looks again,
and waits for an announced release, for the end of the holder's TTL, or for its own pause, as whoever waits for the name
does (R24).  Nobody announces a grant: that a free name was taken is seen at the next pause.

Nothing is kept between two steps but what was told last.  What happens there is not told, only what came of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redlock._core import quorum, wire
from redlock._core.effects import Listen, Op, Timeout, wait
from redlock._core.inspect import Look, known, status_of
from redlock._core.retry import BETWEEN_LOOKS, delay
from redlock._core.subscriptions import Subscription

if TYPE_CHECKING:
    from tenacity.wait import wait_base

    from redlock._core.inspect import LockStatus
    from redlock._core.settings import MastersSettings


class Watch:
    """What one watcher was told last."""

    def __init__(self, settings: MastersSettings, name: str, key: str, pauses: wait_base = BETWEEN_LOOKS) -> None:
        self._settings = settings
        self._name = name
        self._key = key
        self._pauses = pauses
        self._told: tuple[object, ...] = ()
        self._fence = 0  # of the last holder that was told
        self.begun = False  # something was told

    def more(self) -> Op[LockStatus]:
        """The newest state, once it is another one than was told last.  Outages are waited for.

        Raises:
            QuorumUnreachable: no majority is left without those that refuse for a reason that waiting cannot cure (C1).
        """
        subscription: Subscription | None = None
        looks = 0  # since a release was announced
        while True:
            look = Look(self._settings, wire.status(self._key, listeners=True))
            at = yield from look.ask()
            status = status_of(self._name, look.seen, look.tally)
            if look.tally.misconfigured:
                known(status, look.tally)
            if not look.tally.unreachable and self._is_news(status, look):
                self.begun = True
                return status
            looks += 1
            until = at + delay(self._pauses, looks)
            if status.remaining:
                until = min(until, at + status.remaining + quorum.ROUNDING)
            if subscription is None:
                subscription = Subscription([self._key], len(self._settings.masters), watches=True)
                yield Listen(subscription)
            subscription.refused(range(len(self._settings.masters)))  # each has its say in what is new
            while look.tally.unreachable or not (subscription.look or subscription.released):
                if isinstance((yield from wait(until)), Timeout):
                    break
            else:
                looks = 0 if subscription.released else looks
            subscription.attempting()

    def _is_news(self, status: LockStatus, look: Look) -> bool:
        """Whether a majority has one answer, another than was told last, and of no earlier holder."""
        holds = [seen for master, seen in look.seen.items() if look.tally.has_voted(master)]
        if status.token is None and not status.shared and sum(not seen.holder for seen in holds) < look.tally.need:
            return False  # several ask for it, and nobody has it yet
        # A master may have the fence of an attempt that failed as well.  That of the holder is the smallest.
        fence = min((seen.fence for seen in holds if status.token and seen.holder == status.token), default=0)
        what = (status.token, frozenset(status.shared))
        if what == self._told or 0 < fence < self._fence:
            return False
        self._told, self._fence = what, fence or self._fence
        return True
