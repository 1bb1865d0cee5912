"""Whether each step that clients have told is one that the rules allow: a history, replayed through `chaos.specification`.

Clients tell what masters said to them, whom they counted, and when they let go. Masters tell nothing: that one granted a name
is known from the vote, and so is how long it may not grant it to anybody else. What nobody told may have happened, as long as the
rules allow it: an answer that came late, a repair, the attempt of a client that was killed.

*When.*  Who was stopped may write long after it has happened. So each line stands for a moment between the earliest that its
times allow and its own; forbidden is what no such moment allows.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .. import lists
from ..faults import FAULTS, SLEW
from ..history import NEMESIS
from ..specification import Forbidden, Reply, Request, Rules, put
from .faults import STOPPED_OR_KILLED, Hindered, faults
from .violation import Violation, violation

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from ..history import Event, History, Vote
    from ..specification import Client, Master, State

_TINY: Final = 1e-6
_ROUNDING: Final = 0.002  # of expiries, to milliseconds, on both ends (R6)
# Seconds: a client looks at the clock, and then reads what masters say; a busy machine may not run it in between.
_READ_WITHIN: Final = 0.1
_TOLD_WITHIN: Final = 0.05  # seconds after a loss: `prompt` has the same


@dataclass(frozen=True, slots=True)
class Steps:
    """How many were looked at, and the first one of each lock that is none.  ``note``: why nothing was."""

    count: int
    found: tuple[Violation, ...] = ()
    note: str = ""

    @property
    def exit_code(self) -> int:
        return 2 if self.note else int(bool(self.found))


def steps(history: History) -> Steps:
    """All that the history tells, step by step."""
    note = _left_out(history)
    if note:
        return Steps(0, note=note)
    replay = Replay(history)
    found: dict[str | None, Violation] = {}
    for event in history.events:
        if event.lock in found:
            continue  # what follows from a wrong step is not looked at
        try:
            replay.take(event)
        except Forbidden as forbidden:
            found[event.lock] = violation(_sentence(event, forbidden), event.t, event, lock=event.lock)
    return Steps(replay.steps, tuple(found.values()))


def _sentence(event: Event, forbidden: Forbidden) -> str:
    votes = event.settled or event.votes
    said = "; ".join(f"{vote.master} {vote.outcome}{vote.reason and ': '}{vote.reason}" for vote in votes)
    return f"{forbidden}{said and f' ({said})'}"


def _left_out(history: History) -> str:
    """What the specification has no words for, or nobody has told."""
    if not any(event.votes for event in history.events):
        return "no client recorded what masters answered: this history has no votes"
    locks: dict[str | None, set[str | None]] = defaultdict(set)
    for event in history.events:
        if event.op == "acquire":
            locks[event.token].add(event.lock)
    if any(len(names) > 1 for token, names in locks.items() if token is not None):
        return "several names in one lock are not in the specification"
    for event in history.events:
        if event.phase == "ok" and event.op in ("acquire", "extend", "resume") and not event.votes:
            return f"line {event.line}: {event.op} without the votes for it"
    return ""


class Recorded(Rules):
    """The rules, with the times that clients have told, and the masters that each of them has."""

    used: Collection[str] = ()  # by the client whose step it is (R34)
    counted_on = 0.0  # what was left when the line was written, as the client counts
    longest = 0.0  # seconds that its answers took: so much earlier, or more, it was asked for
    asked = 0.0  # the earliest moment in which it can have been asked for
    done = 0.0  # ... and decided

    def __init__(self, masters: int, ttl: float, drift_factor: float) -> None:
        super().__init__(masters, ttl, ttl * drift_factor + _ROUNDING, -math.inf)
        self.until: dict[Any, float] = {}  # of each lease, by token; of one that is lost, its loss

    def ends(self, state: State, ttl: float) -> float:
        most = super().ends(state, ttl) - self.longest
        self._must(
            self.counted_on <= most + _TINY, "R6", f"{self.counted_on:.6f} s are counted on, and {most:.6f} may be left"
        )
        return self.counted_on

    def majority(self) -> int:
        return lists.majority(self.used)

    def said(self, client: Client, m: int) -> str | None:
        return self._said(client.rounds[-1], m)

    def may_extend(self, client: Client) -> bool:
        return self.done < self.until[client.token]


class Name:
    """The state of one lock."""

    def __init__(self, rules: Rules) -> None:
        self.state = rules.start(0)
        self.at = 0.0
        self.of: dict[str, int] = {}  # its clients in the specification, by token: each makes one attempt
        self.free = [0.0] * rules.size  # when a master was without a key, at last
        self.read = [0.0] * rules.size  # ... and when a grant of it was told of at last
        self.since: dict[tuple[int, Any], float] = {}  # when a key can have been set, by master and token
        self.recorded: set[tuple[int, Any]] = set()  # the keys of which a master has certainly a record as well (R35)
        self.mark = 0


class Replay:
    """Takes one event after the other.  Raises `Forbidden`."""

    def __init__(self, history: History) -> None:
        header = history.header
        self.masters = sorted({vote.master for event in history.events for vote in event.votes})
        self.rules = Recorded(len(self.masters), header.ttl, header.drift_factor)
        self.steps = 0
        self._names: dict[str, Name] = defaultdict(lambda: Name(self.rules))
        # By whom, of what: when an acquire began, and for how long it had lasted at the end of its last attempt.
        self._asked: dict[tuple[str, str | None, str | None], tuple[float, float]] = {}
        self._confirm = header.confirm_expiry
        self._released: dict[str | None, list[float]] = defaultdict(list)  # when a release of the lock was invoked
        for event in history.events:
            if (event.op, event.phase) == ("release", "invoke"):
                self._released[event.lock].append(event.t)
        self._over: dict[str, float] = {}  # by token: since when nothing is sent for it any more
        self._faults = faults(history)
        self._beyond = "exclusive" not in header.must  # the model: masters may lose their keys
        self._left = self._losses(history.events)
        self._uses: dict[str, frozenset[str]] = {}  # by process
        self._in_use: dict[frozenset[str], tuple[float, float]] = {}  # each list: from when, and until when at least
        # What can keep a master from telling one client of another's list: then it is found later (R34).
        self._apart = any(fault.name not in FAULTS or FAULTS[fault.name].kind != "client" for fault in self._faults)

    def _losses(self, events: Sequence[Event]) -> dict[str, float]:
        """By token: the earliest moment in which a client that has it can have known that it was lost, and released it."""
        hindered, kept = Hindered(self._faults, STOPPED_OR_KILLED), {}
        found: dict[str, float] = {}
        for event in events:
            if event.token is None or event.op not in ("acquire", "extend", "resume", "lost"):
                continue
            if event.op != "lost" and event.phase == "ok":
                kept[event.token] = event.t
            elif event.op == "lost":
                knew = event.t - _TOLD_WITHIN - _longest(event.votes)
                stopped = hindered.within(event.process, knew, event.t)
                knew = kept.get(event.token, 0.0) if stopped else knew
                found[event.token] = min(knew, found.get(event.token, knew))
        return found

    def take(self, event: Event) -> None:
        take = getattr(self, f"_{event.op}_{event.phase}", None)
        if event.votes:
            self._votes_of(event)
        if event.process == NEMESIS:
            self._strike(event)
        elif take is not None and event.lock is not None:
            name = self._names[event.lock]
            before = name.state, name.at
            try:
                take(name, event)
            except Forbidden:
                name.state, name.at = before
                raise

    def _votes_of(self, event: Event) -> None:
        """A client has one list for as long as it lives, and it goes with every list in use: of whatever lock (R34)."""
        self.rules.used = used = frozenset(vote.master for vote in event.votes)
        if self._uses.setdefault(event.process, used) != used:
            raise Forbidden("R1", f"has the masters {_words(used)}, and had {_words(self._uses[event.process])}")
        if event.phase != "ok" or event.valid_until is None or self._apart:
            return
        begun, until = min(event.t, event.valid_until), event.valid_until  # at the latest, and at the earliest
        for other, (since, ends) in self._in_use.items():
            if since < until and begun < ends and not lists.compatible(used, other):
                raise Forbidden("R34", f"has the masters {_words(used)}, while {_words(other)} are in use")
        since, ends = self._in_use.get(used, (begun, until))
        self._in_use[used] = min(since, begun) if begun <= ends else begun, max(ends, until)

    def _step(self, name: Name, t: float, step: str, *args: Any, **options: Any) -> None:
        """Time has passed, and this happens."""
        self.steps += 1
        if t > name.at:
            name.state, name.at = self.rules.wait(name.state, t - name.at), t
        name.state = getattr(self.rules, step)(name.state, *args, **options)

    # -- what clients tell ---------------------------------------------------------------------------

    def _acquire_invoke(self, _: Name, event: Event) -> None:
        self._asked[event.process, event.worker, event.lock] = event.t, 0.0

    def _attempt_fail(self, name: Name, event: Event) -> None:
        """Nobody knows its token, and it is taken back: so it changes nothing.  But a master may not have granted it.

        It may have been granted before the lease that is there now, if it was taken back, or had run out, by then.
        """
        whose = event.process, event.worker, event.lock
        if whose not in self._asked:
            return
        asked, so_far = self._asked[whose]
        decided = so_far + _longest(event.votes) if event.after is None else event.after  # at the earliest
        self._asked[whose] = asked, decided
        earliest = asked + min(decided, so_far + self.rules.ttl - self.rules.allowance)
        before = name.state, name.at
        for m, _ in self._granted(event.votes):
            if name.free[m] >= earliest:
                continue
            try:
                self._free(name, event.t, m, Request("acquire", None, shared=True))  # nobody tells whether it reads
            except Forbidden:
                if not any(event.t < t <= event.t + _READ_WITHIN for t in self._released[event.lock]):
                    raise
            finally:
                name.state, name.at = before

    def _acquire_ok(self, name: Name, event: Event) -> None:
        token, until = str(event.token), event.valid_until or 0.0
        if token in self.rules.until:
            raise Forbidden("R8", "has a token that was used before")
        self.rules.until[token] = until
        if until <= event.t:
            self._over[token] = event.t
        c = self._seat(name, token)
        fence = event.fence or max((master.fence for master in name.state.masters), default=0) + 1
        self._count(event)
        proposal = 0 if event.settled else fence  # its first one nobody tells
        self._step(name, event.t, "ask", c, token, proposal, shared=event.mode == "shared")
        before = name.state.masters
        for m, vote in self._granted(event.votes):
            self._grants(name, event, m, "acquire")
            # Behind a greater fence there is no record, and before the second round a late release may take it away.
            self._records(name, c, m, certain=not (vote.reason or event.settled))
            if vote.reason and not event.settled:  # a greater fence was there, of somebody's attempt
                self._hears(name, c, m, Reply("taken"))
            elif self.rules.said(name.state.clients[c], m) == "taken" and not event.settled:
                if not self._may_lose(m, self.rules.asked, event.t):
                    raise Forbidden("R18", f"fence {fence} is not greater than {vote.master} has, which stored it")
                self._put(name, m, before[m])  # its key was lost, and the line of the next client came first
                self._hears(name, c, m, Reply("granted"))
        if event.settled:
            again = [m for m, _ in self._granted(event.settled)]
            for m in again if self._confirm else ():  # the records that it took for over nobody tells of (R35)
                self._grants(name, event, m, "acquire")
            self._step(name, event.t, "settle", c, fence)
            for m in again:
                self._settles(name, event, m, before[m])
        self._step(name, event.t, "grant", c)

    def _settles(self, name: Name, event: Event, m: int, before: Master) -> None:
        c = name.of[str(event.token)]
        self._grants(name, event, m, "settle")
        self._records(name, c, m)
        stored = self.rules.said(name.state.clients[c], m) == "granted"
        if not stored and self._may_lose(m, self.rules.asked, event.t):
            self._put(name, m, before)  # its key was lost behind it, and the line of the next client came first
            self._hears(name, c, m, Reply("granted"))

    def _grants(self, name: Name, event: Event, m: int, what: str) -> None:
        """If it was over when it was told of, its keys may be gone for long: what it was told is all that is known."""
        token, until = str(event.token), event.valid_until or 0.0
        c = name.of[token]
        if until <= event.t:
            self._hears(name, c, m, Reply("granted"))
            return
        for asked in [one for one in name.state.flight[c][m] if one.what == "acquire"]:
            self._free(name, event.t, m, asked)
            self._lands(name, event.t, c, m, "acquire")
            name.free[m] = event.t
        if what == "settle":
            self._lands(name, event.t, c, m, "settle")
        if event.mode == "shared" and self.rules.asked < name.read[m]:
            self._hears(name, c, m, Reply("granted"))  # readers are told of in any order
        name.read[m], name.since[m, token] = event.t, self.rules.asked

    def _records(self, name: Name, c: int, m: int, *, certain: bool = True) -> None:
        """Of readers there is none (R35)."""
        client = name.state.clients[c]
        if certain and not client.shared:
            name.recorded.add((m, client.token))

    def _extend_ok(self, name: Name, event: Event) -> None:
        token, until = str(event.token), event.valid_until or 0.0
        c = self._holder(name, token)
        if c is None or token in self._over:
            sent = until - Rules.ends(self.rules, name.state, self.rules.ttl)  # at the earliest
            if token in self.rules.until and sent <= self._over.get(token, math.inf):
                return  # it was under way when the lease ended, and is told late
            raise Forbidden(
                "R12",
                "extends a lease that has ended" if token in self._over else "extends a lease that was not granted",
            )
        self._extension(name, event, c)

    def _resume_ok(self, name: Name, event: Event) -> None:
        """It cannot know for how long the lease was valid: the masters say whether it is still there (R12)."""
        c = self._holder(name, str(event.token))
        if c is None:
            raise Forbidden("R12", "goes on with a lease that is not held")
        self._over.pop(str(event.token), None)
        self.rules.until[event.token] = math.inf
        self._extension(name, event, c)

    def _extension(self, name: Name, event: Event, c: int) -> None:
        token, until = name.state.clients[c].token, event.valid_until or 0.0
        name.mark += 1
        self._count(event)
        self._step(name, event.t, "extend", c, name.mark)
        for m, _ in self._granted(event.votes):
            if until <= event.t:
                self._hears(name, c, m, Reply("granted"))
                continue
            [asked] = [one for one in name.state.flight[c][m] if (one.what, one.mark) == ("extend", name.mark)]
            self._free(name, event.t, m, asked)
            master = name.state.masters[m]
            if not self.rules.owns(
                master, token
            ):  # it was repaired there, or its acquire came late: nobody tells of that
                self._put(name, m, self.rules._has(master, asked._replace(left=0.0)))  # noqa: SLF001
                name.free[m] = event.t
            self._lands(name, event.t, c, m, "extend", name.mark)
            name.since[m, token] = self.rules.asked
            self._records(name, c, m)
        self._step(name, event.t, "extended", c, name.mark)
        self.rules.until[token] = until

    def _downgrade_invoke(self, name: Name, event: Event) -> None:
        """From here on masters may let readers in: wherever it has arrived."""
        c = self._holder(name, str(event.token))
        if c is None or event.token in self._over or event.t >= self.rules.until[event.token]:
            return
        self.rules.done = -math.inf
        self._step(name, event.t, "downgrade", c)
        for m, master in enumerate(name.state.masters):
            if master.key and master.key.token == event.token:
                self._put(name, m, master._replace(key=None, readers=(*master.readers, master.key)))

    def _lost_info(self, name: Name, event: Event) -> None:
        token = str(event.token)
        c = self._holder(name, token)
        if c is None or token in self._over:
            return
        if event.reason == "taken" and event.votes and self.rules.until[token] > event.t:
            name.mark += 1
            self.rules.longest, self.rules.counted_on, self.rules.done = 0.0, 0.0, -math.inf
            self._step(name, event.t, "extend", c, name.mark)
            for vote in event.votes:
                if vote.outcome == "held":
                    self._hears(name, c, self.masters.index(vote.master), Reply("held"))
            self._step(name, event.t, "denied", c, name.mark)
        self._over[token] = event.t

    def _release_invoke(self, name: Name, event: Event) -> None:
        token = str(event.token)
        c = self._holder(name, token)
        if c is None:
            raise Forbidden("R12", "releases a lease that it does not hold")
        self._step(name, event.t, "release", c)
        for m, master in enumerate(name.state.masters):
            if not self.rules.owns(master, token):
                self._lands(name, event.t, c, m, "release")

    def _release_ok(self, _: Name, event: Event) -> None:
        self._over[str(event.token)] = event.t

    _release_fail = _release_ok

    # -- what nobody tells ---------------------------------------------------------------------------

    def _free(self, name: Name, t: float, m: int, asked: Request) -> None:
        """Each key in the way of ``asked`` at master ``m`` has gone: released, over, or taken away by somebody."""
        master, passed, ahead = name.state.masters[m], t - name.at, self._ahead(m, t)
        for key in self.rules.in_the_way(master, asked):
            c = name.of[key.token]
            gone = t >= self._left.get(key.token, math.inf) or (ahead > 0 and key.left - passed <= ahead)
            if any(one.what == "release" for one in name.state.flight[c][m]):
                self._lands(name, t, c, m, "release")
            elif gone or self._may_lose(m, name.since[m, key.token], t, recorded=(m, key.token) in name.recorded):
                self._put(name, m, self.rules.on_release(name.state.masters[m], Request("release", key.token))[0])
            else:
                self._step(name, t, "expire", m, key.token)
        if not self.rules.owns(master, asked.token):
            name.free[m] = t

    def _put(self, name: Name, m: int, master: Master) -> None:
        name.state = name.state._replace(masters=put(name.state.masters, m, master))

    def _may_lose(self, m: int, since: float, t: float, *, recorded: bool = True) -> bool:
        """Whether something that is beyond the model was done to it at ``since`` or later: its client may hear later.

        With R35 a minority may do so within the model: then a record says whose the name is, if there is one.
        """
        if not (self._beyond or (self._confirm and not recorded)):
            return False
        struck = [one for one in self._faults if one.target == self.masters[m]]
        beyond = [one for one in struck if self._beyond or (one.name in FAULTS and not FAULTS[one.name].in_model)]
        return any(one.begin <= t and one.end >= since for one in beyond)

    def _ahead(self, m: int, t: float) -> float:
        """How many seconds the clock of a slewed master has gained in one TTL: its rate is not measured yet (R43)."""
        first = t - self.rules.ttl
        slewed = [one for one in self._faults if (one.name, one.target) == ("slewed", self.masters[m])]
        return SLEW * sum(max(0.0, min(one.end, t) - max(one.begin, first)) for one in slewed)

    def _strike(self, event: Event) -> None:
        """A master may forget its fences with all else; those that come then are greater by their wall clocks (R16)."""
        for m in (self.masters.index(one) for one in event.target if one in self.masters):
            for name in self._names.values():
                self._put(name, m, name.state.masters[m]._replace(fence=0))

    # ------------------------------------------------------------------------------------------------

    def _count(self, event: Event) -> None:
        """When it was asked for and decided, as far as its line can tell."""
        rules, until = self.rules, event.valid_until or 0.0
        rules.longest, rules.counted_on = _longest(event.votes), until - event.t
        rules.asked = min(event.t - rules.longest, until - rules.ttl + rules.allowance)
        took = sorted(vote.after or 0.0 for vote in event.votes if vote.outcome == "granted")
        rules.done = rules.asked + (took[rules.majority() - 1] if len(took) >= rules.majority() else 0.0)

    def _granted(self, votes: Iterable[Vote]) -> list[tuple[int, Vote]]:
        return [(self.masters.index(vote.master), vote) for vote in votes if vote.outcome == "granted"]

    def _seat(self, name: Name, token: str) -> int:
        """A client of the specification that has nothing to do, and of which nothing is under way."""
        state = name.state
        for c, one in enumerate(state.clients):
            if one.phase == "idle" and not any(state.flight[c]):
                name.of = {other: seat for other, seat in name.of.items() if seat != c}
                break
        else:
            more, c = self.rules.start(1), len(state.clients)
            name.state = state._replace(clients=state.clients + more.clients, flight=state.flight + more.flight)
        name.of[token] = c
        return c

    def _holder(self, name: Name, token: str) -> int | None:
        c = name.of.get(token)
        return c if c is not None and name.state.clients[c].token == token else None

    def _hears(self, name: Name, c: int, m: int, reply: Reply) -> None:
        client = name.state.clients[c]
        last = client.rounds[-1]
        client = client._replace(rounds=(*client.rounds[:-1], last._replace(said=put(last.said, m, reply))))
        name.state = name.state._replace(clients=put(name.state.clients, c, client))

    def _lands(self, name: Name, t: float, c: int, m: int, what: str, mark: int = 0) -> None:
        """It arrives; what stands before it never did, or changed nothing."""
        while (name.state.flight[c][m][0].what, name.state.flight[c][m][0].mark) != (what, mark):
            self._step(name, t, "lose", c, m)
        self._step(name, t, "arrive", c, m)


def _words(masters: Iterable[str]) -> str:
    return ", ".join(sorted(masters))


def _longest(votes: Iterable[Vote]) -> float:
    return max((vote.after or 0.0 for vote in votes), default=0.0)
