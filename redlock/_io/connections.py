"""All connections to the masters of one deployment: of one `Masters`, or of one event loop."""

from __future__ import annotations

import contextlib
import logging
import math
from typing import TYPE_CHECKING, Any

from redlock import _connect
from redlock._core.effects import Leave, LookAhead, Notified, ReleaseHeard, Send, Turn, WakeBehind, WakeOnStop
from redlock._core.exchange import Exchange
from redlock._core.kernel.quorum import majority
from redlock._core.local_queue import LocalQueue, Place
from redlock._core.outcomes import NEVER, Failure
from redlock._core.retry import BESIDE_A_SILENT_ONE, BETWEEN_CONNECTIONS, delay
from redlock._core.subscriptions import LINGER, Subscription, Subscriptions
from redlock._io.process import brief
from redlock._io.stream import Connection, Stream, Subscriber
from redlock._system import clock
from redlock.errors import RedlockError

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from redlock._connect import Endpoint
    from redlock._core.effects import LocalEffect
    from redlock._core.pipeline import Pipeline
    from redlock._core.protocols import LineInbox
    from redlock._core.settings import MastersSettings
    from redlock._core.voters import Facts
    from redlock._io.announcer import Announcer
    from redlock._io.port import Listener, Sockets
    from redlock._io.report import Reports

TICK = 0.1  # seconds; the longest that a late answer or an owed release waits
CLOSED = "these Masters were closed"
INSIDE = (
    "a finalizer or a signal handler interrupted this thread in the middle of a call of these Masters, and they "
    "cannot be used in it before that call has ended: do it later, or in another thread"
)
_SILENT = 3  # times `node_timeout`: a connection that owes an answer for longer may be dead
_LASTED = 1.0  # seconds; a connection that lasted longer is made again without a pause
_SAME = 0.001  # seconds; two sums that differ by less are equal

_NOBODY: Any = None  # waits for the answer


class Inside(RedlockError):  # noqa: N818 - users know it as a `RedlockError`
    """The calling thread is in the middle of these masters already, and has been interrupted there."""


