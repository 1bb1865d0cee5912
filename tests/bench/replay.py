"""A run is replayed step by step through the specification (`chaos/specification.py`): no step that the rules forbid.

What a process sends is seen where its `Exchange` is asked to send it, what masters do where they do it, and what
clients decide where users are given leases and observers hear of extensions; each is a step.  Masters run the shipped
scripts, and after each of them they must have what the specification says.  And each step is one that the proofs allow
(`chaos/proof/`), as long as what they assume is so.  Left out, because it is not in the
specification: several names in one lock, slots, readers, whose turn it is in a line, forks, fences of names that nobody
has used for long.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from chaos.proof.concrete import Concrete, Disallowed
from chaos.specification import Forbidden, Request, Rules
from redlock import scripts
from redlock._core import wire
from redlock._core.outcomes import ErrorReply
from tests.bench.judge import ACQUIRES, EXPIRED, EXTENDS, P1, P2, RELEASED, RELEASES, RENEWS, REPAIRS, Judge
from tests.bench.parameters import draw, wrong_clocks
from tests.bench.run import Run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.specification import Round, State
    from redlock._core.wire import Call
    from tests.bench.judge import Attempt, Hold
    from tests.bench.parameters import Parameters, Setting
    from tests.bench.users import Client
    from tests.simulation.master import Master

TINY = 1e-6
SETTLES = (scripts.FENCE, scripts.CONFIRM)
SHOWN = {"nobody": EXPIRED, "released": RELEASED}
BY_NAME = {script.name: script for script in scripts.ALL}
LEFT_OUT = ("fork", "branch", "program", "replica")
HOWS = ("with", "with", "hand", "hand", "leader", "period", "fair")


def drawn(seed: int) -> Setting:
    """Every fourth seed has a minority of wrong clocks (R35)."""
    setting = wrong_clocks(seed) if seed % 4 == 3 else draw(seed, slots=0)
    faults = tuple(fault for fault in setting.base.faults if fault[0] not in LEFT_OUT)
    return replace(setting, base=replace(setting.base, faults=faults), hows=HOWS, uses=())


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

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.rules = Shipped(self.parameters)
        self.steps = 0
        self.proofs = Concrete(self.rules)
        self._assumed = {"evict": not self.parameters.confirm, "restart": True}  # until then P1 is proved, and P2
        self._names: dict[str, Name] = defaultdict(lambda: Name(self.rules))
        self._lock: dict[str, str] = {}  # the key that each token is for
        self._extensions: dict[str, list[tuple[float, int]]] = defaultdict(list)  # by token: sent when, and the mark
        self._marks = 0
        self._sent_at = 0.0  # of what is carried out just now
        self._early: dict[int, float] = {}  # when a master lost a key before its time

    def step(self, name: Name, step: str, *args: Any, **options: Any) -> None:
        """Time has passed, and this happens."""
        self.steps += 1
        self.wait(name)
        self._take(name, step, *args, **options)

    def wait(self, name: Name) -> None:
        if (passed := self.world.now - name.at) > 0:
            name.at = self.world.now
            self._take(name, "wait", passed)

    def _take(self, name: Name, step: str, *args: Any, **options: Any) -> None:
        before = name.state
        try:
            name.state = getattr(self.rules, step)(before, *args, **options)
            self._assumed[step] = False
            if self._assumed["evict"] and (self._assumed["restart"] or self.parameters.guard):
                self.proofs.exclusive(step, before, args, name.state)
            if self._assumed["restart"]:
                self.proofs.fenced(step, before, args, name.state)
        except Forbidden as forbidden:
            self.fail(f"{forbidden.rule} by the specification", f"{step}{args}: {forbidden}")
        except Disallowed as wrong:
            self.fail("a step that no proof allows", str(wrong))

    def _at(self, token: str) -> tuple[Name, int] | None:
        name = self._names[self._lock[token]] if token in self._lock else None
        return None if name is None or token not in name.of else (name, name.of[token])

    # -- what is sent --------------------------------------------------------------------------------

    def watch_process(self, client: Client) -> None:
        """See what it sends: by its `Exchange`, and what an answer asks for."""
        exchange = client.library["_core.exchange"].Exchange
        module = client.library["_core.pipeline"]
        submit, more = exchange.submit, module.Pipeline.more

        def submitted(this: Any, request: Any, *args: Any, **options: Any) -> None:
            if request.only_if is None or request.only_if():
                self.sends(request, request.to)
                submit(this, request, *args, **options)

        def followed(pipeline: Any) -> list[Any]:
            found: list[Any] = more(pipeline)
            for one in found:
                if not isinstance(one, module.SentAgain):  # else it is known: it was sent by its name before
                    self.sends(module.request_of(one), (pipeline.master,))
            return found

        exchange.submit, module.Pipeline.more = submitted, followed

    def sends(self, request: Any, to: Any) -> None:
        if not request.call.keys:
            return
        call = wire.Call(BY_NAME[request.call.script.name], request.call.keys, tuple(map(str, request.call.args)))
        script = call.script
        if script in ACQUIRES:
            self._asks_for(call)
        elif script in RENEWS or script in EXTENDS:
            for token, ttl in _extensions(call):
                self._extends(token, ttl)
        elif script in RELEASES:
            self._releases(call)
        elif script in (*SETTLES, *REPAIRS) and (at := self._at(call.args[1])) is not None:
            name, c = at
            if script in REPAIRS:
                self._repairs(name, c, call, to)
            else:
                phantom = script is scripts.CONFIRM and call.args[6] != call.args[1]
                self.step(name, "leave_phantom" if phantom else "settle", c, int(call.args[2]), to)

    def _repairs(self, name: Name, c: int, call: Call, to: Any) -> None:
        """Of which extension says its TTL, where several found no key there.  By its own clock one may be good for a little longer."""
        ttl = int(call.args[2]) / 1000
        for m in to or ():
            rounds = name.state.clients[c].rounds
            missed = [one for one in rounds if self.rules.may_repair(one, m)]
            of = min(missed or rounds, key=lambda one: abs(self.rules.left_of(one) - ttl), default=None)
            if of is not None and ttl > self.parameters.after + of.request.ttl * self.parameters.drift_factor:
                self.wait(name)
                self.step(name, "repair", c, m, of.request.mark)

    def _asks_for(self, call: Call) -> None:
        name, token = self._names[call.keys[0]], call.args[1]
        if token in self._lock:
            self.fail("R8 by the specification", f"the token {token} was used before")
        self._lock[token] = call.keys[0]
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

    def _extends(self, token: str, ttl: float) -> None:
        if (at := self._at(token)) is None:
            return
        self._marks += 1
        self._extensions[token].append((self.world.now, self._marks))
        self.step(at[0], "extend", at[1], self._marks, ttl)

    def _mark(self, token: str, sent_at: float) -> int:
        """Of the extension that was written then: the last one before."""
        return next((mark for at, mark in reversed(self._extensions[token]) if at <= sent_at + TINY), 0)

    def _releases(self, call: Call) -> None:
        if (at := self._at(call.args[0])) is None:
            return
        name, c = at
        client = name.state.clients[c]
        if client.token != call.args[0]:
            return  # it is over already, and is told once more
        if client.phase in ("asking", "settling", "leaving"):
            self.step(name, "give_up", c)
        elif client.phase == "holding":
            self.step(name, "release", c, _kept(call))

    # -- what masters do -----------------------------------------------------------------------------

    def asked(self, process: Any, server: Any, call: Call, sent_at: float, *, text: bool) -> Any:
        self._sent_at = sent_at
        return super().asked(process, server, call, sent_at, text=text)

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
                lock = self._lock[token]
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
            phantom = script is scripts.CONFIRM and call.args[6] != call.args[1]
            yield call.args[1], Request("phantom" if phantom else "settle", call.args[1])
        elif script in REPAIRS:
            left = self.rules.ends(self.rules.start(0), int(call.args[2]) / 1000)
            yield call.args[1], Request("repair", call.args[1], left, fence=int(call.args[3]))
        elif script in RELEASES:
            yield call.args[0], Request("release", call.args[0], ttl=_kept(call))
        elif script in RENEWS or script in EXTENDS:
            for token, _ in _extensions(call):
                yield token, Request("extend", token, mark=self._mark(token, self._sent_at))

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
        self.wait(name)
        if not any(_same(one, request) for one in name.state.flight[c][m]):
            self.step(name, "again", c, m, self._again(name, c, request))
        queue = name.state.flight[c][m]
        for _ in range(next(i for i, one in enumerate(queue) if _same(one, request))):
            self.step(name, "lose", c, m)
        self.step(name, "arrive", c, m)

    def _again(self, name: Name, c: int, request: Request) -> Request:
        """As it was sent before."""
        for one in name.state.clients[c].rounds:
            if _same(one.request, request):
                return one.request._replace(left=one.left)
        on_its_way = (one for queue in name.state.flight[c] for one in queue if _same(one, request))
        return next(on_its_way, request)

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

    def _given(self, process: Any, lease: Any, *rest: Any) -> Hold:
        if (at := self._at(lease.token)) is None:
            return super()._given(process, lease, *rest)
        name, c = at
        before = name.state
        self.step(name, "grant", c)
        hold = super()._given(process, lease, *rest)
        self._until(name, c, process.true_time(lease.valid_until))
        if name.state.clients[c].fence != lease.fence:
            self.fail("R17 by the specification", f"{lease} has {lease.fence}, not {name.state.clients[c].fence}")
        self._promises(name, before)
        return hold

    def hears(self, process: Any, event: Any) -> None:
        super().hears(process, event)
        if type(event).__name__ != "LeaseExtended" or (at := self._at(event.token)) is None:
            return
        hold = self._by_token[event.token].hold
        if hold is None or hold.let_go or not hold.valid():
            return
        name, c = at
        before, until = name.state, process.true_time(hold.until)
        self.wait(name)
        mark = self._which(name, c, until - self.world.now)
        self.step(name, "extended", c, mark)
        self._until(name, c, until)
        self._promises(name, before)

    def _which(self, name: Name, c: int, left: float) -> int:
        """The extension that a lease of which so much is left rests on: the first one that can be it, or the last of all."""
        marks = [one.request.mark for one in name.state.clients[c].rounds]
        for mark in marks:
            try:
                if self.rules.extended(name.state, c, mark).clients[c].left >= left - TINY:
                    return mark
            except Forbidden:
                pass
        return max(marks, default=0)

    def _until(self, name: Name, c: int, until: float) -> None:
        client = name.state.clients[c]
        left = until - self.world.now
        if left > client.left + TINY:
            self.fail(
                "R6 by the specification", f"{client.token} counts on {left:.6f} s, and {client.left:.6f} are left"
            )
        name.state = self.rules._with(name.state, c, client._replace(left=max(0.0, left)))

    def _promises(self, name: Name, before: State) -> None:
        self._lost(name)
        if self.parameters.clocks_hold and (wrong := self.rules.exclusive(name.state)):
            self.fail(P1, f"by the specification: {wrong}")
        if self.parameters.fences_hold and (wrong := self.rules.fenced(before, name.state)):
            self.fail(P2, f"by the specification: {wrong}")

    def _lost(self, name: Name) -> None:
        """A lease that its client knows to be lost is valid no more, whatever was left of it (R13)."""
        for token, c in name.of.items():
            attempt, client = self._by_token.get(token), name.state.clients[c]
            if client.token == token and client.left and attempt and attempt.hold and not attempt.hold.valid():
                name.state = self.rules._with(name.state, c, client._replace(left=0.0))


def _extensions(call: Call) -> Iterator[tuple[str, float]]:
    """Whose leases a call extends, and to which TTL."""
    if call.script in EXTENDS:
        yield call.args[1], int(call.args[2]) / 1000
    else:
        first = 3 if call.script is scripts.RENEW else 4
        yield from zip(call.args[first::4], (int(ttl) / 1000 for ttl in call.args[first + 1 :: 4]), strict=True)


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

    def made(self, client: Client) -> None:
        assert isinstance(self.judge, Recorder)
        self.judge.watch_process(client)
