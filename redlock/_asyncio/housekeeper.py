"""What no task does: connect in the background."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from redlock import _clock
from redlock._base.connection import Connection
from redlock._base.connections import report
from redlock._base.subscriber import Subscriber
from redlock._connect import Connector
from redlock._core.outcomes import Failure
from redlock._core.subscriptions import LINGER
from redlock._thread import why_not

if TYPE_CHECKING:
    import socket

    from redlock._asyncio.connections import Connections
    from redlock._base.observer import Observer
    from redlock._base.stream import Stream
    from redlock._core.voters import Facts

_LONGEST_JOIN = 1.0  # how long `end` waits for threads that are in the middle of connecting, in seconds


class Housekeeper:
    """Keeps the connections of one event loop up.

    Each attempt to connect has a thread of its own, as with the lock for threads: redis-py knows TLS,
    credentials and name resolution, some of it blocks whatever one does, and a thread is nothing that
    a loop could destroy while it is pending.  The loop gets a connected socket.
    """

    def __init__(
        self,
        connections: Connections,
        *,
        connect_timeout: float,
        prefix: str,
        max_ttl: float,
        observer: Observer | None,
    ) -> None:
        self.ready = asyncio.Event()  # the connections are decided, see `start`
        self._connections = connections
        self._loop = connections.loop
        self._connect_timeout = connect_timeout
        self._prefix = prefix
        self._max_ttl = max_ttl
        self._observer = observer
        self._began: float | None = None
        self._decided = False
        self._connecting: dict[threading.Thread, Connector] = {}
        self._idle = asyncio.Event()  # no thread is connecting
        self._quietens = False  # there is a call of `_quieten` to come
        connections.on_broken = self._reconnect
        connections.on_change = self._look
        connections.on_listening = self._look_after_subscribers

    def start(self) -> None:
        """Connect to all masters, unless that has begun.  The connections are decided when a majority is up or
        known to be down, at most `connect_timeout` later (R2).

        Then we wait for the rest as long again as that took: the first lease should have all its keys.
        """
        if self._began is None and not self.ready.is_set():
            self._began = _clock.now()
            self._loop.call_later(self._connect_timeout, self.ready.set)
            for connection in self._connections.all:
                self._reconnect(connection)

    def _look(self) -> None:
        if self._connections.tried():
            self.ready.set()
        elif not self._decided and self._began is not None and self._connections.decide():
            self._decided = True
            took = _clock.now() - self._began
            self._loop.call_later(max(0.0, min(took, self._connect_timeout - took)), self.ready.set)

    async def end(self) -> None:
        """Wait until no thread is left that connects, after the connections were shut.

        One may be inside the resolver, a TLS handshake or somebody's credential provider, where nothing
        can wake it.  It is waited for a moment, and then closes what it gets.
        """
        until = _clock.now() + _LONGEST_JOIN
        while self._connecting and _clock.now() < until:
            self.abort()  # again: one may have had no socket yet that could be shut down
            self._idle.clear()
            try:
                async with asyncio.timeout(_LONGEST_JOIN / 50):
                    await self._idle.wait()
            except TimeoutError:
                pass

    def abort(self) -> None:
        """End the attempts to connect that are under way."""
        if not self._loop.is_closed():  # else nobody waits any more, and whoever did cannot be woken
            self.ready.set()
        for connector in list(self._connecting.values()):
            connector.abort()

    def _look_after_subscribers(self) -> None:
        """Somebody listens, or did until just now."""
        for subscriber in self._connections.subscribers:
            if subscriber.sock is None:
                self._reconnect(subscriber)
        if not self._quietens:
            self._quietens = True
            self._loop.call_later(LINGER / 2, self._quieten)

    def _quieten(self) -> None:
        self._quietens = False
        if self._connections.closed:
            return
        report(self._connections.quieten(_clock.now()), self._observer)
        if self._connections.subscriptions:
            self._look_after_subscribers()

    # -- connecting ----------------------------------------------------------------------------------

    def _reconnect(self, connection: Stream) -> None:
        """Connect, again, when it is time."""
        if connection.connector is not None or self._loop.is_closed() or not self._connections.wanted(connection):
            return
        now = _clock.now()
        if isinstance(connection, Connection):
            connection.pipeline.due(now)  # it is down: this only forgets what has expired
        connection.connector = Connector(connection.endpoint, self._connect_timeout)
        self._loop.call_later(
            max(0.0, connection.retry_at - now), self._start_connecting, connection, connection.connector
        )

    def _start_connecting(self, connection: Stream, connector: Connector) -> None:
        if not self._connections.wanted(connection):
            connection.connector = None
            return
        name = f"redlock-connect-{connection.endpoint.name}"
        thread = threading.Thread(target=self._connect, args=(connection, connector), name=name, daemon=True)
        self._connecting[thread] = connector
        try:
            thread.start()
        except RuntimeError as error:  # try again later, unless that is of no use
            reason, for_good = why_not(error)
            del self._connecting[thread]
            connection.connector = None
            self._failed(connection, Failure("error", reason, sent=False, configuration=for_good))

    def _connect(self, connection: Stream, connector: Connector) -> None:
        """In the thread."""
        made: tuple[socket.socket, Facts | None] | Failure
        try:
            made = (
                (connector.bare(), None)
                if isinstance(connection, Subscriber)
                else connector(self._prefix, self._max_ttl)
            )
        except BaseException as error:  # noqa: BLE001 - whatever it is, this master is down and it says why
            made = connector.failure(error)
        else:
            self._connections.keep(made[0])
        try:
            self._loop.call_soon_threadsafe(self._connector_done, threading.current_thread(), connection, made)
        except RuntimeError:  # the loop was closed meanwhile; the connections close the socket
            self._connecting.pop(threading.current_thread(), None)

    def _connector_done(
        self, thread: threading.Thread, connection: Stream, made: tuple[socket.socket, Facts | None] | Failure
    ) -> None:
        connection.connector = None
        self._connecting.pop(thread, None)
        if not self._connecting:
            self._idle.set()
        if self._connections.closed:
            return  # which has closed the socket
        if isinstance(made, Failure):
            self._failed(connection, made)
            return
        try:
            reports = self._connections.attach(connection, *made, _clock.now())
        except BaseException:  # a KeyboardInterrupt: whoever uses the connection next closes it
            connection.poisoned = True
            if connection.sock is None:
                self._reconnect(connection)
            raise
        report(reports, self._observer)

    def _failed(self, connection: Stream, failure: Failure) -> None:
        reports = self._connections.unattached(connection, failure)
        self._reconnect(connection)
        report(reports, self._observer)
