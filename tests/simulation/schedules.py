"""Schedules of small scope, each drawn from its seed, with the shipped decisions where an expiry is confirmed (R35).

Two to four clients want one name or two.  Each tries a few times; a holder extends, makes its lease whole, releases, or
vanishes.  What it decides is shipped, and masters run the real scripts.  Requests and answers come at any moment behind
those before them on their connection, or never.  The clocks of f masters go forth and back, and their lock keys vanish at
any moment.  Time passes in a few strides: so there are few states, and what a script does in each is remembered.
"""

from __future__ import annotations

import math
import random
from collections import Counter, deque
from itertools import count
from typing import TYPE_CHECKING, Any

from redlock._core import wire
from redlock._core.acquire import Target
from redlock._core.confirm.ballot import RECORDED, ConfirmingBallot, PhantomRound
from redlock._core.effects import Send, Timeout, Wait
from redlock._core.kernel.attempt import attempt
from redlock._core.kernel.ballot import FenceRound, Grant
from redlock._core.kernel.extension import Extension, extend
from redlock._core.kernel.release import release
from redlock._core.outcomes import ErrorReply
from redlock._core.tokens import FenceClock
from redlock._core.whole import lacking, make_whole
from tests.core import world
from tests.simulation.invariants import P1, P2, PREFIX, Violation
from tests.simulation.master import ENGINE, REPLACED, Key, Keyspace

if TYPE_CHECKING:
    from redlock._core.lease import LeaseState
    from redlock._core.settings import LockSpec
    from redlock._core.wire import Call

TTL = 30.0
STRIDES = (TTL / 4 + 0.003, TTL / 2 + 0.003)
STEPS, STEP = 150, 1e-6
_COUNTED: dict[type, str] = {ConfirmingBallot: "attempts", FenceRound: "second rounds", PhantomRound: "phantoms"}
_NOW = 10**9  # what the clock shows while a script runs, which sees only what is left of a key
_KNOWN: dict[Any, tuple[Any, tuple[tuple[str, str, int], ...]]] = {}
_MOST = 400_000  # that are remembered


class Master:
    """Its keys: of each the name, the value, and the ms of its clock at which it ends."""

    def __init__(self) -> None:
        self.keys: tuple[tuple[str, str, int], ...] = ()
        self.ahead = 0.0  # of the right time

    def run(self, call: Call, at: float) -> Any:
        now = math.floor((at + self.ahead) * 1000)
        keys = tuple((name, value, ends - now) for name, value, ends in self.keys if ends >= now)
        state = (REPLACED.get(call.script.name, call.script.text), call.keys, call.args, keys)
        if state not in _KNOWN:
            if len(_KNOWN) >= _MOST:
                _KNOWN.clear()
            there = Keyspace()
            there.now_ms, there.keys = _NOW, {name: Key(value, _NOW + left) for name, value, left in keys}
            answer = ENGINE.run(call.script.name, call.script.text, there, list(call.keys), list(call.args))
            left = sorted((name, key.value, (key.expires or 0) - _NOW) for name, key in there.keys.items())
            _KNOWN[state] = answer, tuple(left)
        answer, after = _KNOWN[state]
        self.keys = tuple((name, value, now + left) for name, value, left in after)
        return answer

    def is_wrong(self, chance: random.Random) -> None:
        if chance.random() < 0.5:
            self.keys = tuple(key for key in self.keys if key[0].endswith((":fence", ":grant")))
        else:
            self.ahead = chance.choice((0.0, 1.1 * TTL, -1.1 * TTL))


