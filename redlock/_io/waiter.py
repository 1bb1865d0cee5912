"""How threads ask and wait: one of them leads, and the others follow.

A round runs in the caller's thread, without a hand-over to another one: that thread writes to all masters and polls
them all.  When several threads wait, one of them leads: it reads for all of them, and wakes each thread whose answers
have come.  When it has its own answers it hands the lead to one that follows.

What always holds:

- `ThreadHost.leader` changes only while the mutex of the connections is held.  Nothing blocks while it is held.
- A following thread takes no lock.  It notes its request in one step (`ThreadHost.asked`), that it waits in another
  one (`followers`), and only then looks whether a thread still leads.  A thread that stops leading first says so, and
  then looks for followers.  So one of the two sees the other.
- The leading thread writes what was asked before its poll().  While it is in there (`polling`), threads write alone.
- A thread on the chain (`served`) has events.  Each wakes the next one, when it has finished or sleeps again.

Following threads take no lock: at each call of the kernel the leading thread lets other threads run, and they would all
stop at its mutex, one behind the other.  The chain: if all were woken at once, they would fight for the interpreter's
lock.  The leading thread lets them run before it reads again, and their next requests leave in one packet.

Interruptions.  A Ctrl-C may stop the leading thread where no `finally` helps, or a thread that has to wake the next
one.  So no thread sleeps for longer than its patience without a look of its own: it takes the lead if none has read
until then, and the leading thread wakes the threads that are left on the chain.

The leading thread does not step the operations of others, as an event loop does: a Ctrl-C in the main thread, or a
user's retry strategy, would strike in the middle of another thread's operation.
"""

from __future__ import annotations

import contextlib
from collections import deque
from threading import Lock, get_ident
from typing import TYPE_CHECKING

from redlock._core.effects import Event, Send, Timeout, Turn
from redlock._io import process
from redlock._io.connections import CLOSED
from redlock._system import clock
from redlock.errors import RedlockError

if TYPE_CHECKING:
    from redlock._core.subscriptions import Subscription
    from redlock._io.host_threads import ThreadHost

_LONGEST_POLL = 3600.0
_PATIENCE, _MOST_PATIENCE = 0.03, 0.5  # seconds: a following thread sleeps so long before it checks that one reads
_LET_RUN = 0.005  # seconds for which the leading thread lets others run before it reads again


