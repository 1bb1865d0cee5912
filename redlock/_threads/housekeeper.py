"""Does what no caller does: it connects in the background, reads late answers, sends owed releases, and renews leases.

Each `Masters` has one such thread.  It sleeps while all masters are up and have answered and no lease is due.  Each
attempt to connect has a short thread of its own: redis-py blocks, and a master that hangs must not delay the others.

When the thread ends it ends the renewals under way.  The garbage collector would end them in any thread, in the
middle of anything.  It may still run two things of ours: a generator that is thrown away, and the end of a pipe.
Neither takes a lock, and each changes one thing in one step.

Also considered: a thread for each master (a hand-over costs more than the round trip), one thread for all I/O (two
hand-overs a round), a pool of redis-py clients (three times slower, and no order between an acquire and its release).
"""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, Any

from redlock import _clock
from redlock._base.connections import CLOSED, TICK, report, report_failure
from redlock._base.subscriber import Subscriber
from redlock._connect import Connector
from redlock._core.effects import Wait
from redlock._core.outcomes import Failure
from redlock._core.subscriptions import LINGER
from redlock._thread import start, why_not
from redlock._threads.renewer import Renewer
from redlock._threads.waiter import Waiter
from redlock.errors import RedlockError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from redlock._base.connections import Reports
    from redlock._base.observer import Observer
    from redlock._base.stream import Stream
    from redlock._core.voters import Facts
    from redlock._threads.connections import Connections

# A timeout of poll() stands still while the machine sleeps, and the clock of rule R5 does not.  With leases to renew,
# look at that clock at least so often, in seconds.
_LONGEST_NAP = 1.0
_LOOK: Any = None  # an event without a meaning: it only ends a wait
# Pauses between two looks for the first connections, in seconds: short at first, as most take a millisecond.
_GLANCE, _LONGEST_GLANCE = 0.0005, 0.02
# How long `close` waits for threads that are connecting, in seconds.
_LONGEST_JOIN = 1.0


