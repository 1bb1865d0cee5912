"""One process with links to all masters: what looks after operations beside threads and asyncio.

The same engine steps them (``redlock/_core/operation.py``), on a clock that somebody else moves.
"""

from __future__ import annotations

import math
import random
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from redlock import scripts
from redlock._core import wire
from redlock._core.effects import Leave, Listen, LookAhead, ReleaseHeard, Send, Turn, WakeBehind
from redlock._core.local_queue import LocalQueue
from redlock._core.operation import WAITS, SteppedOperation
from redlock._core.outcomes import ErrorReply, Failure
from redlock._core.pipeline import Pipeline, SentAgain, request_of
from redlock._core.retry import BETWEEN_CONNECTIONS, delay
from redlock._core.settings import MastersSettings
from redlock._core.tokens import FenceClock
from redlock._core.voters import Voters
from redlock.errors import OUTCOMES
from tests.simulation.exchange import ClientExchange
from tests.simulation.hearing import Hearing
from tests.simulation.invariants import PREFIX, Violation
from tests.simulation.master import EPOCH
from tests.simulation.network import Connection, Link, Message
from tests.simulation.renewer import Renewer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redlock._core.effects import Effect, Event, LocalEffect, Op
    from redlock._core.lease import LeaseState
    from redlock._core.local_queue import Place
    from redlock._core.outages import Outages
    from redlock._core.quorum import Tally
    from tests.simulation.invariants import Attempt, Judge
    from tests.simulation.master import Master
    from tests.simulation.parameters import Parameters
    from tests.simulation.world import World

TICK = 0.1  # how often owed releases are looked at


class Cancelled(BaseException):
    """What interrupts an operation: Ctrl-C, a cancelled task."""


class Task(SteppedOperation[Any, "Client"]):
    """One operation under way, on the clock of its process."""

    def __init__(
        self,
        client: Client,
        op: Op[Any],
        done: Callable[[Task, Any, BaseException | None], None],
        attempt: Attempt | None = None,
    ) -> None:
        super().__init__(op, client)
        self.client = client
        self.attempt = attempt  # the one on whose behalf it sends
        self.attempted_at = -math.inf  # when it sent the latest acquire, true time
        self.deadline = math.inf  # of an acquire, by its own clock; it tries no more for long then (C3)
        self.kept_until = -math.inf  # ... nobody can get what it wants, as a release keeps it from everybody (R28)
        self.in_order = False  # ... and it stands in line meanwhile (R42), see `line.py`
        self.refused = False  # ... and that was held by others, as far as is known
        self.raced = False  # ... or in the round for its fence
        self.refused_by: set[int] | None = None  # ... by these masters, as far as is known; None: not attempted yet
        self.background = False  # of the renewer: nobody waits for it, so nothing interrupts it
        self.interrupt_in = -1  # interrupt a `Send` after so many more requests
        self.on_send: Callable[[Send], None] | None = None
        # Which process answered which request, and how old it was then, for the judge (P5).
        self.origins: dict[Send, dict[int, tuple[int, float, bool]]] = {}
        self.kept: dict[LeaseState, Callable[[], None]] = {}  # to be called when an extension of it is won
        self._done = done
        self._writes = False  # soon
        self._alarms = 0

    def __repr__(self) -> str:
        return f"an operation of {self.client} ({self.attempt})"

    def strike(self) -> None:
        """Interrupt it: while it waits, or while what it has waited for has come and its thread has not seen it yet."""
        if not (self._running or self._writes or self.over):
            self._drive(self._op.throw, Cancelled())

    # -- what the engine asks for --------------------------------------------------------------------

    def _drive(self, step: Callable[[Any], Any], argument: Any) -> None:
        self.client.driven = self
        super()._drive(step, argument)

    def _perform(self, effect: Effect) -> Event | None:
        try:
            # Of extensions `tests/core/test_renewals.py` shows that, in any order.
            late = isinstance(effect, Send) and effect.only_if is not None and not effect.open
            if late and self.client.other_threads:
                return self._write_later(cast("Send", effect))
            return super()._perform(effect)
        except Violation:
            self._op.close()  # it is not to clean up
            raise

    def _write_later(self, request: Send) -> Event:
        """Another thread comes between what was decided and what is written (R14)."""
        if self.on_send is not None:
            self.on_send(request)
        self._alarms, self._armed = self._alarms + 1, None  # it does not wait, so no alarm goes off ...
        self._writes = self._queued = True  # ... and nothing wakes it
        chance = self.client.world.random
        pause = chance.choice((0.0, 0.5)) * chance.random() * self.client.parameters.node_timeout
        self.client.world.after(pause, self.client.gate, self._write, request)
        waits: Event = WAITS
        return waits

    def _write(self, request: Send) -> None:
        self._writes = self._queued = False
        error = self.client.perform(request, self)
        self._drive(self._op.send if error is None else self._op.throw, error)

    def _excuse(self, now: float) -> bool:
        """A thread reads while it waits, so no alarm of its own comes late.  A loop may come late to both."""
        return not self.client.late and super()._excuse(now)

    def _wait(self, now: float) -> None:
        if self.until < math.inf:
            self._alarms += 1
            # Not now: converting between two clocks is inexact, and the alarm must not be early for ever.
            at = max(self.client.true_time(self.until), self.client.world.now + 1e-7)
            self.client.world.at(at, self.client.gate, self._alarm, self._alarms)

    def _alarm(self, number: int) -> None:
        """The time may be up.  Its thread comes to it now, or later."""
        if number == self._alarms:
            self.client.later(self._on_alarm, number)

    def _on_alarm(self, number: int) -> None:
        if number == self._alarms:
            self.on_alarm()

    def _conclude(self, error: BaseException | None) -> bool:
        super()._conclude(error)
        self.client.hearing.unlisten(self)
        if error is not None and not isinstance(error, Cancelled):
            return True
        done, self._done = self._done, _nobody  # the engine tells it again if the judge objects
        done(self, self.result if error is None else None, error)
        return False


