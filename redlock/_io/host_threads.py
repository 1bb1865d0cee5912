"""Looks after the operations of threads, and watches the connections: see `waiter.py` for who writes and reads."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, TypeAlias

from redlock._io.connections import CLOSED, TICK, Connections
from redlock._io.process import brief
from redlock._system import clock
from redlock.errors import RedlockError

if sys.platform == "win32":
    from redlock._system import windows as select
    from redlock._system.windows import Waker
else:
    import select

    from redlock._io.waker import Waker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redlock._connect import Endpoint
    from redlock._core.effects import Send
    from redlock._core.settings import MastersSettings
    from redlock._io.driver_threads import RenewalOperation
    from redlock._io.stream import Stream
    from redlock._io.waiter import Waiter

# The event "the other side has hung up": Linux has a name for it; elsewhere poll() reports it anyway.
_HANGUP: int = getattr(select, "POLLRDHUP", 0)

ThreadInbox: TypeAlias = "Waiter | RenewalOperation"


# A request of a following thread, for the leading thread to write: who asked, when, and whether it counted answers.
Asked: TypeAlias = "tuple[Send, ThreadInbox, float, bool]"


class ThreadHost:
    """The host of the operations of threads, and the port of their `Connections`.

    ``mutex`` guards the connections and their pipelines.  Nothing blocks while it is held.  But every call of the
    kernel lets other threads run, which then wait for it.  So following threads do not take it.  The mutex knows its
    owner, for a finalizer or a signal handler in the same thread may ask for it again: see `Inside`.
    """

    def __init__(self, endpoints: Sequence[Endpoint], settings: MastersSettings) -> None:
        self.mutex: Any = threading.RLock()
        self.connections = connections = Connections(endpoints, settings, self)
        self.perform_local = connections.perform_local
        self.hang_ups = select.poll()  # of the background: hang-ups alone, so answers do not wake it
        self.dozing = False  # the background sleeps until it is woken
        self.waker = Waker()  # wakes the background
        self.hang_ups.register(self.waker.fd, select.POLLIN)
        # How threads pass work to each other: see `redlock/_io/waiter.py`.
        self.leader: Waiter | None = None
        self.followers: dict[Waiter, None] = {}  # oldest first
        self.polling = 0  # the leading thread, while it sits in poll()
        self.poll = select.poll()  # its
        self.asked: deque[Asked] = deque()  # requests of following threads, to be written in this order
        self.reader: Waiter | None = None  # the thread that is reading; it wakes the first one of `served` afterwards
        self.served: deque[Waiter] = deque()  # threads that have events, and wake one after the other
        self.lead_waker = Waker()  # wakes the leading thread
        self.poll.register(self.lead_waker.fd, select.POLLIN)
        self.operations: set[Waiter] = set()  # of callers, under way
        connections.readers.update({waker.fd: waker for waker in (self.waker, self.lead_waker)})

    def leave_to_leader(self, request: Send, waiter: Waiter) -> None:
        """Have ``request`` written by the thread that leads: before it goes to poll(), or when it stops leading."""
        if self.connections.closing:
            self.refuse(request, waiter)
        now = request.sent_at = clock.now()
        self.asked.append((request, waiter, now, request.open))
        if self.polling or self.leader is None:
            self.flush()

    def refuse(self, request: Send | None, waiter: Waiter) -> None:
        """It closes: raise RedlockError, unless ``request`` is a release, which has to arrive, or no caller's."""
        if self.connections.closed or (waiter in self.operations and (request is None or request.owed_until is None)):
            raise RedlockError(CLOSED)

    def cork(self, request: Send, operation: RenewalOperation) -> None:
        """Have ``request`` written by the next `flush`, or together with what another thread writes."""
        with self.mutex:
            if self.connections.closed:
                raise RedlockError(CLOSED)
            self._take_over()
            self.connections.submit(request, operation, clock.now(), corked=True)

    def flush(self) -> None:
        """Hand to the kernel what following threads have asked for, and what was corked."""
        if self.asked or self.connections.corked:
            with self.mutex:
                self.write_asked()

    def _take_over(self) -> None:
        """Submit what following threads have asked for, in their order; after an interruption, go on where it was."""
        asked = self.asked
        while asked:
            request, waiter, at, was_open = asked[0]
            # An attempt that has ended must not be sent any more. Its rollback, which follows, finds nothing.
            if request.open or not was_open or request.owed_until is not None:
                self.connections.submit(request, waiter, at, corked=True)
            asked.popleft()

    def write_asked(self) -> None:
        self._take_over()
        self.connections.flush_cork(clock.now())

    def close_round(self, request: Send) -> None:
        """From now on no thread tells ``request`` of answers."""
        with self.mutex:
            request.open = False
            if self.dozing:  # the background has to notice connections that answer nothing
                self._wake_background()

    def finish(self, operation: Waiter) -> None:
        """``operation`` has ended: end its subscription.  The background reads the late answers to it."""
        if operation.subscription is not None:
            with self.mutex:
                self.connections.unlisten(operation)
        if self.dozing:
            with self.mutex:  # with the mutex, so that `close` cannot close the waker now
                self._wake_background()

    def mend(self) -> None:
        """Close the connections that an interruption has torn, so that they are made again."""
        with self.mutex:
            now = clock.now()
            self.connections.mend_walk(now)
            for connection in self.connections.all:
                if connection.poisoned:
                    self.connections.read(connection, now)

    def begin_to_close(self) -> None:
        """From now on operations only end: they roll back, and releases are still sent and waited for."""
        with self.mutex:
            self.connections.closing = True
            self.leader = None  # else the leading thread would go back to poll(); a thread that joins now is refused
            self.polling = 0  # a signal handler that closes has perhaps interrupted it there
        self.lead_waker.wake()
        for waiter in list(self.operations):
            waiter.poke()  # it waits again, which is refused

    def close(self) -> None:
        """Close every descriptor.  Operations under way fail."""
        connections = self.connections
        with self.mutex:
            connections.closing = True
            connections.hang_up()
            for follower in list(self.followers):
                follower.wake()
            with brief.lock:
                waiting = connections.local_queue.waiting()
            for place in waiting:
                if place.inbox is not None:
                    place.inbox.wake()
            self.lead_waker.wake()
            self.lead_waker.close()
            self.waker.close()

    def disown(self) -> None:
        self.connections.closing = True
        self.connections.disown()
        self.waker.disown()
        self.lead_waker.disown()

    # -- the port, with the mutex held ---------------------------------------------------------------

    def watch(self, stream: Stream) -> None:
        self.poll.register(stream.fd, select.POLLIN)
        self.hang_ups.register(stream.fd, _HANGUP)
        self.lead_waker.wake()

    def unwatch(self, stream: Stream, *, ours: bool) -> None:
        if ours:
            for poll in (self.poll, self.hang_ups):
                with contextlib.suppress(KeyError, ValueError):  # after an interruption this is the second time
                    poll.unregister(stream.fd)
        if self.polling:
            # The leading thread may have lost a vote with this connection, without an event in its poll().
            self.lead_waker.wake()

    def watch_room(self, stream: Stream, *, wanted: bool) -> None:
        self.poll.modify(stream.fd, select.POLLIN | select.POLLOUT if wanted else select.POLLIN)
        if wanted and self.polling:
            # The thread in poll() still watches for the events of the time when it went there.
            self.lead_waker.wake()

    def tick_at(self, at: float) -> None:
        """Have `Background.tick` called at ``at``.  Unless the background dozes, it is called within a tick anyway."""
        if self.dozing or at < clock.now() + TICK:
            self._wake_background()

    def _wake_background(self) -> None:
        self.dozing = False
        self.waker.wake()
