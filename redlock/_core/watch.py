"""Looks at names again and again, and takes nothing: until all are free (R24), or until there is news of one (R41).

Like a waiter it waits for a release, for the end of the holder's TTL, or for its own pause, but in no line.  It
believes only the answers of masters to a look: announcements may be forged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redlock._core import readings, wire
from redlock._core.effects import Listen, Op, Timeout, wait
from redlock._core.inspect import LockStatus, Look, known, status_of, told
from redlock._core.kernel import validity
from redlock._core.patience import Patience
from redlock._core.retry import BETWEEN_LOOKS, delay
from redlock._core.subscriptions import Subscription

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tenacity.wait import wait_base

    from redlock._core.kernel.quorum import Tally
    from redlock._core.settings import MastersSettings


class Lookout:
    """The pauses of an operation that looks again and again, and the announcements in them."""

    def __init__(self, settings: MastersSettings, keys: Sequence[str], pauses: wait_base) -> None:
        self._masters = len(settings.masters)
        self._keys = keys
        self._pauses = pauses
        self._subscription: Subscription | None = None
        self._looks = 0  # looks since a release was announced

    def pause(
        self, at: float, remaining: float | None, in_the_way: Iterable[int], patience: Patience | None, *, outage: bool
    ) -> Op[None]:
        """Wait until there is reason to look again, after a look that ended at ``at``, but no longer than ``patience``.

        ``remaining``: seconds until what was seen may be over.  ``in_the_way``: see `Subscription.refused`.
        """
        self._looks += 1
        until = at + delay(self._pauses, self._looks)
        if remaining is not None:
            until = min(until, at + remaining + validity.ROUNDING)
        if patience is not None:
            until = patience.until(until)
        subscription = self._subscription
        if subscription is None:
            self._subscription = subscription = Subscription(self._keys, self._masters, watches=True)
            yield Listen(subscription)
        subscription.refused(in_the_way)
        while outage or not (subscription.look or subscription.released):  # no release ends an outage
            if isinstance((yield from wait(until)), Timeout):
                break
        else:
            self._looks = 0 if subscription.released else self._looks
        subscription.attempting()


def wait_until_free(
    settings: MastersSettings,
    names: tuple[str, ...],
    prefix: str,
    deadline: float,
    began: float,
    pauses: wait_base = BETWEEN_LOOKS,
) -> Op[tuple[str | None, Tally]]:
    """Look until all are free or ``deadline`` has passed (R38).  Returns the first that was not, and the last votes."""
    keys = [prefix + name for name in names]
    lookout, patience = Lookout(settings, keys, pauses), Patience(settings, deadline, began)
    free = 0  # so many names at the front were seen to be free, one after the other
    while True:
        look = FreeLook(settings, wire.status(keys[free]))
        at = yield from look.ask()
        free += look.free
        if look.free and free < len(keys):
            continue
        settings.outages.attempted(look.tally, at)
        if look.free:
            return None, look.tally
        ends = patience.after(at, took_part=not look.tally.unreachable)
        if at >= ends or readings.misconfigured(look.tally):  # C1
            return names[free], look.tally
        outage = look.tally.unreachable
        yield from lookout.pause(at, look.remaining, look.in_the_way(), patience, outage=outage)
        free = 0


class FreeLook(Look):
    """The round that asks whether a name is free.  It ends once a majority says so; else it waits for all."""

    @property
    def free(self) -> bool:
        return self._free() >= self.tally.need

    @property
    def remaining(self) -> float | None:
        """Seconds until a majority may be free if no holder extends.  None: that cannot be known."""
        left = sorted(seen.remaining for master, seen in self.seen.items() if self.tally.outcome(master) == "held")
        missing = self.tally.need - self._free()
        return left[missing - 1] if 0 < missing <= len(left) else None

    def in_the_way(self) -> list[int]:
        """One of these masters has to change its answer (`Subscription.refused`)."""
        return [master for master in readings.in_the_way(self.tally) if self.tally.outcome(master) != "free"]

    def decides(self, at: float) -> bool:
        if self.open and (self.free or self.tally.complete):
            self.decided_at, self.open = at, False
        return self.decided_at is not None

    def _free(self) -> int:
        return sum(self.tally.outcome(master) == "free" for master in self.seen)


class Watch:
    """What one watcher was shown last."""

    def __init__(self, settings: MastersSettings, name: str, key: str, pauses: wait_base = BETWEEN_LOOKS) -> None:
        self._settings = settings
        self._name = name
        self._key = key
        self._pauses = pauses
        self._last: tuple[object, ...] = ()
        self._fence = 0  # the fence of the last holder that was shown
        self.begun = False  # something was shown

    def more(self) -> Op[LockStatus]:
        """The newest state, once it is another than the last, through outages.  Raises QuorumUnreachable (C1)."""
        lookout = Lookout(self._settings, [self._key], self._pauses)
        everybody = range(len(self._settings.masters))  # each vote matters for what is new
        while True:
            look = Look(self._settings, wire.status(self._key, listeners=True))
            at = yield from look.ask()
            status = status_of(self._name, look.seen, look.tally)
            if readings.misconfigured(look.tally):
                known(status, look.tally)
            if not look.tally.unreachable and self._is_news(status, look):
                self.begun = True
                return told(status)
            yield from lookout.pause(at, status.remaining or None, everybody, None, outage=look.tally.unreachable)

    def _is_news(self, status: LockStatus, look: Look) -> bool:
        """Whether a majority has one answer that is new: not the one that was shown last, nor of an earlier holder."""
        holds = [seen for master, seen in look.seen.items() if readings.has_voted(look.tally, master)]
        if status.token is None and not status.shared and sum(not seen.holder for seen in holds) < look.tally.need:
            return False  # several ask for it, and none has it yet
        if sum(not seen.fence for seen in look.seen.values()) >= look.tally.need:
            self._fence = 0  # masters have forgotten it, so the next fence may be smaller
        # A master may have the fence of a failed attempt as well.  The fence of the holder is the smallest.
        fence = min((seen.fence for seen in holds if status.token and seen.holder == status.token), default=0)
        what = (status.token, frozenset(status.shared))
        if what == self._last or 0 < fence < self._fence:
            return False
        self._last, self._fence = what, fence or self._fence
        return True
