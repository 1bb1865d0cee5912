"""Fleets that change their masters one at a time (R34): a small simulation of its own.

Clients come with the list of the day, late with the one before, crash, close, and stand still; some are errands, single
processes that come and go.  An operator changes the list.  `Fleet`, `Voters`, `attempt`, `extend` and the Lua files are
those that are shipped.  A round takes no time here, but some masters of a client are further away than others, it may
stand still before it reads the answers, and a master may miss it: so many a lease has a bare majority.

Three kinds of runs.  In the usual ones every list reaches every master, for only so the check promises P1; `blind` shows
what it does not find.  With `forgets` masters lose the lists (and no locks: R21 is about those).  With `hangs` masters
answer nothing for a while, some from before the clients come.  They keep what they are sent, and do it all when they go
on, one connection after the other in any order, also what came on one that its client has given up.  So two lists may be
in use: then P1 is not promised, but that it ends when the masters that both have were heard by both (`AGREEMENT`).
"""

from __future__ import annotations

import heapq
import itertools
import math
import operator
import random
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

from tenacity.wait import wait_none

from redlock._core import wire
from redlock._core.acquire import Target, attempt
from redlock._core.ballots import Grant
from redlock._core.effects import Send, Timeout
from redlock._core.extend import extend
from redlock._core.fleet import Fleet, compatible
from redlock._core.lease import LeaseState
from redlock._core.outages import Outages
from redlock._core.settings import LockSpec, MastersSettings
from redlock._core.tokens import FenceClock
from redlock._core.voters import Facts, Voters
from redlock._io import announcer
from redlock._io.announcer import Announcer
from tests.simulation.invariants import AGREEMENT, P1, P2, Violation
from tests.simulation.master import ENGINE, EPOCH, Keyspace

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.extend import Extension
    from redlock._core.wire import Call

PREFIX = "redlock:"
KEYS = wire.keys_for(PREFIX, ["lock"])
MAX_TTL = 4.0
NODE_TIMEOUT = 0.5
FAR = 0.9 * NODE_TIMEOUT  # seconds that a round trip takes at most
LIFE = 2 * MAX_TTL
CONNECT_TIMEOUT = 1.0
# Seconds after which two that share several masters have found out that both work: two pauses, and two round trips.
SETTLES = 0.1 * MAX_TTL + 2 * FAR
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
    errands: int = 0  # so many of the clients live for a moment each
    apart: bool = False  # lists share one master, or none
    stops: bool = False  # errands come while another one, with a list that is far apart, stands still for long
    forgets: bool = False  # masters lose the lists
    hangs: bool = False  # masters answer nothing for a while
    early: bool = False  # ... those that lists share when the clients come, and hardly any later
    duration: float = 60.0
    drift_factor: float = 0.01


def settings(seed: int, **fixed: Any) -> Settings:
    chance = random.Random(f"fleet of {seed}")
    values: dict[str, Any] = {
        "size": chance.choice((2, 3, 3, 4, 5, 5, 7)), "clients": chance.choice((2, 3, 4, 5)),
        "refuses": chance.random() < 0.6, "errands": chance.choice((0, 0, 1, 2)),
        "apart": chance.random() < 0.4,
    }  # fmt: skip
    if values["refuses"]:
        values |= chance.choice(
            (
                {}, {}, {"forgets": True}, {"hangs": True, "duration": 80.0}, {"stops": True, "apart": True},
                {"hangs": True, "apart": True, "early": True, "duration": 30.0},
            )
        )  # fmt: skip
    return Settings(seed, **(values | fixed))


class Server(Keyspace):
    """A master that is always there, though it may answer nothing for a while."""

    def __init__(self, fleet: FleetRun, rate: float) -> None:
        super().__init__()
        self._fleet = fleet
        self._rate = rate
        self.hangs_until = 0.0
        self.unserved: dict[Link, list[Callable[[], None]]] = {}

    def hang(self, seconds: float) -> None:
        self.hangs_until = self._fleet.now + seconds
        self._fleet.later(seconds, self._serve)

    def when_served(self, link: Link, serve: Callable[[], None]) -> None:
        if self.hangs_until > self._fleet.now or self.unserved:
            self.unserved.setdefault(link, []).append(serve)
        else:
            serve()

    def _serve(self) -> None:
        if self.hangs_until <= self._fleet.now:
            unserved, self.unserved = list(self.unserved.values()), {}
            self._fleet.chance.shuffle(unserved)
            for serve in itertools.chain(*unserved):
                serve()

    def run(self, call: Call) -> Any:
        self.look_at_clock()
        return ENGINE.run(call.script.name, call.script.text, self, list(call.keys), list(call.args))

    def look_at_clock(self) -> None:
        self.now_ms = int((EPOCH + self._fleet.now * self._rate) * 1000)

    def lists(self) -> dict[frozenset[str], str]:
        """Those that count here, each with its mark."""
        self.look_at_clock()
        key = self.keys.get(wire.fleet_key(PREFIX))
        entries = [wire.read_fleet_entry(value.encode()) for value in (key.value if key is not None else {}).values()]
        now = self.now_ms / 1000
        return {one.names: one.mark for one in entries if one is not None and now <= one.seen + one.life}


