"""All connections of one `Masters`, shared by all its locks and threads.

A round runs in the caller's thread, without a hand-over to another one: that thread writes to all masters and polls
them all.  When several threads wait, one of them leads: it reads for all of them, and wakes each thread whose answers
have come.  When it has its own answers it hands the lead to one that follows.  A following thread takes no lock: it
leaves its requests to the leading thread.  The `Housekeeper` does what no caller does: it connects, reads late
answers and sends owed releases.

Why following threads take no lock.  At each call of the kernel the leading thread lets other threads run.  If they
needed its mutex they would all stop there, one behind the other: a convoy, with fifteen switches of threads for one
acquire and release.  So a following thread notes its request in one step, and in another one that it waits.  Then it
looks whether a thread still leads.  Threads whose rounds are decided wake one after the other (see `WakeChain`).  The
leading thread lets them run before it reads again, and their next requests leave in one packet.  That takes two to
three switches, and 64 threads get twice as much done.

An interruption may stop the leading thread where no `finally` helps.  Then another thread takes the lead after nobody
has read for a while.

Also considered: the leading thread steps the operations of all threads, as an event loop does.  But then a Ctrl-C in
the main thread, or a user's retry strategy, would strike in the middle of another thread's operation.
"""

from __future__ import annotations

import select
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from redlock import _clock
from redlock._base.connections import CLOSED, ConnectionsBase
from redlock._core.effects import Leave, Listen, Send, Timeout, Turn, Wait, WokenBy
from redlock._core.outcomes import NEVER
from redlock._threads.wake_chain import WakeChain
from redlock._threads.waker import Waker
from redlock.errors import RedlockError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redlock._base.connection import Connection
    from redlock._base.stream import Stream
    from redlock._connect import Endpoint
    from redlock._core.effects import Effect, Event, LocalEffect
    from redlock._core.local_queue import Place
    from redlock._core.voters import Voters
    from redlock._threads.renewer import RenewalOperation
    from redlock._threads.waiter import Waiter

_LONGEST_POLL = 3600.0
_NAP = 1.0  # the longest sleep, in seconds: its clock stands still while the machine sleeps (R5)
# How long a following thread sleeps without an event before it looks whether anybody reads, in seconds: first, and at
# most.
_PATIENCE, _MOST_PATIENCE = 0.03, 0.5
_LET_RUN = 0.005  # seconds; the leading thread lets others run for so long before it reads again
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


