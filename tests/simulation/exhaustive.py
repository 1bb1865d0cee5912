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
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from unittest import mock

from redlock import scripts
from redlock._core.settings import LockSpec, MastersSettings
from redlock._core.tokens import FenceClock
from redlock._core.wire import Call
from tests.bench.library import NOBODY, Library, replaced
from tests.core.resp import encoded
from tests.simulation.invariants import P1, P2, PREFIX, Attempt, Judge, Violation
from tests.simulation.master import EPOCH, REPLACED, Master
from tests.simulation.parameters import Parameters
from tests.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.library import Patch

MASTERS = 3
NAME = "lock-0"
TTL = 30.0
BY_NAME = {script.name: script for script in scripts.ALL}
Step = tuple[str, int, int]  # what, on which master, and how much else before it


class Message:
    """A script that is on its way, sent by its text or by its name."""

    def __init__(self, request: Any, attempt: Attempt | None, *, text: bool) -> None:
        call = request.call
        self.call = Call(BY_NAME[call.script.name], call.keys, call.args)
        self.attempt, self.text = attempt, text

    def __str__(self) -> str:
        return f"{self.call.script.name} {self.call.args} {self.text}"

    def apply(self, master: Master) -> Any:
        return master.evaluate(self.call, self.attempt, text=self.text)


