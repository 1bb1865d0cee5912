"""How one client hears of releases: a second connection to each master, while somebody listens (R24).

What is decided is decided in ``redlock/_core/listen.py``; here are the connections, and what
``redlock/_base/links.py`` does with them.  They have delays, losses and breaks of their own, from a
source of randomness of their own: whether somebody listens changes nothing else.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from redlock._core.effects import Crowd, Heard
from redlock._core.listen import LINGER, Listeners
from redlock._core.outcomes import NEVER
from redlock._core.refusals import ErrorReply
from redlock._core.retry import BETWEEN_CONNECTIONS, delay
from tests.simulation.network import ANSWERS, Connection, Link

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redlock._core.listen import Ear
    from redlock._core.lobby import Ticket
    from tests.simulation.client import Client, Task
    from tests.simulation.master import Master

SETTLED = 1.0  # a connection that lasted for so many seconds is made again without a pause


class Hello:
    """The handshake of a connection that is there to listen: it asks for no facts."""

    def apply(self, master: Master) -> Any:
        return ErrorReply("BUSY Redis is busy running a script.") if master.busy else "hello"


class Subscribe:
    """SUBSCRIBE or UNSUBSCRIBE; each channel is confirmed."""

    def __init__(self, feed: Feed, kind: str, channels: Sequence[str]) -> None:
        assert feed.connection is not None
        self.feed, self.kind, self.channels = feed, kind, channels
        self.connection: Connection = feed.connection

    def apply(self, master: Master) -> Any:
        if master.busy:
            return ErrorReply("BUSY Redis is busy running a script.")
        if not master.announces:
            return ErrorReply("NOPERM this user has no permissions to access one of the channels")
        for channel in self.channels:
            listening = master.listening.setdefault(channel, {})
            if self.kind == "subscribe":
                listening[self.connection] = self.feed
            else:
                listening.pop(self.connection, None)
        return [(self.kind, channel, "") for channel in self.channels]


class Feed(Link):
    """The connection on which one master announces releases to one client."""

    def __init__(self, hearing: Hearing, master: Master) -> None:
        parameters = hearing.client.parameters
        super().__init__(hearing.world, parameters, hearing, master)
        self.random = hearing.random
        self.asked: set[str] = set()  # channels
        self.up = False
        self.failures = 0
        self.opened_at = NEVER
        self.due = False  # a new connection is going to be made
        self._delay *= parameters.lag
        self._lost = parameters.lost

    def __repr__(self) -> str:
        return f"{super().__repr__()} feed"

    def announce(self, connection: Connection, channel: str, token: str) -> None:
        """What the master publishes, behind everything that it has sent here before."""
        if self.random.random() >= self._lost:
            origin = (self.master.incarnation, self.master.born_at, self.master.forgot)
            self._carry(ANSWERS, self._answer, connection, [("message", channel, token)], origin)

    def abandon(self) -> None:
        super().abandon()
        self.up = False


class Hearing:
    """The ears of one process: who listens to what, and what the masters tell."""

    def __init__(self, client: Client, masters: Sequence[Master]) -> None:
        self.client = client
        self.world = client.world
        self.random = random.Random(f"feeds of {client.name} under {client.parameters.seed}")
        self.listeners = Listeners(len(masters))
        self.feeds = [Feed(self, master) for master in masters]
        self._waits = client.judge.waits
        self._ticking = False

    def __repr__(self) -> str:
        return repr(self.client)

    # -- what operations want ------------------------------------------------------------------------

    def listen(self, ear: Ear, task: Task) -> None:
        task.ear, ear.inbox = ear, task
        self.listeners.add(ear)
        self._waits.listens(task, ear)
        self._subscribe()
        if ear.look:
            task.inbox.append(Heard(self.client.clock()))
        self._want()

    def unlisten(self, task: Task) -> None:
        """Its operation is over.  Its thread may come to this only when the next one in line listens."""
        ear, task.ear = task.ear, None
        if ear is not None:
            self._waits.over(task)
            if self.random.random() < 0.5:
                self._forget(ear)
            else:
                late = self.random.uniform(0.0, 8.0) * self.client.parameters.delay
                self.world.after(late, self.gate, self._forget, ear)

    def _forget(self, ear: Ear) -> None:
        ear.inbox = None
        self.listeners.remove(ear, self.client.clock())

    def entered(self, ticket: Ticket) -> None:
        if self.listeners.crowded and ticket.turn:
            self.listeners.tell_courtesy(ticket, self.client.clock(), turn=False)

    def turned(self, ticket: Ticket) -> None:
        """It is first in line now."""
        self.listeners.tell_courtesy(ticket, self.client.clock(), turn=True)

    def crowd(self, crowd: Crowd) -> None:
        self.listeners.released(crowd.keys, crowd.heard, crowd.took, self.client.clock())

    # -- what masters tell ---------------------------------------------------------------------------

    def gate(self, action: Callable[..., None], *args: Any) -> None:
        self.client.gate(action, *args)

    def on_answer(self, link: Link, connection: Connection, value: Any, _: tuple[int, float, bool]) -> None:
        assert isinstance(link, Feed)
        if link.connection is not connection:
            return
        if not link.up:
            if isinstance(value, ErrorReply):
                self._lose(link, value.text)
            else:
                self._connected(link)
        elif not isinstance(value, ErrorReply):  # else this master does not announce anything
            for kind, channel, token in value:
                self._hear(link.master.index, kind, channel, token)

    def on_reset(self, link: Link, connection: Connection) -> None:
        if link.connection is connection:
            assert isinstance(link, Feed)
            self._lose(link, "connection reset")

    def _hear(self, master: int, kind: str, channel: str, token: str) -> None:
        listeners, ear = self.listeners, None
        if kind == "message":
            self._waits.told(self.client, master, channel, token)
            ear = listeners.announced(master, channel, token.encode())
        elif kind == "subscribe":
            self._waits.confirmed(self.client, master, channel)
            ear = listeners.confirmed(master, channel)
        else:
            self._waits.unconfirmed(self.client, master, channel)
            listeners.unconfirmed(master, channel)
        if ear is not None and ear.inbox is not None:
            task: Any = ear.inbox
            task.put(Heard(self.client.clock()))

    # -- connections ---------------------------------------------------------------------------------

    def _subscribe(self) -> None:
        """Ask every master for what somebody wants to hear, and for nothing else."""
        wanted = set(self.listeners.channels)
        for feed in self.feeds:
            if feed.up and wanted != feed.asked:
                changes = (("subscribe", wanted - feed.asked), ("unsubscribe", feed.asked - wanted))
                feed.asked = set(wanted)
                for channel in changes[1][1]:
                    self._waits.unconfirmed(self.client, feed.master.index, channel)
                for kind, channels in changes:
                    if channels:
                        feed.write(Subscribe(feed, kind, sorted(channels)), self.client.resumes_at)

    def _want(self) -> None:
        """Connect what is down, and look from time to time whether it is still wanted."""
        for feed in self.feeds:
            self._connect(feed)
        if not self._ticking:
            self._ticking = True
            self.world.after(LINGER / 2, self.gate, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        self.listeners.forget_idle(self.client.clock())
        self._subscribe()
        if self.listeners:
            self._want()
            return
        for feed in self.feeds:
            self._close(feed)

    def _close(self, feed: Feed) -> None:
        feed.abandon()
        self._waits.lost(self.client, feed.master.index)

    def _connect(self, feed: Feed) -> None:
        if feed.connection is not None or feed.due:
            return
        connection = feed.open()
        feed.write(Hello())
        patience = 4 * self.client.parameters.node_timeout
        self.world.after(patience, self.gate, self._too_long, feed, connection)

    def _too_long(self, feed: Feed, connection: Connection) -> None:
        if feed.connection is connection and not feed.up:
            self._lose(feed, "no answer while connecting")

    def _connected(self, feed: Feed) -> None:
        feed.up, feed.failures, feed.opened_at = True, 0, self.client.clock()
        feed.asked.clear()
        if self.listeners:
            self._subscribe()
        else:
            self._close(feed)

    def _lose(self, feed: Feed, why: str) -> None:
        """The connection is gone; a new one is made if somebody still wants it."""
        self.world.log("disconnected", feed, why)
        was_up = feed.up
        self._close(feed)
        if was_up:
            self.listeners.lost(feed.master.index)
            settled = self.client.clock() - feed.opened_at > SETTLED
            pause = 0.0 if settled else delay(BETWEEN_CONNECTIONS, 1)
        else:
            feed.failures += 1
            pause = delay(BETWEEN_CONNECTIONS, feed.failures)
        feed.due = True
        self.world.after(pause, self.gate, self._again, feed)

    def _again(self, feed: Feed) -> None:
        feed.due = False
        if self.listeners:
            self._connect(feed)

    def hang_up(self) -> None:
        """The process is gone."""
        for feed in self.feeds:
            feed.abandon()