class Waiter:
    """A thread that asks masters, and waits for events.  See the top of this file."""

    subscription: Subscription | None = None
    wakes_next = False  # it has to wake the next thread on the chain
    _signal: Lock | None = None  # made on demand: most operations never follow

    def __init__(self, host: ThreadHost) -> None:
        self.events: deque[Event] = deque()
        self._host = host

    # -- asking, and waiting -------------------------------------------------------------------------

    def send(self, request: Send) -> None:
        """Write ``request`` to its masters.  Lead if no thread does: we are about to wait.

        If another thread leads and does not sit in poll(), leave the request to it.
        """
        host, place, leaves = self._host, request.enters, request.leaves
        connections = host.connections
        if place is not None:
            with process.brief.lock:
                if connections.closing:
                    raise RedlockError(CLOSED)
                may_ask = connections.local_queue.enter(place, self, clock.now())
            if not may_ask:
                return
        elif leaves is None:  # else the operation begins with it, and `Runtime.run` has checked
            process.check()
        leader = host.leader
        if leader is None or leader is self:
            with host.mutex:
                if connections.closing:
                    host.refuse(request, self)
                if host.asked:
                    host.write_asked()
                if host.leader is None:
                    host.leader = self
                connections.submit(request, self, clock.now())
        else:
            host.leave_to_leader(request, self)
        if leaves is not None:
            connections.leave(leaves)

    def wait(self, until: float, closes: Send | None = None, *, quiet: bool = False) -> Event:
        """See `OperationBase`.  A thread keeps the lead until its operation has ended: it is back in microseconds."""
        if quiet:
            return self._wait_quietly(until)
        host, events = self._host, self.events
        slept, patience = False, _PATIENCE
        while not events:
            now = clock.now()
            if host.leader is self:  # the usual case
                self._lead(until, now)
                if events:
                    break
            follows = host.leader is not self and self._join(impatient=slept)
            if host.connections.closing:
                host.refuse(closes, self)
            if now >= until:
                if closes is not None:
                    host.close_round(closes)
                return events.popleft() if events else Timeout(now)
            # `follows`: else we led, an impatient thread took the lead just now, and we have not prepared to sleep.
            if follows and host.leader is not self and not events:  # else the event came before we slept
                self._wake_next()
                slept = self.sleep(min(until - now, patience))
                patience = min(2 * patience, _MOST_PATIENCE)
        return events.popleft()

    def _wait_quietly(self, until: float) -> Event:
        self.stop_waiting()
        while True:
            self.prepare_to_sleep()
            if self.events:
                return self.events.popleft()
            if self._host.connections.closing:
                raise RedlockError(CLOSED)
            now = clock.now()
            if now >= until:
                return Timeout(now)
            self._wake_next()
            self.sleep(min(until - now, clock.NAP))

    def stop_waiting(self) -> None:
        """It neither leads nor follows any more.  If others wait, one of them leads now."""
        host = self._host
        if host.followers:
            host.followers.pop(self, None)
        if host.leader is self:
            with host.mutex:
                if host.leader is self:
                    host.leader = None
                    if host.followers:  # no call without need: this is the hottest place
                        self._choose_leader()
                    if host.asked or host.connections.corked:  # for threads that relied on us to write it
                        host.write_asked()
                    if host.served:
                        self.wakes_next = True  # it was the reader
        self._signal = None  # it will not sleep again without `prepare_to_sleep`
        if self.wakes_next:
            self._wake_next()

    # -- leading and following -----------------------------------------------------------------------

    def _lead(self, until: float, now: float) -> None:
        """Read for all threads until there is an event for us, or until ``until``."""
        host, events, connections = self._host, self.events, self._host.connections
        while True:
            if host.served:
                now = self._let_others_ask(until - now)
                if events:
                    return
            left = until - now
            if left <= 0:
                return
            host.polling = get_ident()  # from now on no thread relies on us to write
            try:
                if host.asked or connections.corked:  # no call without need: this is the hottest place
                    host.flush()
                if events:  # an event came before its sender could see that we poll; or no master could be asked
                    return
                # poll() counts whole milliseconds and rounds down.  One more, or this would spin at the end.
                ready = host.poll.poll(left * 1000 + 1 if left < _LONGEST_POLL else _LONGEST_POLL * 1000)
            except RuntimeError:
                # A thread that led before is still inside poll(), and reads for us, too.
                self.prepare_to_sleep()
                self.sleep(_PATIENCE)
                return
            finally:
                host.polling = 0
            if not process.usual[0] and process.notice():  # a signal handler has forked
                return
            with host.mutex:
                now = clock.now()  # in here: no request may be written between this time and the read
                try:
                    host.reader = self  # threads that get events go on the chain
                    connections.read_ready(ready, now)
                finally:
                    host.reader = None
            if events or host.leader is not self or connections.closed:
                return

    def _let_others_ask(self, left: float) -> float:
        """Let the threads with events run; returns the time.  Most ask again, and all that leaves in one packet."""
        served = self._host.served
        several = len(served) > 1
        if several:
            self.prepare_to_sleep()
            served.append(self)
        self.let_others_run()
        if several:
            self.sleep(max(0.0, min(_LET_RUN, left)))
            self._signal = None
        return clock.now()

    def let_others_run(self) -> None:
        """Let the threads run for which we have read: we shall do something else for a while."""
        if self._host.served:
            self.wakes_next = True
            self._wake_next()

    def _join(self, *, impatient: bool) -> bool:
        """Lead, if no thread leads, or the leading one does not read; else follow. Returns whether it follows."""
        host = self._host
        if host.leader is not None and not impatient:
            if self.events:
                return False
            self._follow()
            # A thread that stops leading first says so, and then looks for followers.
            if host.leader is not None:
                return True
        with host.mutex:
            if host.leader is None or (impatient and not host.polling):
                host.connections.mend_walk(clock.now())  # the thread that led before may have been interrupted
                host.leader = self
                host.followers.pop(self, None)
                return False
            if not self.events:
                self._follow()
            return True

    def _follow(self) -> None:
        self.prepare_to_sleep()
        self._host.followers[self] = None

    def _choose_leader(self) -> None:
        """Make a following thread lead.  With the mutex held."""
        host = self._host
        host.connections.mend_walk(clock.now())  # we may have been interrupted
        if host.connections.closing:  # each that wakes leads or follows by itself, and is refused there (R11)
            host.served.extend(list(host.followers))
            return
        while host.leader is None and (followers := list(host.followers)):
            # Prefer a thread that has to wait anyway.
            successor = next((waiter for waiter in followers if not waiter.events), followers[0])
            host.leader = successor
            if host.followers.pop(successor, self) is self:  # it has just stopped following
                host.leader = None
            else:
                # Behind those that have events: their next requests then leave in one packet.
                host.served.append(successor)

    # -- sleeping and waking -------------------------------------------------------------------------

    def prepare_to_sleep(self) -> None:
        """Call this before `wake` can find the waiter: from now on no wake-up is missed."""
        if self._signal is None:
            self._signal = Lock()
        self._signal.acquire(blocking=False)

    def sleep(self, seconds: float) -> bool:
        """Sleep until `wake`, for ``seconds`` at most.  True if no thread woke us."""
        assert self._signal is not None  # noqa: S101 - prepare_to_sleep() came first
        return not self._signal.acquire(timeout=seconds)

    def put(self, event: Event) -> None:
        """Add ``event``.  Wake the thread, or put it on the chain."""
        self.events.append(event)
        reader = self._host.reader
        if reader is None:
            self.wake()
        elif reader is not self:
            self._host.served.append(self)

    def poke(self) -> None:
        self.events.append(Turn(clock.now()))
        self.wake()

    def wake(self) -> bool:
        """Wake the thread for its events.  False: it is awake or in poll(), and takes them anyway."""
        signal, host = self._signal, self._host
        if signal is not None and signal.locked():
            with contextlib.suppress(RuntimeError):  # another thread woke it just now
                signal.release()
                return True
        if host.polling and host.leader is self:
            host.lead_waker.wake()
        return False

    def _wake_next(self) -> None:
        """If it is our task, wake the next sleeping thread on the chain, which has to wake the one after it."""
        if not self.wakes_next:
            return
        self.wakes_next = False
        served = self._host.served
        while served:
            try:
                waiter = served.popleft()
            except IndexError:  # another thread was faster
                return
            waiter.wakes_next = True
            if waiter.wake():
                return
            waiter.wakes_next = False