class Side:
    """A process that does one thing at a time: the shipped engine, `Exchange` and decisions, and messages that wait
    until they are chosen."""

    def __init__(self, scene: Scene, library: Library, name: str, skew: float) -> None:
        self.scene, self.library, self.name = scene, library, name
        self.operations: set[Any] = set()
        self.ready: deque[Any] = deque()
        self.messages: list[deque[Message]] = [deque() for _ in range(MASTERS)]
        self.crashed = False
        self.attempt: Attempt | None = None
        voters = self.core("voters").Voters(("m0", "m1", "m2"), 60.0, restart_guard=True)
        self.settings = MastersSettings(
            masters=("m0", "m1", "m2"), node_timeout=0.25, drift_factor=0.01, fence_ttl=3600.0, voters=voters,
            fences=FenceClock(lambda: int((EPOCH + scene.world.now + skew) * 1_000_000) * 1000),
            token=lambda: f"{scene.world.random.getrandbits(64):016x}", random=scene.world.random.random,
            outages=cast("Any", SimpleNamespace(since=0.0, attempted=lambda *_: None)), stamp=lambda: 1,
        )  # fmt: skip
        keys = self.core("wire").keys_for(PREFIX, (NAME,), records=False)
        self.spec = LockSpec(
            names=(NAME,),
            keys=keys,
            ttl=TTL,
            min_validity=0.5 * TTL,
            retry=cast("Any", None),
            mode=self.core("modes").EXCLUSIVE,
        )
        self.exchange = self._exchange()
        for index, master in enumerate(scene.masters):
            voters.admit(index, master.info(), self.now())
            self.pipelines[index].connected(self.now())
            self.pipelines[index].plain = True
        self.operation: Any = None
        self.lease: Any = None
        self.grant: Any = None

    def core(self, name: str) -> Any:
        return self.library[f"_core.{name}"]

    def _exchange(self) -> Any:
        side, connect = self, self.library["_connect"]

        class Links(self.core("exchange").Exchange):  # type: ignore[misc]
            def _tear(self, pipeline: Any) -> None:
                pipeline.plain = False

            def _send_slowly(self, pipeline: Any, requests: Any, data: bytes, now: float) -> None:
                if pipeline.submit(requests[0], now):
                    side.write(pipeline.master)

            def _sent_a_part(self, *_: Any) -> None:
                raise AssertionError("links take everything")

            def _read_slowly(self, fd: int, now: float) -> None:
                self._read_on(side.pipelines[fd], side.arrived, now)

            def _read_on(self, pipeline: Any, data: bytes, now: float) -> None:
                parser = connect.parser()
                parser.feed(data)
                value = parser.gets()
                assert value is not connect.NOTHING
                if pipeline.answered(value, now):
                    for more in pipeline.more():
                        side.write(pipeline.master, more)
                pipeline.plain = True

        self.pipelines = [self.core("pipeline").Pipeline(index, 0.5) for index in range(MASTERS)]
        exchange = Links(self.pipelines, self.settings.voters.votes_from, lambda _: b"a request")
        for pipeline in self.pipelines:
            exchange.by_fd[pipeline.master] = pipeline
            pipeline.send, pipeline.recv = partial(self._sent, pipeline.master), lambda _: self.arrived
        return exchange

    def _sent(self, master: int, data: bytes) -> int:
        self.write(master)
        return len(data)

    def write(self, master: int, queued: Any = None) -> None:
        """What is sent last, on behalf of the attempt that it is for."""
        queued = self.pipelines[master].under_way[-1] if queued is None else queued
        request = self.core("pipeline").request_of(queued)
        self.messages[master].append(Message(request, self.attempt, text=getattr(queued, "text", False)))

    # -- what the engine asks for --------------------------------------------------------------------

    def now(self) -> float:
        return 1000.0 + self.scene.world.now

    def send(self, request: Any, operation: Any) -> None:
        call = request.call
        if call.script.name == "acquire":
            self.attempt = self.scene.judge.attempt(cast("Any", self), (NAME,), call.args[1], TTL)
        elif request.owed_until is not None and self.attempt is not None:
            self.attempt.over, self.attempt.owed_until = True, request.owed_until - 1000.0
        request.sent_at, request.inbox = self.now(), operation
        to = range(MASTERS) if request.to is None else sorted(request.to)
        self.exchange._send_all([request], b"a request", self.now(), [self.pipelines[master] for master in to])

    def perform_local(self, effect: Any, operation: Any) -> None:
        """It waits in no line, and hears of no release."""

    def read_and_close(self, request: Any) -> None:
        if request is not None:
            request.open = False

    def step_soon(self, operation: Any) -> None:
        self.ready.append(operation.step)

    # -- what it does --------------------------------------------------------------------------------

    def _run(self, op: Any) -> None:
        side = self

        class Operation(self.core("operation").SteppedOperation):  # type: ignore[misc]
            def _wait(self, now: float) -> None:
                """Time passes only where that is chosen."""

            def _conclude(self, error: BaseException | None) -> bool:
                if not self.over and error is None and side.lease is None:
                    side.ends(self.result)
                super()._conclude(error)
                return True

        self.operation = Operation(op, self)
        self.operation.start()

    def acquires(self) -> None:
        target = self.core("acquire").Target(self.settings, self.spec)
        self._run(self.core("kernel.attempt").attempt(target))

    def ends(self, outcome: Any) -> None:
        if type(outcome).__name__ == "Grant":
            self.grant = outcome
            self.scene.granted(self)
        elif self.attempt is not None:
            self.attempt.over = True

    def releases(self) -> None:
        assert self.attempt is not None
        lease = self.core("lease").LeaseState(self.spec, self.grant, clock=self.now, mine=lambda: True)
        self.lease, self.attempt.over = lease, True
        self._run(self.core("kernel.release").release(self.settings, self.spec, lease))

    def goes_on(self) -> None:
        while self.ready:
            self.ready.popleft()()

    def hears(self, index: int, value: Any) -> None:
        self.arrived = encoded(value)
        self.exchange.read_ready([(index, 0)], self.now())

    def loses(self, index: int) -> None:
        """Its connection breaks, and a new one is made at once."""
        self.messages[index].clear()
        pipeline, failure = self.pipelines[index], self.core("outcomes").Failure("error", "connection reset")
        pipeline.plain = False
        pipeline.broken(failure, self.now())
        pipeline.connected(self.now())
        pipeline.plain = True
        for owed in pipeline.due(self.now()):
            self.messages[index].append(Message(owed.request, self.attempt, text=False))


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
    library: Library = field(default_factory=lambda: Library(NOBODY))
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
        self.a, self.b = Side(self, self.library, "A", 1000.0), Side(self, self.library, "B", 1000.0 + self.ahead)
        self.begun: set[str] = set()
        self.broken = False
        self.a.acquires()
        for index in (0, 1):
            self._exchange(self.a, index)
        assert self.a.grant is not None
        if self.released:
            self.take(("A releases", 0, 0))

    def granted(self, side: Side) -> None:
        """B has it: A has begun to give it back, and its fence is smaller."""
        if side.name == "A":
            return
        if "A releases" not in self.begun:
            self.judge.fail(P1, "B is granted what A holds")
        if side.grant.fence <= self.a.grant.fence:
            self.judge.fail(P2, f"B has fence {side.grant.fence}, and A had {self.a.grant.fence}")

    # -- steps ---------------------------------------------------------------------------------------

    def steps(self) -> Iterator[Step]:
        """What can happen next."""
        for who in ("A releases", "B acquires"):
            if who not in self.begun:
                yield who, 0, 0
        under_way = self._under_way()
        if under_way is not None:
            if self.b.ready:
                yield "B goes on", 0, 0
            else:
                yield "time passes for B", 0, 0
        for index in range(MASTERS):
            requests = len(self.b.messages[index])
            if index in self.breaks and not self.broken and "B acquires" in self.begun:
                for arrive in range(requests + 1):
                    yield "B loses", index, arrive
            if requests:
                for before in range(len(self.a.messages[index]) + 1):
                    yield "B is answered", index, before
                if under_way is None and (self.broken or not self.breaks):
                    break

    def take(self, step: Step) -> None:
        what, index, number = step
        b = self.b
        match what:
            case "A releases":
                self.begun.add(what)
                self.a.releases()
            case "B acquires":
                self.begun.add(what)
                b.acquires()
            case "B is answered":
                for _ in range(number):
                    self._exchange(self.a, index)
                self._exchange(b, index)
            case "B loses":
                self._break(index, number)
            case "B goes on":
                b.ready.popleft()()
            case _:
                self.world.now = max(self.world.now, b.operation.until - 1000.0) + 1e-6
                self.told.append((what, self.world.now))
                b.ready.append(b.operation.on_alarm)
        if not self.late:
            b.goes_on()

    def _under_way(self) -> Any:
        """B's acquire."""
        return self.b.operation if self.b.operation is not None and not self.b.operation.over else None

    def finish(self) -> None:
        """What is left can arrive in one order only."""
        for index in range(MASTERS):
            while self.a.messages[index]:
                self._exchange(self.a, index)
        self.judge.clean()

    def _exchange(self, side: Side, index: int) -> None:
        """The next request is carried out, and its answer arrives."""
        message = side.messages[index].popleft()
        value = message.apply(self.masters[index])
        if side is self.b:
            request = side.core("pipeline").request_of(side.pipelines[index].under_way[0])
            if request.open:
                self.told.append((index, message.call.script.name, message.call.args, repr(value)))
        side.hears(index, value)
        self.a.goes_on()

    def _break(self, index: int, arrive: int) -> None:
        """Some of what is under way still arrives, no answer does; a new connection is made at once."""
        self.broken = True
        self.told.append((index, "broken"))
        for message in list(self.b.messages[index])[:arrive]:
            message.apply(self.masters[index])
        self.b.loses(index)

    # -- state ---------------------------------------------------------------------------------------

    def key(self) -> Any:
        """Equal for two scenes only if they go on alike."""
        parts = []
        for index, master in enumerate(self.masters):
            parts.append(
                (
                    tuple(sorted((name, key.value, key.expires) for name, key in master.keys.items())),
                    *(tuple(map(str, side.messages[index])) for side in (self.a, self.b)),
                    tuple(sorted(str(told[1:]) for told in self.told if told[0] == index)),
                )
            )
        parts[:2] = sorted(parts[:2])
        times = tuple(told for told in self.told if isinstance(told[0], str))
        task = self._under_way()
        goes_on = None if task is None else (bool(self.b.ready), len(task.events))
        return tuple(sorted(self.begun)), tuple(parts), times, goes_on


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


def explore(patches: tuple[Patch, ...] = (), **scene: Any) -> Explored:
    """Follow every step out of every state.  A `Violation` carries the path that led to it."""
    with mock.patch.dict(REPLACED, replaced(patches)):
        return _explore({**scene, "library": Library(NOBODY, patches=patches)})


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
                    explored.granted += played.b.grant is not None
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
