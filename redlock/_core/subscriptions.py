"""Wakes waiters when a lock is released, so that they need not ask again and again (R24).

A message only makes a waiter look sooner: a lost one costs the rest of a pause, and a needless one costs an attempt.

No stampede.  A waiter tries at once when a release is announced, until attempts collide: no token was seen on a
majority.  Each collision doubles a random pause before the next attempt, up to 128 ms or 16 times the duration of the
attempt: shorter pauses separate no clients.  The next waiter of the process begins with the pause of the last one.  So
two processes pass a lock on in one message and one round trip; among many, about one attempt in five collides.

Taking turns.  PUBLISH says how many others listen.  If there are any, this process stays away for a moment
(`LocalQueue.released`), or until another release is announced.

Also considered: keyspace notifications (off by default, and they tell of expiry, not of a release), client tracking
(RESP3 only, one more state to lose), blocking list pops (keys outlive locks, and dead waiters may get the token).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from redlock._core import wire
from redlock._core.kernel.quorum import majority

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from redlock._core.protocols import Inbox

LINGER = 0.5  # seconds for which a channel stays subscribed without a listener
_MANY = 64  # tokens that are remembered; then the oldest are dropped

_SPREAD = 0.0005  # seconds: the longest first random pause after an announcement, once attempts collide
_MOST_SPREAD = 8  # doublings: 128 ms
_ATTEMPTS = 16  # ... or the duration of 16 attempts: among 16 processes one is alone with its own
_CALM = 0.25  # the part of a doubling that an attempt without a collision takes back


class Subscription:
    """What one waiter has heard since its last attempt, or since its last look."""

    __slots__ = ("_all", "_heard", "_in_the_way", "_need", "channels", "inbox", "level", "look", "released", "watches")

    def __init__(self, keys: Iterable[str], masters: int, *, watches: bool = False) -> None:
        self.channels = tuple(wire.channel(key) for key in keys)
        self.watches = watches  # it makes no attempts, and listens beside the waiter in line
        self.look = False  # its channels have just been subscribed: it may have missed a release
        self.released = 0  # how many releases were announced, each by a majority of masters
        self.level = 0.0  # how often the pause has been doubled
        self.inbox: Inbox | None = None  # the driver's
        self._need = majority(masters)
        self._heard: dict[bytes, int] = {}  # by token: the masters that announced it, as bits; -1: it was counted
        self._all = 0  # the masters that announced anything since the last attempt, as bits
        self._in_the_way = -1  # the masters that said no to the last attempt, as bits; -1: there was no attempt yet

    def attempting(self) -> None:
        """An attempt begins.  Forget the announcements that led to it."""
        self.look, self.released, self._all = False, 0, 0

    def hear(self, master: int, token: bytes) -> bool:
        """A master announced the release of ``token``.  Returns True if there is reason to try again.

        The reason is a majority that announced the same token; or different ones: then contenders had split the votes
        and took them back, and the lock is free.  One of these masters must have said no to our last attempt: else
        nothing has changed for us.  While a master is quarantined (R21), a majority can announce the rollback of a
        failed attempt, even of our own: waiters would wake each other, and themselves, for as long as that lasts (R25).
        """
        bit = 1 << master
        heard = self._heard.get(token, 0)
        if heard == -1:
            return False  # a majority has announced it already
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
        """The last attempt failed.  ``in_the_way``: see `Tally.in_the_way`."""
        self._in_the_way = sum(1 << master for master in in_the_way)

    def tried(self, *, collided: bool, took: float = 0.0) -> None:
        """An attempt of ``took`` seconds has ended.  ``collided``: several tried at once, and none got a majority."""
        if collided:
            self.level = min(self.level + 1, max(_MOST_SPREAD, math.log2(1 + _ATTEMPTS * took / _SPREAD)))
        else:
            self.level = max(self.level - _CALM, 0.0)

    @property
    def spread(self) -> float:
        """The longest random pause after an announced release, in seconds; 0 while attempts do not collide."""
        return _SPREAD * (2**self.level - 1)


class _Channel:
    """A channel to which the connections are subscribed, and its listeners."""

    __slots__ = ("confirmed", "idle_since", "level", "listeners")

    def __init__(self) -> None:
        self.listeners: tuple[Subscription, ...] = ()
        self.confirmed = 0  # the masters that confirmed it, as bits
        self.level = 0.0  # the `level` of the subscription that listened last
        self.idle_since = 0.0


class Subscriptions:
    """The channels of one process (or event loop), for those that may ask.  Only one caller may call at a time."""

    __slots__ = ("_channels", "_need")

    def __init__(self, masters: int) -> None:
        self._channels: dict[str, _Channel] = {}
        self._need = majority(masters)

    @property
    def channels(self) -> list[str]:
        """The channels to which the connection to every master should subscribe."""
        return list(self._channels)

    def __bool__(self) -> bool:
        return bool(self._channels)

    def add(self, subscription: Subscription) -> None:
        for name in subscription.channels:
            channel = self._channels.setdefault(name, _Channel())
            channel.listeners += (subscription,)
            if not subscription.watches:
                subscription.level = max(subscription.level, channel.level)
        subscription.look = self._is_on(subscription)

    def remove(self, subscription: Subscription, now: float) -> None:
        """``subscription`` gets nothing any more.  A second time does no harm."""
        for name in subscription.channels:
            channel = self._channels.get(name)
            if channel is None:
                continue
            if subscription in channel.listeners:
                channel.listeners = tuple(other for other in channel.listeners if other is not subscription)
                channel.idle_since = now
                if not subscription.watches:
                    channel.level = subscription.level

    def forget_idle(self, now: float) -> None:
        """Drop the channels without a listener for `LINGER` seconds."""
        for name in self.channels:
            channel = self._channels[name]
            if not channel.listeners and now - channel.idle_since >= LINGER:
                del self._channels[name]

    def confirmed(self, master: int, name: str) -> tuple[Subscription, ...]:
        """A master announces releases on this channel now.  Returns who should look for what it missed."""
        channel = self._channels.get(name)
        if channel is None:
            return ()
        was_on = channel.confirmed.bit_count() >= self._need
        channel.confirmed |= 1 << master
        if was_on:
            return ()
        woken = tuple(subscription for subscription in channel.listeners if self._is_on(subscription))
        for subscription in woken:
            subscription.look = True
        return woken

    def unconfirmed(self, master: int, name: str) -> None:
        channel = self._channels.get(name)
        if channel is not None:
            channel.confirmed &= ~(1 << master)

    def lost(self, master: int) -> None:
        """The connection to ``master`` broke."""
        for name in self._channels:
            self.unconfirmed(master, name)

    def announced(self, master: int, name: str, token: bytes) -> tuple[Subscription, ...]:
        """A master announced a release.  Returns the subscriptions that have reason to try again."""
        channel = self._channels.get(name)
        if channel is None:
            return ()
        return tuple(subscription for subscription in channel.listeners if subscription.hear(master, token))

    def _is_on(self, subscription: Subscription) -> bool:
        return all(self._channels[name].confirmed.bit_count() >= self._need for name in subscription.channels)

    def others_heard(self, keys: Iterable[str], heard: Mapping[int, int]) -> bool:
        """Whether others ``heard`` our release of ``keys``: by master, how many connections got it."""
        channels = [channel for key in keys if (channel := self._channels.get(wire.channel(key))) is not None]
        ours = {master: sum(channel.confirmed >> master & 1 for channel in channels) for master in heard}
        return any(told > ours[master] for master, told in heard.items())
