"""Fleets that change their masters one at a time (R34): a small simulation of its own.

Clients come with the list of the day, late with the one before, crash, close, and stand still; an operator changes the
list.  `Fleet`, `Voters`, `attempt`, `extend` and the Lua files are those that are shipped.  A round takes no time here, but
its client may stand still before it reads the answers, and a master may miss it: so many a lease has a bare majority.

Every list reaches every master, for only so the check promises anything; `blind` shows what it does not find.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tenacity.wait import wait_none

from redlock._core import wire
from redlock._core.acquire import Grant, attempt
from redlock._core.effects import Send, Timeout
from redlock._core.extend import extend
from redlock._core.fencing import FenceClock
from redlock._core.fleet import Fleet
from redlock._core.lease import LeaseState
from redlock._core.settings import LockSpec, MastersSettings
from redlock._core.voters import Facts, Voters
from tests.simulation.invariants import P1, P2, Violation
from tests.simulation.master import ENGINE, EPOCH, Keyspace

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.extend import Extension
    from redlock._core.wire import Call, Says

PREFIX = "redlock:"
KEYS = wire.keys_for(PREFIX, ["lock"])
MAX_TTL = 4.0
MISSES = 0.25  # the share of requests that do not get to a master, or whose answers are lost
STANDS = 0.02  # the share of rounds before the end of which a client stands still


@dataclass(frozen=True)
class Settings:
    """One run.  ``refuses``: the masters have names.  Else nobody may run a list that is two steps away."""

    seed: int
    size: int
    clients: int
    refuses: bool
    at_once: int = 1  # addresses that a step changes
    waits: bool = True  # a step waits until the list before is gone
    blind: bool = False  # two fleets without a master in common
    duration: float = 60.0
    drift_factor: float = 0.01


def settings(seed: int, **fixed: Any) -> Settings:
    chance = random.Random(f"fleet of {seed}")
    values: dict[str, Any] = {
        "size": chance.choice((2, 3, 3, 4, 5, 5, 7)), "clients": chance.choice((2, 3, 4, 5)),
        "refuses": chance.random() < 0.6,
    }  # fmt: skip
    return Settings(seed, **(values | fixed))


class Server(Keyspace):
    """A master that is always there."""

    def __init__(self, fleet: FleetRun, rate: float) -> None:
        super().__init__()
        self._fleet = fleet
        self._rate = rate

    def run(self, call: Call) -> Any:
        self.now_ms = int((EPOCH + self._fleet.now * self._rate) * 1000)
        return ENGINE.run(call.script.name, call.script.text, self, list(call.keys), list(call.args))


class Client:
    """One process after another that has the same place in a deployment."""

    def __init__(self, run: FleetRun, number: int) -> None:
        self.run, self.number = run, number
        self.life = 0  # what is planned for an earlier process is void
        self.ended_at = -math.inf
        self.stands_until = 0.0
        self.held: LeaseState | None = None
        self.unread: list[tuple[Send, int, Any]] = []

    def start(self, masters: tuple[str, ...]) -> None:
        run = self.run
        self.life, self.ended_at = self.life + 1, math.inf
        self.stands_until, self.held, self.unread = 0.0, None, []
        self.masters = masters
        self.name = f"c{self.number}.{self.life}"
        rate = 1 + run.chance.choice((-1, 1)) * 0.49 * run.settings.drift_factor
        self.clock = lambda: 1000.0 + run.now * rate
        self.true = lambda at: (at - 1000.0) / rate
        self.fleet = Fleet(masters, MAX_TTL, run.settings.drift_factor, refuses=run.settings.refuses)
        self.voters = Voters(masters, MAX_TTL, guard=False, fleet=self.fleet)
        self.settings = MastersSettings(
            masters=masters, node_timeout=0.5, drift_factor=run.settings.drift_factor, fence_ttl=3600.0,
            voters=self.voters, fences=FenceClock(lambda: int((EPOCH + run.now) * 1e6)), token=run.token,
            random=run.chance.random,
        )  # fmt: skip
        run.log(self.name, "starts with", masters)
        self._announce("new", first=True)
        self._plan(0.0 if self.fleet.in_the_way else self.fleet.first_pause, self._refresh)
        self._plan(run.chance.uniform(0.0, 1.0), self._acquire)
        self._plan(run.chance.uniform(2.0, 30.0), self._end)
        self._plan(run.chance.uniform(0.0, 30.0), self._stand_still)

    def _plan(self, after: float, what: Callable[[], None]) -> None:
        self.run.later(after, self._do, self.life, what)

    def _do(self, life: int, what: Callable[[], None]) -> None:
        if life != self.life:
            return
        if self.run.now < self.stands_until:
            # Which of what is overdue comes first then is anybody's guess.
            self.run.later(self.stands_until - self.run.now + self.run.chance.random() * 1e-3, self._do, life, what)
            return
        what()

    # -- the list ------------------------------------------------------------------------------------

    def _announce(self, says: Says, *, first: bool = False) -> None:
        call = wire.fleet(PREFIX, self.fleet.names, self.name, says, self.fleet.life)
        order = list(enumerate(self.masters))
        self.run.chance.shuffle(order)
        for master, name in order:
            at = self.clock()
            lists = wire.read_fleet(self.run.server(name).run(call))
            if says == "left":
                continue
            if first:
                self.voters.admit(master, Facts(f"run of {name}", 10**6, lists=lists, asked_at=at), at)
            else:
                self.voters.told(master, lists, at, at)

    def _refresh(self) -> None:
        self._announce(self.fleet.announcing(self.clock()))
        if self.fleet.in_the_way:
            self._announce(self.fleet.announcing(self.clock()))
        if self.fleet.rejected:
            self.run.refused += 1
        self._plan(self.fleet.pause * self.run.chance.uniform(0.5, 1.0), self._refresh)

    # -- the lock ------------------------------------------------------------------------------------

    def _acquire(self) -> None:
        self._try(self._acquired)

    def _try(self, done: Callable[[LockSpec, Any], None]) -> None:
        ttl = self.run.chance.choice((1.0, MAX_TTL))
        spec = LockSpec(("lock",), KEYS, ttl, 0.02 * ttl, wait_none())
        self._drive(attempt(self.settings, spec), partial(done, spec))

    def _acquired(self, spec: LockSpec, grant: object) -> None:
        if not isinstance(grant, Grant):
            self._plan(self.run.chance.uniform(0.05, 0.5), self._acquire)
            return
        lease = LeaseState(spec.names, spec.ttl, grant, clock=self.clock, mine=lambda: True)
        self.run.granted(self, lease)
        self.held = lease
        self._plan(spec.ttl / 3, partial(self._renew, spec, lease))
        self._plan(self.run.chance.choice((0.2, 1.0, 2.5)) * spec.ttl, partial(self._release, lease))

    def _had_for_a_moment(self, spec: LockSpec, grant: object) -> None:
        """Another thread of the process: it comes when that wakes."""
        if isinstance(grant, Grant):
            lease = LeaseState(spec.names, spec.ttl, grant, clock=self.clock, mine=lambda: True)
            self.run.granted(self, lease)
            self._let_go(lease)

    def _renew(self, spec: LockSpec, lease: LeaseState) -> None:
        if self.held is lease:
            self._drive(extend(self.settings, spec, lease, spec.ttl, self.clock()), partial(self._renewed, spec, lease))

    def _renewed(self, spec: LockSpec, lease: LeaseState, extension: Extension) -> None:
        if self.held is lease and extension.kind == "kept":
            self.run.extended(self, lease)
        if lease.valid:
            self._plan(spec.ttl / 3, partial(self._renew, spec, lease))

    def _release(self, lease: LeaseState) -> None:
        self.held = None
        self._let_go(lease)
        self._plan(self.run.chance.uniform(0.0, 1.0), self._acquire)

    def _let_go(self, lease: LeaseState) -> None:
        self.run.over(self)
        lease.end()
        self._send(Send(wire.release(KEYS, lease.token), owed_until=math.inf))

    def _drive(self, op: Any, done: Callable[[Any], None], event: Any = None) -> None:
        """Run ``op`` until it waits, and go on with it when it has what it waits for."""
        try:
            while True:
                effect = op.send(event)
                event = None
                if isinstance(effect, Send):
                    self._send(effect)
                    if effect.wait_for is None:
                        continue
                if self.run.chance.random() < STANDS:
                    self._stand_still()  # in the middle of it
                self._plan(0.0, partial(self._go_on, op, done))
                return
        except StopIteration as stop:
            done(stop.value)

    def _go_on(self, op: Any, done: Callable[[Any], None]) -> None:
        """All answers are read at once, and no other one will come."""
        unread, self.unread = self.unread, []
        for request, master, value in unread:
            if request.open:
                request.answered(master, value, self.clock())
        self._drive(op, done, Timeout(self.clock()))

    def _send(self, request: Send) -> None:
        request.sent_at = self.clock()
        chance = self.run.chance
        misses = MISSES if request.owed_until is None else 0.0
        to = range(len(self.masters)) if request.to is None else request.to
        for master in chance.sample(sorted(to), len(to)):
            lost = chance.random() < misses
            if lost and chance.random() < 0.5:  # half of the requests, and half of the answers
                continue
            value = self.run.server(self.masters[master]).run(request.call)
            if not lost:
                self.unread.append((request, master, value))

    # -- the end -------------------------------------------------------------------------------------

    def _stand_still(self) -> None:
        # Of the time for which a list counts.  Without names nobody may run a list that was forgotten.
        least, most = self.run.chance.choice(((0.1, 0.5), (0.9, 1.5))) if self.run.settings.refuses else (0.1, 0.5)
        self.stands_until = self.run.now + self.run.chance.uniform(least, most) * self.fleet.life
        self._plan(0.0, partial(self._try, self._had_for_a_moment))
        self._plan(self.run.chance.uniform(0.0, 30.0), self._stand_still)
        self.run.log(self.name, "stands still until", f"{self.stands_until:.3f}")

    def _end(self) -> None:
        run = self.run
        crashes = run.chance.random() < 0.5
        run.log(self.name, "crashes" if crashes else "closes")
        if not crashes:
            self._announce("left")
        self.life, self.ended_at = self.life + 1, run.now
        run.later(run.chance.choice((0.1, 3.0)), self.run.begin, self)


class FleetRun:
    """One fleet, and who changes its masters."""

    def __init__(self, given: Settings) -> None:
        self.settings = given
        self.chance = random.Random(f"run of the fleet of {given.seed}")
        self.now = 0.0
        self._events: list[Any] = []
        self._order = itertools.count()
        self._servers: dict[str, Server] = {}
        self._names = itertools.count(given.size)
        self.lists = [tuple(f"m{number}" for number in range(given.size))]
        self._growing = True
        self._late = self.chance.choice(((0, 0, 1, 1, 2, 2, 3, 4), (0, 2), (0, 0, 3), (0, 4)))
        for _ in range(4 if given.refuses else 0):  # for clients that come with a list of before
            self.lists.append(self._next())
        self.lines: list[str] = []
        self.grants = self.extensions = self.steps = self.refused = 0
        self._latest: tuple[Client, float, int] | None = None
        self._tokens = itertools.count()
        self.clients = [Client(self, number) for number in range(given.clients)]

    def play(self) -> FleetRun:
        for client in self.clients:
            self.later(self.chance.uniform(0.0, 1.0), self.begin, client)
        self.later(1.0, self._operate)
        while self._events and self.now < self.settings.duration:
            self.now, _, action, args = heapq.heappop(self._events)
            action(*args)
        return self

    def later(self, after: float, action: Callable[..., None], *args: Any) -> None:
        heapq.heappush(self._events, (self.now + after, next(self._order), action, args))

    def log(self, *what: object) -> None:
        self.lines.append(f"{self.now:9.4f}  " + " ".join(map(str, what)))

    def token(self) -> str:
        return f"token-{next(self._tokens)}"

    def server(self, name: str) -> Server:
        if name not in self._servers:
            self._servers[name] = Server(self, 1 + self.chance.choice((-1, 1)) * 0.49 * self.settings.drift_factor)
        return self._servers[name]

    # -- who has which list --------------------------------------------------------------------------

    def begin(self, client: Client) -> None:
        if self.settings.blind and client.number % 2:
            client.start(tuple(f"other-{name}" for name in self.lists[0]))
            return
        # Names are checked, so a client may come with any list.  Else it may be late by one step.
        late = self.chance.choice(self._late if self.settings.refuses else (0, 0, 1))
        # What has no master in common with a list in use is not found.
        used = [set(other.masters) for other in self.clients if other.life and self.now - other.ended_at < 2 * MAX_TTL]
        while late and any(masters.isdisjoint(self._before(late)) for masters in used):
            late -= 1
        if any(masters.isdisjoint(self._before(late)) for masters in used):
            self.later(1.0, self.begin, client)
        else:
            client.start(self._before(late))

    def _before(self, steps: int) -> tuple[str, ...]:
        return self.lists[max(0, len(self.lists) - 1 - steps)]

    def _operate(self) -> None:
        """The next step, if the list before is gone: as redlock-check would say it."""
        self.later(self.chance.uniform(0.2, 2.0), self._operate)
        now = self.lists[-1]
        if self.settings.blind or (self.settings.waits and self._alive() - {frozenset(now)}):
            return
        self.lists.append(self._next())
        self.steps += 1
        self.log("the list is", self.lists[-1])

    def _next(self) -> tuple[str, ...]:
        masters = list(self.lists[-1])
        for _ in range(self.settings.at_once):
            if self._growing or len(masters) == 1:
                masters.append(f"m{next(self._names)}")
            else:
                masters.pop(self.chance.choice((0, self.chance.randrange(len(masters)))))
            self._growing = not self._growing
        return tuple(masters)

    def _alive(self) -> set[frozenset[str]]:
        found = set()
        for server in self._servers.values():
            server.now_ms = int((EPOCH + self.now) * 1000)
            key = server.keys.get(wire.fleet_key(PREFIX))
            for value in (key.value if key is not None else {}).values():
                entry = wire.read_fleet_entry(value.encode())
                if entry is not None and EPOCH + self.now < entry.seen + entry.life * 1.02 and entry.mark != "-":
                    found.add(entry.names)
        return found

    # -- the judge -----------------------------------------------------------------------------------

    def granted(self, client: Client, lease: LeaseState) -> None:
        self.grants += 1
        until = client.true(lease.valid_until)
        if until <= self.now:  # it stood still between the last answer and the return
            return
        self.log(client.name, "holds until", f"{until:.3f}", "fence", lease.fence, client.masters)
        assert lease.fence is not None
        if self._latest is not None:
            other, ends, fence = self._latest
            if self.now < ends:
                self.fail(P1, f"{client.name} {client.masters} and {other.name} {other.masters}")
            if lease.fence <= fence:
                self.fail(P2, f"{client.name} has {lease.fence}, and {other.name} had {fence}")
        self._latest = client, until, lease.fence

    def extended(self, client: Client, lease: LeaseState) -> None:
        self.extensions += 1
        until = client.true(lease.valid_until)
        self.log(client.name, "holds on until", f"{until:.3f}")
        assert self._latest is not None
        other, _, fence = self._latest
        if other is not client:
            self.fail(P1, f"{client.name} {client.masters} goes on, and {other.name} {other.masters} has it")
        self._latest = client, until, fence

    def over(self, client: Client) -> None:
        if self._latest is not None and self._latest[0] is client:
            self._latest = client, self.now, self._latest[2]

    def fail(self, invariant: str, text: str) -> None:
        self.log("VIOLATION", invariant, text)
        raise Violation(invariant, text)