class Connections(ConnectionsBase[ThreadInbox]):
    """The connections to all masters, and the threads that read from them.

    ``mutex`` guards the connections, their pipelines, and which thread leads.  Nothing blocks while it is held.  But
    every call of the kernel lets other threads run, which then wait for it.  So following threads do not take it.
    They change ``_asked`` and ``_followers`` in single steps, and in this order: first a thread notes what it wants,
    then it looks whether another thread leads and will see that.
    """

    def __init__(self, endpoints: Sequence[Endpoint], voters: Voters, node_timeout: float) -> None:
        super().__init__(endpoints, voters, node_timeout)
        self.mutex = threading.Lock()
        self.watch = select.poll()  # the housekeeper's: hang-ups only, so answers do not wake it
        self.dozing = False  # the housekeeper sleeps until it is woken
        self.waker = Waker()  # wakes the housekeeper
        self.watch.register(self.waker.fd, select.POLLIN)
        self._poll = select.poll()  # the leading thread's
        self._lead_waker = Waker()  # wakes the leading thread
        self._poll.register(self._lead_waker.fd, select.POLLIN)
        self._leader: Waiter | None = None
        self._followers: dict[Waiter, None] = {}  # oldest first
        self._polling = False
        self._asked: deque[Asked] = deque()  # to be written in this order
        self.wake_chain = WakeChain()
        self._line = threading.Lock()  # guards the local queue; always taken last
        self.running: dict[Waiter, None] = {}  # the operations of callers
        self.closing = False  # nothing new begins; only releases are still sent

    # -- for the driver ------------------------------------------------------------------------------

    def perform(self, effect: Effect, waiter: Waiter) -> Event | None:
        """Carry out ``effect``.  Returns what its operation is resumed with."""
        if isinstance(effect, Send):
            self.send(effect, waiter)
            if effect.wait_for is None or effect.sent_at == NEVER:
                return None
            until = effect.sent_at + effect.wait_for
            if self._leader is waiter:  # the usual case
                self._lead(until, waiter, effect.sent_at)
            return waiter.events.popleft() if waiter.events else self.wait(until, effect, waiter)
        if isinstance(effect, Wait):
            if waiter.events:
                return waiter.events.popleft()
            if effect.quiet:
                return self.wait_quietly(effect.until, waiter)
            return self.wait(effect.until, effect.closes, waiter)
        self.perform_local(effect, waiter)
        return None

    def send(self, request: Send, waiter: Waiter) -> None:
        """Write ``request`` to its masters.  Lead if no thread does: the caller is about to wait.

        If another thread leads and does not sit in poll(), leave the request to it.  It writes the requests of all
        threads before it goes to poll(), and once more when it stops leading.
        """
        place = request.enters
        if place is not None:
            with self._line:
                if self.closing:
                    raise RedlockError(CLOSED)
                self._enter(place, waiter)
            if not place.may_ask:
                return
        leader = self._leader
        if leader is None or leader is waiter:
            with self.mutex:
                if self.closing:
                    self._refuse_to_send(request)
                if self._asked:
                    self._flush()
                if self._leader is None:
                    self._leader = waiter
                self._submit(request, waiter, _clock.now())
        else:
            self._leave_to_leader(request, waiter)
        if request.leaves is not None:
            self._leave_line(request.leaves)

    def _leave_to_leader(self, request: Send, waiter: Waiter) -> None:
        if self.closing:
            self._refuse_to_send(request)
        now = request.sent_at = _clock.now()
        self._asked.append(Asked(request, waiter, now, request.open))
        if self._polling or self._leader is None:
            self.flush()

    def _refuse_to_send(self, request: Send) -> None:
        """Raise RedlockError, unless ``request`` is a release, which has to arrive."""
        if self.closed or request.owed_until is None:
            raise RedlockError(CLOSED)

    def _refuse_to_wait(self, request: Send | None, waiter: Waiter) -> None:
        """Raise RedlockError, unless ``waiter`` waits for a release, or is not a caller's."""
        if self.closed or (waiter in self.running and (request is None or request.owed_until is None)):
            raise RedlockError(CLOSED)

    def cork(self, request: Send, operation: RenewalOperation) -> None:
        """Have ``request`` written by the next `flush`, or together with what another thread writes."""
        with self.mutex:
            if self.closed:
                raise RedlockError(CLOSED)
            self._take_over()
            self._submit(request, operation, _clock.now(), corked=True)

    def perform_local(self, effect: LocalEffect, waiter: ThreadInbox) -> None:
        """Carry out an effect that needs no master."""
        if isinstance(effect, Leave):
            self._leave_line(effect.place, effect.stays)
            return
        if isinstance(effect, WokenBy):
            effect.stop.wakes(effect, partial(self.poke, waiter))
            return
        with self.mutex if isinstance(effect, Listen) else self._line:
            if self.closing and isinstance(effect, Listen):
                raise RedlockError(CLOSED)
            self._perform_local(effect, waiter)

    def _leave_line(self, place: Place, stays: bool = False) -> None:
        with self._line:
            woken = self._leave(place, stays)
        for inbox in woken:
            self.wake(inbox)

    def flush(self) -> None:
        """Hand to the kernel what following threads have asked for, and what was corked."""
        if self._asked or self._cork:
            with self.mutex:
                self._flush()

    def _take_over(self) -> None:
        """Submit what following threads have asked for, in their order.

        If this is interrupted, the next call goes on where it was.
        """
        asked = self._asked
        while asked:
            request, waiter, at, was_open = asked[0]
            # An attempt that is over must not be sent any more.  Its rollback was asked for as well, and will find
            # nothing.
            if request.open or not was_open or request.owed_until is not None:
                self._submit(request, waiter, at, corked=True)
            asked.popleft()

    def _flush(self) -> None:
        self._take_over()
        self._flush_cork(_clock.now())

    def wait(self, until: float, closes: Send | None, waiter: Waiter) -> Event:
        """The next event for ``waiter``; from ``until`` on a `Timeout`, and ``closes`` is told of no more answers.

        The leading thread keeps the lead until its operation is over: it is back here in microseconds.  An
        interruption may keep it from coming back.  So a following thread takes the lead when nobody has read for a
        while.
        """
        events = waiter.events
        slept, patience = False, _PATIENCE
        now = _clock.now()
        while not events:
            if self.closing:
                self._refuse_to_wait(closes, waiter)
            if self._leader is not waiter:
                self._join(waiter, impatient=slept)
            if now >= until:
                if closes is not None:
                    self.close_round(closes)
                return events.popleft() if events else Timeout(now)
            if self._leader is waiter:
                self._lead(until, waiter, now)
            elif not events:  # else it came before we slept
                self.wake_chain.pass_on(waiter)
                slept = waiter.sleep(min(until - now, patience))
                patience = min(2 * patience, _MOST_PATIENCE)
            if not events:
                now = _clock.now()
        return events.popleft()

    def _join(self, waiter: Waiter, *, impatient: bool) -> None:
        """Lead, if no thread leads or none reads; else follow."""
        if self._leader is not None and not impatient:
            if waiter.events:
                return
            self._follow(waiter)
            # A thread that stops leading first says so, and then looks for followers.
            if self._leader is not None:
                return
        with self.mutex:
            if self._leader is None or (impatient and not self._polling):
                self._leader = waiter
                self._followers.pop(waiter, None)
            elif not waiter.events:
                self._follow(waiter)

    def _follow(self, waiter: Waiter) -> None:
        waiter.prepare_to_sleep()
        self._followers[waiter] = None

    def close_round(self, request: Send) -> None:
        """From now on no thread tells ``request`` of answers."""
        with self.mutex:
            request.open = False

    def forget(self, waiter: Waiter) -> None:
        """``waiter`` neither leads nor follows any more.  If others wait, one of them leads now."""
        if self._followers:
            self._followers.pop(waiter, None)
        if self._leader is waiter:
            with self.mutex:
                if self._leader is waiter:
                    self._leader = None
                    if self._followers:  # no call without need: this is the hottest place
                        self._choose_leader()
                    if self._asked or self._cork:  # for threads that relied on us to write it
                        self._flush()
                    if self.wake_chain.served:
                        waiter.wakes_next = True  # it was the reader
        waiter.stay_awake()
        if waiter.wakes_next:
            self.wake_chain.pass_on(waiter)

    def _choose_leader(self) -> None:
        """Make a following thread lead.  With the mutex held."""
        while self._leader is None and (followers := list(self._followers)):
            # Prefer a thread that has to wait anyway.
            successor = next((waiter for waiter in followers if not waiter.events), followers[0])
            self._leader = successor
            if self._followers.pop(successor, self) is self:  # it has just stopped following
                self._leader = None
            else:
                # Behind those that have events: their next requests then leave in one packet.
                self.wake_chain.served.append(successor)

    def let_others_run(self, waiter: Waiter) -> None:
        """Let the threads run for which ``waiter`` has read: it will do something else for a while."""
        if self.wake_chain.served:
            waiter.wakes_next = True
            self.wake_chain.pass_on(waiter)

    def wait_quietly(self, until: float, waiter: Waiter) -> Event:
        """`wait` for an operation that waits for other threads: it does not read from the masters."""
        self.forget(waiter)
        while True:
            waiter.prepare_to_sleep()
            if waiter.events:
                return waiter.events.popleft()
            if self.closing:
                raise RedlockError(CLOSED)
            now = _clock.now()
            if now >= until:
                return Timeout(now)
            self.wake_chain.pass_on(waiter)
            waiter.sleep(min(until - now, _NAP))

    def wake(self, waiter: ThreadInbox) -> None:
        """Wake the operation to look at its events, wherever it waits."""
        if self._leader is waiter:
            self._lead_waker.wake()
        else:
            waiter.wake()

    def poke(self, waiter: ThreadInbox) -> None:
        """Have the operation look around.  Takes no lock, for a signal handler may call this in the middle of anything.

        The `Turn` means nothing: an operation that still has to wait does so again.
        """
        waiter.events.append(Turn(_clock.now()))
        self.wake(waiter)

    def finish(self, waiter: Waiter) -> None:
        """The operation of ``waiter`` is over.  The housekeeper reads the late answers to it."""
        self.forget(waiter)
        self.running.pop(waiter, None)
        if waiter.subscription is not None:
            with self.mutex:
                self.unlisten(waiter)
        if self.dozing:
            with self.mutex:  # which keeps `close` from closing the waker
                self._wake_housekeeper()

    def _lead(self, until: float, waiter: Waiter, now: float) -> None:
        """Read for all threads until there is an event for ``waiter``, or until ``until``."""
        events = waiter.events
        while not events and self._leader is waiter and not self.closed:
            if self.wake_chain.served:
                now = self._let_others_ask(waiter, until - now)
                if events:
                    return
            left = until - now
            if left <= 0:
                return
            self._polling = True  # from now on no thread relies on us to write
            try:
                if self._asked or self._cork:  # no call without need: this is the hottest place
                    self.flush()
                    if events:  # no master could be asked, which decides the round
                        return
                # poll() counts whole milliseconds and rounds down.  One more, or this would spin at the end.
                ready = self._poll.poll(min(left, _LONGEST_POLL) * 1000 + 1)
            except RuntimeError:
                # A thread that led before is still inside poll(), and reads for us, too.
                waiter.prepare_to_sleep()
                waiter.sleep(_PATIENCE)
                return
            finally:
                self._polling = False
            now = _clock.now()
            with self.mutex:
                try:
                    self.wake_chain.reader = waiter  # threads that get events go on the chain
                    self._read_ready(ready, now)
                finally:
                    self.wake_chain.reader = None

    def _let_others_ask(self, waiter: Waiter, left: float) -> float:
        """Let the threads with events run; returns the time.  Most ask again, and all that leaves in one packet."""
        served = self.wake_chain.served
        several = len(served) > 1
        if several:
            waiter.prepare_to_sleep()
            served.append(waiter)
        self.let_others_run(waiter)
        if several:
            waiter.sleep(max(0.0, min(_LET_RUN, left)))
            waiter.stay_awake()
        return _clock.now()

    def mend(self) -> None:
        """Close the connections that an interruption has torn, so that they are made again."""
        with self.mutex:
            now = _clock.now()
            self._mend_walk(now)
            for connection in self.all:
                if connection.poisoned:
                    self._read(connection, now)

    # -- for the housekeeper, with the mutex held ----------------------------------------------------

    def look(self, connection: Connection, now: float) -> None:
        """Read what has arrived, unless a caller is reading anyway."""
        if not self._polling or connection.poisoned:
            self._read(connection, now)

    def hung_up(self, fd: int, now: float) -> None:
        connection = self._streams.get(fd)
        if connection is not None:
            self._read(connection, now)

    def begin_to_close(self) -> None:
        """From now on operations only end: they roll back, and releases are still sent and waited for."""
        with self.mutex:
            self.closing = True
        for waiter in list(self.running):
            self.poke(waiter)  # it waits again, which is refused

    def close(self) -> None:
        """Close every descriptor.  Operations under way fail."""
        with self.mutex:
            self.closing = True
            self.hang_up()
            for follower in list(self._followers):
                follower.wake()
            with self._line:
                waiting = self.local_queue.waiting()
            for place in waiting:
                place.inbox.wake()
            self._lead_waker.wake()
            self._lead_waker.close()
            self.waker.close()

    def disown(self) -> None:
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

    def _in_debt(self, connection: Stream) -> None:  # noqa: ARG002 - the housekeeper looks at all of them
        if self.dozing:
            self._wake_housekeeper()

    def _watch(self, connection: Stream) -> None:
        self._poll.register(connection.fd, select.POLLIN)
        self.watch.register(connection.fd, _HANGUP)
        self._lead_waker.wake()

    def _unwatch(self, connection: Stream) -> None:
        fd = connection.fd
        if self._streams.get(fd) is connection:  # else, after an interruption, it may be another one's
            del self._streams[fd]
            self._poll.unregister(fd)
            self.watch.unregister(fd)

    def _watch_room(self, connection: Stream, *, wanted: bool) -> None:
        self._poll.modify(connection.fd, select.POLLIN | select.POLLOUT if wanted else select.POLLIN)
        if wanted and self._polling:
            # The thread in poll() still asks for what was wanted when it went there.
            self._lead_waker.wake()

    def _wake_housekeeper(self) -> None:
        self.dozing = False
        self.waker.wake()

    def _want_subscribers(self) -> None:
        self._wake_housekeeper()

    def _lost(self, connection: Stream) -> None:  # noqa: ARG002 - the housekeeper looks at all of them
        self._wake_housekeeper()
        if self._polling:
            # The leading thread may have lost a vote with this connection, and no hang-up tells it.
            self._lead_waker.wake()