def _nobody(*_: Any) -> None:
    pass


class Client:
    """One process: its clocks, its links, and the operations that it runs."""

    def __init__(
        self,
        world: World,
        judge: Judge,
        parameters: Parameters,
        masters: Sequence[Master],
        name: str,
        *,
        rate: float,
        skew: float,
    ) -> None:
        self.world = world
        self.judge = judge
        self.parameters = parameters
        self.name = name
        # Every other client has threads of which one reads for all: answers are counted and time passes
        # while an operation has not come to it.  At most so many seconds at a time.
        self.late = parameters.delay if sum(name.encode()) % 2 else 0.0
        self.skew = skew  # of the wall clock, which only proposals of fences look at
        self.crashed = False
        self.crashed_at = math.inf
        self.closing = False  # the end is near: connections are still made, nothing is begun
        self.paused = False
        self.resumed_at = -math.inf  # by its own clock
        self.other_threads = parameters.keep > 0
        self.tasks: list[Task] = []
        self.operations: set[Task] = set()
        self.driven: Task | None = None  # the one that took the latest step
        self._threads = random.Random(f"threads of {name} under {parameters.seed}")
        self._rate = rate
        self._offset = 1000.0 * (1 + world.random.random())
        self._backlog: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.resumes_at = 0.0
        self._attempts: dict[Send, Attempt | None] = {}
        self._failed = [0] * len(masters)
        self._ticking = [False] * len(masters)
        shown = tuple(f"m{master.index}" for master in masters)
        self.local_queue = LocalQueue()
        self.voters = Voters(shown, parameters.max_ttl, guard=parameters.guard)
        self.settings = MastersSettings(
            masters=shown, node_timeout=parameters.node_timeout, drift_factor=parameters.drift_factor,
            fence_ttl=parameters.fence_ttl, voters=self.voters, fences=FenceClock(self.wall_ns), token=self.token,
            outages=cast("Outages", self), random=world.random.random, mark=count(1).__next__,
        )  # fmt: skip
        self.links = [Link(world, parameters, self, master) for master in masters]
        self.exchange = ClientExchange(self, len(masters))
        self.pipelines: list[Pipeline] = self.exchange.pipelines
        self._heard_at = [-math.inf] * len(masters)
        self.hearing = Hearing(self, masters)
        self.renewer = Renewer(self)

    def __repr__(self) -> str:
        return self.name

    # -- sources of what is not pure -----------------------------------------------------------------

    def clock(self) -> float:
        """Monotonic: runs at its own rate, and through pauses (R5)."""
        return self._offset + self._rate * self.world.now

    def true_time(self, clock: float) -> float:
        return (clock - self._offset) / self._rate

    def wall_ns(self) -> int:
        return int((EPOCH + self.world.now + self.skew) * 1_000_000) * 1000

    def token(self) -> str:
        return f"{self.world.random.getrandbits(64):016x}"

    def later(self, action: Callable[..., None], *args: Any) -> None:
        """When the thread or the task of an operation comes to it."""
        late = 0.0
        if self.late and self._threads.random() < 0.5:
            late = self._threads.uniform(0.0, self.late)
        self.world.after(late, self.gate, action, *args)

    since = 0.0  # as in an outage: so it hears of every attempt

    def attempted(self, tally: Tally, _: float) -> None:
        assert self.driven is not None
        if self.driven.attempt is None:
            return  # it only looks
        self.driven.refused = not (tally.won or tally.unreachable)
        # Not one that answers and whose vote does not count: it would not after a release either.
        said_no = ("held", *(outcome for outcome, part in OUTCOMES.items() if part == ("absent", False)))
        no = {master for master, vote in enumerate(tally.votes()) if vote.outcome in said_no}
        # Won, and refused all the same by the round for the fence: nobody tells us by whom.
        self.driven.refused_by = set() if tally.won else no

    # -- operations ----------------------------------------------------------------------------------

    def run(
        self,
        op: Op[Any],
        done: Callable[[Task, Any, BaseException | None], None],
        attempt: Attempt | None = None,
        on_send: Callable[[Send, Task], None] | None = None,
        *,
        background: bool = False,
    ) -> Task:
        """Start an operation; ``done`` is told how it ended: the value, or what interrupted it."""
        task = Task(self, op, done, attempt)
        task.background = background
        if on_send is not None:
            task.on_send = lambda request: on_send(request, task)
        self.tasks.append(task)
        task.start()
        self.tasks = [other for other in self.tasks if not other.over]
        return task

    def now(self) -> float:
        return self.clock()

    def send(self, request: Send, task: Task) -> None:
        place = request.enters
        if place is not None and not self.local_queue.enter(place, task, self.clock()):
            return
        error = self.perform(request, task)
        if error is not None:
            raise error
        if request.leaves is not None:
            self.let_pass(request.leaves)

    def perform_local(self, effect: LocalEffect, task: Task) -> None:
        if isinstance(effect, Leave):
            self.let_pass(effect.place, stays=effect.stays)
        elif isinstance(effect, Listen):
            self.hearing.listen(effect.subscription, task)
        elif isinstance(effect, LookAhead):
            effect.learned = self.local_queue.look_ahead(effect.place)
        elif isinstance(effect, WakeBehind):
            self._tell(self.local_queue.behind(effect.place))
        elif isinstance(effect, ReleaseHeard):
            others = self.hearing.subscriptions.others_heard(effect.keys, effect.heard)
            self.local_queue.released(effect.keys, effect.took, self.clock(), others=others)
        else:
            effect.stop.subscribe(effect, lambda: self.world.after(0.0, self.gate, task.put, Turn(self.clock())))

    def read_and_close(self, request: Send | None) -> None:
        if request is not None:
            self.judge.timed_out(request)
            request.open = False

    def step_soon(self, task: Task) -> None:
        """It has an event: its thread or its loop comes to it."""
        self.later(task.step)

    def let_pass(self, gone: Place, *, stays: bool = False) -> None:
        """Those who are first in line now go on, in an instant of their own (R23)."""
        turns = self.local_queue.leave(gone, stays)
        for place in turns:
            self.local_queue.set_yield_until(place, self.clock(), turn=True)
        self._tell(turns)

    def _tell(self, places: list[Place]) -> None:
        for place in places:
            if place.inbox is not None:  # else it knows by now
                self.world.after(0.0, self.gate, place.inbox.put, Turn(self.clock()))

    def perform(self, request: Send, task: Task) -> BaseException | None:
        """Carry out a `Send`.  Returns what interrupted it."""
        if request.only_if is not None and not request.only_if():
            return None
        if task.on_send is not None:
            task.on_send(request)
        task.raced = task.raced or request.call.script is scripts.FENCE
        if request.call.script in (scripts.SETTLE, scripts.SETTLE_SHARED):
            task.refused, task.refused_by = (
                False,
                set(),
            )  # whether its last round is refused, and by whom, nobody tells us
        self.judge.sent(request, task.attempt)
        self._attempts[request] = task.attempt
        request.sent_at, request.inbox = self.clock(), task
        targets = list(range(len(self.links)) if request.to is None else sorted(request.to))
        interrupted = 0 <= task.interrupt_in < len(targets)
        if interrupted:
            targets = targets[: task.interrupt_in]
        self.exchange.send(request, targets)
        if interrupted:
            task.interrupt_in = -1
            self.world.log("interrupted in", request.call.script.name, task.attempt)
            return Cancelled()
        task.interrupt_in = max(-1, task.interrupt_in - len(targets))
        return None

    def write(self, master: int, request: Send, *, text: bool) -> None:
        message = Message(request.call, self._attempts.get(request), text=text)
        self.links[master].write(message, self.resumes_at)

    # -- links ---------------------------------------------------------------------------------------

    def connect(self, link: Link) -> None:
        if self.crashed or link.connection is not None:
            return
        connection = link.open()
        link.write(Message(None))
        link.write(Message(wire.announce(PREFIX, self.parameters.max_ttl), text=True))
        patience = 4 * self.parameters.node_timeout
        self.world.after(patience, self.gate, self._too_long, link, connection)

    def _too_long(self, link: Link, connection: Connection) -> None:
        if link.connection is connection and self.pipelines[link.master.index].down is not None:
            self._lose(link, "no answer while connecting")

    def on_reset(self, link: Link, connection: Connection) -> None:
        if link.connection is connection:
            self._lose(link, "connection reset")

    def on_answer(self, link: Link, connection: Connection, value: Any, origin: tuple[int, float, bool]) -> None:
        if link.connection is not connection:
            return
        master = link.master.index
        pipeline, now = self.pipelines[master], self.clock()
        if pipeline.down is not None:
            self._shake_hands(link, connection, value, now)
            return
        request = request_of(pipeline.under_way[0])
        self._heard_at[master] = now
        if request.open and not isinstance(value, ErrorReply):
            incarnation, born_at, forgot = origin
            age = self.world.now - born_at
            caller: Any = request.inbox
            caller.origins.setdefault(request, {})[master] = (incarnation, age, forgot)
        self.exchange.feed(master, value, now)

    def write_more(self, master: int, answered: Send) -> None:
        """What an answer asks for."""
        for more in self.pipelines[master].more():
            request, text = request_of(more), isinstance(more, SentAgain)
            if not text:  # else it is known: it was sent by its name before
                # Of a round for many nobody but the token says whose key is given back.
                attempt = self._attempts[answered] or self.judge.whose(request.call)
                self._attempts[request] = attempt
                self.judge.sent(request, attempt)
            self.write(master, request, text=text)
        self._tick_later(master)

    def _shake_hands(self, link: Link, connection: Connection, value: Any, now: float) -> None:
        if connection.facts is None:
            if isinstance(value, ErrorReply):
                self._lose(link, value.text)
            else:
                connection.facts = value
            return
        master = link.master.index
        facts = connection.facts  # all have one max_ttl, and nobody looks when it was announced
        if self._heard_at[master] > -math.inf:
            self.voters.heard(master, self._heard_at[master])
        self.voters.admit(master, facts, now)
        self._failed[master] = 0
        self.exchange.connected(master)
        self.world.log("connected", link, facts)
        self._write_due(master)

    def _lose(self, link: Link, why: str) -> None:
        """The connection is gone: tell whoever waits for an answer, and connect again later."""
        master = link.master.index
        self.world.log("disconnected", link, why)
        link.abandon()
        self._failed[master] += 1
        pause = delay(BETWEEN_CONNECTIONS, self._failed[master])
        self.world.after(pause, self.gate, self.connect, link)
        pipeline, failure = self.pipelines[master], Failure("error", why)
        pipeline.plain = False
        if pipeline.down is None:
            pipeline.broken(failure, self.clock())
        else:
            pipeline.unreachable(failure._replace(sent=False), self.clock())

    def _write_due(self, master: int) -> None:
        for owed in self.pipelines[master].due(self.clock()):
            self.write(master, owed.request, text=False)

    def _tick_later(self, master: int) -> None:
        if self.pipelines[master]._owed and not self._ticking[master]:
            self._ticking[master] = True
            self.world.after(TICK, self.gate, self._tick, master)

    def _tick(self, master: int) -> None:
        self._ticking[master] = False
        self._write_due(master)
        self._tick_later(master)

    # -- faults --------------------------------------------------------------------------------------

    def gate(self, action: Callable[..., None], *args: Any) -> None:
        """Everything that happens to this process passes here: nothing does while it stands still."""
        if self.crashed:
            return
        if self.paused:
            self._backlog.append((action, args))
        else:
            action(*args)

    def pause(self, seconds: float) -> None:
        self.paused = True
        self.resumes_at = max(self.resumes_at, self.world.now + seconds)

    def resume(self, *, now: bool = False) -> None:
        """Everything at once.  Whether an alarm or an answer is looked at first is anybody's guess."""
        if now:
            self.resumes_at = 0.0
        if not self.paused or self.world.now < self.resumes_at:
            return
        self.paused = False
        self.resumed_at = self.clock()
        self.judge.resumed(self)
        backlog, self._backlog = self._backlog, []
        if self.world.random.random() < 0.5:
            backlog.sort(key=lambda step: getattr(step[0], "__name__", "") != "_alarm")
        for action, args in backlog:
            self.gate(action, *args)

    def calm(self, *, down: bool) -> None:
        """From now on nothing is unusually late; or it is again."""
        for link in (*self.links, *self.hearing.subscribers):
            link.calm(down=down)

    def crash(self) -> None:
        """SIGKILL: its kernel closes the sockets, what was written may still arrive."""
        self.crashed = True
        self.crashed_at = self.world.now
        for link in self.links:
            link.abandon()
        self.hearing.hang_up()
        self.judge.crashed(self)
