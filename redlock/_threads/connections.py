"""All connections of one `Masters`, shared by all its locks and threads.

A round runs in the caller's thread: it writes to all masters and polls them all, without a hand-over
to another thread.  When several threads wait, one of them leads: it reads for everybody and wakes
whose answer came; when it has its own it hands the lead to one of those who follow.  Those take no lock:
they leave what they ask to whoever leads.  What no caller does, connecting and late answers and owed
releases, is the business of the `Housekeeper`.

Why those who follow take no lock.  Each call of the kernel that the leader makes lets other threads run.  If
they needed its mutex they would stop there, one behind the other: a convoy, with fifteen switches of threads
for one acquire and release.  So they note in one step what they ask, and in one step that they wait.  Then they
look whether the leader is still there.  Those whose rounds are decided wake one after the other (see `WakeChain`).
The leader lets them run before it reads again, and what they ask next leaves in one packet.  That is two to
three switches, and twice as much done by 64 threads.

If the leader was interrupted where no `finally` helps, another thread takes the lead when nobody has read for a
while.

Also considered: the leader takes the steps of all operations, as an event loop does.  But then a Ctrl-C in the
main thread, or a user's retry strategy, would strike in the middle of what another thread asked for.
"""

from __future__ import annotations

import select
import threading
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from redlock import _clock
from redlock._base.connections import CLOSED, ConnectionsBase
from redlock._core.effects import Enter, Listen, Timeout, Turn
from redlock._threads.wake_chain import WakeChain
from redlock._threads.waker import Waker
from redlock.errors import RedlockError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from redlock._base.connection import Connection
    from redlock._base.stream import Stream
    from redlock._connect import Endpoint
    from redlock._core.effects import Event, LocalEffect, Send, Wait
    from redlock._core.voters import Voters
    from redlock._threads.renewer import RenewalOperation
    from redlock._threads.waiter import Waiter

_LONGEST_POLL = 3600.0
_NAP = 1.0  # how long one sleeps at most: the clock of a sleep stands still while the machine does (R5)
# How long one follows without hearing from the one who leads, in seconds: at first, and in the end.
_PATIENCE, _MOST_PATIENCE = 0.03, 0.5
_LET_RUN = 0.005  # how long whoever leads lets others run before it reads again, in seconds
# "The other side has hung up" without "there is something to read": Linux has a name for it; elsewhere
# a hang-up is reported whatever one asks for.
_HANGUP: int = getattr(select, "POLLRDHUP", 0)


ThreadInbox: TypeAlias = "Waiter | RenewalOperation"


class Asked(NamedTuple):
    """What one who follows wants to be written."""

    request: Send
    waiter: ThreadInbox
    at: float
    open: bool  # somebody counted the answers then
    to: list[Connection[ThreadInbox]]  # those that do not know of it yet


