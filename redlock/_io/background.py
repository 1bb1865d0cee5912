"""What is done behind callers: it connects, sends owed releases, looks after subscriptions, announces, and renews.

All of it is in `Background.tick`: it returns when to call it again.  Threads call it from one thread, which
sleeps in poll(); asyncio calls it from one timer of the loop (`Port`).  Each attempt to connect has a short thread of
its own in both worlds.  redis-py knows TLS, credentials and name resolution, and some of that always blocks; a master
that hangs must not delay the others.  And a loop cannot destroy a thread while it is pending, as it can a task.
"""

from __future__ import annotations

import math
import threading
from functools import partial
from typing import TYPE_CHECKING

from redlock._connect import Connector
from redlock._core.outcomes import Failure
from redlock._core.subscriptions import LINGER
from redlock._io.announcer import Announcer
from redlock._io.connections import TICK, Connections
from redlock._io.process import ForkLock
from redlock._io.renewer import Renewer
from redlock._io.report import report
from redlock._io.stream import Stream, Subscriber
from redlock._system import clock
from redlock._system.thread import begin, why_not

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redlock._io.deployment import Deployment
    from redlock._io.port import Made, Port

_LONGEST_JOIN = 1.0  # how long the end waits for threads that are connecting, in seconds
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.02  # seconds between two checks of other threads: most take a millisecond
_ADMITTING = ForkLock()  # the loops of all threads share the `Voters`


class Background:
    """Keeps the connections of one client up, and its leases."""

    def __init__(self, connections: Connections, port: Port, deployment: Deployment, connect_timeout: float) -> None:
        self.renewer = Renewer(port, connections)  # of the leases that depend on these connections
        self.ending = False
        self._connections = connections
        self._port = port
        connections.announcer = self._announcer = Announcer(connections.voters, deployment.prefix, port.tick_at)
        self._connect_timeout = connect_timeout
        self._deployment = deployment
        self._connecting: dict[threading.Thread, Connector] = {}  # threads that may not have ended

    @property
    def over(self) -> bool:
        return self.ending or self._connections.closed

    def tick(self) -> float:
        """Do what is due.  Returns when it is to be called again, on the clock of R5; infinity: when it is woken."""
        until = self.renewer.work(clock.now())
        with self._connections.port.mutex:
            now = clock.now()  # read with the mutex held, as by a leading thread: no answer is older than its request
            self._connections.flush_cork(now)  # first: a repair makes us look for late answers
            until = min(until, now + self._keep_up(now))
            self._port.rest(now, until)
        if self._connections.voters.refused:
            self.renewer.give_way(now)  # here, without the mutex: it takes another lock
        self._report()
        return until

    def _report(self) -> None:
        """Report what has happened, without the mutex: both log and observer may be slow."""
        connections = self._connections
        with connections.port.mutex:
            reports, connections.reports = connections.reports, []
        report(reports, self._deployment.settings.observer)

    def _keep_up(self, now: float) -> float:
        """All but the renewals.  Returns the seconds until there is more to do; infinity: until we are woken."""
        connections = self._connections
        connections.quieten(now)
        pause = LINGER / 2 if connections.subscriptions else math.inf
        connections.announce(now, self._announcer)
        pause = min(pause, self._announcer.next(now, TICK))
        for stream in connections.streams:
            if (due := connections.connect_in(stream, now)) <= 0:
                self._start_connecting(stream)
                due = connections.connect_in(stream, now)
            pause = min(pause, due)
        for connection in connections.all:
            if connection.sock is None:
                connection.pipeline.due(now)  # the master is down: this only forgets debts that have expired
            else:
                if self._port.read_late(connection, now):
                    pause = min(pause, TICK)
                connections.send_owed(connection, now)
        return pause

    def until_ready(self, began: float) -> Iterator[float]:
        """Ends when a majority is up or known to be down, `connect_timeout` after ``began`` at most (R2).

        Before that, the other masters get as long again as that took: the first lease should have all its keys.
        If other clients might use other masters, it also waits until votes count, `node_timeout` at most (R34).
        Until then it yields how many seconds are left at most.  Resume it when something has changed.
        """
        end = began + self._connect_timeout
        while not (self.over or self._connections.decide()) and (left := end - clock.now()) > 0:
            yield left
        now = clock.now()
        end = min(end, now + (now - began))
        while not (self.over or self._connections.tried()) and (left := end - clock.now()) > 0:
            yield left
        while not self.over and (left := self._connections.voters.begin_in(clock.now())) > 0:
            yield left

    def _start_connecting(self, stream: Stream) -> None:
        connector = stream.connector = Connector(stream.endpoint, self._connect_timeout)
        name = f"redlock-connect-{stream.endpoint.name}"
        thread = threading.Thread(target=self._connect, args=(stream, connector), name=name, daemon=True)
        for ended in [one for one in self._connecting if not one.is_alive()]:
            del self._connecting[ended]
        self._connecting[thread] = connector
        try:
            begin(thread)
        except RuntimeError as error:  # no thread could be started: try again later, unless that is useless
            reason, for_good = why_not(error)
            stream.connector = None
            del self._connecting[thread]
            self._connections.unattached(stream, Failure("error", reason, sent=False, configuration=for_good))

    def _connect(self, stream: Stream, connector: Connector) -> None:
        """Connect to one master.  Runs in a thread of its own."""
        made: Made
        try:
            if isinstance(stream, Subscriber):
                made = (connector.bare(), None)
            else:
                announces, ours = self._connections.voters.announces, self._deployment
                made = connector(ours.prefix, announces, self._announcer.call(), ours.records)
        except BaseException as error:  # noqa: BLE001 - the master is down, the error says why
            made = connector.failure(error)
        self._port.hand_over(made, partial(self._finish, stream, made))

    def _finish(self, stream: Stream, made: Made) -> None:
        """An attempt to connect has ended: take over what it has made."""
        connections = self._connections
        try:
            with connections.port.mutex:
                if isinstance(made, Failure):
                    connections.unattached(stream, made)
                elif self.over:
                    made[0].close()
                else:
                    with _ADMITTING.lock:
                        connections.attach(stream, *made, clock.now())
            if not self.over:
                self._report()
        finally:  # also if a user's logging handler raises, or a Ctrl-C strikes
            with connections.port.mutex:
                stream.connector = None
                self._port.tick_at()

    def abort_connectors(self) -> None:
        for connector in list(self._connecting.values()):
            connector.abort()

    def until_joined(self) -> Iterator[float]:
        """Ends when no other thread connects or has just connected, after a second at most; yields pauses to make.

        In the resolver, a TLS handshake or a user's credential provider nothing can wake a thread; later it closes the
        socket that it gets.  Our caller may be an observer, called in one of these threads.
        """
        this, until = threading.current_thread(), clock.now() + _LONGEST_JOIN
        for pause in pauses():
            busy = [thread for thread in list(self._connecting) if thread is not this and thread.is_alive()]
            if not busy or clock.now() >= until:
                return
            self.abort_connectors()  # again: a connector without a socket could not be aborted before
            yield pause


def pauses() -> Iterator[float]:
    """Pauses between two checks, in seconds: longer and longer."""
    pause = _FIRST_PAUSE
    while True:
        yield pause
        pause = min(pause * 1.5, _LONGEST_PAUSE)
