"""How one client hears of releases: a second connection to each master, while somebody listens (R24).

What is decided is decided in ``redlock/_core/subscriptions.py``; here are the connections, and what
``redlock/_io/connections.py`` does with them.  They have delays, losses and breaks of their own, from a
source of randomness of their own: whether somebody listens changes nothing else.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from redlock._core.effects import Notified
from redlock._core.outcomes import NEVER, ErrorReply
from redlock._core.retry import BETWEEN_CONNECTIONS, delay
from redlock._core.subscriptions import LINGER, Subscriptions
from tests.simulation.network import ANSWERS, Connection, Link

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redlock._core.subscriptions import Subscription
    from tests.simulation.client import Client, Task
    from tests.simulation.master import Master

SETTLED = 1.0  # a connection that lasted for so many seconds is made again without a pause


class Hello:
    """The handshake of a connection that is there to listen: it asks for no facts."""

    def apply(self, master: Master) -> Any:
        return ErrorReply("BUSY Redis is busy running a script.") if master.busy else "hello"


class Subscribe:
    """SUBSCRIBE or UNSUBSCRIBE; each channel is confirmed."""

    def __init__(self, subscriber: Subscriber, kind: str, channels: Sequence[str]) -> None:
        assert subscriber.connection is not None
        self.subscriber, self.kind, self.channels = subscriber, kind, channels
        self.connection: Connection = subscriber.connection

    def apply(self, master: Master) -> Any:
        if master.busy:
            return ErrorReply("BUSY Redis is busy running a script.")
        if not master.announces:
            return ErrorReply("NOPERM this user has no permissions to access one of the channels")
        for channel in self.channels:
            listening = master.listening.setdefault(channel, {})
            if self.kind == "subscribe":
                listening[self.connection] = self.subscriber
            else:
                listening.pop(self.connection, None)
        return [(self.kind, channel, "") for channel in self.channels]


class Subscriber(Link):
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
    """The subscriptions of one process: who listens to what, and what the masters tell."""

    def __init__(self, client: Client, masters: Sequence[Master]) -> None:
        self.client = client
        self.world = client.world
        self.random = random.Random(f"feeds of {client.name} under {client.parameters.seed}")
        self.subscriptions = Subscriptions(len(masters))
        self.subscribers = [Subscriber(self, master) for master in masters]
        self._waits = client.judge.waits
        self._ticking = False

    def __repr__(self) -> str:
        return repr(self.client)

    # -- what operations want ------------------------------------------------------------------------

    def listen(self, subscription: Subscription, task: Task) -> None:
        task.subscription, subscription.inbox = subscription, task
        self.subscriptions.add(subscription)
        self._waits.listens(task, subscription)
        self._subscribe()
        if subscription.look:
            task.events.append(Notified(self.client.clock()))
        self._want()

    def unlisten(self, task: Task) -> None:
        """Its operation is over.  Its thread may come to this only when the next one in line listens."""
        subscription, task.subscription = task.subscription, None
        if subscription is not None:
            self._waits.over(task)
            if self.random.random() < 0.5:
                self._forget(subscription)
            else:
                late = self.random.uniform(0.0, 8.0) * self.client.parameters.delay
                self.world.after(late, self.gate, self._forget, subscription)

    def _forget(self, subscription: Subscription) -> None:
        subscription.inbox = None
        self.subscriptions.remove(subscription, self.client.clock())

    # -- what masters tell ---------------------------------------------------------------------------

    def gate(self, action: Callable[..., None], *args: Any) -> None:
        self.client.gate(action, *args)

    def on_answer(self, link: Link, connection: Connection, value: Any, _: tuple[int, float, bool]) -> None:
        assert isinstance(link, Subscriber)
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
            assert isinstance(link, Subscriber)
            self._lose(link, "connection reset")

    def _hear(self, master: int, kind: str, channel: str, token: str) -> None:
        subscriptions = self.subscriptions
        told: tuple[Subscription, ...] = ()
        if kind == "message":
            self._waits.told(self.client, master, channel, token)
            told = subscriptions.announced(master, channel, token.encode())
        elif kind == "subscribe":
            self._waits.confirmed(self.client, master, channel)
            told = subscriptions.confirmed(master, channel)
        else:
            self._waits.unconfirmed(self.client, master, channel)
            subscriptions.unconfirmed(master, channel)
        for subscription in told:
            task: Any = subscription.inbox
            if task is not None:
                task.put(Notified(self.client.clock()))

    # -- connections ---------------------------------------------------------------------------------

    def _subscribe(self) -> None:
        """Ask every master for what somebody wants to hear, and for nothing else."""
        wanted = set(self.subscriptions.channels)
        for subscriber in self.subscribers:
            if subscriber.up and wanted != subscriber.asked:
                changes = (("subscribe", wanted - subscriber.asked), ("unsubscribe", subscriber.asked - wanted))
                subscriber.asked = set(wanted)
                for channel in changes[1][1]:
                    self._waits.unconfirmed(self.client, subscriber.master.index, channel)
                for kind, channels in changes:
                    if channels:
                        subscriber.write(Subscribe(subscriber, kind, sorted(channels)), self.client.resumes_at)

    def _want(self) -> None:
        """Connect what is down, and look from time to time whether it is still wanted."""
        for subscriber in self.subscribers:
            self._connect(subscriber)
        if not self._ticking:
            self._ticking = True
            self.world.after(LINGER / 2, self.gate, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        self.subscriptions.forget_idle(self.client.clock())
        self._subscribe()
        if self.subscriptions:
            self._want()
            return
        for subscriber in self.subscribers:
            self._close(subscriber)

    def _close(self, subscriber: Subscriber) -> None:
        subscriber.abandon()
        self._waits.lost(self.client, subscriber.master.index)

    def _connect(self, subscriber: Subscriber) -> None:
        if subscriber.connection is not None or subscriber.due:
            return
        connection = subscriber.open()
        subscriber.write(Hello())
        patience = 4 * self.client.parameters.node_timeout
        self.world.after(patience, self.gate, self._too_long, subscriber, connection)

    def _too_long(self, subscriber: Subscriber, connection: Connection) -> None:
        if subscriber.connection is connection and not subscriber.up:
            self._lose(subscriber, "no answer while connecting")

    def _connected(self, subscriber: Subscriber) -> None:
        subscriber.up, subscriber.failures, subscriber.opened_at = True, 0, self.client.clock()
        subscriber.asked.clear()
        if self.subscriptions:
            self._subscribe()
        else:
            self._close(subscriber)

    def _lose(self, subscriber: Subscriber, why: str) -> None:
        """The connection is gone; a new one is made if somebody still wants it."""
        self.world.log("disconnected", subscriber, why)
        was_up = subscriber.up
        self._close(subscriber)
        if was_up:
            self.subscriptions.lost(subscriber.master.index)
            settled = self.client.clock() - subscriber.opened_at > SETTLED
            pause = 0.0 if settled else delay(BETWEEN_CONNECTIONS, 1)
        else:
            subscriber.failures += 1
            pause = delay(BETWEEN_CONNECTIONS, subscriber.failures)
        subscriber.due = True
        self.world.after(pause, self.gate, self._again, subscriber)

    def _again(self, subscriber: Subscriber) -> None:
        subscriber.due = False
        if self.subscriptions:
            self._connect(subscriber)

    def hang_up(self) -> None:
        """The process is gone."""
        for subscriber in self.subscribers:
            subscriber.abandon()