class Connections(ConnectionsBase[ThreadInbox]):
    """The connections to all masters, and who reads them.

    ``mutex`` guards the connections, their pipelines and who leads.  Nothing blocks while it is held; but every
    call of the kernel lets other threads run, who then wait for it.  So who follows does without it:
    ``_asked`` and ``_followers`` are changed in single steps, and each who relies on somebody else to look
    at them says what it wants first, and looks whether there is somebody afterwards.
    """

    def __init__(self, endpoints: Sequence[Endpoint], voters: Voters, node_timeout: float) -> None:
        super().__init__(endpoints, voters, node_timeout)
        self.mutex = threading.Lock()
        self.watch = select.poll()  # of the housekeeper: hang-ups only, so that answers do not wake it
        self.dozing = False  # the housekeeper sleeps until somebody wakes it
        self.waker = Waker()  # for the housekeeper
        self.watch.register(self.waker.fd, select.POLLIN)
        self._poll = select.poll()  # of whoever leads
        self._lead_waker = Waker()  # there is one more connection to read from
        self._poll.register(self._lead_waker.fd, select.POLLIN)
        self._by_fd: dict[int, Stream] = {}
        self._leader: Waiter | None = None
        self._followers: dict[Waiter, None] = {}  # in the order in which they came
        self._polling = False
        self._asked: deque[Asked] = deque()  # in the order in which it has to be written
        self._to_flush: list[Stream] = []
        self.wake_chain = WakeChain()
        self._line = threading.Lock()  # of the line in front of the masters; the last one to be taken
        self.running: dict[Waiter, None] = {}  # the operations of callers
        self.closing = False  # nothing begins any more, and only what is given back is taken

    # -- for the driver ------------------------------------------------------------------------------

    def send(self, request: Send, waiter: Waiter) -> None:
        """Write ``request`` to its masters, and lead if nobody does: who asks is about to wait.

        While somebody else leads and does not sit in poll() it is left to that: whoever leads writes before
        it goes to poll(), and when it stops leading, what all the others have asked meanwhile.
        """
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
            return
        if self.closing:
            self._refuse_to_send(request)
        now = request.sent_at = _clock.now()
        self._asked.append(Asked(request, waiter, now, request.open, list(self._receivers(request))))
        if self._polling or self._leader is None:
            self.flush()

    def _refuse_to_send(self, request: Send) -> None:
        """Unless it has to arrive."""
        if self.closed or request.owed_until is None:
            raise RedlockError(CLOSED)

    def _refuse_to_wait(self, effect: Wait, waiter: Waiter) -> None:
        """Unless it is a release that is waited for, or the wait of a thread of ours."""
        request = effect.closes
        if self.closed or (waiter in self.running and (request is None or request.owed_until is None)):
            raise RedlockError(CLOSED)

    def cork(self, request: Send, operation: RenewalOperation) -> None:
        """Write ``request`` with `flush`, or with what somebody else writes."""
        with self.mutex:
            if self.closed:
                raise RedlockError(CLOSED)
            self._take_over()
            self._submit(request, operation, _clock.now(), self._to_flush)

    def perform_local(self, effect: LocalEffect, waiter: ThreadInbox) -> None:
        """Do what concerns no master."""
        with self.mutex if type(effect) is Listen else self._line:
            if self.closing and type(effect) in (Enter, Listen):
                raise RedlockError(CLOSED)
            woken = self._perform_local(effect, waiter)
        for inbox in woken:
            self.wake(inbox)

    def flush(self) -> None:
        """Hand to the kernel what was asked by those who follow, and what was corked."""
        if self._asked or self._to_flush:
            with self.mutex:
                self._flush()

    def _take_over(self) -> None:
        """Submit what those who follow have asked, in their order.

        If this is interrupted, whoever comes next goes on where it was.
        """
        asked = self._asked
        while asked:
            request, waiter, at, was_open, to = asked[0]
            # An attempt that is over must not be made; what was asked to take it back finds nothing.
            if request.open or not was_open or request.owed_until is not None:
                self._submit(request, waiter, at, self._to_flush, _dwindling(to))
                if was_open and not request.open:
                    waiter.put(request)  # masters that are down have decided it
            asked.popleft()

    def _flush(self) -> None:
        self._take_over()
        now = _clock.now()
        for connection in self._to_flush:
            self._push(connection, now)
        self._to_flush.clear()

    def wait(self, effect: Wait, waiter: Waiter) -> Event:
        """The next event for ``waiter``, or `Timeout`.

        Who leads goes on leading until its operation is over: it is back here in microseconds.  Unless
        it was interrupted in just the wrong moment, and never comes; so after a while of nobody reading
        whoever follows takes the lead.
        """
        if effect.quiet:
            return self._wait_quietly(effect.until, waiter)
        events, until = waiter.events, effect.until
        slept, patience = False, _PATIENCE
        now = _clock.now()
        while not events:
            if self.closing:
                self._refuse_to_wait(effect, waiter)
            if self._leader is not waiter:
                self._join(waiter, impatient=slept)
            if now >= until:
                if effect.closes is not None:
                    self.close_round(effect.closes)
                return events.popleft() if events else Timeout(now)
            if self._leader is waiter:
                self._lead(until, waiter, now)
            elif not events:  # else it came before we could be woken
                self.wake_chain.pass_on(waiter)
                slept = waiter.sleep(min(until - now, patience))
                patience = min(2 * patience, _MOST_PATIENCE)
            if not events:
                now = _clock.now()
        return events.popleft()

    def _join(self, waiter: Waiter, *, impatient: bool) -> None:
        """Lead, if nobody does or nobody reads; else follow."""
        if self._leader is not None and not impatient:
            if waiter.events:
                return
            self._follow(waiter)
            if self._leader is not None:  # who stops leading says so first, and then looks who follows
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
        """From now on no thread tells it of answers."""
        with self.mutex:
            request.open = False

    def forget(self, waiter: Waiter) -> None:
        """``waiter`` neither leads nor follows any more; somebody else leads if somebody waits."""
        if self._followers:
            self._followers.pop(waiter, None)
        if self._leader is waiter:
            with self.mutex:
                if self._leader is waiter:
                    self._leader = None
                    if self._followers:  # none of these calls for nothing: this is the hottest place
                        self._choose_leader()
                    if self._asked or self._to_flush:  # by who thought that we would write it
                        self._flush()
                    waiter.wakes_next = bool(self.wake_chain.served)  # it has read, and wakes the next one now
        waiter.stay_awake()
        if waiter.wakes_next:
            self.wake_chain.pass_on(waiter)

    def _choose_leader(self) -> None:
        """One of those who follow.  With the mutex held."""
        while self._leader is None and (followers := list(self._followers)):
            # Rather one who has to wait anyway.
            successor = next((waiter for waiter in followers if not waiter.events), followers[0])
            self._leader = successor
            if self._followers.pop(successor, self) is self:  # its operation was over just now
                self._leader = None
            else:
                self.wake_chain.served.append(successor)  # behind them: what they ask next leaves in one packet

    def let_others_run(self, waiter: Waiter) -> None:
        """Those whom ``waiter`` has served: it has read for all, and does something else for a while."""
        if self.wake_chain.served:
            waiter.wakes_next = True
            self.wake_chain.pass_on(waiter)

    def _wait_quietly(self, until: float, waiter: Waiter) -> Event:
        """The same for one who waits for other threads: it leaves the masters to those who ask them."""
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
        """Let it look at its events, whatever it is waiting for."""
        if self._leader is waiter:
            self._lead_waker.wake()
        else:
            waiter.wake()

    def finish(self, waiter: Waiter) -> None:
        """The operation of ``waiter`` is over; late answers to it are the housekeeper's business."""
        self.forget(waiter)
        self.running.pop(waiter, None)
        if waiter.subscription is not None:
            with self.mutex:
                self.unlisten(waiter)
        if self.dozing:
            with self.mutex:  # under it nobody closes the waker
                self._wake_housekeeper()

    def _lead(self, until: float, waiter: Waiter, now: float) -> None:
        """Read for everybody until there is an event for ``waiter``, or ``until``."""
        events = waiter.events
        while self._leader is waiter and not events and not self.closed:
            if self.wake_chain.served:
                now = self._let_others_ask(waiter, until - now)
                if events:
                    return
            left = until - now
            if left <= 0:
                return
            self._polling = True  # from now on nobody relies on us to
            try:
                if self._asked or self._to_flush:  # not a call for nothing: this is the hottest place
                    self.flush()
                    if events:  # no master could be asked
                        return
                # poll() counts whole milliseconds and rounds down: one more, or it would spin at the end
                ready = self._poll.poll(min(left, _LONGEST_POLL) * 1000 + 1)
            except RuntimeError:  # somebody who led before is still at it, and reads for us, too
                waiter.prepare_to_sleep()
                waiter.sleep(_PATIENCE)
                return
            finally:
                self._polling = False
            now = _clock.now()
            with self.mutex:
                self._read_all(ready, waiter, now)

    def _read_all(self, ready: list[tuple[int, int]], reader: Waiter, now: float) -> None:
        """For everybody; who is served wakes in its turn."""
        try:
            self.wake_chain.reader = reader
            for fd, _ in ready:
                connection = self._by_fd.get(fd)
                if connection is not None:
                    self._read(connection, now)
                elif fd == self._lead_waker.fd:
                    self._lead_waker.drain()
        finally:
            self.wake_chain.reader = None

    def _let_others_ask(self, waiter: Waiter, left: float) -> float:
        """Let those run who were served: most will ask something, and what they ask leaves in one packet.  Returns the time."""
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
        """Give up the connections that an interruption has torn, so that they are made again."""
        with self.mutex:
            now = _clock.now()
            for connection in self.all:
                if connection.poisoned:
                    self._read(connection, now)

    # -- for the housekeeper, with the mutex held ----------------------------------------------------

    def look(self, connection: Connection[ThreadInbox], now: float) -> None:
        """Read what has arrived, unless a caller does it anyway."""
        if not self._polling or connection.poisoned:
            self._read(connection, now)

    def hung_up(self, fd: int, now: float) -> None:
        connection = self._by_fd.get(fd)
        if connection is not None:
            self._read(connection, now)

    def begin_to_close(self) -> None:
        """From now on operations only end: they take back what they have asked for, and what they release is waited for."""
        with self.mutex:
            self.closing = True
        now = _clock.now()
        for waiter in list(self.running):
            waiter.events.append(Turn(now))  # says nothing: it goes on to wait, which is refused
            self.wake(waiter)

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

    def _in_debt(self, connection: Stream) -> None:  # noqa: ARG002 - the housekeeper looks at all of them
        if self.dozing:
            self._wake_housekeeper()

    def _watch(self, connection: Stream) -> None:
        self._by_fd[connection.fd] = connection
        self._poll.register(connection.fd, select.POLLIN)
        self.watch.register(connection.fd, _HANGUP)
        self._lead_waker.wake()

    def _unwatch(self, connection: Stream) -> None:
        fd = connection.fd
        if self._by_fd.get(fd) is connection:  # not that of a connection that got the number after an interruption
            del self._by_fd[fd]
            self._poll.unregister(fd)
            self.watch.unregister(fd)

    def _watch_room(self, connection: Stream, *, wanted: bool) -> None:
        self._poll.modify(connection.fd, select.POLLIN | select.POLLOUT if wanted else select.POLLIN)
        if wanted and self._polling:
            self._lead_waker.wake()  # who sits in poll() asks for what was wanted when it began to

    def _wake_housekeeper(self) -> None:
        self.dozing = False
        self.waker.wake()

    def _want_subscribers(self) -> None:
        self._wake_housekeeper()

    def _lost(self, connection: Stream) -> None:  # noqa: ARG002 - the housekeeper looks at all of them
        self._wake_housekeeper()
        if self._polling:
            self._lead_waker.wake()  # who leads may have lost its vote here, and is not told by a hang-up

    def _tell(self) -> None:
        """Whoever waits for a connection looks now and then: see `Housekeeper.wait_until_decided`."""


def _dwindling(to: list[Connection[ThreadInbox]]) -> Iterator[Connection[ThreadInbox]]:
    """Each of them; ``to`` keeps those that are not done with yet."""
    while to:
        yield to[-1]
        to.pop()
