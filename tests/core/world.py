"""A scripted world for one operation: masters that answer when and what a table says, and a clock.

    world = World(Master(0.1), Master(0.2), Master(NEVER))
    grant = world.run(world.acquire(world.plan(), deadline=START + 1.0))
    assert world.now == pytest.approx(START + 0.2)

Nothing here decides anything: a master says what it was told to say, and `World` keeps the record of
what was sent to whom and when.  Many clients at once, with masters that run the real scripts, are the
business of ``tests/simulation``.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, cast

from tenacity.wait import wait_fixed

from redlock._core import wire
from redlock._core.acquire import Target, acquire
from redlock._core.effects import (
    Leave,
    Listen,
    LookAhead,
    Notified,
    Op,
    ReleaseHeard,
    Send,
    Timeout,
    Turn,
    Wait,
    WakeBehind,
)
from redlock._core.kernel.attempt import attempt
from redlock._core.kernel.ballot import Grant, Refusal
from redlock._core.kernel.extension import extend
from redlock._core.kernel.quorum import Tally
from redlock._core.kernel.release import release
from redlock._core.lease import LeaseState
from redlock._core.local_queue import LocalQueue
from redlock._core.modes import EXCLUSIVE
from redlock._core.outages import Outages
from redlock._core.outcomes import Failure
from redlock._core.settings import LockSpec, MastersSettings
from redlock._core.subscriptions import Subscriptions
from redlock._core.tokens import FenceClock
from redlock._core.voters import Facts, Voters
from tests.core.resp import encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redlock._core.effects import Effect, LocalEffect
    from redlock._core.kernel.extension import Extension
    from redlock.errors import Vote

T = TypeVar("T")

NEVER = math.inf
START = 100.0  # not 0: a monotonic clock has been running for a while
WALL = 1_700_000_000_000_000  # the wall clock in µs, which stands still unless a test moves it
OTHER = "somebody-else"
GONE: list[Any] = [0, b""]  # said to an extension, or to a release
TAKEN: list[Any] = [0, OTHER.encode()]

# A value, or what makes one of the call that is answered.
Says: TypeAlias = "Any | Callable[[wire.Call], Any]"


@dataclass
class Master:
    """Answers every request ``after`` so many seconds, or ``slow[verb]``, with ``says[verb]``.

    Unless it is told otherwise it grants everything.  An answer that is a `Failure` stands for what the
    driver reports: with ``sent=False`` it is one that is known to be down.
    """

    after: float = 0.0
    says: dict[str, Says] = field(default_factory=dict)
    slow: dict[str, float] = field(default_factory=dict)

    def answer(self, call: wire.Call) -> tuple[float, Any]:
        verb = call.script.name
        said = self.says[verb] if verb in self.says else GRANTS[verb]
        return self.slow.get(verb, self.after), said(call) if callable(said) else said


GRANTS: dict[str, Says] = {
    # {1, fence}: what was proposed is stored, "0" without fence keys
    "acquire": lambda call: [1, call.args[3].encode() if len(call.keys) > int(call.args[0]) else b"0"],
    "fence": lambda call: [1, call.args[2].encode()],
    "extend": [1],
    "renew": lambda call: [1] * (len(call.args) // 4),
    "repair": [1],
    "release": [1, 0],
    "status": [b"", -2, b"0"],
    "announce": [60_000, 120_000],
    "known": [b"abc", -1],
}


def held(after: float = 0.0, by: str = OTHER, *, ms: int = 5000, fence: int = 0) -> Master:
    """Somebody else has it, here."""
    return Master(after, {"acquire": [0, str(fence).encode(), by.encode(), ms]})


def ours(after: float = 0.01) -> Master:
    return Master(after)


def gone(after: float = 0.01) -> Master:
    """The key of the lease is gone, here."""
    return Master(after, {"extend": GONE, "release": GONE})


def taken(after: float = 0.01) -> Master:
    """... and somebody else has the name."""
    return Master(after, {"extend": TAKEN, "release": TAKEN})


def silent() -> Master:
    return Master(NEVER)


def down(reason: str = "connection refused", *, configuration: bool = False) -> Master:
    """Known to be down: fails at once, and nothing leaves for it."""
    return Master(0.0, dict.fromkeys(GRANTS, Failure("error", reason, sent=False, configuration=configuration)))


def breaks(after: float = 0.0) -> Master:
    """The connection breaks under every request: it may have arrived, or not."""
    return Master(after, dict.fromkeys(GRANTS, Failure("error", "connection lost")))


def refuses(reason: str = "NOPERM", *, after: float = 0.0, configuration: bool = True) -> Master:
    """Answers with an error reply, as the pipeline reports one."""
    return Master(after, dict.fromkeys(GRANTS, Failure("error", reason, configuration=configuration)))


def turns(*values: Says) -> Callable[[wire.Call], Any]:
    """One value after the other; the last one for ever."""
    rest = itertools.chain(values[:-1], itertools.repeat(values[-1]))

    def say(call: wire.Call) -> Any:
        value = next(rest)
        return value(call) if callable(value) else value

    return say


@dataclass(frozen=True)
class Sent:
    """One `Send`: when it left, and for whom."""

    at: float
    to: frozenset[int]
    request: Send

    @property
    def verb(self) -> str:
        return self.request.call.script.name

    @property
    def args(self) -> tuple[str, ...]:
        return self.request.call.args

    @property
    def token(self) -> str:
        assert self.verb != "renew", "it has several"
        return self.args[0] if self.verb == "release" else self.args[1]


@dataclass
class Interrupt:
    """Throws ``error`` at the effects whose number is in ``at``, counted from 0.

    ``written``: at a `Send`, to how many masters it was written before the interruption hit.
    """

    at: frozenset[int]
    error: BaseException
    written: int | None = None  # None: not even begun, `Send.sent_at` is not set


class Arrival(NamedTuple):
    """An answer, or a `Failure` in its place, and when it comes."""

    request: Send
    master: int
    at: float
    value: Any


def taking(granted: Callable[[Grant], object] = bool) -> Any:
    return lambda: SimpleNamespace(granted=granted)  # it takes the grant in place of a lease


class World:
    """The masters, the clock, and the record."""

    def __init__(
        self,
        *masters: Master,
        node_timeout: float = 0.25,
        drift_factor: float = 0.01,
        guard: bool = False,
        max_ttl: float = 60.0,
    ) -> None:
        self.masters = masters
        self.now = START
        self.wall = WALL
        self.sent: list[Sent] = []
        self.local_queue = LocalQueue()  # the line in front of the masters (R23)
        self.effects: list[tuple[str, float]] = []  # every effect: what, and when it was asked for
        self.arrived: list[Arrival] = []  # in the order in which they reached the client
        self._decided: Send | None = None  # by what was known when it was written
        self._pending: list[tuple[float, int, Arrival | Callable[[], object]]] = []
        self.subscriptions = Subscriptions(len(masters))  # what is announced (R24)
        self._order = itertools.count()
        self._tokens = (f"token-{number}" for number in itertools.count(1))
        names = tuple(f"redis-{letter}:6379" for letter in "abcdefghijklmnop"[: len(masters)])
        voters = Voters(names, max_ttl, restart_guard=guard)
        for master in range(len(masters)):
            voters.admit(master, Facts(run_id=f"run-{master}", uptime=10**6), START)
        self.settings = MastersSettings(
            masters=names,
            node_timeout=node_timeout,
            drift_factor=drift_factor,
            fence_ttl=3600.0,
            voters=voters,
            fences=FenceClock(lambda: self.wall * 1000),
            token=lambda: next(self._tokens),
            random=lambda: 1.0,
            outages=Outages(lambda *_: None),
        )

    def spec(
        self,
        *names: str,
        ttl: float = 10.0,
        min_validity: float | None = None,
        fencing: bool = True,
        pause: float = 0.5,
    ) -> LockSpec:
        """``pause``: between attempts, always the same, so that tables have exact times."""
        names = names or ("invoice:42",)
        keys = wire.keys_for("redlock:", names, fencing=fencing)
        floor = ttl / 2 if min_validity is None else min_validity
        return LockSpec(names=names, keys=keys, mode=EXCLUSIVE, ttl=ttl, min_validity=floor, retry=wait_fixed(pause))

    def target(self, *, names: tuple[str, ...] = (), **options: Any) -> Target:
        return Target(self.settings, self.spec(*names, **options), taking())

    def lease(self, spec: LockSpec, **changes: Any) -> LeaseState:
        """One that was granted just now, on all masters unless ``changes`` says otherwise."""
        granted: dict[str, Any] = {
            "token": "token-0",
            "fence": WALL if spec.fencing else None,
            "valid_until": self.now + spec.ttl * 0.99 - 0.002,
            "decided_at": self.now,
            "asked": frozenset(range(len(self.masters))),
            "votes": _no_votes,
        }
        grant = Grant(**(granted | changes))
        return LeaseState(spec, grant, clock=lambda: self.now, mine=lambda: True)

    def resumed(self, spec: LockSpec) -> LeaseState:
        """One of another process."""
        everywhere = frozenset(range(len(self.masters)))
        state = LeaseState(spec, clock=lambda: self.now, mine=lambda: True)
        state.taken_over(Grant("token-0", WALL, self.now + spec.ttl, self.now, everywhere, _no_votes))
        return state

    def acquired(self, spec: LockSpec) -> LeaseState:
        """One that is acquired now, at the first attempt."""
        return LeaseState(
            spec, self.granted(self.acquire(spec, deadline=START)), clock=lambda: self.now, mine=lambda: True
        )

    def acquire(self, spec: LockSpec, *, deadline: float, granted: Any = bool) -> Op[Grant | Refusal]:
        return acquire(Target(self.settings, spec, taking(granted)), deadline, self.now)

    def granted(self, op: Op[Grant | Refusal] | None = None, **spec: Any) -> Grant:
        """What ``op`` ends with, or one attempt."""
        outcome = self.run(op or attempt(self.target(**spec)))
        assert isinstance(outcome, Grant)
        return outcome

    def refused(self, op: Op[Grant | Refusal] | None = None, **spec: Any) -> Refusal:
        outcome = self.run(op or attempt(self.target(**spec)))
        assert isinstance(outcome, Refusal)
        return outcome

    # -- driving -------------------------------------------------------------------------------------

    def run(self, op: Op[T], interrupt: Interrupt | None = None) -> T:
        """Drive ``op`` to its end.  An interruption is thrown into it, as by every driver (R11)."""
        event: Any = None
        error: BaseException | None = None
        besides: list[Effect] = []  # what the latest `Send` asks for as well
        try:
            while True:
                effect = besides.pop(0) if besides else op.send(event) if error is None else op.throw(error)
                event = error = None
                number = len(self.effects)
                assert number < 100_000, "it goes on for ever"
                name = "Send" if isinstance(effect, Send) else type(effect).__name__
                self.effects.append((name, self.now))
                if interrupt is not None and number in interrupt.at:
                    if isinstance(effect, Send) and interrupt.written is not None:
                        self._write(effect, interrupt.written)
                    error, besides = interrupt.error, []
                elif isinstance(effect, Send):
                    besides = self._send(effect)
                elif isinstance(effect, Wait):
                    event = self._next(effect)
                else:
                    self._perform_local(effect)
        except StopIteration as stop:
            return cast("T", stop.value)

    def _send(self, request: Send) -> list[Effect]:
        """Returns what is to be done then, before its operation goes on."""
        if request.meanwhile is not None:
            request.meanwhile()
        if request.enters is not None and not self.local_queue.enter(request.enters, None, self.now):
            return []
        self._decided = request if self._write(request) else None
        besides: list[Effect] = [] if request.leaves is None else [Leave(request.leaves)]
        if request.wait_for is not None:
            besides.append(Wait(self.now + request.wait_for, closes=request))
        return besides

    def _perform_local(self, effect: LocalEffect) -> None:
        if isinstance(effect, Leave):
            self.local_queue.leave(effect.place, effect.stays)
        elif isinstance(effect, LookAhead):
            effect.learned = self.local_queue.look_ahead(effect.place)
        elif isinstance(effect, WakeBehind):
            self.local_queue.behind(effect.place)
        elif isinstance(effect, ReleaseHeard):
            others = self.subscriptions.others_heard(effect.keys, effect.heard)
            self.local_queue.released(effect.keys, effect.took, self.now, others=others)
        elif isinstance(effect, Listen):
            self.subscriptions.add(effect.subscription)
        else:
            effect.stop.subscribe(effect, lambda: self.later(0.0, lambda: True))

    def announce(self, after: float, master: int, token: str, name: str = "invoice:42") -> None:
        """In so many seconds from now a master announces that ``token`` is released."""
        channel = wire.channel(f"redlock:{name}")
        self.later(after, lambda: self.subscriptions.announced(master, channel, token.encode()))

    def subscribe(self, after: float, master: int, name: str = "invoice:42") -> None:
        """In so many seconds from now a master confirms that it will announce releases."""
        channel = wire.channel(f"redlock:{name}")
        self.later(after, lambda: self.subscriptions.confirmed(master, channel))

    def later(self, after: float, what: Callable[[], object]) -> None:
        """In so many seconds from now ``what`` is called.  If it returns something, a waiting operation looks around."""
        heapq.heappush(self._pending, (self.now + after, next(self._order), what))

    def _write(self, request: Send, first: int | None = None) -> bool:
        """True: it is decided already."""
        if request.only_if is not None and not request.only_if():
            return False
        request.sent_at = self.now
        asked = range(len(self.masters)) if request.to is None else sorted(request.to)
        to = frozenset(list(asked)[:first])
        self.sent.append(Sent(self.now, to, request))
        decided = False
        for master in sorted(to):
            after, value = self.masters[master].answer(request.call)
            arrival = Arrival(request, master, self.now + after, value)
            if after <= 0 and isinstance(value, Failure):  # it is down: known at once
                decided |= self._tell(arrival)
            elif after < NEVER:
                heapq.heappush(self._pending, (arrival.at, next(self._order), arrival))
        return decided

    def _tell(self, arrival: Arrival) -> bool:
        """What a driver does with an answer; True: somebody waits for that."""
        self.arrived.append(arrival)
        request, nothing = arrival.request, cast("tuple[Send, ...]", ())
        request.more = nothing
        decides = self._is_told(arrival)
        for one in request.more:
            self._write(one)
        return decides

    def _is_told(self, arrival: Arrival) -> bool:
        request, master, at, value = arrival
        if isinstance(value, Failure):
            return request.open and request.failed(master, value, at)
        if encoded(value) == request.usual:
            if not request.open and request.counts is not None:
                request.counts.late |= 1 << master
            return request.open and request.voted(master, at)
        if not request.open:
            request.late(master, value, at)
            return False
        try:
            return request.answered(master, value, at)
        except ConnectionAbortedError as error:  # the connection is torn, and all that was asked there fails
            return request.failed(master, Failure("error", f"connection lost: {error}"), at)

    def _next(self, wait: Wait) -> Send | Notified | Turn | Timeout:
        if self._decided is not None and self._decided is wait.closes:
            return self._decided
        while self._pending and self._pending[0][0] <= wait.until:
            at, _, what = heapq.heappop(self._pending)
            self.now = max(self.now, at)
            if not isinstance(what, Arrival):
                if what():
                    return Turn(self.now) if wait.quiet else Notified(self.now)
            elif self._tell(what._replace(at=self.now)):
                return what.request
        assert wait.until < NEVER, "nothing will ever happen"
        self.now = max(self.now, wait.until)
        if wait.closes is not None:
            wait.closes.open = False
        return Timeout(self.now)

    def listen(self, seconds: float) -> None:
        """So much time passes, no operation waits, and whatever comes is read."""
        until = self.now + seconds
        while self._pending and self._pending[0][0] <= until:
            self._next(Wait(self._pending[0][0]))
        self.now = until

    # -- looking -------------------------------------------------------------------------------------

    def verbs(self) -> list[str]:
        return [sent.verb for sent in self.sent]

    def all(self, verb: str) -> list[Sent]:
        return [sent for sent in self.sent if sent.verb == verb]

    def after_start(self) -> float:
        return self.now - START


class Single:
    """One lease, and what its holder does with it; on three masters that have it unless told otherwise."""

    def __init__(
        self,
        *masters: Master,
        names: tuple[str, ...] = (),
        ttl: float = 10.0,
        guard: float = 0.0,
        drift_factor: float = 0.01,
        how: Callable[..., LeaseState] = World.lease,
        **lease: Any,
    ) -> None:
        self.world = World(*(masters or [Master()] * 3), drift_factor=drift_factor)
        self.spec = self.world.spec(*names, ttl=ttl)._replace(guard=guard)
        self.lease = how(self.world, self.spec, **lease)

    def extending(self, ttl: float) -> Op[Extension]:
        return extend(self.world.settings, self.spec, self.lease, ttl, self.world.now)

    def extend(self, ttl: float | None = None, interrupt: Interrupt | None = None) -> str:
        return self.world.run(self.extending(ttl or self.spec.ttl), interrupt).kind

    def releasing(self) -> Op[bool]:
        return release(self.world.settings, self.spec, self.lease)

    def release(self, interrupt: Interrupt | None = None) -> bool:
        return self.world.run(self.releasing(), interrupt)


def tally_of(*outcomes: Any, size: int = 0) -> Tally:
    """What the first masters said, of so many."""
    tally = Tally([f"m{number}" for number in range(size or len(outcomes))])
    for master, outcome in enumerate(outcomes):
        tally.count(master, outcome)
    return tally


def outcomes(votes: Sequence[Vote]) -> list[str]:
    return [vote.outcome for vote in votes]


def _no_votes() -> tuple[Vote, ...]:
    return ()
