"""A run is replayed step by step through the specification (`chaos/specification.py`): no step that the rules forbid.

The judge sees what is sent, what masters do and what clients decide, in this order; each is a step.  Masters run the
shipped scripts, and after each of them they must have what the specification says.  Left out, because it is not in the
specification: several names in one lock, slots, readers, whose turn it is in a line, fences of names that nobody has used
for long.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from chaos.specification import Forbidden, Request, Rules
from redlock import scripts
from redlock._core import wire
from redlock._core.outcomes import ErrorReply
from tests.simulation.invariants import ACQUIRES, EXPIRED, EXTENDS, P1, P2, RELEASED, RELEASES, RENEWS, REPAIRS, Judge
from tests.simulation.parameters import (
    Parameters,
    confirmed,
    crowd,
    draw,
    guarded,
    household,
    in_order,
    periods,
    rivals,
)
from tests.simulation.run import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from chaos.specification import Round, State
    from redlock._core.effects import Send
    from redlock._core.wire import Call
    from tests.simulation.invariants import Attempt, Hold
    from tests.simulation.master import Master

TINY = 1e-6
SETTLES = (scripts.FENCE, scripts.SETTLE)
SHOWN = {"nobody": EXPIRED, "released": RELEASED}
ALONE: dict[str, Any] = {"several": 0.0, "fence_ttl": 3600.0}


FAMILIES: tuple[Callable[..., Parameters], ...] = (
    draw, draw, draw, crowd, confirmed, confirmed, household, periods, rivals, guarded, draw, draw, in_order
)  # fmt: skip


def drawn(seed: int) -> Parameters:
    """Each family has its share of the seeds."""
    return FAMILIES[seed % len(FAMILIES)](seed, **ALONE)


class Shipped(Rules):
    """``until`` is true time.  A key goes when the fastest clock says so; when a lease ends its client says."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        super().__init__(parameters.masters, parameters.max_ttl, least=float("-inf"), confirm=parameters.confirm)

    def ends(self, state: State, ttl: float) -> float:
        """By a guard clocks of masters may step (R36)."""
        return max(0.0, ttl - self.parameters.after) * (1 - self.parameters.drift_factor / 2) - 0.002

    def left_of(self, asked: Round) -> float:
        """Of the TTL itself."""
        return asked.left + asked.request.ttl - self.ends(self.start(0), asked.request.ttl)

    def may_repair(self, asked: Round, m: int) -> bool:
        return asked.request.mark == 0 or self._said(asked, m) == "missing"

    def quarantine(self, state: State) -> float:
        parameters = self.parameters
        return parameters.max_ttl * (1 - parameters.drift_factor) if parameters.guard else 0.0


class Name:
    """The state of one name."""

    def __init__(self, rules: Rules) -> None:
        self.state = rules.start(0)
        self.at = 0.0
        self.of: dict[str, int] = {}  # its clients in the specification, by token: each makes one attempt


