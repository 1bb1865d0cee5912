"""Every interleaving of one hand-over: three masters, two clients, no randomness.

A holds the lock; master 2 has not received A's acquire yet.  At any moment A begins to release and B
begins to acquire; messages arrive at any moment that the order of their connection allows; B's round
may time out at any moment; B's connection to one master may break at any moment, after any number of
the requests under way on it.  If B is ``late``, another thread reads for it, and it may come at any moment
to what was read, or to the end of its time.  A path through these steps is replayed from the start, for a generator
cannot be copied.

What need not be told apart is not:

- Two paths that end in the same state are followed once.  A state is what the masters store, what is
  on its way, and what B was told, as a set: a round counts votes, so their order matters only in what
  arrived before it was decided, and what arrives later is not told.
- What A sends changes one master only, and B sees it only in what it asks that master next.  So it
  arrives right before a request of B, or at the end; and a request of B is carried out right before its
  answer arrives, or before the connection breaks.
- Once B's acquire is over, what is under way to one master has nothing to do with the others.
- Masters 0 and 1 may be exchanged.

B makes one attempt.  That a single try is repeated where nobody has won (C3) is left out: each attempt begins anew, with
a token of its own, and multiplies the states.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

from redlock._core import patience
from redlock._core.pipeline import request_of
from redlock._core.voters import Facts
from tests.simulation.actor import Actor, spec_for
from tests.simulation.client import Client
from tests.simulation.invariants import Judge, Violation
from tests.simulation.master import Master
from tests.simulation.network import Connection
from tests.simulation.parameters import Parameters
from tests.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulation.client import Task
    from tests.simulation.network import Message

MASTERS = 3
NAME = "lock-0"
TTL = 30.0
ORIGIN = (0, 0.0, False)
Step = tuple[str, int, int]  # what, on which master, and how much else before it


class Pipe:
    """Stands in for a `Link`: what is written waits until it is chosen."""

    def __init__(self, client: Client, master: Master) -> None:
        self.client = client
        self.master = master
        self.connection: Connection | None = Connection(1)
        self.requests: deque[Message] = deque()

    def write(self, message: Message, leaves_at: float = 0.0) -> None:
        self.requests.append(message)

    def abandon(self) -> None:
        self.connection = None


@dataclass
class Scene:
    """The moment before the hand-over, and the steps that can come next.

    ``ahead``: how far B's wall clock is ahead of A's, in seconds.  Below 0 B needs a second round for
    its fence; at 0 it proposes the very number that A has.
    """

    ahead: float
    breaks: tuple[int, ...] = ()  # masters to which the connection may break
    released: bool = False  # A has begun to release before anything else happens
    late: bool = False  # B's operation goes on some time after what it waits for
    told: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        parameters = Parameters(seed=0, masters=MASTERS, ttl=TTL, max_ttl=60.0, node_timeout=0.25, names=1)
        self.world = World(0)
        self.judge = Judge(self.world, parameters)
        self.masters = [
            Master(self.world, self.judge, index, rate=1.0, offset=0.0, age=1e6, durable=False)
            for index in range(MASTERS)
        ]
        self.judge.masters = self.masters
        self.ready: dict[Client, deque[Callable[[], None]]] = {}
        self.a = self._client(parameters, "A", 1000.0)
        self.b = self._client(parameters, "B", 1000.0 + self.ahead)
        self.b.late = float(self.late)
        self.begun: set[str] = set()
        self.broken = False
        self.first, self.second = Actor(self.a), Actor(self.b)
        self.first.acquire([NAME], TTL, 0.0)
        for index in (0, 1):
            self._exchange(self.a, index)
        assert self.first.hold is not None
        if self.released:
            self.take(("A releases", 0, 0))

    def _client(self, parameters: Parameters, name: str, skew: float) -> Client:
        client = Client(self.world, self.judge, parameters, self.masters, name, rate=1.0, skew=skew)
        client.links = [Pipe(client, master) for master in self.masters]  # type: ignore[misc]
        client.late = 0.0
        ready: deque[Callable[[], None]] = deque()
        self.ready[client] = ready

        def later(action: Callable[..., None], *args: Any) -> None:
            ready.append(partial(action, *args))

        client.later = later  # type: ignore[method-assign]
        for index, master in enumerate(self.masters):
            facts = master.info()
            assert isinstance(facts, Facts)
            client.voters.admit(index, facts, client.clock())
            client.pipelines[index].connected(client.clock())
        return client

    # -- steps ---------------------------------------------------------------------------------------

    def steps(self) -> Iterator[Step]:
        """What can happen next."""
        for who in ("A releases", "B acquires"):
            if who not in self.begun:
                yield who, 0, 0
        under_way = self._under_way()
        if under_way is not None:
            if self.ready[self.b]:
                yield "B goes on", 0, 0
            else:
                yield "time passes for B", 0, 0
        for index in range(MASTERS):
            requests = len(self.pipe(self.b, index).requests)
            if index in self.breaks and not self.broken and "B acquires" in self.begun:
                for arrive in range(requests + 1):
                    yield "B loses", index, arrive
            if requests:
                for before in range(len(self.pipe(self.a, index).requests) + 1):
                    yield "B is answered", index, before
                if under_way is None and (self.broken or not self.breaks):
                    break

    def take(self, step: Step) -> None:
        what, index, number = step
        match what:
            case "A releases":
                self.begun.add(what)
                assert self.first.hold is not None
                self.first._release(self.first.hold, spec_for(self.a, [NAME], TTL))
            case "B acquires":
                self.begun.add(what)
                self.second.acquire([NAME], TTL, 0.0)
            case "B is answered":
                for _ in range(number):
                    self._exchange(self.a, index)
                self._exchange(self.b, index)
            case "B loses":
                self._break(index, number)
            case "B goes on":
                self.ready[self.b].popleft()()
            case _:
                task = self._under_way()
                assert task is not None
                self.world.now = max(self.world.now, self.b.true_time(task.until)) + 1e-6
                self.told.append((what, self.world.now))
                task._alarm(task._alarms)
        if not self.late:
            self._go_on(self.b)

    def _under_way(self) -> Task | None:
        """B's acquire."""
        return next((task for task in self.b.tasks if not task.over), None)

    def _go_on(self, client: Client) -> None:
        while self.ready[client]:
            self.ready[client].popleft()()

    def finish(self) -> None:
        """What is left can arrive in one order only."""
        for index in range(MASTERS):
            while self.pipe(self.a, index).requests:
                self._exchange(self.a, index)
        self.judge.clean()

    def pipe(self, client: Client, index: int) -> Pipe:
        pipe: Any = client.links[index]
        assert isinstance(pipe, Pipe)
        return pipe

    def _exchange(self, client: Client, index: int) -> None:
        """The next request is carried out, and its answer arrives."""
        pipe: Any = self.pipe(client, index)
        value = pipe.requests.popleft().apply(self.masters[index])
        if client is self.b:
            request = request_of(client.pipelines[index].under_way[0])
            if request.open:
                self.told.append((index, request.call.script.name, request.call.args, repr(value)))
        client.on_answer(pipe, pipe.connection, value, ORIGIN)
        self._go_on(self.a)

    def _break(self, index: int, arrive: int) -> None:
        """Some of what is under way still arrives, no answer does; a new connection is made at once."""
        self.broken = True
        self.told.append((index, "broken"))
        pipe: Any = self.pipe(self.b, index)
        for message in list(pipe.requests)[:arrive]:
            message.apply(self.masters[index])
        pipe.requests.clear()
        self.b.on_reset(pipe, pipe.connection)
        pipe.connection = Connection(2)
        self.b.pipelines[index].connected(self.b.clock())
        self.b._write_due(index)

    # -- state ---------------------------------------------------------------------------------------

    def key(self) -> Any:
        """Equal for two scenes only if they go on alike."""
        parts = []
        for index, master in enumerate(self.masters):
            parts.append(
                (
                    tuple(sorted((name, key.value, key.expires) for name, key in master.keys.items())),
                    *(
                        tuple(_shown(message) for message in self.pipe(client, index).requests)
                        for client in (self.a, self.b)
                    ),
                    tuple(sorted(str(told[1:]) for told in self.told if told[0] == index)),
                )
            )
        parts[:2] = sorted(parts[:2])
        times = tuple(told for told in self.told if isinstance(told[0], str))
        task = self._under_way()
        goes_on = None if task is None else (bool(self.ready[self.b]), len(task.events))
        return tuple(sorted(self.begun)), tuple(parts), times, goes_on