class Housekeeper:
    """Keeps the connections of one `Masters` up.  Its thread also runs the `Renewer`."""

    def __init__(
        self,
        connections: Connections,
        *,
        connect_timeout: float,
        prefix: str,
        max_ttl: float,
        observer: Observer | None,
    ) -> None:
        self._connections = connections
        self._connect_timeout = connect_timeout
        self._prefix = prefix
        self._max_ttl = max_ttl
        self._observer = observer
        self.renewer = Renewer(connections, self._wake)
        self._awaits = False  # it waits for answers, where the waker alone does not wake it
        self._ending = False
        self._thread: threading.Thread | None = None
        self._connecting: set[threading.Thread] = set()

    def start(self) -> None:
        """Start the thread, if it does not run yet; it connects to all masters.  RedlockError: it cannot start."""
        with self._connections.mutex:
            if self._thread is None and not self._ending:
                thread = threading.Thread(target=self._run, name="redlock-links", daemon=True)
                start(thread)
                self._thread = thread

    def wait_until_decided(self) -> None:
        """Wait until a majority is up or known to be down, for at most `connect_timeout` (R2).

        Then wait for the other masters, for as long again as that took: the first lease should have all its keys.
        """
        began = _clock.now()
        self._connections.mend()
        self._wait_for(self._connections.decide, self._connect_timeout)
        took = _clock.now() - began
        self._wait_for(self._connections.tried, min(took, self._connect_timeout - took))

    def _wait_for(self, there: Callable[[], bool], seconds: float) -> None:
        """Wait until ``there()``: look from time to time.

        A `threading.Condition` would need no looks.  But a Ctrl-C in its `wait` can come before it has the mutex
        back; then the `with` around it would release a mutex that it does not have, or that another thread has.
        """
        until = _clock.now() + seconds
        pause = _GLANCE
        while True:
            with self._connections.mutex:
                if self._over or there():
                    return
            left = until - _clock.now()
            if left <= 0:
                return
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, _LONGEST_GLANCE)

    @property
    def _over(self) -> bool:
        """Whether connecting is over for good."""
        return self._ending or self._connections.closing

    def deliver_owed(self, seconds: float) -> None:
        """Give the masters that are owed a release ``seconds`` to answer it (R11).

        When the `Masters` are closed, operations first have to roll back what they asked for.
        """
        until = _clock.now() + seconds
        waiter = Waiter(self._connections.wake_chain)
        self._connections.flush()  # what an interrupted leading thread has left
        try:
            while _clock.now() < until and self._owes():
                self._connections.wait(Wait(min(until, _clock.now() + TICK / 10)), waiter)
        finally:
            self._connections.forget(waiter)

    def _owes(self) -> bool:
        connections = self._connections
        with connections.mutex:
            return connections.owe() or (connections.closing and bool(connections.running))

    def end(self) -> None:
        """Stop the thread.  Takes no lock, so the garbage collector may call it."""
        self._ending = True
        self._connections.waker.wake()

    def join(self) -> None:
        """After `end`: wait until no thread and no socket is left.

        A connecting thread may be inside the resolver, a TLS handshake or a user's credential provider, where nothing
        can wake it.  We wait for it for a moment; later it closes the socket that it gets.  Our caller may be an
        observer, called in one of these threads; that thread ends as soon as the observer returns.
        """
        this = threading.current_thread()
        if self._thread is None:
            self._connections.close()
        elif self._thread is not this:
            self._thread.join()
            with self._connections.mutex:
                connecting = [thread for thread in self._connecting if thread is not this]
            until = _clock.now() + _LONGEST_JOIN
            for thread in connecting:
                while thread.is_alive() and _clock.now() < until:
                    self._abort_connectors()  # again: a connector without a socket could not be aborted before
                    thread.join(_LONGEST_JOIN / 50)

    def _abort_connectors(self) -> None:
        for connection in self._connections.streams:
            connector = connection.connector
            if connector is not None:
                connector.abort()

    # -- the thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        with self._connections.mutex:  # an interrupted `start` may not have noted us
            if self._thread is None:
                self._thread = threading.current_thread()
            ours = self._thread is threading.current_thread()
        if not ours:
            return
        try:
            self._keep_house()
        finally:
            self._connections.close()
            self._abort_connectors()
            for operation in list(self.renewer.operations):  # here, not by the collector in any thread
                operation.interrupt(RedlockError(CLOSED))

    def _wake(self) -> None:
        """Wake the thread: there is work for the renewer."""
        self._connections.waker.wake()
        if self._awaits:
            self.renewer.waiter.events.append(_LOOK)
            self._connections.wake(self.renewer.waiter)

    def _keep_house(self) -> None:
        while not self._ending:
            try:
                self._once_around()
            except BaseException:  # noqa: BLE001 - from a user's callback; all leases depend on us
                report_failure("looking after the masters failed")
                time.sleep(TICK)  # so that a failure that repeats does not spin

    def _once_around(self) -> None:
        connections, renewer = self._connections, self.renewer
        # Set before the work: an event that comes during the work is either seen by it, or wakes us.
        self._awaits = bool(renewer.operations)
        due = renewer.work()
        now = _clock.now()
        reports: Reports = []
        with connections.mutex:
            timeout = min(self._chores(now, reports), due - now)
            connections.dozing = timeout > TICK and not renewer.operations
        report(reports, self._observer)
        if self._ending:
            return
        if renewer.operations:
            self._await_answers(now + min(timeout, TICK))
        else:
            connections.forget(renewer.waiter)
            self._doze(None if timeout == math.inf else max(0.0, timeout))

    def _await_answers(self, until: float) -> None:
        """Wait for answers to the renewer's requests."""
        if not self._awaits:
            return  # the operations began just now: go around once more, see there
        self._connections.wait(Wait(until), self.renewer.waiter)
        # The renewer's waiter still leads, but may first be busy with a user's callback.
        self._connections.let_others_run(self.renewer.waiter)
        self.renewer.waiter.events.clear()

    def _doze(self, timeout: float | None) -> None:
        """Sleep until a connection breaks, or until we are woken."""
        connections = self._connections
        ready = connections.watch.poll(None if timeout is None else min(timeout, _LONGEST_NAP) * 1000 + 1)
        with connections.mutex:
            connections.dozing = False
            now = _clock.now()
            for fd, _ in ready:
                if fd == connections.waker.fd:
                    connections.waker.drain()
                else:
                    connections.hung_up(fd, now)

    def _chores(self, now: float, reports: Reports) -> float:
        """Do what is due.  Returns the seconds until the next chore; infinity: none until we are woken."""
        connections = self._connections
        reports += connections.quieten(now)
        pause = LINGER / 2 if connections.subscriptions else math.inf
        for stream in connections.streams:
            if stream.sock is None and stream.connector is None and connections.wanted(stream):
                if now >= stream.retry_at:
                    self._start_connecting(stream)
                else:
                    pause = min(pause, stream.retry_at - now)
        for connection in connections.all:
            if connection.sock is None:
                connection.pipeline.due(now)  # the master is down: this only forgets debts that have expired
            elif not connection.pipeline.idle:
                connections.look(connection, now)
                connections.send_owed(connection, now)
                pause = min(pause, TICK)
        return pause

    # -- connecting ----------------------------------------------------------------------------------

    def _start_connecting(self, connection: Stream) -> None:
        connector = Connector(connection.endpoint, self._connect_timeout)
        name = f"redlock-connect-{connection.endpoint.name}"
        thread = threading.Thread(target=self._connect, args=(connection, connector), name=name, daemon=True)
        connection.connector = connector
        self._connecting.add(thread)
        try:
            thread.start()
        except RuntimeError as error:  # no thread could be started: try again later, unless that is useless
            reason, for_good = why_not(error)
            connection.connector = None
            self._connecting.discard(thread)
            self._connections.unattached(connection, Failure("error", reason, sent=False, configuration=for_good))

    def _connect(self, connection: Stream, connector: Connector) -> None:
        try:
            try:
                made = (
                    (connector.bare(), None)
                    if isinstance(connection, Subscriber)
                    else connector(self._prefix, self._max_ttl)
                )
            except BaseException as error:  # noqa: BLE001 - the master is down, the error says why
                self._failed(connection, connector.failure(error))
            else:
                self._connected(connection, *made)
        finally:  # also if a user's logging handler raises
            with self._connections.mutex:
                connection.connector = None
                self._connecting.discard(threading.current_thread())
                self._connections.waker.wake()

    def _connected(self, connection: Stream, sock: socket.socket, facts: Facts | None) -> None:
        with self._connections.mutex:
            if self._ending:
                sock.close()
                return
            reports = self._connections.attach(connection, sock, facts, _clock.now())
        report(reports, self._observer)

    def _failed(self, connection: Stream, failure: Failure) -> None:
        with self._connections.mutex:
            reports = self._connections.unattached(connection, failure)
        if not self._ending:
            report(reports, self._observer)