class Connections(Exchange):
    """Sends requests, reads answers, and notices what breaks: the slow path of an `Exchange`.

    Only one thread at a time may be in here: threads hold the mutex of their ``port``, tasks share a loop.
    """

    def __init__(self, endpoints: Sequence[Endpoint], settings: MastersSettings, port: Sockets) -> None:
        self.all = [Connection(master, target, settings.node_timeout) for master, target in enumerate(endpoints)]
        self.voters = settings.voters
        super().__init__([connection.pipeline for connection in self.all], self.voters.votes_from, _connect.pack)
        self.subscribers = [Subscriber(master, target, self._hear) for master, target in enumerate(endpoints)]
        self.streams: list[Stream] = [*self.all, *self.subscribers]
        self.readers: dict[int, Any] = {}  # by descriptor: each `Stream`, and the `Waker` of each reading thread
        self.local_queue = LocalQueue()
        self.subscriptions = Subscriptions(len(endpoints))
        self.announcer: Announcer | None = None  # tells them our max_ttl (R21) and our list (R34)
        self.reports: Reports = []  # what happened, for the background to report once it holds no mutex
        self.closing = self.closed = False  # closing: nothing new begins; only releases are still sent
        self.patience = _SILENT * settings.node_timeout
        self.port = port

    # -- the line in front of the masters ------------------------------------------------------------

    def leave(self, place: Place, stays: bool = False) -> None:
        """Leave the line, or stay as a reader, and wake the operations whose turn it is now."""
        with brief.lock:
            turns = self.local_queue.leave(place, stays)
            if not turns:
                return
            now = clock.now()
            for other in turns:
                self.local_queue.set_yield_until(other, now, turn=True)
            inboxes = self._give_turns(turns, now)
        for inbox in inboxes:
            inbox.wake()

    @staticmethod
    def _give_turns(places: Sequence[Place], now: float) -> list[LineInbox]:
        # A place without an inbox found its turn by itself.
        inboxes: list[LineInbox] = [place.inbox for place in places if place.inbox is not None]
        for inbox in inboxes:
            inbox.events.append(Turn(now))
        return inboxes

    def _tear(self, pipeline: Pipeline) -> None:
        self.all[pipeline.master].pick_up()

    def _send_slowly(self, pipeline: Pipeline, requests: list[Send], data: bytes, now: float) -> None:
        connection = self.all[pipeline.master]
        if connection.poisoned or pipeline.overdue(now):
            # The master was silent for long.  Or our own process was stopped, and the answers are here.
            self._read_stream(connection, now)
        connection.pick_up()
        written = [request for request in requests if pipeline.submit(request, now)]
        if written:
            whole = len(written) == len(requests) and not pipeline.odd
            packet = data if whole else b"".join([_connect.pack(pipeline.words(request.call)) for request in written])
            self._write(connection, packet, now)
        connection.put_down()

    def _sent_a_part(self, pipeline: Pipeline, data: bytes, sent: int | OSError, now: float) -> None:
        connection = self.all[pipeline.master]
        connection.pick_up()
        self._write(connection, data, now, sent)
        connection.put_down()

    def _write(self, connection: Stream, data: bytes, now: float, sent: int | OSError | None = None) -> None:
        try:
            connection.write(data, sent)
        except OSError as error:
            self.detach(connection, error, now)
        if connection.backlog:
            self.port.watch_room(connection, wanted=True)

    def send_owed(self, connection: Connection, now: float) -> None:
        self.mend_walk(now)
        if connection.poisoned:
            self.read(connection, now)
        connection.pick_up()
        for owed in connection.pipeline.due(now):
            if connection.pipeline.down is None:  # else the write before broke the connection: releases are owed again
                self._write(connection, _connect.pack(connection.pipeline.words(owed.request.call)), now)
        if connection.pipeline.in_debt:  # some releases are to be sent again later
            self.port.tick_at(now + TICK)
        connection.put_down()

    def owe(self) -> bool:
        """Whether a release has still to be sent to any master, or confirmed by one."""
        # Of a list: a Ctrl-C inside a generator would break it.
        return any([connection.pipeline.owes for connection in self.all])  # noqa: C419

    def hurry(self) -> None:
        """Where a release is owed, connect now: the end is near, and the master may be back (R11, P7)."""
        for connection in self.all:
            if connection.sock is None and connection.pipeline.owes:
                connection.retry_at = -math.inf

    def read(self, connection: Stream, now: float) -> None:
        self.read_ready(((connection.fd, 0),), now)

    def _read_stream(self, stream: Stream, now: float, data: bytes | OSError | None = None) -> None:
        try:
            if stream.read(data):
                if isinstance(stream, Connection):
                    if stream.pipeline.in_debt:
                        self.port.tick_at(clock.now() + TICK)
                    stream.ask_more()
                self.port.watch_room(stream, wanted=bool(stream.backlog))
                stream.put_down()
        except OSError as error:
            self.detach(stream, error, now)

    def _read_slowly(self, fd: int, now: float) -> None:
        stream = self.readers.get(fd)
        if stream is not None:  # else it was closed just now
            self._read_stream(stream, now)

    def _read_on(self, pipeline: Pipeline, data: bytes | OSError, now: float) -> None:
        self._read_stream(self.all[pipeline.master], now, data)

    # -- what is announced (R24) ---------------------------------------------------------------------

    def perform_local(self, effect: LocalEffect, inbox: Listener) -> None:
        if isinstance(effect, Leave):
            if effect.others_until > NEVER:
                with brief.lock:
                    self.local_queue.contended.update(dict.fromkeys(effect.place.keys, (effect.others_until, 0.0)))
            self.leave(effect.place, effect.stays)
        elif isinstance(effect, WakeBehind):
            with brief.lock:
                inboxes = self._give_turns(self.local_queue.behind(effect.place), clock.now())
            for one in inboxes:
                one.wake()
        elif isinstance(effect, WakeOnStop):
            effect.stop.subscribe(effect, inbox.poke)
        elif isinstance(effect, LookAhead):
            with brief.lock:
                effect.learned = self.local_queue.look_ahead(effect.place)
        elif isinstance(effect, ReleaseHeard):
            with brief.lock:
                others = self.subscriptions.others_heard(effect.keys, effect.heard)
                self.local_queue.released(effect.keys, effect.took, clock.now(), others=others)
        else:
            with self.port.mutex:
                if self.closing or self.closed:
                    raise RedlockError(CLOSED)
                self._listen(effect.subscription, inbox)

    def _listen(self, subscription: Subscription, inbox: Listener) -> None:
        now = clock.now()
        for subscriber in self.subscribers:  # earlier announcements are not for this subscription
            self.read(subscriber, now)
        inbox.subscription, subscription.inbox = subscription, inbox
        self.subscriptions.add(subscription)
        for subscriber in self.subscribers:
            self._ask(subscriber, subscription.channels, now)
        self._want_subscribers()

    def _want_subscribers(self) -> None:
        """A waiter subscribes: connect the subscribers that are down, and call `quieten` from time to time."""
        missing = [one.retry_at for one in self.subscribers if one.sock is None and one.connector is None]
        self.port.tick_at(min([clock.now() + LINGER / 2, *missing]))

    def unlisten(self, inbox: Listener) -> None:
        subscription = inbox.subscription
        if subscription is not None:
            self.subscriptions.remove(subscription, clock.now())
            inbox.subscription = subscription.inbox = None

    def _ask(self, subscriber: Subscriber, channels: Sequence[str], now: float, *, no_others: bool = False) -> None:
        if subscriber.poisoned:
            self.read(subscriber, now)
        if subscriber.sock is None:
            return
        subscriber.pick_up()
        data = subscriber.more(channels, now)
        if no_others:
            data += subscriber.no_more_than(channels, now)
        if data:
            self._write(subscriber, data, now)
        subscriber.put_down()

    def quieten(self, now: float) -> None:
        """Unsubscribe from channels without a waiter, and close the connections if no channel is left."""
        self.subscriptions.forget_idle(now)
        channels = self.subscriptions.channels
        for subscriber in self.subscribers:
            # Ask again also for what the master refused, or what an interruption left out.
            self._ask(subscriber, channels, now, no_others=True)
            if subscriber.refused:
                self._report_deaf(subscriber, f"it refused: {subscriber.refused}")
            if subscriber.sock is not None and not self.wanted(subscriber):
                self._unwatch(subscriber)
                subscriber.close(abort=False)

    def _report_deaf(self, subscriber: Subscriber, reason: str) -> None:
        if not subscriber.reported:
            subscriber.reported = True
            name = subscriber.endpoint.name
            text = f"master {name} announces no releases to waiters, which retry after pauses instead: {reason}"
            self.reports.append((logging.WARNING, text, ()))

    def wanted(self, connection: Stream) -> bool:
        return not self.closed and (type(connection) is Connection or bool(self.subscriptions))

    def _hear(self, master: int, kind: bytes, channel: str, token: bytes) -> None:
        subscriptions = self.subscriptions
        woken: tuple[Subscription, ...] = ()
        if kind == b"message":
            woken = subscriptions.announced(master, channel, token)
        elif kind == b"subscribe":
            self.subscribers[master].reported = False
            woken = subscriptions.confirmed(master, channel)
        elif kind == b"unsubscribe":
            subscriptions.unconfirmed(master, channel)
        for subscription in woken:
            inbox = subscription.inbox
            if inbox is not None:
                inbox.put(Notified(clock.now()))

    def decide(self) -> bool:
        """Whether a majority is up, or none is possible without the masters that failed (R2)."""
        need = majority(len(self.all))
        up = sum(connection.pipeline.down is None for connection in self.all)
        failed = sum(connection.failures > 0 for connection in self.all)
        return up >= need or len(self.all) - failed < need

    def tried(self) -> bool:
        return all(connection.pipeline.down is None or connection.failures > 0 for connection in self.all)

    def connect_in(self, stream: Stream, now: float) -> float:
        """Seconds until a connection is to be made: there is none, or the one that is there answers nothing (P4).

        A proxy between may go on taking bytes for ever, while a new connection works.  If the whole master hangs,
        no new one gets through its handshake, and it must not be flooded with them.
        """
        if stream.connector is not None or not self.wanted(stream):
            return math.inf
        if stream.sock is not None:
            if self._silent_in(stream, now) <= 0:
                self.read(stream, now)  # our own process may have been stopped, and the answers are here
            left = self._silent_in(stream, now)
            if left > 0:
                stream.tried_beside, stream.retry_at = 0, now
                return left
        elif type(stream) is Connection and self.voters.awaits(stream.master, now):
            return 0.0  # only this master's silence keeps votes from counting (R34)
        return stream.retry_at - now

    def _silent_in(self, stream: Stream, now: float) -> float:
        if isinstance(stream, Subscriber) and self._silent_in(self.all[stream.master], now) <= 0:
            return math.inf  # one second connection to a master at a time
        return math.inf if stream.sock is None else stream.waits_since + self.patience - now

    def attach(self, stream: Stream, sock: socket.socket, facts: Facts | None, now: float) -> None:
        if stream.sock is not None:
            self.read(stream, now)
        if stream.sock is not None:
            if self._silent_in(stream, now) > 0:  # it has answered since
                sock.close()
                return
            self._give_up(stream, now)
        if isinstance(stream, Connection):
            assert facts is not None  # noqa: S101 - `Connector` asks for them
            self._attach_connection(stream, sock, facts, now)
        elif isinstance(stream, Subscriber) and self.wanted(stream):
            stream.open(sock, now)
            self._begin_to_watch(stream)
            self._ask(stream, self.subscriptions.channels, now)
        else:
            sock.close()

    def _give_up(self, stream: Stream, now: float) -> None:
        """Abort what answers nothing: its bytes must not arrive after those of the new one; its debts stay (R10)."""
        silence = f"no answer for {now - stream.waits_since:.3g} s"
        self.detach(stream, ConnectionAbortedError(f"{silence}, while a new connection works"), now)
        if isinstance(stream, Subscriber):
            return  # the connection that replaces it was reported
        text = (
            f"the connection to master {stream.endpoint.name} was replaced: {silence}, while a new one works. "
            "A proxy, a tunnel or a firewall on the way takes bytes and passes nothing on, or the master held its "
            "answers back (CLIENT PAUSE)"
        )
        self.reports.append((logging.WARNING, text, ()))

    def _attach_connection(self, connection: Connection, sock: socket.socket, facts: Facts, now: float) -> None:
        """Open the connection.  The master votes from now on.  First it gets the releases that it is owed (R10)."""
        master, name = connection.master, connection.endpoint.name
        notice = self.voters.admit(master, facts, now)
        quarantined = self.voters.quarantined_for(master, now)
        up = f"master {name} is back" if connection.failures else f"master {name} is connected"
        if 0 < quarantined < math.inf and (not_counted := self.voters.why_not_counted(master, now)) is not None:
            up += f", {not_counted.reason}"
        level = logging.INFO if connection.failures or quarantined else logging.DEBUG
        self.reports.append((level, up, ("MasterUp", name, quarantined)))
        if notice:
            self.reports.append((logging.WARNING, notice, ()))
        if self.announcer is not None:
            self.announcer.connected(now)
        connection.pipeline.functions = facts.functions
        self._choose(now)
        connection.open(sock, now)
        connection.votes_from = now + quarantined
        self._begin_to_watch(connection)
        if self.announcer is not None:
            self.submit(self.announcer.reading(master), _NOBODY, now)
        self.send_owed(connection, now)
        self._other_voters(now)

    def _choose(self, now: float) -> None:
        """Pack for all as most masters are asked (R44).  The others are odd: what goes to them is packed once more."""
        functions = sum(pipeline.functions for pipeline in self.pipelines) >= majority(len(self.all))
        if functions is not self.functions:
            self.flush_cork(now)  # what is in the cork was packed in the old way
            for pipeline in self.pipelines:  # after an interruption from here on they are slow, but correct
                pipeline.plain, pipeline.odd = False, True
            self.functions = functions
        for pipeline in self.pipelines:
            pipeline.odd = pipeline.functions is not functions
            pipeline.plain = pipeline.plain and not pipeline.odd

    def _other_voters(self, now: float) -> None:
        """News of one master may change when the vote of another one counts: report that (R21, C16)."""
        for connection in self.all:
            if connection.sock is None:
                continue
            quarantined = self.voters.quarantined_for(connection.master, now)
            if abs(max(now, connection.votes_from) - (now + quarantined)) > _SAME:
                connection.votes_from = now + quarantined
                not_counted = self.voters.why_not_counted(connection.master, now)
                text = f"master {connection.endpoint.name} {not_counted.reason if not_counted else 'votes'}"
                self.reports.append((logging.INFO, text, ("MasterUp", connection.endpoint.name, quarantined)))

    def _begin_to_watch(self, stream: Stream) -> None:
        self.readers[stream.fd] = stream
        self.by_fd.pop(stream.fd, None)  # left by a connection whose end was interrupted
        if isinstance(stream, Connection):
            self.by_fd[stream.fd] = stream.pipeline
        self.port.watch(stream)
        stream.put_down()

    def _unwatch(self, stream: Stream) -> None:
        ours = self.readers.get(stream.fd, stream) is stream  # else it belongs to another stream, after an interruption
        if ours:
            self.readers.pop(stream.fd, None)
        self.port.unwatch(stream, ours=ours)

    def troubles(self) -> list[str]:
        """What is wrong with the connection to each master, for people; empty: nothing.  Any thread may ask."""
        return [] if self.closed else [connection.pipeline.trouble(clock.now()) for connection in self.all]

    # -- our max_ttl (R21) and the list of our masters (R34) -----------------------------------------

    def announce(self, now: float, announcer: Announcer) -> None:
        for announcement in announcer.due(now):
            self.submit(announcement, _NOBODY, now)
        self.reports += announcer.news()
        for master, text in self.voters.rates.changes([one.endpoint.name for one in self.all], now):
            rate, quarantined = self.voters.rates.surely[master], self.voters.quarantined_for(master, now)
            event = "MasterClock", self.all[master].endpoint.name, rate, quarantined
            self.reports.append((logging.WARNING if rate else logging.INFO, text, event))
            self.all[master].votes_from = now + quarantined
        if not self.voters.refused:
            self._other_voters(now)

    def unattached(self, connection: Stream, failure: Failure) -> None:
        """An attempt to connect failed.  The first failure is reported, the ones after it are not."""
        if connection.sock is not None:
            connection.tried_beside += 1
            connection.retry_at = clock.now() + delay(BESIDE_A_SILENT_ONE, connection.tried_beside)
            return
        connection.failures += 1
        connection.retry_at = clock.now() + delay(BETWEEN_CONNECTIONS, connection.failures)
        if isinstance(connection, Connection):
            connection.pipeline.unreachable(failure, clock.now())
            self.voters.down(connection.master, clock.now())
            if connection.failures == 1:
                event = "MasterDown", connection.endpoint.name, failure.reason
                self.reports.append((logging.WARNING, f"master {event[1]} is down: {failure.reason}", event))
        elif isinstance(connection, Subscriber) and self.all[connection.master].pipeline.down is None:
            self._report_deaf(connection, f"no second connection: {failure.reason}")

    def detach(self, connection: Stream, error: OSError, now: float) -> None:
        """The connection broke.  Its requests fail, and its releases are owed."""
        connection.pick_up()
        self.by_fd.pop(connection.fd, None)
        self._unwatch(connection)
        text = error.strerror or str(error) or type(error).__name__
        # The frames of its traceback refer to it.  Such a cycle would keep a caller's lock alive after its end (P7).
        error.__traceback__ = None
        if isinstance(connection, Connection):
            # The process may have been alive until now.  If the next one started earlier, it was a replica (R21).
            self.voters.heard(connection.master, now)
            connection.pipeline.broken(Failure("error", f"connection lost: {text}"), now, for_good=self.closed)
        elif isinstance(connection, Subscriber):
            self.subscriptions.lost(connection.master)
        connection.close(abort=not self.closed)
        # Connect again at once.  But pause if the connection was short: a master may accept us only to close it again.
        connection.retry_at = now if now - connection.opened_at > _LASTED else now + delay(BETWEEN_CONNECTIONS, 1)
        connection.put_down()
        self.port.tick_at(connection.retry_at)

    def hang_up(self) -> None:
        now = clock.now()
        if not self.closed:
            with contextlib.suppress(Exception):  # our list is dropped by itself, after a while
                if self.announcer is not None and (call := self.announcer.call("left")) is not None:
                    self.submit(Send(call), _NOBODY, now)
        self.closed = True
        for connection in self.streams:
            if connection.sock is not None:
                self.detach(connection, ConnectionAbortedError(CLOSED), now)

    def disown(self) -> None:
        """In a forked child: close our copies of the descriptors, and send nothing to the masters."""
        self.closed = True
        self.by_fd.clear()
        self.readers.clear()
        self.corked.clear()
        for stream in self.streams:
            stream.disown()
        for pipeline in self.pipelines:
            pipeline.disown()
