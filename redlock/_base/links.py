"""The connections to all masters of one deployment: what is the same whoever waits for the answers."""

from __future__ import annotations

import contextlib
import logging
import math
import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

from redlock import _clock, _connect
from redlock._base.feed import Feed
from redlock._base.link import AnyInbox, Link
from redlock._core.effects import Crowd, Enter, Heard, Leave, Turn
from redlock._core.listen import Listeners
from redlock._core.lobby import Lobby
from redlock._core.outcomes import Failure
from redlock._core.pipeline import Entry
from redlock._core.quorum import majority
from redlock._core.retry import BETWEEN_CONNECTIONS, delay
from redlock.errors import printable

if TYPE_CHECKING:
    import socket
    from collections import deque
    from collections.abc import Callable, Iterable, Sequence

    from redlock._base.observer import Observer
    from redlock._base.stream import Stream
    from redlock._connect import Endpoint
    from redlock._core.effects import Aside, Send
    from redlock._core.electorate import Electorate, Facts
    from redlock._core.listen import Ear
    from redlock._core.lobby import Ticket

TICK = 0.1  # how long a late answer or an owed release may lie about, in seconds
CLOSED = "these Masters were closed"
_SETTLED = 1.0  # a connection that lasted for so many seconds is made again without a pause
_SAME = 0.001  # the same sum, taken at two times, in seconds

Cork: TypeAlias = "list[Stream] | deque[Stream]"  # what is to be flushed, in this order
# What there is to log, with its level, and what an observer is told of it.
News: TypeAlias = list[tuple[int, str, "Callable[[Observer], None] | None"]]
_log = logging.getLogger("redlock")
_log.addHandler(logging.NullHandler())  # whether and where it is shown is the application's choice


def report(news: News, observer: Observer | None) -> None:
    """Log it, and tell the observer.  Never while others have to wait: either may be slow."""
    for level, text, tell in news:
        with contextlib.suppress(Exception):  # of a handler, as below
            _log.log(level, "%s", printable(text))
        if observer is not None and tell is not None:
            tell(observer)


def report_failure(text: str, error: BaseException | None = None) -> None:
    """Log an exception that nobody is there to catch: the present one, or ``error``."""
    with contextlib.suppress(Exception):  # of a handler: it must not break what goes on
        _log.error("%s", text, exc_info=error or True)


def _is_up(master: str, quarantined: float) -> Callable[[Observer], None]:
    return lambda observer: observer.master_up(master, quarantined)