@dataclass(eq=False)
class Link:
    """A connection to the master of that name."""

    name: str
    trip: float  # seconds there and back
    under_way: int = 0  # requests
    given_up: bool = False  # nobody reads what is answered on it


class Client:
    """One process after another that has the same place in a deployment."""

    def __init__(self, run: FleetRun, number: int) -> None:
        self.run, self.number = run, number
        self.life = 0  # what is planned for an earlier process is void
        self.ended_at = -math.inf
        self.stands_until = 0.0
        self.errand = number < run.settings.errands
        self.held: LeaseState | None = None
        self.unread: list[tuple[Send, int, Any]] = []
        self.fleet: Any = None

    def start(self, masters: tuple[str, ...]) -> None:
        run = self.run
        self.life, self.ended_at = self.life + 1, math.inf
        self.started_at, self.stands_until, self.held, self.unread = run.now, 0.0, None, []
        far = run.chance.sample(masters, min(len(masters), run.chance.choice((0, 1, 1, 2))))
        if run.settings.apart and run.chance.random() < (0.9 if run.settings.stops else 0.5):
            far = sorted(run.shared)
        self.trip = {name: run.chance.uniform(0.0, FAR) if name in far else 0.0 for name in masters}
        self.links: dict[str, Link] = {}
        self.heard: dict[str, float] = {}  # when each master gave the latest answer about the lists that was read here
        self.masters = masters
        self.name = f"c{self.number}.{self.life}"
        rate = 1 + run.chance.choice((-1, 1)) * 0.49 * run.settings.drift_factor
        self.clock = lambda: 1000.0 + run.now * rate
        self.true = lambda at: (at - 1000.0) / rate
        self.fleet = Fleet(masters, MAX_TTL, run.settings.drift_factor, NODE_TIMEOUT, refuses=run.settings.refuses)
        self.voters = Voters(masters, MAX_TTL, guard=False, fleet=self.fleet)
        self.settings = MastersSettings(
            masters=masters, node_timeout=NODE_TIMEOUT, drift_factor=run.settings.drift_factor, fence_ttl=3600.0,
            voters=self.voters, fences=FenceClock(lambda: int((EPOCH + run.now) * 1e9)), token=run.token,
            random=run.chance.random, outages=Outages(lambda *_: None),
        )  # fmt: skip
        run.log(self.name, "starts with", masters)
        self.announcer = Announcer(self.voters, PREFIX, partial(self._keep_house_in, 0.0))
        self.call: Callable[..., Any] = self.announcer.call
        self.house_at = math.inf
        for master in run.chance.sample(range(len(masters)), len(masters)):
            self._connect(master)
        self._plan(run.chance.choice((0.0, run.chance.random())), self._acquire)
        self._plan(run.chance.uniform(0.2, 3.0) if self.errand else run.chance.uniform(2.0, 30.0), self._end)
        self._plan(run.chance.uniform(0.0, 30.0), self._stand_still)

    @property
    def works(self) -> bool:
        """Whether its votes count, as far as it knows."""
        return self.awake and self.fleet.counts_from < self.clock() < self.fleet.known_until and not self.fleet.refusal

    @property
    def awake(self) -> bool:
        return self.ended_at == math.inf and self.life > 0 and self.run.now >= self.stands_until

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

    # -- what goes to the masters, and comes back in that order --------------------------------------

    def _ask(self, link: Link, call: Call, then: Callable[[Any], None]) -> None:
        server, trip = self.run.server(link.name), link.trip
        link.under_way += 1
        if trip or link.under_way > 1:
            self.run.later(trip / 2, server.when_served, link, partial(self._served, self.life, link, call, then))
        else:
            server.when_served(link, partial(self._served, self.life, link, call, then))

    def _served(self, life: int, link: Link, call: Call, then: Callable[[Any], None]) -> None:
        value = self.run.server(link.name).run(call)  # also if the client is gone, or has given up
        answer = partial(self._reads, life, link, self.run.now, value, then)
        if link.trip:
            self.run.later(link.trip / 2, answer)
        else:
            answer()

    def _reads(self, life: int, link: Link, served_at: float, value: Any, then: Callable[[Any], None]) -> None:
        if life != self.life or link.given_up:
            return
        if self.run.now < self.stands_until:
            self.run.later(self.stands_until - self.run.now, self._reads, life, link, served_at, value, then)
            return
        link.under_way -= 1
        self.served_at = served_at
        then(value)

    def _connect(self, master: int) -> None:
        link = Link(self.masters[master], self.trip[self.masters[master]])
        self._ask(link, self.call(), partial(self._connected, master, link, self.clock()))
        if link.under_way:
            self._plan(CONNECT_TIMEOUT, partial(self._gives_up, master, link))

    def _connected(self, master: int, link: Link, asked_at: float, value: Any) -> None:
        self.links[link.name] = link
        facts = Facts(f"run of {link.name}", 10**6, lists=wire.read_fleet(value), asked_at=asked_at)
        self.voters.admit(master, facts, self.clock())
        self.announcer.connected(self.clock())
        self._told(link.name)
        if self.run.settings.hangs:
            self._beside(link)

    def _beside(self, link: Link) -> None:
        """What a second connection carries while the first one is silent: there is no use for it when both are answered."""
        if link.under_way and self.run.server(link.name).hangs_until > self.run.now:
            self._ask(Link(link.name, link.trip), self.call(), _ignore)
        self._plan(self.run.chance.uniform(1.5, 3.0), partial(self._beside, link))

    def _gives_up(self, master: int, link: Link) -> None:
        if self.links.get(link.name) is not link:
            link.given_up = True
            self.voters.down(master, self.clock())
            again = 0.0 if self.voters.awaits(master, self.clock()) else self.run.chance.uniform(0.05, 0.5)
            self._plan(again, partial(self._connect, master))

    # -- the list ------------------------------------------------------------------------------------

    def _announce(self, announcement: Send) -> None:
        announcement.sent_at = self.clock()
        for master in self.run.chance.sample(range(len(self.masters)), len(self.masters)):
            if (link := self.links.get(self.masters[master])) is not None:
                self._ask(link, announcement.call, partial(self._answered, announcement, master))

    def _answered(self, announcement: Send, master: int, value: Any) -> None:
        announcement.answered(master, value, self.clock())
        self._told(self.masters[master])

    def _told(self, name: str) -> None:
        self.heard[name] = self.served_at
        if self.voters.refused and self.held is not None:
            self.run.over(self)
            self.held.lose("unreachable")  # as its renewal does
        self._keep_house_in(self.announcer.next(self.clock(), math.inf))
        if self.run.settings.hangs:
            self.run.look()

    def _keep_house_in(self, after: float) -> None:
        if self.run.now + after < self.house_at:
            self.house_at = self.run.now + max(0.0, after)
            self._plan(max(0.0, after), self._keep_house)

    def _keep_house(self) -> None:
        if self.run.now < self.house_at:  # that was brought forward, and done
            return
        self.house_at = math.inf
        for announcement in self.announcer.due(self.clock())[
            1:
        ]:  # the first one is of `max_ttl`, and all have the same
            self._announce(announcement)
            if self.fleet.rejected:
                self.run.refused += 1
        self.announcer.news()
        self._keep_house_in(self.announcer.next(self.clock(), math.inf))

    # -- the lock ------------------------------------------------------------------------------------

    def _acquire(self) -> None:
        self._try(self._acquired)

    def _try(self, done: Callable[[LockSpec, Any], None]) -> None:
        ttl = self.run.chance.choice((1.0, MAX_TTL))
        spec = LockSpec(("lock",), KEYS, ttl, 0.02 * ttl, wait_none())
        self._drive(attempt(Target(self.settings, spec)), partial(done, spec))

    def _acquired(self, spec: LockSpec, grant: object) -> None:
        if not isinstance(grant, Grant):
            self._plan(self.run.chance.uniform(0.05, 0.1 if self.errand else 0.5), self._acquire)
            return
        lease = LeaseState(spec, grant, clock=self.clock, mine=lambda: True)
        self.run.granted(self, lease)
        self.held = lease
        self._plan(spec.ttl / 3, partial(self._renew, spec, lease))
        self._plan(self.run.chance.choice((0.2, 1.0, 2.5)) * spec.ttl, partial(self._release, lease))

    def _had_for_a_moment(self, spec: LockSpec, grant: object) -> None:
        """Another thread of the process: it comes when that wakes."""
        if isinstance(grant, Grant):
            lease = LeaseState(spec, grant, clock=self.clock, mine=lambda: True)
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
                waits = self.run.chance.choice((0.0, 0.0, 0.0, FAR * self.run.chance.random()))
                self._plan(waits, partial(self._go_on, op, done))
                return
        except StopIteration as stop:
            done(stop.value)

    def _go_on(self, op: Any, done: Callable[[Any], None]) -> None:
        """All answers that are there are read at once, and no other one will come."""
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
            then = _ignore if lost else partial(self._keep, request, master)
            if (link := self.links.get(self.masters[master])) is not None:
                self._ask(link, request.call, then)

    def _keep(self, request: Send, master: int, value: Any) -> None:
        self.unread.append((request, master, value))

    # -- the end -------------------------------------------------------------------------------------

    def _stand_still(self) -> None:
        if self.run.is_quiet:
            return
        # Of the time for which a list counts.  Without names nobody may run a list that was forgotten.
        times = ((0.1, 0.5), (0.9, 1.5), (1.0, 2.0)) if self.run.settings.refuses else ((0.1, 0.5),)
        least, most = (1.0, 2.0) if self.run.settings.stops else self.run.chance.choice(times)
        self.stands_until = self.run.now + self.run.chance.uniform(least, most) * self.fleet.life
        for after in (0.0, self.stands_until - self.run.now + FAR * self.run.chance.random()):
            self._plan(after, partial(self._try, self._had_for_a_moment))
        again = (3.0, 6.0) if self.run.settings.stops else (0.0, 30.0)
        self._plan(self.stands_until - self.run.now + self.run.chance.uniform(*again), self._stand_still)
        self.run.log(self.name, "stands still until", f"{self.stands_until:.3f}")

    def _end(self) -> None:
        run = self.run
        if run.is_quiet:
            return
        crashes = run.chance.random() < 0.5
        run.log(self.name, "crashes" if crashes else "closes")
        if not crashes:
            self._announce(Send(self.call("left")))
        self.life, self.ended_at = self.life + 1, run.now
        run.later(run.chance.choice((0.1, 3.0)), self.run.begin, self)