class Recorder(Judge):
    """Judges as ever, and replays."""

    def __init__(self, world: Any, parameters: Parameters) -> None:
        super().__init__(world, parameters)
        self.rules = Shipped(parameters)
        self.steps = 0
        self._names: dict[str, Name] = defaultdict(lambda: Name(self.rules))
        self._marks: dict[int, tuple[Call, int]] = {}  # of extensions, by the call
        self._spared: dict[str, frozenset[int]] = {}  # by token: masters to which no release was sent
        self._early: dict[int, float] = {}  # when a master lost a key before its time

    def step(self, name: Name, step: str, *args: Any, **options: Any) -> None:
        """Time has passed, and this happens."""
        self.steps += 1
        self.wait(name)
        try:
            name.state = getattr(self.rules, step)(name.state, *args, **options)
        except Forbidden as forbidden:
            self.fail(f"{forbidden.rule} by the specification", f"{step}{args}: {forbidden}")

    def wait(self, name: Name) -> None:
        if self.world.now > name.at:
            name.state, name.at = self.rules.wait(name.state, self.world.now - name.at), self.world.now

    def _at(self, token: str) -> tuple[Name, int] | None:
        attempt = self._by_token.get(token)
        if attempt is None:
            return None
        name = self._names[f"redlock:{attempt.names[0]}"]
        return (name, name.of[token]) if token in name.of else None

    # -- what is sent --------------------------------------------------------------------------------

    def sent(self, request: Send, attempt: Attempt | None) -> None:
        super().sent(request, attempt)
        call, script = request.call, request.call.script
        if not call.keys:
            return
        if script in ACQUIRES:
            self._asks(call)
        elif script in RENEWS or script in EXTENDS:
            for token, ttl in self._extensions(call):
                self._extends(token, call, ttl)
        elif attempt is not None and (at := self._at(attempt.token)) is not None:
            name, c = at
            if script in SETTLES:
                phantom = script is scripts.SETTLE and call.args[6] != call.args[1]
                self.step(name, "leave_phantom" if phantom else "settle", c, int(call.args[2]), request.to)
            elif script in REPAIRS:
                self._repairs(name, c, request)
            elif script in RELEASES:
                self._releases(name, c, request, attempt)

    def _repairs(self, name: Name, c: int, request: Send) -> None:
        """Of which extension says its TTL, where several found no key there.  By its own clock one may be good for a little longer."""
        ttl = int(request.call.args[2]) / 1000
        for m in request.to or ():
            rounds = name.state.clients[c].rounds
            missed = [one for one in rounds if self.rules.may_repair(one, m)]
            of = min(missed or rounds, key=lambda one: abs(self.rules.left_of(one) - ttl), default=None)
            if of is not None and ttl > self.parameters.after + of.request.ttl * self.parameters.drift_factor:
                self.wait(name)
                self.step(name, "repair", c, m, of.request.mark)

    def _asks(self, call: Call) -> None:
        name, token = self._names[call.keys[0]], call.args[1]
        if token in name.of:
            self.fail("R8 by the specification", f"the token {token} was used before")
        idle = next(
            (c for c, one in enumerate(name.state.clients) if one.phase == "idle" and not any(name.state.flight[c])),
            None,
        )
        if idle is None:
            idle, state = len(name.state.clients), name.state
            more = self.rules.start(1)
            name.state = state._replace(clients=state.clients + more.clients, flight=state.flight + more.flight)
        name.of = {other: c for other, c in name.of.items() if c != idle}
        name.of[token] = idle
        self.step(name, "ask", idle, token, int(call.args[3]), int(call.args[2]) / 1000)

    def _extensions(self, call: Call) -> Iterator[tuple[str, float]]:
        """Whose leases a call extends, and to which TTL."""
        if call.script in EXTENDS:
            yield call.args[1], int(call.args[2]) / 1000
        elif call.script is scripts.RENEW:
            yield from zip(call.args[3::4], (int(ttl) / 1000 for ttl in call.args[4::4]), strict=True)
        else:
            yield from zip(call.args[4::4], (int(ttl) / 1000 for ttl in call.args[5::4]), strict=True)

    def _extends(self, token: str, call: Call, ttl: float) -> None:
        if (at := self._at(token)) is None:
            return
        self.step(at[0], "extend", at[1], self._mark(call), ttl)

    def _mark(self, call: Call) -> int:
        return self._marks.setdefault(id(call), (call, len(self._marks) + 1))[1]

    def _releases(self, name: Name, c: int, request: Send, attempt: Attempt) -> None:
        phase = name.state.clients[c].phase
        if name.state.clients[c].token != attempt.token:
            return  # it is over already, and is told once more
        if phase in ("asking", "settling", "leaving"):
            self.step(name, "give_up", c)
        elif phase == "holding":
            self.step(name, "release", c, _kept(request.call))
        spared = frozenset(range(self.rules.size)) - (
            request.to if request.to is not None else frozenset(range(self.rules.size))
        )
        self._spared[attempt.token] = spared

    # -- what masters do -----------------------------------------------------------------------------

    def after(self, master: Master, call: Call, attempt: Attempt | None, before: Any, reply: Any) -> None:
        before = list(before)
        super().after(master, call, attempt, before, reply)
        if isinstance(reply, ErrorReply) or not before:
            return
        if call.script is scripts.TICKET:
            self._draws(self._names[call.keys[0]], master, call.keys[1])
        elif call.script in ACQUIRES and reply[0] == 0 and reply[2].startswith(b"ticket"):
            return  # it is not its turn: for the specification, nobody has asked
        had = {where[0]: value for where, _, value, _ in before}
        for token, what in self._arrived(call):
            if (at := self._at(token)) is not None:
                name, c = at
                lock = f"redlock:{self._by_token[token].names[0]}"
                self._goes(name, master, gone=had.get(lock) is None)
                self._arrive(name, c, master.index, what)
                self._compare(name, master, lock)

    def _draws(self, name: Name, master: Master, key: str) -> None:
        fence = master.find(key)
        if fence is not None and int(fence.value) != name.state.masters[master.index].fence:
            self.step(name, "draw", master.index, int(fence.value))

    def _arrived(self, call: Call) -> Iterator[tuple[str, Request]]:
        script = call.script
        if script in ACQUIRES:
            yield call.args[1], Request("acquire", call.args[1])
        elif script in SETTLES:
            phantom = script is scripts.SETTLE and call.args[6] != call.args[1]
            yield call.args[1], Request("phantom" if phantom else "settle", call.args[1])
        elif script in REPAIRS:
            left = self.rules.ends(self.rules.start(0), int(call.args[2]) / 1000)
            yield call.args[1], Request("repair", call.args[1], left, fence=int(call.args[3]))
        elif script in RELEASES:
            yield call.args[0], Request("release", call.args[0], ttl=_kept(call))
        elif script in RENEWS or script in EXTENDS:
            for token, _ in self._extensions(call):
                yield token, Request("extend", token, mark=self._mark(call))

    def started(self, master: Master) -> None:
        if master.forgot:
            for name in self._names.values():
                self.step(name, "restart", master.index)

    def _goes(self, name: Name, master: Master, *, gone: bool) -> None:
        """Its key has gone since."""
        self.wait(name)
        if name.state.masters[master.index].key is None or not gone:
            return
        if self.parameters.clocks_hold and not self._wrong(name, master):
            self.step(name, "expire", master.index)
        else:
            self.step(name, "evict", master.index)

    def _wrong(self, name: Name, master: Master) -> bool:
        """No more than f masters may be wrong at once, and only where an expiry is confirmed (R35)."""
        key = name.state.masters[master.index].key
        if not self.parameters.confirm or key is None or key.left <= 0:
            return False
        self._early[master.index] = self.world.now
        early = [m for m, at in self._early.items() if at > self.world.now - self.parameters.max_ttl]
        return len(early) <= self.rules.size - self.rules.majority()

    def _arrive(self, name: Name, c: int, m: int, request: Request) -> None:
        if request.what == "acquire" and m in self._spared.get(request.token, ()):
            self.fail("R9 by the specification", f"master {m} is asked by {request.token}, and was not released")
        self.wait(name)
        if not any(_same(one, request) for one in name.state.flight[c][m]):
            self.step(name, "again", c, m, self._asked(name, c, request))
        queue = name.state.flight[c][m]
        for _ in range(next(i for i, one in enumerate(queue) if _same(one, request))):
            self.step(name, "lose", c, m)
        self.step(name, "arrive", c, m)

    def _asked(self, name: Name, c: int, request: Request) -> Request:
        """As it was sent before."""
        for one in name.state.clients[c].rounds:
            if _same(one.request, request):
                return one.request._replace(left=one.left)
        return request

    def _compare(self, name: Name, master: Master, lock: str) -> None:
        key, grant = master.find(lock), master.find(wire.fence_key(lock, ":grant"))
        fence = master.find(wire.fence_key(lock))
        record = None if grant is None else str(grant.value).split(" ", 3)[3]
        there = (None if key is None else key.value, 0 if fence is None else int(fence.value), record)
        spec = name.state.masters[master.index]
        said = (spec.key and _shown(spec.key.token), spec.fence, spec.record and _shown(spec.record.token))
        if there != said:
            self.fail("the scripts and the specification", f"m{master.index} has {there}, by the specification {said}")

    # -- what clients decide -------------------------------------------------------------------------

    def granted(self, client: Any, attempt: Attempt, lease: Any, grant: Any, *rest: Any) -> Hold:
        hold = super().granted(client, attempt, lease, grant, *rest)
        if (at := self._at(attempt.token)) is not None:
            name, c = at
            floor = name.state
            self.step(name, "grant", c)
            self._until(name, c, client.true_time(grant.valid_until))
            if name.state.clients[c].fence != grant.fence:
                self.fail("R17 by the specification", f"{attempt} has {grant.fence}, not {name.state.clients[c].fence}")
            self._promises(name, floor)
        return hold

    def extended(self, hold: Hold, votes: Any, origins: Any, call: Call) -> None:
        super().extended(hold, votes, origins, call)
        if (at := self._at(hold.attempt.token)) is not None:
            name, c = at
            before = name.state
            self.step(name, "extended", c, self._mark(call))
            self._until(name, c, hold.client.true_time(hold.lease.valid_until))
            self._promises(name, before)

    def _until(self, name: Name, c: int, until: float) -> None:
        client = name.state.clients[c]
        left = until - self.world.now
        if left > client.left + TINY:
            self.fail(
                "R6 by the specification", f"{client.token} counts on {left:.6f} s, and {client.left:.6f} are left"
            )
        name.state = self.rules._with(name.state, c, client._replace(left=max(0.0, left)))

    def _promises(self, name: Name, before: State) -> None:
        if self.parameters.clocks_hold and (wrong := self.rules.exclusive(name.state)):
            self.fail(P1, f"by the specification: {wrong}")
        if self.parameters.fences_hold and (wrong := self.rules.fenced(before, name.state)):
            self.fail(P2, f"by the specification: {wrong}")

    def denied(self, hold: Hold, call: Call) -> None:
        super().denied(hold, call)
        if (at := self._at(hold.attempt.token)) is not None:
            self.step(at[0], "denied", at[1], self._mark(call))

    def crashed(self, client: Any) -> None:
        super().crashed(client)
        for name in self._names.values():
            for token, c in name.of.items():
                if self._by_token[token].client is client and name.state.clients[c].token == token:
                    self.step(name, "crash", c)


def _same(one: Request, other: Request) -> bool:
    return (one.what, one.token, one.mark) == (other.what, other.token, other.mark)


def _shown(token: Any) -> str:
    return f"{SHOWN[token[0]]}{token[1]}" if isinstance(token, tuple) else token


def _kept(call: Call) -> float:
    """For how long nobody is to have the name (R28)."""
    plain = 1 if call.script is scripts.RELEASE else 2
    return int(call.args[plain]) / 1000 if len(call.args) > plain else 0.0


class Replay(Run):
    """A run, and its steps."""

    judged_by = Recorder