class LinksBase(ABC, Generic[AnyInbox]):
    """Sends requests, reads answers, notices what breaks.

    One at a time: threads hold a mutex, tasks share a loop.  Whoever derives from this says how a
    descriptor is watched, and how whoever waits is told.
    """

    def __init__(self, endpoints: Sequence[Endpoint], electorate: Electorate, node_timeout: float) -> None:
        self.all: list[Link[AnyInbox]] = [Link(master, target, node_timeout) for master, target in enumerate(endpoints)]
        self.feeds = [Feed(master, target) for master, target in enumerate(endpoints)]
        self.streams: list[Stream] = [*self.all, *self.feeds]
        self.electorate = electorate
        self.lobby = Lobby()
        self.listeners = Listeners(len(endpoints))
        self.closed = False

    # -- what a world adds ---------------------------------------------------------------------------

    @abstractmethod
    def _watch(self, link: Stream) -> None:
        """From now on `_read` it whenever there is something to read."""

    @abstractmethod
    def _unwatch(self, link: Stream) -> None:
        """Its descriptor is about to be closed."""

    @abstractmethod
    def _watch_room(self, link: Stream, *, wanted: bool) -> None:
        """Whether to `_read` it when the kernel takes more of what it has to send, too."""

    @abstractmethod
    def _lost(self, link: Stream) -> None:
        """Its connection broke; a new one is due at ``retry_at``, of a `Feed` only if one is `wanted`."""

    @abstractmethod
    def _in_debt(self, link: Stream) -> None:
        """A release is to be sent to its master again: call `settle_debts` after a while."""

    @abstractmethod
    def _want_feeds(self) -> None:
        """Somebody listens: connect the feeds that are down, and call `quieten` from time to time."""

    @abstractmethod
    def _tell(self) -> None:
        """A link came up, or could not be made."""

    # -- the line in front of the masters ------------------------------------------------------------

    def _enter(self, ticket: Ticket, inbox: AnyInbox) -> None:
        ticket.inbox = inbox
        self.lobby.enter(ticket)
        if self.listeners.crowded and ticket.turn:
            self.listeners.tell_courtesy(ticket, _clock.now(), turn=False)

    def _leave(self, ticket: Ticket) -> list[AnyInbox]:
        """Returns whom to wake: it is their turn."""
        woken: list[AnyInbox] = []
        now = _clock.now()
        for other in self.lobby.leave(ticket):
            self.listeners.tell_courtesy(other, now, turn=True)
            inbox: AnyInbox | None = other.inbox
            if inbox is None:
                continue  # it knows by now
            inbox.events.append(Turn(now))
            woken.append(inbox)
        return woken

    # -- requests ------------------------------------------------------------------------------------

    def _receivers(self, request: Send) -> list[Link[AnyInbox]]:
        to = request.to
        return self.all if to is None or len(to) == len(self.all) else [self.all[master] for master in to]

    def _submit(
        self,
        request: Send,
        inbox: AnyInbox,
        now: float,
        cork: Cork | None = None,
        to: Iterable[Link[AnyInbox]] | None = None,
    ) -> None:
        """Write ``request`` to its masters, or leave that to who flushes ``cork``; of those that are down it is told at once.

        ``to``: only to these, the others know of it.
        """
        if request.only_if is not None and not request.only_if():
            return
        data = _connect.pack(request.call)
        entry = Entry(request, inbox, now)
        request.sent_at = now
        for link in to or self._receivers(request):
            if link.torn:
                self._read(link, now)
            link.torn = True
            failure = link.pipeline.submit(entry)
            if failure is not None and not self._may_be_asked(link, entry, failure):
                pass
            elif cork is None:
                self._write(link, data, now)
            else:
                if not link.backlog:  # else it is in there already, or the kernel takes no more
                    cork.append(link)
                link.backlog += data
            link.torn = False

    def _may_be_asked(self, link: Link[AnyInbox], entry: Entry[AnyInbox], failure: Failure | None) -> bool:
        """It must not be written, unless a closer look says otherwise."""
        now = entry.at
        if link.pipeline.down is None:
            # It is silent for long.  Or it was us who were stopped, and the answers are here.
            link.torn = False
            self._read(link, now)
            link.torn = True
            failure = link.pipeline.submit(entry)
        if failure is not None and entry.request.open:
            entry.request.failed(link.master, failure, now)
        return failure is None

    def _write(self, link: Stream, data: bytes, now: float) -> None:
        """Hand it to the kernel."""
        try:
            link.write(data)
        except OSError as error:
            self.detach(link, error, now)
        if link.stuck:
            self._watch_room(link, wanted=True)

    def _push(self, link: Stream, now: float) -> None:
        """Hand its backlog to the kernel.  If that takes no more, whoever watches the link goes on with it."""
        if link.torn:
            self._read(link, now)
        if link.stuck:
            return
        link.torn = True
        try:
            link.flush()
        except OSError as error:
            self.detach(link, error, now)
        if link.stuck:
            self._watch_room(link, wanted=True)
        link.torn = False

    def settle_debts(self, link: Link[AnyInbox], now: float) -> None:
        """Write the releases that are owed to this master."""
        if link.torn:
            self._read(link, now)
        debts = link.pipeline.due(now)
        link.torn = True
        for entry in debts:
            if link.pipeline.down is None:  # else it broke at the one before, and they are owed again
                self._write(link, _connect.pack(entry.request.call), now)
        if link.pipeline.in_debt:  # of what is to be asked again, but later
            self._in_debt(link)
        link.torn = False

    def owe(self) -> bool:
        """Whether any master still has to be told of a release, or to confirm one."""
        for link in self.all:  # noqa: SIM110 - threads hold a mutex, and a generator could be interrupted
            if link.pipeline.owes:
                return True
        return False

    # -- answers -------------------------------------------------------------------------------------

    def _read(self, link: Stream, now: float) -> None:
        try:
            if link.read(now):
                self._look_after(link)
        except OSError as error:
            self.detach(link, error, now)

    def _look_after(self, link: Stream) -> None:
        """There is more to do than to read.  OSError: the connection broke."""
        if isinstance(link, Feed):
            for news in link.news():
                self._hear(link, *news)
        elif isinstance(link, Link):
            if link.pipeline.in_debt:
                self._in_debt(link)
            link.ask_more()
        self._watch_room(link, wanted=link.stuck)
        link.torn = False

    # -- what is announced (R24) ---------------------------------------------------------------------

    def _aside(self, effect: Aside, inbox: AnyInbox) -> list[AnyInbox]:
        """Do what concerns no master; returns whom to wake."""
        if isinstance(effect, Enter):
            self._enter(effect.ticket, inbox)
        elif isinstance(effect, Leave):
            return self._leave(effect.ticket)
        elif isinstance(effect, Crowd):
            self.listeners.released(effect.keys, effect.heard, effect.took, _clock.now())
        else:
            self._listen(effect.ear, inbox)
        return []

    def _listen(self, ear: Ear, inbox: AnyInbox) -> None:
        now = _clock.now()
        for feed in self.feeds:  # what was announced before is not for this ear
            self._read(feed, now)
        inbox.ear, ear.inbox = ear, inbox
        self.listeners.add(ear)
        for feed in self.feeds:
            self._ask(feed, ear.channels, now)
        self._want_feeds()

    def unlisten(self, inbox: AnyInbox) -> None:
        """Its operation is over."""
        ear = inbox.ear
        if ear is not None:
            self.listeners.remove(ear, _clock.now())
            inbox.ear = ear.inbox = None

    def _ask(self, feed: Feed, channels: Sequence[str], now: float, *, no_others: bool = False) -> None:
        if feed.torn:
            self._read(feed, now)
        if feed.sock is None:
            return
        feed.torn = True
        data = feed.more(channels, now)
        if no_others:
            data += feed.no_more_than(channels)
        if data:
            self._write(feed, data, now)
        feed.torn = False

    def quieten(self, now: float) -> News:
        """Let go of the channels that nobody listens to any more, and of the connections if there is none left."""
        self.listeners.forget_idle(now)
        channels = self.listeners.channels
        news: News = []
        for feed in self.feeds:
            self._ask(feed, channels, now, no_others=True)  # again, where it was refused, or interrupted
            if feed.refused and not feed.reported:
                news += self._report_deaf(feed, f"refused by it: {feed.refused}")
            if feed.sock is not None and not self.wanted(feed):
                self._unwatch(feed)
                feed.close(abort=False)
        return news

    @staticmethod
    def _report_deaf(feed: Feed, reason: str) -> News:
        feed.reported = True
        name = feed.endpoint.name
        text = f"whoever waits is not told of releases by master {name}, and tries again from time to time: {reason}"
        return [(logging.WARNING, text, None)]

    def wanted(self, link: Stream) -> bool:
        """Whether there is to be a connection."""
        return not self.closed and (type(link) is Link or bool(self.listeners))

    def _hear(self, feed: Feed, kind: bytes, channel: str, token: bytes) -> None:
        listeners, master = self.listeners, feed.master
        ear: Ear | None = None
        if kind == b"message":
            ear = listeners.announced(master, channel, token)
        elif kind == b"subscribe":
            feed.reported = False
            ear = listeners.confirmed(master, channel)
        elif kind == b"unsubscribe":
            listeners.unconfirmed(master, channel)
        if ear is not None and ear.inbox is not None:
            inbox: Any = ear.inbox
            inbox.put(Heard(_clock.now()))

    # -- connections ---------------------------------------------------------------------------------

    def decide(self) -> bool:
        """Whether a majority is up, or so many failed that there can be none (R2)."""
        need = majority(len(self.all))
        up = sum(link.pipeline.down is None for link in self.all)
        failed = sum(link.failures > 0 for link in self.all)
        return up >= need or len(self.all) - failed < need

    def tried(self) -> bool:
        """Whether every master is up, or failed at least once."""
        return all(link.pipeline.down is None or link.failures > 0 for link in self.all)

    def attach(self, stream: Stream, sock: socket.socket, facts: Facts | None, now: float) -> News:
        """A connection was made."""
        if isinstance(stream, Link):
            assert facts is not None  # noqa: S101 - `Dial` asks for them
            return self._attach_link(stream, sock, facts, now)
        assert isinstance(stream, Feed)  # noqa: S101 - there is no third kind
        if self.wanted(stream):
            stream.open(sock, now)
            self._watch(stream)
            self._ask(stream, self.listeners.channels, now)
        else:
            sock.close()
        return []

    def _attach_link(self, link: Link[AnyInbox], sock: socket.socket, facts: Facts, now: float) -> News:
        """Vote from now on, and first of all send what is owed (R10)."""
        master, name = link.master, link.endpoint.name
        notice = self.electorate.admit(master, facts, now)
        quarantined = self.electorate.quarantined_for(master, now)
        up = f"master {name} is back" if link.failures else f"master {name} is connected"
        if 0 < quarantined < math.inf:
            up += f", restarted, and votes in {quarantined:.1f} s"
        level = logging.INFO if link.failures or quarantined else logging.DEBUG
        news: News = [(level, up, _is_up(name, quarantined))]
        if notice:
            news.append((logging.WARNING, notice, None))
        link.open(sock, now)
        link.votes_from = now + quarantined
        self._watch(link)
        self.settle_debts(link, now)
        self._tell()
        return news + self._other_voters(now)

    def _other_voters(self, now: float) -> News:
        """Masters whose votes count from another time on because of what was heard of others (R21, C16)."""
        news: News = []
        for link in self.all:
            if link.sock is None:
                continue
            quarantined = self.electorate.quarantined_for(link.master, now)
            if abs(max(now, link.votes_from) - (now + quarantined)) > _SAME:
                link.votes_from = now + quarantined
                objection = self.electorate.objection(link.master, now)
                text = f"master {link.endpoint.name} {objection.reason if objection else 'votes'}"
                news.append((logging.INFO, text, _is_up(link.endpoint.name, quarantined)))
        return news

    def unattached(self, link: Stream, failure: Failure) -> News:
        """No connection could be made.  Reported once, not at every attempt."""
        link.failures += 1
        link.retry_at = _clock.now() + delay(BETWEEN_CONNECTIONS, link.failures)
        if isinstance(link, Feed):
            if link.reported or self.all[link.master].pipeline.down is not None:  # which was reported
                return []
            return self._report_deaf(link, f"no second connection: {failure.reason}")
        assert isinstance(link, Link)  # noqa: S101 - there is no third kind
        link.pipeline.down = failure
        self._tell()
        if link.failures > 1:
            return []
        name, reason = link.endpoint.name, failure.reason
        return [
            (logging.WARNING, f"master {name} is down: {reason}", lambda observer: observer.master_down(name, reason))
        ]

    def detach(self, link: Stream, error: OSError, now: float) -> None:
        """The connection is gone.  What it carried fails, and its releases are owed."""
        link.torn = True
        self._unwatch(link)
        text = error.strerror or str(error) or type(error).__name__
        if isinstance(link, Link):
            # Until now its process may have been alive: a replica that was started before is one (R21).
            self.electorate.heard(link.master, now)
            link.pipeline.broken(Failure("error", f"connection lost: {text}"), now)
        elif isinstance(link, Feed):
            for news in link.news():  # it said so before it broke
                self._hear(link, *news)
            self.listeners.lost(link.master)
        link.close(abort=not self.closed)
        # At once, unless it was let in only to be thrown out: that could go on for ever.
        link.retry_at = now if now - link.opened_at > _SETTLED else now + delay(BETWEEN_CONNECTIONS, 1)
        link.torn = False
        self._lost(link)

    def hang_up(self) -> None:
        """Close every connection, for good."""
        self.closed = True
        now = _clock.now()
        for link in self.streams:
            if link.sock is not None:
                self.detach(link, ConnectionAbortedError(CLOSED), now)

    def disown(self) -> None:
        """In a forked child: close our copies of the descriptors without a word to the other side."""
        self.closed = True
        for link in self.streams:
            sock, link.sock = link.sock, None
            if sock is not None:
                with contextlib.suppress(OSError):  # its owner was closing it when we were forked
                    os.close(sock.detach())
            if link.dial is not None:
                link.dial.disown()
