"""Hearing of a release instead of asking for it again and again (R24).

Whoever releases has every master announce it on the channel of the key.  Messages only ever make a
waiter look sooner: one that is lost costs the pause until the next attempt, one too many an attempt.

It takes a majority of announcements, for one master says nothing of the others.  Announcements of different
tokens count together: contenders had split the votes, and took them back.  One of these masters must have
refused the last attempt, else the next one is lost as well.  After an attempt that lacked votes or came too
late messages do not count: what failed attempts take back is announced as well, and contenders in an outage
would wake each other for ever.

No stampede.  Who hears of a release tries at once, until attempts collide.  A collision is an attempt after
which no token was seen on a majority.  Each doubles the random pause before the next attempt (0.5, 1.5, 3.5 ms,
up to 128); an attempt without one takes a quarter of a doubling back.  The next waiter of the process begins
where the last one was.  So two processes pass a lock on in one message and one round trip, and many settle
where about one attempt in five collides.

PUBLISH tells a releaser how many others listen.  If any do, its process stays away for 3 ms and three times
what the release took, or until another release is announced: so processes take turns.

A channel stays subscribed for half a second after its last waiter, for the next waiter often comes soon.

Also considered: keyspace notifications (off by default, and they tell of expiry, not of a release), client
tracking (RESP3 only, one more state to lose), blocking list pops as semaphore libraries use them (a key that
outlives its lock, and a token that goes to a waiter that has died).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redlock._core import wire
from redlock._core.outcomes import NEVER
from redlock._core.quorum import majority

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redlock._core.local_queue import Place

LINGER = 0.5  # so long a channel stays subscribed though nobody listens: the next waiter often comes soon
_GRACE = 0.003  # how long one who knows of others stays away after a release, in seconds, ...
_TRIPS = 3  # ... and so many times what the release took: a message, and an attempt of theirs
_MANY = 64  # so many tokens, or contended keys, are remembered without a look at whether they still matter

# Who has heard of a release tries at once, until attempts turn out to collide; then after a random
# pause of up to this many seconds, doubled with every collision, so that somebody is alone at it.
_SPREAD = 0.0005
_MOST_SPREAD = 8  # doublings: 128 ms
_CALM = 0.25  # of a doubling is taken back by an attempt that did not collide


class Subscription:
    """What one waiter has heard since its last attempt.

    ``look``: it is being told of releases from now on, and should look again for what it missed.
    ``released``: so many releases were announced, each by a majority of masters.
    """

    __slots__ = ("_all", "_heard", "_in_the_way", "_need", "channels", "inbox", "level", "look", "released")

    def __init__(self, keys: Iterable[str], masters: int) -> None:
        self.channels = tuple(wire.channel(key) for key in keys)
        self.look = False
        self.released = 0
        self.level = 0.0  # of crowding: the doublings of the pause
        self.inbox: object = None  # of the driver
        self._need = majority(masters)
        self._heard: dict[bytes, int] = {}  # which masters announced a token, as bits; -1: that was dealt with
        self._all = 0  # which masters announced anything since the last attempt
        self._in_the_way = -1  # which masters said no to the last attempt, as bits; -1: there was none yet

    def attempting(self) -> None:
        """What was heard until now has led to this attempt."""
        self.look, self.released, self._all = False, 0, 0

    def hear(self, master: int, token: bytes) -> bool:
        """A master announced the release of ``token``; True if there is reason to look.

        That is when a majority announced the same.  Or different ones: those who had split the votes
        among them took them back, and nobody has the lock.

        One of these masters must have said no to our last attempt; else nothing has changed for us.  While a master does not
        vote (R21), a majority can announce what a failed attempt took back, even our own.  Waiters would wake each other,
        and themselves, for as long as that lasts (R25).
        """
        bit = 1 << master
        heard = self._heard.get(token, 0)
        if heard == -1:
            return False  # the majority has spoken; this is the rest
        if len(self._heard) >= _MANY:
            del self._heard[next(iter(self._heard))]  # the oldest
        heard |= bit
        self._all |= bit
        done = self._is_reason(heard)
        self._heard[token] = -1 if done else heard
        if not done and not self._is_reason(self._all):
            return False
        self._all = 0
        self.released += 1
        return True

    def _is_reason(self, masters: int) -> bool:
        return masters.bit_count() >= self._need and masters & self._in_the_way != 0

    def refused(self, in_the_way: Iterable[int]) -> None:
        """The last attempt failed; ``in_the_way``: see `Tally.in_the_way`."""
        self._in_the_way = sum(1 << master for master in in_the_way)

    def tried(self, *, collided: bool) -> None:
        """``collided``: several tried at once, and nobody got a majority."""
        self.level = min(self.level + 1, _MOST_SPREAD) if collided else max(self.level - _CALM, 0.0)

    @property
    def spread(self) -> float:
        """How many seconds to wait at most when a release was announced; 0 while nobody is in the way."""
        return _SPREAD * (2**self.level - 1)


class _Channel:
    """What the connections are subscribed to, and who wants to know."""

    __slots__ = ("confirmed", "idle_since", "level", "subscription")

    def __init__(self) -> None:
        self.subscription: Subscription | None = None
        self.confirmed = 0  # by which masters, as bits
        self.level = 0.0  # of the subscription that listened last
        self.idle_since = 0.0


class Subscriptions:
    """The channels of one process (or event loop).  Whoever calls sees to it that it is one at a time.

    There is one subscription to a channel: who stands behind another one in line is told by that (R23).
    """

    __slots__ = ("_channels", "_contended", "_need")

    def __init__(self, masters: int) -> None:
        self._channels: dict[str, _Channel] = {}
        # By key: until when those who begin now let others go first, and for how long those whose turn comes do.
        self._contended: dict[str, tuple[float, float]] = {}
        self._need = majority(masters)

    @property
    def channels(self) -> list[str]:
        """Those that every master is to be asked for."""
        return list(self._channels)

    def __bool__(self) -> bool:
        return bool(self._channels)

    def add(self, subscription: Subscription) -> None:
        for name in subscription.channels:
            channel = self._channels.setdefault(name, _Channel())
            channel.subscription = subscription
            subscription.level = max(subscription.level, channel.level)
        subscription.look = self._is_on(subscription)

    def remove(self, subscription: Subscription, now: float) -> None:
        """It hears nothing any more.  Twice does no harm."""
        for name in subscription.channels:
            channel = self._channels.get(name)
            if channel is not None and channel.subscription is subscription:
                channel.subscription, channel.level, channel.idle_since = None, subscription.level, now

    def forget_idle(self, now: float) -> None:
        """Let go of the channels that nobody has listened to for `LINGER`."""
        for name in self.channels:
            channel = self._channels[name]
            if channel.subscription is None and now - channel.idle_since >= LINGER:
                del self._channels[name]

    # -- told by the connections ---------------------------------------------------------------------

    def confirmed(self, master: int, name: str) -> Subscription | None:
        """A master will announce what is released from now on; returns who should look for what it missed."""
        channel = self._channels.get(name)
        if channel is None:
            return None
        was_on = channel.confirmed.bit_count() >= self._need
        channel.confirmed |= 1 << master
        subscription = channel.subscription
        if was_on or subscription is None or not self._is_on(subscription):
            return None
        subscription.look = True
        return subscription

    def unconfirmed(self, master: int, name: str) -> None:
        """It will not."""
        channel = self._channels.get(name)
        if channel is not None:
            channel.confirmed &= ~(1 << master)

    def lost(self, master: int) -> None:
        """The connection broke."""
        for name in self._channels:
            self.unconfirmed(master, name)

    def announced(self, master: int, name: str, token: bytes) -> Subscription | None:
        """A master announced a release; returns who has reason to look."""
        channel = self._channels.get(name)
        if channel is None or channel.subscription is None or not channel.subscription.hear(master, token):
            return None
        return channel.subscription

    def _is_on(self, subscription: Subscription) -> bool:
        return all(self._channels[name].confirmed.bit_count() >= self._need for name in subscription.channels)

    # -- letting others go first ---------------------------------------------------------------------

    def released(self, keys: Iterable[str], heard: dict[int, int], took: float, now: float) -> None:
        """So many connections heard of a release, by master, which took so many seconds."""
        keys = tuple(keys)
        others = any(heard_by > self._ours(master, keys) for master, heard_by in heard.items())
        if len(self._contended) >= _MANY:
            self._contended = {key: window for key, window in self._contended.items() if window[0] > now - LINGER}
        grace = _GRACE + _TRIPS * took
        for key in keys:
            if others:
                self._contended[key] = (now + grace, grace)
            else:
                self._contended.pop(key, None)

    def _ours(self, master: int, keys: Iterable[str]) -> int:
        channels = (self._channels.get(wire.channel(key)) for key in keys)
        return sum(channel is not None and bool(channel.confirmed >> master & 1) for channel in channels)

    @property
    def contended(self) -> bool:
        return bool(self._contended)

    def set_yield_until(self, place: Place, now: float, *, turn: bool) -> None:
        """Let ``place`` know until when others should go first; ``turn``: one of ours has just been."""
        for key in place.keys:
            until, grace = self._contended.get(key, (NEVER, 0.0))
            if turn and grace:
                until = now + grace
            if until > now:
                place.yield_until = max(place.yield_until, until)
