"""Does what no task does: it connects in the background."""

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

_LONGEST_JOIN = 1.0  # how long `end` waits for threads that are connecting, in seconds


class Housekeeper:
    """Keeps the connections of one event loop up.

    Each attempt to connect has a thread of its own, as with the lock for threads. redis-py knows TLS, credentials and
    name resolution, and some of that always blocks.  And a loop cannot destroy a thread while it is pending, as it
    can a task.  The loop gets a connected socket.
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
        self.ready = asyncio.Event()  # operations may begin, see `start`
        self._connections = connections
        self._loop = connections.loop
        self._connect_timeout = connect_timeout
        self._prefix = prefix
        self._max_ttl = max_ttl
        self._observer = observer
        self._began: float | None = None
        self._decided = False
        self._connecting: dict[threading.Thread, Connector] = {}
        self._idle = asyncio.Event()  # set when no thread is connecting
        self._quietens = False  # a call of `_quieten` is to come
        connections.on_broken = self._reconnect
        connections.on_change = self._look
        connections.on_listening = self._look_after_subscribers

    def start(self) -> None:
        """Connect to all masters, unless that has begun.

        `ready` is set when a majority is up or known to be down and, after that, as long again has passed for the
        other masters: the first lease should have all its keys.  All of it takes at most `connect_timeout` (R2).
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
        """After the connections were shut: wait until no thread is connecting.

        A thread may be inside the resolver, a TLS handshake or a user's credential provider, where nothing can wake
        it.  We wait for it for a moment; later it closes the socket that it gets.
        """
        until = _clock.now() + _LONGEST_JOIN
        while self._connecting and _clock.now() < until:
            self.abort()  # again: a connector without a socket could not be aborted before
            self._idle.clear()
            try:
                async with asyncio.timeout(_LONGEST_JOIN / 50):
                    await self._idle.wait()
            except TimeoutError:
                pass

    def abort(self) -> None:
        """End the attempts to connect."""
        if not self._loop.is_closed():  # else no task waits that could be woken
            self.ready.set()
        for connector in list(self._connecting.values()):
            connector.abort()

    def _look_after_subscribers(self) -> None:
        """An operation listens, or did until just now."""
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
        """Connect (again) when that is due."""
        if connection.connector is not None or self._loop.is_closed() or not self._connections.wanted(connection):
            return
        now = _clock.now()
        if isinstance(connection, Connection):
            connection.pipeline.due(now)  # the master is down: this only forgets debts that have expired
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
        except RuntimeError as error:  # no thread could be started: try again later, unless that is useless
            reason, for_good = why_not(error)
            del self._connecting[thread]
            connection.connector = None
            self._failed(connection, Failure("error", reason, sent=False, configuration=for_good))

    def _connect(self, connection: Stream, connector: Connector) -> None:
        """Connect to one master.  Runs in a thread of its own."""
        made: tuple[socket.socket, Facts | None] | Failure
        try:
            made = (
                (connector.bare(), None)
                if isinstance(connection, Subscriber)
                else connector(self._prefix, self._max_ttl)
            )
        except BaseException as error:  # noqa: BLE001 - the master is down, the error says why
            made = connector.failure(error)
        else:
            self._connections.keep(made[0])
        try:
            self._loop.call_soon_threadsafe(self._connector_done, threading.current_thread(), connection, made)
        except RuntimeError:  # the loop was closed; the connections close the socket
            self._connecting.pop(threading.current_thread(), None)

    def _connector_done(
        self, thread: threading.Thread, connection: Stream, made: tuple[socket.socket, Facts | None] | Failure
    ) -> None:
        connection.connector = None
        self._connecting.pop(thread, None)
        if not self._connecting:
            self._idle.set()
        if self._connections.closed:
            return  # closing them closed the socket
        if isinstance(made, Failure):
            self._failed(connection, made)
            return
        try:
            reports = self._connections.attach(connection, *made, _clock.now())
        except BaseException:  # a KeyboardInterrupt: the next use of the connection closes it
            connection.poisoned = True
            if connection.sock is None:
                self._reconnect(connection)
            raise
        report(reports, self._observer)

    def _failed(self, connection: Stream, failure: Failure) -> None:
        reports = self._connections.unattached(connection, failure)
        self._reconnect(connection)
        report(reports, self._observer)