def _ignore(_: Any) -> None:
    """Nobody reads the answer."""


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
        self._wide = wide = 2 * (given.size - 1)  # so many steps leave one master that both lists have
        if given.hangs and given.size > 4:  # or two
            self._wide = wide = wide - self.chance.choice((0, 2))
        self._late = self.chance.choice(((0, 0, 1, 1, 2, 2, 3, 4), (0, 2), (0, 0, 3), (0, 4)))
        if given.apart:
            self._late = (0, wide)
        for _ in range(max(4, wide) if given.refuses else 0):  # for clients that come with a list of before
            self.lists.append(self._next())
        self.lines: list[str] = []
        self.grants = self.extensions = self.steps = self.refused = self.forgotten = self.found_later = 0
        self._both: dict[tuple[Client, Client], float] = {}
        self._latest: tuple[Client, float, int] | None = None
        self._tokens = itertools.count()
        self.clients = [Client(self, number) for number in range(given.clients)]

    def play(self) -> FleetRun:
        for client in self.clients:
            self.later(self.chance.uniform(0.0, 0.2 if self.settings.early else 1.0), self.begin, client)
        self.later(1.0, self._operate)
        if self.settings.forgets:
            self.later(1.0, self._forget)
        if self.settings.hangs:
            self._hang()
            self.later(1.0, self._look)
        with mock.patch.object(announcer, "chance", self.chance):
            while self._events and self.now < self.settings.duration:
                self.now, _, action, args = heapq.heappop(self._events)
                action(*args)
        if self.settings.hangs:
            self._look_at_the_end()
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
        if self.settings.stops:
            late = 0 if client.errand else self._wide
        # What has no master in common with a list in use is not found.
        used = [set(other.masters) for other in self.clients if other.life and self.now - other.ended_at < 2 * MAX_TTL]
        while late and any(masters.isdisjoint(self._before(late)) for masters in used):
            late -= 1
        masters = self._before(late)
        if any(one.isdisjoint(masters) for one in used) or any(self._is_forgotten(one, masters) for one in used):
            self.later(1.0, self.begin, client)
        elif not self.is_quiet:
            client.start(masters)

    def _is_forgotten(self, used: set[str], masters: tuple[str, ...]) -> bool:
        """Whether no master can show this list, which is in use, to who comes with those masters: it cannot be found."""
        if not self.settings.forgets or compatible(used, set(masters)):
            return False
        return not any(self.server(name).lists().get(frozenset(used), "-") in "12" for name in masters)

    def _before(self, steps: int) -> tuple[str, ...]:
        return self.lists[max(0, len(self.lists) - 1 - steps)]

    @property
    def shared(self) -> set[str]:
        """The masters that two lists share which are far apart."""
        return set(self.lists[-1]).intersection(self._before(self._wide))

    def _operate(self) -> None:
        """The next step, if the list before is gone: as redlock-check would say it."""
        self.later(self.chance.uniform(0.2, 2.0), self._operate)
        now = self.lists[-1]
        if self.settings.blind or self.settings.stops or (self.settings.waits and self._alive() - {frozenset(now)}):
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

    # -- masters that forget, and that hang ----------------------------------------------------------

    @property
    def is_quiet(self) -> bool:
        """The end of a run with `hangs`: nothing happens any more to anybody."""
        return self.settings.hangs and self.now > self.settings.duration - 3 * LIFE

    def _forget(self) -> None:
        """A master loses the lists.

        Everybody knows the lists that are in use, or has one: who stood still would know nothing of those that came
        meanwhile, and nobody could tell it.
        """
        self.later(self.chance.uniform(0.5, 6.0), self._forget)
        alive = [client for client in self.clients if client.life and client.ended_at == math.inf]
        if self._servers and all(client.awake and self.now - client.started_at > 2 * NODE_TIMEOUT for client in alive):
            name = self.chance.choice(sorted(self._servers))
            self._servers[name].keys.pop(wire.fleet_key(PREFIX), None)
            self.forgotten += 1
            self.log(name, "forgets the lists")

    def _hang(self) -> None:
        """Masters answer nothing for a while: often all those that two lists share."""
        self.later(self.chance.uniform(1.0, 8.0), self._hang)
        if self.is_quiet:
            return
        shared = self.shared if self.settings.apart else set(self.lists[-1]).intersection(self._before(2))
        early = self.settings.early and not self.now
        some = len(shared) if early else self.chance.choice((1, len(shared)))
        for name in self.chance.sample(sorted(shared), min(some, len(shared))):
            self.server(name).hang(self.chance.uniform(0.5, 2.0 if early else 6.0))
            self.log(name, "hangs until", f"{self.server(name).hangs_until:.3f}")

    # -- the judge -----------------------------------------------------------------------------------

    def _look(self) -> None:
        self.later(SETTLES / 4, self._look)
        self.look()

    def look(self) -> None:
        """Whether any two work whose masters do not go together, although both have heard those that they share.

        Of several masters, some may have the one list and some the other one: then the next announcements decide.
        """
        both = {
            pair
            for pair in itertools.combinations([client for client in self.clients if client.life], 2)
            if all(client.works for client in pair) and self._could_know(*pair)
        }
        self.found_later += len(both - self._both.keys())
        self._both = {pair: self._both.get(pair, self.now) for pair in both}
        for (one, other), since in self._both.items():
            if self.now - since >= (SETTLES if len(set(one.masters).intersection(other.masters)) > 1 else 0.0):
                self.fail(AGREEMENT, f"{one.name} and {other.name} work since {since:.3f}, and heard what they share")

    def _could_know(self, one: Client, other: Client) -> bool:
        """Whether what both have in common has answered both since the latest of them came, and since it hung."""
        mine, its = set(one.masters), set(other.masters)
        common = mine & its
        began = max(one.started_at, other.started_at)
        since = [max(began, self.server(name).hangs_until) for name in common]
        heard = [min(one.heard.get(name, -1.0), other.heard.get(name, -1.0)) for name in common]
        return bool(common) and not compatible(mine, its) and all(map(operator.ge, heard, since))

    def _look_at_the_end(self) -> None:
        alive = [client for client in self.clients if client.life and client.ended_at == math.inf]
        if alive and not any(client.works for client in alive):
            self.fail(AGREEMENT, f"nobody works in the end: {[client.fleet.refusal for client in alive]}")

    def granted(self, client: Client, lease: LeaseState) -> None:
        self.grants += 1
        until = client.true(lease.valid_until)
        if until <= self.now:  # it stood still between the last answer and the return
            return
        self.log(client.name, "holds until", f"{until:.3f}", "fence", lease.fence, client.masters)
        assert lease.fence is not None
        if self._latest is not None and not self.settings.hangs:
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
        if other is not client and not self.settings.hangs:
            self.fail(P1, f"{client.name} {client.masters} goes on, and {other.name} {other.masters} has it")
        self._latest = client, until, fence

    def over(self, client: Client) -> None:
        if self._latest is not None and self._latest[0] is client:
            self._latest = client, self.now, self._latest[2]

    def fail(self, invariant: str, text: str) -> None:
        self.log("VIOLATION", invariant, text)
        raise Violation(invariant, text)