def _shown(message: Message) -> str:
    assert message.call is not None
    return f"{message.call.script.name} {message.call.args} {message.text}"


def replay(path: tuple[Step, ...], **scene: Any) -> Scene:
    played = Scene(**scene)
    for step in path:
        played.take(step)
    return played


@dataclass
class Explored:
    """What was seen: so many states, joined by so many steps, on so many different paths to an end."""

    states: int = 0
    steps: int = 0
    paths: int = 0
    ends: int = 0
    granted: int = 0  # ends at which B has the lock
    second_rounds: int = 0  # ends before which B asked for its fence a second time


def explore(**scene: Any) -> Explored:
    """Follow every step out of every state.  A `Violation` carries the path that led to it."""
    with mock.patch.object(patience, "MOST", 0):
        return _explore(scene)


def _explore(scene: dict[str, Any]) -> Explored:
    explored = Explored()
    following: dict[Any, list[Any]] = {}
    parents: list[tuple[Any, tuple[Step, ...]]] = [(None, ())]
    root = None
    while parents:
        parent, path = parents.pop()
        try:
            played = replay(path, **scene)
            while True:
                key = played.key()
                if parent is None:
                    root = key
                else:
                    explored.steps += 1
                    following[parent].append(key)
                if key in following:
                    break
                following[key] = []
                steps = list(played.steps())
                if not steps:
                    played.finish()
                    explored.ends += 1
                    explored.granted += played.second.acquired
                    explored.second_rounds += any("fence" in told for told in played.told)
                    break
                # The first step goes on from here, the others are replayed later.
                parents.extend((key, (*path, step)) for step in steps[1:])
                parent, path = key, (*path, steps[0])
                played.take(steps[0])
        except Violation as violation:
            violation.add_note(f"after {path}")
            raise
    explored.states = len(following)
    explored.paths = _paths(following, root)
    return explored


def _paths(following: dict[Any, list[Any]], root: Any) -> int:
    """How many paths lead from the root to an end; no step leads back."""
    known: dict[Any, int] = {}
    stack = [root]
    while stack:
        key = stack[-1]
        open_ = [after for after in following[key] if after not in known]
        if open_:
            stack.extend(open_)
        else:
            known[stack.pop()] = sum(known[after] for after in following[key]) or 1
    return known[root]
