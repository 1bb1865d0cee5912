"""What no task does: connect in the background."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from redlock import _clock
from redlock._base.feed import Feed
from redlock._base.link import Link
from redlock._base.links import report
from redlock._connect import Dial
from redlock._core.listen import LINGER
from redlock._core.outcomes import Failure
from redlock._thread import why_not

if TYPE_CHECKING:
    import socket

    from redlock._asyncio.links import Links
    from redlock._base.observer import Observer
    from redlock._base.stream import Stream
    from redlock._core.electorate import Facts

_FAREWELL = 1.0  # how long `end` waits for threads that are in the middle of connecting, in seconds


class Housekeeper:
    """Keeps the links of one event loop up.

    Each attempt to connect has a thread of its own, as with the lock for threads: redis-py knows TLS,
    credentials and name resolution, some of it blocks whatever one does, and a thread is nothing that
    a loop could destroy while it is pending.  The loop gets a connected socket.
    """

    def __init__(
        self,
        links: Links,
        *,
        connect_timeout: float,
        prefix: str,
        max_ttl: float,
        observer: Observer | None,
    ) -> None:
        self.ready = asyncio.Event()  # the links are decided, see `start`
        self._links = links
        self._loop = links.loop
        self._connect_timeout = connect_timeout
        self._prefix = prefix
        self._max_ttl = max_ttl
        self._observer = observer
        self._began: float | None = None
        self._decided = False
        self._dialling: dict[threading.Thread, Dial] = {}
        self._idle = asyncio.Event()  # no thread is connecting
        self._quietens = False  # there is a call of `_quieten` to come
        links.on_broken = self._redial
        links.on_change = self._look
        links.on_listening = self._look_after_feeds

    def start(self) -> None:
        """Connect to all masters, unless that has begun.  The links are decided when a majority is up or
        known to be down, at most `connect_timeout` later (R2).

        Then we wait for the rest as long again as that took: the first lease should have all its keys.
        """
        if self._began is None and not self.ready.is_set():
            self._began = _clock.now()
            self._loop.call_later(self._connect_timeout, self.ready.set)
            for link in self._links.all:
                self._redial(link)

    def _look(self) -> None:
        if self._links.tried():
            self.ready.set()
        elif not self._decided and self._began is not None and self._links.decide():
            self._decided = True
            took = _clock.now() - self._began
            self._loop.call_later(max(0.0, min(took, self._connect_timeout - took)), self.ready.set)

    async def end(self) -> None:
        """Wait until no thread is left that connects, after the links were shut.

        One may be inside the resolver, a TLS handshake or somebody's credential provider, where nothing
        can wake it.  It is waited for a moment, and then closes what it gets.
        """
        until = _clock.now() + _FAREWELL
        while self._dialling and _clock.now() < until:
            self.abort()  # again: one may have had no socket yet that could be shut down
            self._idle.clear()
            try:
                async with asyncio.timeout(_FAREWELL / 50):
                    await self._idle.wait()
            except TimeoutError:
                pass

    def abort(self) -> None:
        """End the attempts to connect that are under way."""
        if not self._loop.is_closed():  # else nobody waits any more, and whoever did cannot be woken
            self.ready.set()
        for dial in list(self._dialling.values()):
            dial.abort()

    def _look_after_feeds(self) -> None:
        """Somebody listens, or did until just now."""
        for feed in self._links.feeds:
            if feed.sock is None:
                self._redial(feed)
        if not self._quietens:
            self._quietens = True
            self._loop.call_later(LINGER / 2, self._quieten)

    def _quieten(self) -> None:
        self._quietens = False
        if self._links.closed:
            return
        report(self._links.quieten(_clock.now()), self._observer)
        if self._links.listeners:
            self._look_after_feeds()

    # -- connecting ----------------------------------------------------------------------------------

    def _redial(self, link: Stream) -> None:
        """Connect, again, when it is time."""
        if link.dial is not None or self._loop.is_closed() or not self._links.wanted(link):
            return
        now = _clock.now()
        if isinstance(link, Link):
            link.pipeline.due(now)  # it is down: this only forgets what has expired
        link.dial = Dial(link.endpoint, self._connect_timeout)
        self._loop.call_later(max(0.0, link.retry_at - now), self._dial, link, link.dial)

    def _dial(self, link: Stream, dial: Dial) -> None:
        if not self._links.wanted(link):
            link.dial = None
            return
        name = f"redlock-connect-{link.endpoint.name}"
        thread = threading.Thread(target=self._connect, args=(link, dial), name=name, daemon=True)
        self._dialling[thread] = dial
        try:
            thread.start()
        except RuntimeError as error:  # try again later, unless that is of no use
            reason, for_good = why_not(error)
            del self._dialling[thread]
            link.dial = None
            self._failed(link, Failure("error", reason, sent=False, configuration=for_good))

    def _connect(self, link: Stream, dial: Dial) -> None:
        """In the thread."""
        made: tuple[socket.socket, Facts | None] | Failure
        try:
            made = (dial.bare(), None) if isinstance(link, Feed) else dial(self._prefix, self._max_ttl)
        except BaseException as error:  # noqa: BLE001 - whatever it is, this master is down and it says why
            made = dial.failure(error)
        else:
            self._links.keep(made[0])
        try:
            self._loop.call_soon_threadsafe(self._dialled, threading.current_thread(), link, made)
        except RuntimeError:  # the loop was closed meanwhile; the links close the socket
            self._dialling.pop(threading.current_thread(), None)

    def _dialled(
        self, thread: threading.Thread, link: Stream, made: tuple[socket.socket, Facts | None] | Failure
    ) -> None:
        link.dial = None
        self._dialling.pop(thread, None)
        if not self._dialling:
            self._idle.set()
        if self._links.closed:
            return  # which has closed the socket
        if isinstance(made, Failure):
            self._failed(link, made)
            return
        try:
            news = self._links.attach(link, *made, _clock.now())
        except BaseException:  # a KeyboardInterrupt: whoever uses the link next closes it
            link.torn = True
            if link.sock is None:
                self._redial(link)
            raise
        report(news, self._observer)

    def _failed(self, link: Stream, failure: Failure) -> None:
        news = self._links.unattached(link, failure)
        self._redial(link)
        report(news, self._observer)
