"""Links between one client and one master: order is kept, everything else may happen.

What is sent on one link arrives in the order in which it was sent, also across connections: a new
connection's handshake is not answered before what the old one left in the master's socket has been
read, for the master reads them in the order in which they came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.wire import Call
    from tests.simulation.invariants import Attempt
    from tests.simulation.master import Master
    from tests.simulation.parameters import Parameters
    from tests.simulation.world import World

REQUESTS, ANSWERS = 0, 1


class Command(Protocol):
    """What is sent to a master."""

    def apply(self, master: Master) -> Any: ...


class End(Protocol):
    """Whose end of a link it is."""

    def gate(self, action: Callable[..., None], *args: Any) -> None: ...

    def on_answer(self, link: Any, connection: Connection, value: Any, origin: tuple[int, float, bool]) -> None: ...

    def on_reset(self, link: Any, connection: Connection) -> None: ...


class Message:
    """One command on its way.  ``call`` None: the INFO of a handshake."""

    __slots__ = ("attempt", "call", "text")

    def __init__(self, call: Call | None, attempt: Attempt | None = None, *, text: bool = False) -> None:
        self.call = call
        self.attempt = attempt
        self.text = text

    def apply(self, master: Master) -> Any:
        if self.call is None:
            return master.info()
        return master.evaluate(self.call, self.attempt, text=self.text)


class Connection:
    """One TCP connection.  ``survivors``: so many requests of a broken one still arrive."""

    __slots__ = ("dead", "facts", "incarnation", "number", "survivors", "under_way")

    def __init__(self, number: int) -> None:
        self.number = number
        self.dead = False
        self.incarnation: int | None = None  # of the process that accepted it
        self.under_way = 0  # requests written, and not read by the master
        self.survivors = 0
        self.facts: Any = None  # the first half of the handshake, once it is there


class Link:
    """Everything between one client and one master."""

    def __init__(self, world: World, parameters: Parameters, client: End, master: Master) -> None:
        self.world = world
        self.random = world.random
        self.client = client
        self.master = master
        self.connection: Connection | None = None
        self._parameters = parameters
        self._delay = parameters.delay
        self._slow = parameters.slow
        self._timeout = parameters.node_timeout
        self._ready = [0.0, 0.0]  # nothing arrives before what was sent before it
        self._cut = [0, 0]  # several faults may cut the same link
        self._held: tuple[list[Any], list[Any]] = ([], [])
        self._count = 0

    def __repr__(self) -> str:
        return f"{self.client}-m{self.master.index}"

    # -- the client's end ----------------------------------------------------------------------------

    def open(self) -> Connection:
        self._count += 1
        self.connection = Connection(self._count)
        return self.connection

    def write(self, message: Command, leaves_at: float = 0.0) -> None:
        connection = self.connection
        if connection is not None and not connection.dead:
            connection.under_way += 1
            self._carry(REQUESTS, self._arrive, connection, message, leaves_at=leaves_at)

    def abandon(self) -> None:
        """The client closes the connection, or is gone."""
        if self.connection is not None:
            self._break(self.connection)
            self.connection = None

    def lengthen(self, times: float) -> None:
        """Its other end is so many times as far away."""
        self._delay *= times

    # -- faults --------------------------------------------------------------------------------------

    def snap(self) -> None:
        """The connection breaks, and the client hears of it soon."""
        connection = self.connection
        if connection is not None and not connection.dead:
            self._break(connection)
            self.world.after(self.delay(), self.client.gate, self.client.on_reset, self, connection)

    def hang_up(self) -> None:
        """The process at the other end is gone, and its kernel says so."""
        connection = self.connection
        if connection is not None and not connection.dead:
            self._carry(ANSWERS, self._refuse, connection)

    def calm(self, *, down: bool) -> None:
        """From now on nothing is unusually late; or it is again."""
        self._slow = 0.0 if down else self._parameters.slow

    def cut(self, *directions: int) -> None:
        for direction in directions:
            self._cut[direction] += 1

    def heal(self, *directions: int) -> None:
        for direction in directions:
            self._cut[direction] -= 1
            if not self._cut[direction]:
                held = self._held[direction][:]
                self._held[direction].clear()
                for action, args in held:
                    self._carry(direction, action, *args)

    # -- between -------------------------------------------------------------------------------------

    def delay(self) -> float:
        chance = self.random
        if self._slow and chance.random() < self._slow:
            return chance.uniform(0.3, 3.0) * self._timeout
        return chance.uniform(0.2, 1.8) * self._delay

    def _carry(self, direction: int, action: Callable[..., None], *args: Any, leaves_at: float = 0.0) -> None:
        if self._cut[direction]:
            self._held[direction].append((action, args))
            return
        arrives = max(max(self.world.now, leaves_at) + self.delay(), self._ready[direction])
        self._ready[direction] = arrives
        self.world.at(arrives, action, *args)

    def _break(self, connection: Connection) -> None:
        connection.dead = True
        connection.survivors = self.random.randint(0, connection.under_way)

    def _arrive(self, connection: Connection, message: Command) -> None:
        master = self.master
        if master.frozen:
            master.waiting.append((self._arrive, (connection, message)))
            return
        connection.under_way -= 1
        if connection.dead:
            if connection.survivors <= 0:
                return
            connection.survivors -= 1
        gone = connection.incarnation is not None and connection.incarnation != master.incarnation
        if not master.up or gone:
            if not connection.dead:
                self._carry(ANSWERS, self._refuse, connection)
            return
        connection.incarnation = master.incarnation
        value = message.apply(master)
        if not connection.dead:
            origin = (master.incarnation, master.born_at, master.forgot)
            self._carry(ANSWERS, self._answer, connection, value, origin)

    def _answer(self, connection: Connection, value: Any, origin: tuple[int, float, bool]) -> None:
        if not connection.dead:
            self.client.gate(self.client.on_answer, self, connection, value, origin)

    def _refuse(self, connection: Connection) -> None:
        if not connection.dead:
            self._break(connection)
            self.client.gate(self.client.on_reset, self, connection)
