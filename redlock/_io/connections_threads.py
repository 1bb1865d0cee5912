"""All connections of one `Masters`, shared by all its locks and threads.

Which thread writes and reads, and which ones wait for it, is told in `redlock/_io/waiter.py`.  The background
does what no caller does: it connects, reads late answers and sends owed releases.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from redlock import _clock
from redlock._core.effects import Turn
from redlock._io import process
from redlock._io.connections import CLOSED, TICK, ConnectionsBase
from redlock.errors import RedlockError

if sys.platform == "win32":
    from redlock import _windows as select
    from redlock._windows import Waker
else:
    import select

    from redlock._io.waker import Waker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redlock._connect import Endpoint
    from redlock._core.effects import Send
    from redlock._core.inbox import LineInbox
    from redlock._core.voters import Voters
    from redlock._io.connection import Connection
    from redlock._io.driver_threads import RenewalOperation
    from redlock._io.stream import Stream
    from redlock._io.waiter import Waiter

# "The other side has hung up" without "there is something to read".  Linux has a name for it.  Elsewhere poll()
# reports a hang-up whatever it is asked for.
_HANGUP: int = getattr(select, "POLLRDHUP", 0)


ThreadInbox: TypeAlias = "Waiter | RenewalOperation"


class Asked(NamedTuple):
    """A request of a following thread, for the leading thread to write."""

    request: Send
    waiter: ThreadInbox
    at: float
    open: bool  # whether the request counted answers then


class Connections(ConnectionsBase):
    """The connections to all masters, and which thread reads from them.

    ``mutex`` guards the connections and their pipelines.  Nothing blocks while it is held.  But every call of the
    kernel lets other threads run, which then wait for it.  So following threads do not take it.
    """

    def __init__(self, endpoints: Sequence[Endpoint], voters: Voters, node_timeout: float) -> None:
        super().__init__(endpoints, voters, node_timeout)
        self.mutex = threading.Lock()
        self.watch = select.poll()  # the background's: hang-ups only, so answers do not wake it
        self.dozing = False  # the background sleeps until it is woken
        self.waker = Waker()  # wakes the background
        self.watch.register(self.waker.fd, select.POLLIN)
        # What threads tell each other: see `redlock/_io/waiter.py`.
        self.leader: Waiter | None = None
        self.followers: dict[Waiter, None] = {}  # oldest first
        self.polling = False  # the leading thread sits in poll()
        self.poll = select.poll()  # its
        self.asked: deque[Asked] = deque()  # requests of following threads, to be written in this order
        self.reader: Waiter | None = None  # the thread that is reading; it wakes the first one of `served` afterwards
        self.served: deque[Waiter] = deque()  # threads that have events, and wake one after the other
        self._lead_waker = Waker()  # wakes the leading thread
        self.poll.register(self._lead_waker.fd, select.POLLIN)
        self._line = threading.Lock()  # guards the local queue; always taken last
        self.operations: set[Waiter] = set()  # of callers, under way
        self.look_after = self._rouse_background

    # -- for operations ------------------------------------------------------------------------------

    @staticmethod
    def now() -> float:
        return _clock.now()

    def send(self, request: Send, operation: Waiter) -> None:
        """Write ``request`` to its masters.  Lead if no thread does: the caller is about to wait.

        If another thread leads and does not sit in poll(), leave the request to it.  It writes the requests of all
        threads before it goes to poll(), and once more when it stops leading.
        """
        place = request.enters
        if place is not None:
            with self._line:
                if self.closing:
                    raise RedlockError(CLOSED)
                may_ask = self._enter(place, operation)
            if not may_ask:
                return
        elif request.leaves is None:  # else the operation begins with it, and `Runtime.run` has looked
            process.look()
        leader = self.leader
        if leader is None or leader is operation:
            with self.mutex:
                if self.closing:
                    self._refuse_to_send(request)
                if self.asked:
                    self.write_asked()
                if self.leader is None:
                    self.leader = operation
                self._submit(request, operation, _clock.now())
        else:
            self._leave_to_leader(request, operation)
        if request.leaves is not None:
            self.leave(request.leaves)

    def _leave_to_leader(self, request: Send, waiter: Waiter) -> None:
        if self.closing:
            self._refuse_to_send(request)
        now = request.sent_at = _clock.now()
        self.asked.append(Asked(request, waiter, now, request.open))
        if self.polling or self.leader is None:
            self.flush()

    def _refuse_to_send(self, request: Send) -> None:
        """Raise RedlockError, unless ``request`` is a release, which has to arrive."""
        if self.closed or request.owed_until is None:
            raise RedlockError(CLOSED)

    def refuse_to_wait(self, request: Send | None, waiter: Waiter) -> None:
        """Raise RedlockError, unless ``waiter`` waits for a release, or is not a caller's."""
        if self.closed or (waiter in self.operations and (request is None or request.owed_until is None)):
            raise RedlockError(CLOSED)

    def cork(self, request: Send, operation: RenewalOperation) -> None:
        """Have ``request`` written by the next `flush`, or together with what another thread writes."""
        with self.mutex:
            if self.closed:
                raise RedlockError(CLOSED)
            self._take_over()
            self._submit(request, operation, _clock.now(), corked=True)

    def flush(self) -> None:
        """Hand to the kernel what following threads have asked for, and what was corked."""
        if self.asked or self.corked:
            with self.mutex:
                self.write_asked()

    def _take_over(self) -> None:
        """Submit what following threads have asked for, in their order.

        If this is interrupted, the next call goes on where it was.
        """
        asked = self.asked
        while asked:
            request, waiter, at, was_open = asked[0]
            # An attempt that is over must not be sent any more.  Its rollback was asked for as well, and will find
            # nothing.
            if request.open or not was_open or request.owed_until is not None:
                self._submit(request, waiter, at, corked=True)
            asked.popleft()

    def write_asked(self) -> None:
        """`flush`, with the mutex held."""
        self._take_over()
        self._flush_cork(_clock.now())

    def close_round(self, request: Send) -> None:
        """From now on no thread tells ``request`` of answers."""
        with self.mutex:
            request.open = False
            if self.dozing:  # it is to see which connections answer nothing
                self._wake_background()

    def rouse(self, inbox: LineInbox) -> None:
        if self.leader is inbox:
            self._lead_waker.wake()
        else:
            inbox.wake()

    def poke(self, waiter: ThreadInbox) -> None:
        waiter.events.append(Turn(_clock.now()))
        self.rouse(waiter)

    def finish(self, operation: Waiter) -> None:
        """``operation`` is over: end its subscription.  The background reads the late answers to it."""
        if operation.subscription is not None:
            with self.mutex:
                self.unlisten(operation)
        if self.dozing:
            with self.mutex:  # which keeps `close` from closing the waker
                self._wake_background()

    def mend(self) -> None:
        """Close the connections that an interruption has torn, so that they are made again."""
        with self.mutex:
            now = _clock.now()
            self.mend_walk(now)
            for connection in self.all:
                if connection.poisoned:
                    self._read(connection, now)

    # -- for the background, with the mutex held ----------------------------------------------------

    def look(self, connection: Connection, now: float) -> None:
        """Read what has arrived, unless a caller is reading anyway."""
        if not self.polling or connection.poisoned:
            self._read(connection, now)

    def hung_up(self, fd: int, now: float) -> None:
        connection = self._streams.get(fd)
        if connection is not None:
            self._read(connection, now)

    def begin_to_close(self) -> None:
        """From now on operations only end: they roll back, and releases are still sent and waited for."""
        with self.mutex:
            self.closing = True
            self.leader = None  # the leading thread would go back to poll(); one that joins anew is refused
        self._lead_waker.wake()
        for waiter in list(self.operations):
            self.poke(waiter)  # it waits again, which is refused

    def close(self) -> None:
        """Close every descriptor.  Operations under way fail."""
        with self.mutex:
            self.closing = True
            self.hang_up()
            for follower in list(self.followers):
                follower.wake()
            with self._line:
                waiting = self.local_queue.waiting()
            for place in waiting:
                if place.inbox is not None:
                    place.inbox.wake()
            self._lead_waker.wake()
            self._lead_waker.close()
            self.waker.close()

    def disown(self) -> None:
        self.mutex, self._line = threading.Lock(), threading.Lock()  # a thread of the parent may hold the old ones
        self.closing = True
        super().disown()
        self.waker.close()
        self._lead_waker.close()

    # -- with the mutex held -------------------------------------------------------------------------

    def _read_slowly(self, fd: int, now: float) -> None:
        if fd == self._lead_waker.fd:
            self._lead_waker.drain()
        else:
            super()._read_slowly(fd, now)

    def _watch(self, connection: Stream) -> None:
        self.poll.register(connection.fd, select.POLLIN)
        self.watch.register(connection.fd, _HANGUP)
        self._lead_waker.wake()

    def _unwatch(self, connection: Stream) -> None:
        fd = connection.fd
        if self._streams.get(fd) is connection:  # else, after an interruption, it may be another one's
            del self._streams[fd]
            self.poll.unregister(fd)
            self.watch.unregister(fd)
        if self.polling:
            # The leading thread may have lost a vote with this connection, and no hang-up tells it.
            self._lead_waker.wake()

    def _watch_room(self, connection: Stream, *, wanted: bool) -> None:
        self.poll.modify(connection.fd, select.POLLIN | select.POLLOUT if wanted else select.POLLIN)
        if wanted and self.polling:
            # The thread in poll() still asks for what was wanted when it went there.
            self._lead_waker.wake()

    def _rouse_background(self, at: float) -> None:
        """It has to look at ``at``.  Unless it dozes it looks within a tick anyway."""
        if self.dozing or at < _clock.now() + TICK:
            self._wake_background()

    def _wake_background(self) -> None:
        self.dozing = False
        self.waker.wake()