class Client:
    """One process: one operation at a time, and a connection to each master."""

    def __init__(self, schedule: Schedule, name: str, names: tuple[str, ...], wall: int) -> None:
        self.schedule, self.chance = schedule, schedule.chance
        tokens, marks = count(1), count(1)
        self._settings = schedule.world.settings._replace(
            token=lambda: f"{name}{next(tokens)}", stamp=marks.__next__, fences=FenceClock(lambda: wall * 1000)
        )
        keys = wire.keys_for(PREFIX, names, records=True)
        self.spec = schedule.world.spec(*names, ttl=TTL, min_validity=TTL / 50)._replace(keys=keys, mode=RECORDED)
        self._requests: list[deque[Send]] = [deque() for _ in schedule.masters]
        self._answers: list[deque[tuple[Send, Any]]] = [deque() for _ in schedule.masters]
        self._cut: list[int] = []
        self._lease: LeaseState | None = None
        self._tries, self._extensions = self.chance.randint(1, 3), self.chance.randint(0, 3)
        self._op: Any = None
        self._awaited: Any = None  # whose answers it waits for
        self._above = 0  # the greatest fence when it began

    def is_cut_off(self) -> None:
        self._cut = [one for one in range(len(self._requests)) if self.chance.random() < 0.3]

    def go_on(self, late: float, lost: float) -> bool:
        """False: it has nothing to do."""
        reached = [
            one
            for one, requests in enumerate(self._requests)
            if one not in self._cut and (requests or self._answers[one])
        ]
        if self._op is not None and (not reached or self.chance.random() < late):
            if isinstance(self._awaited, Send):
                self._awaited.open = False
            self._drive(Timeout(self.schedule.world.now))
        elif reached and (self._op is not None or self.chance.random() < 0.7):
            self._move(self.chance.choice(reached), self.chance.random() < lost)
        elif self._lease is not None:
            self._holds(self._lease, self.chance.random())
        elif self._tries:
            self._tries -= 1
            self._above = max(self.schedule.highest[name] for name in self.spec.names)
            self._start(attempt(Target(self._settings, self.spec)))
        return bool(self._op is not None or self._lease is not None or self._tries or reached)

    def _holds(self, lease: LeaseState, roll: float) -> None:
        if lease.over or roll < 0.1:
            self._lease = None
            self._start(release(self._settings, self.spec, lease))
        elif roll < 0.2:  # it vanishes: what is left of its lease counts
            self._lease = None
        elif roll < 0.5 and self._extensions:
            self._extensions -= 1
            ttl = self.chance.choice((TTL, TTL, TTL / 2))
            self._start(extend(self._settings, self.spec, lease, ttl, self.schedule.world.now))
        elif roll < 0.6:
            for request in make_whole(self._settings, self.spec, lease, lacking(lease)):
                self._write(request)

    # -- the driver ------------------------------------------------------------------------------------

    def _start(self, op: Any) -> None:
        self._op = op
        self._drive(None)

    def _drive(self, event: Any) -> None:
        try:
            while True:
                self._awaited, event = self._op.send(event), None
                if isinstance(self._awaited, Send):
                    self._write(self._awaited)
                    if self._awaited.wait_for is not None:
                        return
                elif isinstance(self._awaited, Wait):
                    self._awaited = self._awaited.closes
                    return
        except StopIteration as end:
            self._op = None
            if isinstance(end.value, Grant):
                self._lease = self.schedule.granted(self.spec, end.value, self._above)
            elif isinstance(end.value, Extension) and self._lease is not None:
                self.schedule.judge(self._lease)

    def _write(self, request: Send) -> None:
        if request.only_if is None or request.only_if():
            self.schedule.had[_COUNTED.get(type(request), "other requests")] += 1
            request.sent_at = self.schedule.world.now
            for master in range(len(self._requests)) if request.to is None else request.to:
                self._requests[master].append(request)

    def _move(self, master: int, lost: bool) -> None:
        """The next request, or the next answer, arrives there; or it is lost."""
        requests, answers, at = self._requests[master], self._answers[master], self.schedule.world.now
        if requests and (not answers or self.chance.random() < 0.5):
            request = requests.popleft()
            if not lost:
                answers.append((request, self.schedule.masters[master].run(request.call, at)))
                if self.schedule.traced:
                    print(at, master, request.call.script.name, *request.call.args, answers[-1][1])
            return
        request, value = answers.popleft()
        nothing: tuple[Send, ...] = ()
        request.more, decided = nothing, False
        if lost:
            return
        if not request.open:
            request.late(master, value, at)
        elif isinstance(value, ErrorReply):
            decided = request.failed(master, value.failure(), at)
        else:
            decided = request.answered(master, value, at)
        if decided and self._op is not None:
            self._drive(request)
        for more in request.more:
            self._write(more)


class Schedule:
    """One of them.  ``had``: how often what has happened."""

    def __init__(self, seed: int, *, traced: bool = False) -> None:
        self.traced, chance = traced, random.Random(seed)
        self.chance = chance
        self.masters = [Master() for _ in range(chance.choice((3, 3, 3, 5, 5, 4, 6)))]
        self.world = world.World(*[world.Master() for _ in self.masters], node_timeout=1.0)
        self._wrong = chance.sample(self.masters, (len(self.masters) - 1) // 2)
        several = chance.random() < 0.2
        self._clients = [
            Client(
                self,
                name,
                chance.choice((("a",), ("b",), ("a", "b"))) if several else ("a",),
                chance.choice((9, 20, 20)),
            )
            for name in "ABCD"[: chance.choice((2, 2, 3, 3, 4))]
        ]
        self._leases: list[LeaseState] = []
        self.highest = dict.fromkeys("ab", 0)
        self.had: Counter[str] = Counter(schedules=1)
        self._lies, self._strides = chance.choice((0.02, 0.05, 0.1)), chance.choice((0.01, 0.03, 0.06))
        self._late, self._lost, self._cuts = (
            chance.choice(of) for of in ((0, 0.01, 0.05), (0, 0, 0.1), (0, 0.02, 0.05))
        )

    def play(self) -> Counter[str]:
        chance, idle = self.chance, 0
        for _ in range(STEPS):
            self.world.now += STEP
            roll = chance.random()
            if roll < self._lies:
                chance.choice(self._wrong).is_wrong(chance)
            elif roll < self._lies + self._strides:
                self.world.now += chance.choice(STRIDES)
            elif roll < self._lies + self._strides + self._cuts:
                chance.choice(self._clients).is_cut_off()
            elif chance.choice(self._clients).go_on(self._late, self._lost):
                idle = 0
            elif (idle := idle + 1) > 3 * len(self._clients):
                break
        return self.had

    def granted(self, spec: LockSpec, grant: Grant, above: int) -> LeaseState:
        lease = self.world.lease(spec, **grant._asdict())
        lease.mode = RECORDED
        fence = grant.fence or 0
        if fence <= above:
            raise Violation(P2, f"{grant.token} has the fence {fence}, and {above} was granted before it asked")
        self.highest |= {name: max(fence, self.highest[name]) for name in spec.names}
        self._leases.append(lease)
        self.judge(lease)
        return lease

    def judge(self, lease: LeaseState) -> None:
        """It was granted or extended."""
        self.had["extensions" if lease.extensions else "grants"] += 1
        for other in self._leases:
            if other is not lease and other.valid and lease.valid and set(other.names) & set(lease.names):
                raise Violation(P1, f"{other.token} and {lease.token} are valid at once")


def play(seeds: range, *, traced: bool = False) -> tuple[Counter[str], list[str]]:
    """What they had, and what went wrong."""
    had: Counter[str] = Counter()
    failures: list[str] = []
    for seed in seeds:
        try:
            had += Schedule(seed, traced=traced).play()
        except Violation as violation:
            failures.append(f"seed {seed}: {violation}")
    return had, failures
