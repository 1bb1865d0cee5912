"""The judge of what is shipped: it sees the masters' keys, what they were asked, and what users were given and told.

It knows no quorum and no rule of the algorithm.  It sees true time and every key of every master: who changed which, who
holds what at one time, what is left behind; a lease is valid as long as its own holder's clock says so.  The rest it
hears from outside: a user has a lease, begins to give it back, or is told that it is lost.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from redlock import scripts
from redlock._core import wire
from redlock._core.outcomes import ErrorReply
from tests.bench.parameters import WRONG_FAULTS
from tests.simulation.line import LEFT as NO_TICKET, Line, Waiter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from redlock._core.wire import Call
    from tests.bench.machine import Machine, Process
    from tests.bench.parameters import Parameters, Setting
    from tests.bench.server import Server
    from tests.simulation.master import Key, Master
    from tests.simulation.world import World

PREFIX = "redlock:"
MILLISECOND = 0.001
TINY = 1e-9
LOOKS = (scripts.STATUS, scripts.LOOK, scripts.SCAN)


def _of(*verbs: str) -> tuple[scripts.Script, ...]:
    return tuple(script for script in scripts.ALL if script.verb in verbs)


ACQUIRES, OCCUPIES, EXTENDS, RENEWS = _of("acquire"), _of("occupy"), _of("extend"), _of("renew")
REPAIRS, RELEASES = _of("repair"), _of("release", "vacate")
RELEASED = "released:"  # in front of a token: no client may have the name yet
EXPIRED = "expired:"  # in front of a token: no client can tell whether the last lease has ended (R35)
NO_LOCK = (":fence", ":grant", ":tickets")  # keys that end so stand beside that of a lock

# The invariants by name; `Violation.invariant` is one of them.
P1 = "P1 exclusive"
P2 = "P2 fenced"
P3 = "P3 freed"
P5 = "P5 quarantined"
P6 = "P6 told in time"
P7 = "P7 clean"
P8 = "P8 foreign"
R12 = "R12 stays lost"
R13 = "R13 not given up"
R36 = "R36 guarded"
R32 = "R32 at most"
R28 = "R28 at least"
AGREEMENT = "R34 one works on"
R28_END = "R28 no longer"
C7 = "C7 not held for longer"
LIVE = "live"
HANGS = "ends"
LEFT = "leaves nothing"
ERROR = "no error of its own"
WHOLE = "R14 whole"
CALM = "nothing is lost where nothing goes wrong"
PROMPT = "no slower than its links"
PAST = "R3 no answer before its request"
QUIET = "R24 quiet"
R11 = "R11 interrupted"
UNREACHED = 2.0  # seconds for which a connection may be on its way to fail
LATE = 0.025  # seconds that a thread may be late: less than the patience of one that nobody wakes
PUT_OFF = 0.3
KNOWN = 0.65  # of a max_ttl: so long it may take until a clock that is slewed is measured
UNSTEPPED = 0.1  # seconds that whatever has to be told may take, where no thread is late

_TOKEN_FIRST = (*RELEASES, scripts.MARK)
_OF_NO_LOCK = (scripts.FLEET, scripts.KNOWN)
_SETTLES = (scripts.CONFIRM, scripts.CONFIRM_SHARED)
_FAIR = tuple(script for script in ACQUIRES if "fair" in script.name)
_TTLS = dict.fromkeys((*ACQUIRES, *OCCUPIES, *EXTENDS, *REPAIRS), 2) | dict.fromkeys(_SETTLES, 5)  # which argument


# A lock key; or a reader in the set that is there (R33).
Where: TypeAlias = "tuple[str, str | None]"


def find(master: Master, where: Where) -> Key | None:
    name, reader = where
    if reader is not None:
        return dict(readers(master, name)).get(where)
    key = master.find(name)
    return None if key is None or key.members is not None else key


def readers(master: Master, name: str) -> list[tuple[Where, Key]]:
    """The readers of a name that have not ended; not the marks of writers."""
    key = master.find(name)
    if key is None or key.members is None:
        return []
    return [((name, token), one) for token, one in key.members.items() if (one.expires or 0) > master.now_ms]


class Violation(AssertionError):  # noqa: N818 - what pytest shows first is its name
    """A promise was broken."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


@dataclass(eq=False)
class Attempt:
    """One acquire round with one token, and whatever became of it: the owner of keys."""

    number: int
    client: Any
    names: tuple[str, ...]
    token: str
    longest: float  # the longest TTL asked for, seconds
    sent_at: float = 0.0  # true time
    over: bool = False  # it failed, or its lease was released
    released_on: set[tuple[int, str]] = field(default_factory=set)  # masters that carried out its release, and its key
    owed_until: dict[int, float] = field(default_factory=dict)  # by master: until when it is owed the release (R10)
    denied_on: set[int] = field(default_factory=set)  # masters that said the key is not its own
    hold: Hold | None = None  # what was granted for it
    gave: dict[int, int] = field(default_factory=dict)  # by master: which slot it gave (R32)

    def __repr__(self) -> str:
        return f"{self.client.name}#{self.number}"


@dataclass(eq=False)
class Hold:
    """One grant, from its decision on: what a user has been given."""

    client: Any
    attempt: Attempt
    lease: Any
    fence: int | None
    invoked_at: float
    decided_at: float
    until: float  # `valid_until` when it was last looked at, on the client's clock
    hold_at_least: float = 0.0
    kept_until: float = -math.inf  # true time before which nobody else may get it (R28)
    over: bool = False  # released, lost or expired; never to be valid again
    let_go: bool = False  # its release was invoked, or its renewer gave it up
    late: bool = False  # ... when it had been lost already
    normal: bool = False  # ... and it was ours until then
    # What its renewer is to do.
    renewed: bool = False
    ends: float = math.inf  # max_hold, on the client's clock
    told: int = 0  # how often its holder was told that it is lost
    told_at: float = math.nan  # ... the last time, on the client's clock

    def __repr__(self) -> str:
        return f"lease of {self.lease.name}"

    def valid(self) -> bool:
        """Whether its holder may believe in it now.  What has ended once has ended for good."""
        with self.client.unseen():
            if not self.over and not self.client.dead:
                self.until = self.lease.valid_until
            if not self.over and (self.client.dead or self.lease.lost or self.client.clock() >= self.until):
                self.over = True
            return not self.over


@dataclass
class Slew:
    """Clocks of masters run faster than `drift_factor` allows, or that of a client slower, from ``begin`` on."""

    begin: float
    end: float = math.inf


class Judge:
    """Sees everything, and raises `Violation` at the first promise that is broken."""

    def __init__(self, world: World, parameters: Parameters, setting: Setting, machine: Machine) -> None:
        self.world = world
        self.parameters = parameters
        self.calls = 0
        self.grants = 0
        self.masters: list[Master] = []
        self.line = Line(self)
        self._attempts: list[Attempt] = []
        self._by_token: dict[str, Attempt] = {}
        self._holds: dict[str, list[Hold]] = defaultdict(list)
        self._at_least: dict[str, list[Hold]] = defaultdict(list)
        self._fences: dict[str, list[Hold]] = defaultdict(list)
        self._guarded: dict[str, list[Hold]] = defaultdict(list)
        self.setting = setting
        # Seconds until a connection is made anew that a Ctrl-C has torn, perhaps in the middle of another thread.
        self._torn = 1.5 + 8 * parameters.node_timeout if parameters.rate("strike") else 0.0
        self.machine = machine
        # By the masters that granted: born, forgot.
        self.gave: dict[Attempt, dict[int, tuple[float, bool]]] = defaultdict(dict)
        # When a master kept an extension away, as a dead holder's key was there.
        self.behind: dict[tuple[Attempt, int], float] = {}
        self.begun: dict[Attempt, float] = {}  # when it was asked for first
        self.won_at: dict[Attempt, float] = {}  # when the last one of a majority had granted it
        self._lines_up: dict[Attempt, Waiter] = {}
        self.refused = 0
        self.slews: list[Slew] = []
        self.works: list[Any] = []  # lists of masters with which somebody was granted something (R34)
        self.excused: set[Attempt] = set()  # held when its masters were closed, or by the parent of a fork
        self._forked: dict[Process, float] = {}  # when each has, last
        self._closed: dict[Any, float] = {}  # when its masters were closed for the last time
        self.inherited: dict[Attempt, float] = {}  # what a forked child has nothing to do with, and since when
        self.unreached: set[tuple[str, int]] = set()  # tokens on masters out of reach when their client's were closed

    def fail(self, invariant: str, text: str) -> None:
        self.world.log("VIOLATION", invariant, text)
        violation = Violation(invariant, text)
        if self.machine.violation is None:  # the library may log what its observer raises, and go on
            self.machine.violation = violation
        raise violation

    # -- what masters are asked ----------------------------------------------------------------------

    def asked(self, process: Process, server: Server, call: Call, sent_at: float, *, text: bool) -> Any:
        """Have the master do it, on behalf of the attempt that it is for."""
        master = server.master
        attempt = self._attempt_of(process, master, call, sent_at)
        if call.script is scripts.TICKET:
            self._stands(process, call, sent_at)
        reply = master.evaluate(call, attempt, text=text)
        # Of another process: no connection orders its release behind the acquire.
        if attempt is not None and attempt.client is not process:
            attempt.released_on.clear()
        if attempt is not None and isinstance(reply, list):
            if call.script in EXTENDS and reply[0] == 0:
                other = self._by_token.get(reply[1].decode("latin-1"))
                if other is not None and self._stays(other, master):
                    self.behind[attempt, master.index] = self.world.now
            took = (1, 2) if call.script in (*ACQUIRES, *OCCUPIES) else (1,) * (call.script in _SETTLES)
            if reply[0] in took:
                self.gave[attempt][master.index] = master.born_at, master.forgot
                if len(self.gave[attempt]) == self._need(process):
                    self.won_at[attempt] = self.world.now
            if call.script in _FAIR:
                self._lines_up[attempt] = self._in_line(process, call.args[-1], call)
        return reply

    def before(self, master: Master, call: Call) -> Sequence[tuple[Where, Attempt | None, str | None, int | None]]:
        """The lock keys that ``call`` names, as they are before it runs."""
        if call.script in _OF_NO_LOCK:
            return ()
        self.calls += 1
        self.line.before(master, call)
        if call.script is scripts.ANNOUNCE or call.script in LOOKS:
            return ()
        found: list[tuple[Where, Attempt | None, str | None, int | None]] = []
        for name in call.keys:
            if not name.endswith(NO_LOCK):
                where: Where = name, None
                if (key := find(master, where)) is None:
                    found.append((where, None, None, None))
                else:
                    found.append((where, key.attempt, key.value, key.expires))
                found += [(where, one.attempt, one.value, one.expires) for where, one in readers(master, name)]
        return found

    def after(
        self,
        master: Master,
        call: Call,
        attempt: Attempt | None,
        before: Iterable[tuple[Where, Attempt | None, str | None, int | None]],
        reply: Any,
    ) -> None:
        if call.script in _OF_NO_LOCK:
            return
        self.world.log("runs", f"m{master.index}", call.script.name, attempt, reply)
        self.line.after(master, call)
        together = self._together(call)
        whose = {name: one for one, names in together for name in names}
        if call.script in RENEWS and not isinstance(reply, ErrorReply):
            for (one, _), answer in zip(together, reply, strict=True):
                if one is not None and isinstance(answer, bytes):
                    one.denied_on.add(master.index)
        known = {where for where, *_ in before}
        new = [
            (where, None, None, None)
            for (name, reader) in list(known)
            if reader is None
            for where, _ in readers(master, name)
            if where not in known
        ]
        for where, owner, value, expires in (*before, *new):
            name = where[0]
            attempt = whose.get(name, attempt)
            key = find(master, where)
            if key is None:
                if owner is not None and owner is not attempt:
                    self.fail(P8, f"m{master.index}: {call.script.name} of {attempt} removed {name} of {owner}")
                continue
            if key.value == value and key.expires == expires and key.attempt is owner:
                continue
            if owner is not None and owner is not attempt:
                self.fail(P8, f"m{master.index}: {call.script.name} of {attempt} changed {name} of {owner}")
            if attempt is None:
                self.fail(P8, f"m{master.index}: {call.script.name} set {name} on behalf of nobody")
                return
            if owner is None and (master.index, name) in attempt.released_on:
                self.fail(P7, f"m{master.index}: {call.script.name} of {attempt} set {name} behind its release")
            # What hides a lease of somebody else lasts as long as that may (R35).
            phantom = str(key.value).startswith(EXPIRED)
            longest = self.parameters.max_ttl if phantom else min(attempt.longest, self.parameters.max_ttl)
            longest = int(wire.milliseconds(longest))
            # What is kept by `hold_at_least` (R28) may outlive a TTL by its drift, where the master's clock was set back.
            released = str(key.value).startswith(RELEASED)
            if key.expires is None or (key.expires > master.now_ms + longest and not released):
                self.fail(
                    P7,
                    f"m{master.index}: {name} of {attempt} expires {key.expires}, "
                    f"now is {master.now_ms} and its longest TTL {longest}",
                )
            assert key.expires is not None
            if released:
                self._kept(master, name, attempt, expires, key.expires)
            key.attempt, key.changed_at = attempt, self.world.now
        if attempt is None or isinstance(reply, ErrorReply):
            return
        if call.script in OCCUPIES and reply[0] in (1, 2):
            first = call.args[5 if call.script is scripts.OCCUPY else 6]
            attempt.gave[master.index] = reply[2] if len(reply) > 2 else int(first)
        if call.script in RELEASES:
            attempt.released_on.update((master.index, name) for name in call.keys)
            if attempt.hold is not None and not any(key.endswith(attempt.names) for key in call.keys):
                return  # of other slots, which it was given beside the one that it holds (R32)
        # That it is a reader by now denies no extension, and is no release of what it had for itself (R33).
        reads = call.script in RELEASES and reply[0] == -1
        if call.script in (*EXTENDS, *RELEASES) and (not reply[0] or reads):
            attempt.denied_on.add(master.index)

    def _together(self, call: Call) -> list[tuple[Attempt | None, tuple[str, ...]]]:
        """On whose behalf a call for many runs, and the lock keys of each."""
        if call.script not in RENEWS:
            return []
        found, keys = [], list(call.keys)
        if call.script is scripts.RENEW:
            args = call.args[1:]
            each = [(int(n), int(f), token) for n, f, token in zip(args[0::4], args[1::4], args[2::4], strict=True)]
        else:
            args = call.args[3:]
            each = [(int(n), 2 * int(n), token) for n, token in zip(args[0::4], args[1::4], strict=True)]
        for locks, beside, token in each:
            found.append((self._by_token.get(token), tuple(keys[:locks])))
            del keys[: locks + beside]
        return found

    def attempt(self, client: Any, names: tuple[str, ...], token: str, ttl: float) -> Attempt:
        attempt = Attempt(len(self._attempts), client, names, token, ttl, self.world.now)
        self._attempts.append(attempt)
        self._by_token[token] = attempt
        return attempt

    def looked(self, hold: Hold) -> None:
        """A look at the lease, as users take them."""
        if not hold.valid() and hold.lease.valid:
            self.fail(R12, f"the lease of {hold.attempt} had ended and says that it is valid")

    # -- clocks (R43) --------------------------------------------------------------------------------

    def slewed(self) -> Slew:
        self.slews.append(Slew(self.world.now))
        return self.slews[-1]

    def _alone(self, hold: Hold) -> None:
        """P1 is promised where clocks are within `drift_factor`, or were measured.  Two leases of before that may go on."""
        # A second valid lease can only begin where something is granted or extended, so looking there
        # sees every overlap.
        if any(map(self._harms, self.slews)) or not self.parameters.clocks_hold or not hold.valid():
            return
        for name in hold.attempt.names:
            for other in self._holds[name]:
                together = hold.lease.shared and other.lease.shared
                if self.parameters.confirm:  # readers are not on record: a wrong clock lets a writer in
                    first = min(hold, other, key=lambda one: one.decided_at)
                    together = together or first.lease.shared
                if other is not hold and not together and other.valid():
                    self.fail(P1, f"{name} is held by {hold.attempt} and by {other.attempt}")
            self._holds[name] = [other for other in self._holds[name] if other is hold or not other.over]

    def _harms(self, slew: Slew) -> bool:
        longest = 1.2 * self.parameters.max_ttl  # on the clock of a client that is slewed
        known = slew.begin + KNOWN * longest + 0.5
        return slew.begin <= self.world.now < (known + longest if slew.end > known else slew.end + 2 * longest)

    def _none_too_early(self, hold: Hold) -> None:
        """Nobody else may have it yet (R28).  A clock that steps is not judged: P1 allows that for a whole TTL."""
        if not self.parameters.clocks_hold or any(map(self.parameters.rate, ("slew", *WRONG_FAULTS))):
            return
        for name in hold.attempt.names:
            for other in self._at_least[name]:
                if self.world.now < other.kept_until - TINY:
                    self.fail(
                        R28, f"{name} is granted to {hold.attempt}, {other.attempt} has it until {other.kept_until:.4f}"
                    )
            self._at_least[name] = [hold] if hold.kept_until > self.world.now else []

    def _after_the_guards(self, hold: Hold) -> None:
        """Nobody had it, but for the time of a guard: what a lost lease has under way gets that (R36)."""
        after, drift = self.parameters.after, self.parameters.drift_factor
        if not after or not self.parameters.clocks_hold:
            return
        for name in hold.attempt.names:
            for other in self._guarded[name]:
                denied = len(other.attempt.denied_on) > len(self.masters) // 2  # its keys were gone before
                if other.normal or (other.let_go and not other.late and not other.told) or denied or other.valid():
                    continue
                end = other.client.true_time(min(other.until, other.ends)) + after
                least = end - drift * (other.attempt.longest + after) - 3 * MILLISECOND
                if self.world.now < least:
                    self.fail(
                        R36,
                        f"{name} is granted to {hold.attempt}, and {other.attempt} was lost: it guards to {least:.4f}",
                    )
            self._guarded[name] = [other for other in self._guarded[name] if other.valid()] + [hold]

    def _kept(self, master: Master, name: str, attempt: Attempt, before: int | None, expires: int) -> None:
        """A release has left its key, so that nobody has the name too early (R28)."""
        if attempt.hold is None:  # it was interrupted on the way to its user
            return
        where = f"m{master.index}: the release of {attempt} keeps {name}"
        if not attempt.hold.hold_at_least:
            self.fail(R28_END, f"{where}, and had no reason to")
        if before is not None and expires > before:
            self.fail(R28_END, f"{where} for {expires - before} ms longer than the key would have lived")

    def _ordered(self, hold: Hold, names: Iterable[str]) -> None:
        assert hold.fence is not None
        for name in names:
            for other in self._fences[name]:
                assert other.fence is not None
                if other.fence == hold.fence:
                    self.fail(P2, f"{name}: {other.attempt} and {hold.attempt} both have fence {hold.fence}")
                if other.decided_at < hold.invoked_at and other.fence > hold.fence:
                    self.fail(
                        P2,
                        f"{name}: {other.attempt} had ended with fence {other.fence} before "
                        f"{hold.attempt} began, which got {hold.fence}",
                    )
            self._fences[name].append(hold)

    # -- who waits in order (R42) --------------------------------------------------------------------

    def _in_line(self, process: Process, token: str, call: Call) -> Waiter:
        names = tuple(key.removeprefix(PREFIX) for key in call.keys[: int(call.args[0])])
        return self.line.waiters.setdefault(token, Waiter(process, token, names))

    def _stands(self, process: Process, call: Call, sent_at: float) -> None:
        """It draws a ticket, renews it, or gives it back."""
        token, number = call.args[1:3]
        waiter = self._in_line(process, token, call)
        if number == "0":
            waiter.over = True
        else:
            waiter.number = int(number)
            waiter.proposed_at = sent_at if waiter.proposed_at is None else waiter.proposed_at

    def _attempt_of(self, process: Process, master: Master, call: Call, sent_at: float) -> Attempt | None:
        script, args = call.script, call.args
        if script in RENEWS:
            if not call.keys:
                return None  # the text of the script alone
            first = 3 if script is scripts.RENEW else 4
            for token, ttl in zip(args[first::4], args[first + 1 :: 4], strict=True):
                self._asks(self._of(token, sent_at), master, int(ttl) / 1000, sent_at)
            return None
        if script not in (*_TTLS, *_TOKEN_FIRST, scripts.FENCE) or not call.keys:
            return None
        token = args[0] if script in _TOKEN_FIRST else args[1]
        attempt = self._of(token, sent_at)
        if attempt is None:
            locks = call.keys if script in _TOKEN_FIRST else call.keys[: int(args[0])]
            names = tuple(name.removeprefix(PREFIX) for name in locks)
            attempt = self.attempt(process, names, token, 0.0)
            self.begun[attempt] = sent_at
            if sent_at <= self._forked.get(process, -math.inf):
                self.excused.add(attempt)
                self.inherited[attempt] = self._forked[process]
            if sent_at <= self._closed.get(process, -math.inf):  # no master that was within reach then had heard of it
                self.excused.add(attempt)
        if script is scripts.MARK:
            attempt.longest = max(attempt.longest, int(args[1]) / 1000)
        if script in _TTLS:
            self._asks(attempt, master, int(args[_TTLS[script]]) / 1000, sent_at)
        return attempt

    def _of(self, token: str, sent_at: float) -> Attempt | None:
        attempt = self._by_token.get(token)
        if attempt is not None and sent_at > self.inherited.get(attempt, math.inf):
            self.fail(P8, f"a forked child asks for what is done by its parent: {attempt}")
        return attempt

    def _asks(self, attempt: Attempt | None, master: Master, ttl: float, sent_at: float) -> None:
        """A key may live until then, and so long its release is owed (R10)."""
        if attempt is not None:
            attempt.longest = max(attempt.longest, ttl)
            owed = sent_at + (2 - 3 * self.parameters.drift_factor) * ttl - 2 * self.parameters.node_timeout
            attempt.owed_until[master.index] = max(attempt.owed_until.get(master.index, owed), owed)

    # -- what users are given ------------------------------------------------------------------------

    def given(
        self, process: Process, lease: Any, invoked_at: float, max_hold: float | None, kept: bool, at_least: float = 0.0
    ) -> Hold:
        """A user has got ``lease``.  ``kept``: it is renewed in the background.  ``at_least``: `hold_at_least`."""
        with process.unseen():
            return self._given(process, lease, invoked_at, max_hold, kept, at_least)

    def _given(
        self, process: Process, lease: Any, invoked_at: float, max_hold: float | None, kept: bool, at_least: float
    ) -> Hold:
        self.grants += 1
        attempt = self._by_token.get(lease.token)
        if attempt is None:
            self.fail(P1, f"{process} was granted {lease.names}, and no master has heard of it")
            raise AssertionError
        self._one_works(process)
        attempt.names = lease.names  # of several slots it is one
        holder: Any = process
        hold = Hold(holder, attempt, lease, lease.fence, invoked_at, self.world.now, lease.valid_until, at_least)
        self.world.log("granted", attempt, lease.names, lease.fence, f"until {lease.valid_until:.4f}")
        attempt.hold = hold
        self._votes(lease.votes)
        self._majority(attempt)
        if at_least:  # on its clock, from its decision, which is no sooner than `won_at`
            at_least = process.in_(at_least) - self.world.now  # type: ignore[operator]
            hold.kept_until = min(self.won_at[attempt] + at_least, process.true_time(lease.valid_until))
        if lease.fence is not None and self.parameters.fences_hold:
            self._ordered(hold, lease.names)
        self._at_most(hold)
        self._alone(hold)
        self._none_too_early(hold)
        if not lease.shared:
            self._after_the_guards(hold)
        self.line.granted(hold, attempt, self.begun[attempt], self._lines_up.get(attempt))
        for name in lease.names:
            self._holds[name].append(hold)
        hold.ends = process.clock() + max_hold if max_hold is not None else math.inf
        hold.renewed = kept
        self._expect(hold)
        return hold

    def _one_works(self, process: Any) -> None:
        """Of two lists of masters that are incompatible one works (R34)."""
        if process.servers not in self.works:
            self.works.append(process.servers)
        if len(self.works) > 1:
            self.fail(AGREEMENT, f"{process} was granted something, and others use an incompatible list of masters")

    @staticmethod
    def _need(process: Any) -> int:
        return len(process.servers) // 2 + 1

    def _majority(self, attempt: Attempt) -> None:
        """So many have given it that may vote (R1, P5)."""
        gave, least = self.gave[attempt], self.parameters.max_ttl * (1 - self.parameters.drift_factor)
        need = self._need(attempt.client)
        if len(gave) < need:
            self.fail(P1, f"{attempt} was granted, and only {sorted(gave)} have given it")
        old = [master for master, (born, forgot) in gave.items() if not forgot or self.world.now - born >= least]
        if self.parameters.guard and len(old) < need:
            self.fail(P5, f"{attempt} was granted by {sorted(gave)}, of which only {old} remember what was before")

    def _votes(self, votes: Any) -> None:
        for vote in votes:
            if vote.latency is not None and vote.latency < 0:
                self.fail(PAST, f"{vote.master} has answered {-vote.latency:.6f} s before it was asked")

    def refuses(self, process: Process, error: Any) -> None:
        """A user got an error instead of a lease."""
        self.refused += 1
        self.world.log("refused", process, type(error).__name__)
        self._votes(getattr(error, "votes", ()))

    def hears(self, process: Process, event: Any) -> None:
        """An event of an observer."""
        if type(event).__name__ == "LeaseExtended":
            attempt = self._by_token.get(event.token)
            if attempt is None or (hold := attempt.hold) is None or hold.let_go:
                return
            self.looked(hold)
            if hold.valid():
                self.world.log("extended", attempt, f"until {hold.until:.4f}")
                self._at_most(hold)
                self._alone(hold)

    # -- how it ends ---------------------------------------------------------------------------------

    def ended(self, hold: Hold) -> None:
        """Its user begins to give it back."""
        hold.late = not hold.valid()
        hold.over = hold.attempt.over = hold.let_go = True
        self.world.log("release", hold.attempt)

    def back(self, hold: Hold, *, ours: bool) -> None:
        """It was given back.  ``ours``: until then it had not been lost."""
        hold.normal = ours
        if not ours:
            self.keeps([hold])
        if ours and hold.told:
            self.fail(P6, f"{hold.attempt} was released, and its holder had been told that it is lost")

    def keeps(self, holds: list[Hold]) -> None:
        """They could not be given back: if their masters are closed, they stay for their TTL."""
        self.excused.update(hold.attempt for hold in holds if hold.client.closing)

    def drops(self, process: Any, owner: str) -> None:
        """A coroutine is thrown away.  What was granted to it is held: if its masters are closed, it stays for its TTL."""
        if process.closing:
            self.excused.update(attempt for attempt in self.won_at if attempt.token.endswith(f":{owner}"))

    def told(self, hold: Hold) -> None:
        hold.told += 1
        lease, now = hold.lease, hold.client.clock()
        hold.told_at = now
        self.world.log("told", hold.attempt, hold)
        if hold.told > 1:
            self.fail(P6, f"the holder of {hold.attempt} was told twice")
        if hold.normal or lease.valid or not lease.lost:
            self.fail(P6, f"the holder of {hold.attempt} was told, and it is not lost: {lease}")
        reason = lease.loss().reason
        if reason == "max_hold":
            if now < hold.ends - (hold.decided_at - self.won_at[hold.attempt]) - self.slack(hold.client):
                self.fail(C7, f"{hold.attempt} could have been held for another {hold.ends - now:.4f} s")
        elif self.setting.calm and hold.renewed:
            self.fail(CALM, f"{hold.attempt} was lost ({reason}): {lease.loss()}")
        elif (
            reason in ("taken", "expired")
            and now < lease.valid_until - self.slack(hold.client)
            and len(hold.attempt.denied_on) < self._need(hold.client)
        ):
            self.fail(R13, f"{hold.attempt} was given up ({reason}), and no majority has denied it")

    def slack(self, process: Any) -> float:
        """How late a thread may come to what it has to do."""
        late: float = UNSTEPPED + 30 * process.naps + 3 * self.setting.longest_nap
        return late

    def _expect(self, hold: Hold) -> None:
        client = hold.client
        end = client.true_time(min(hold.lease.valid_until, hold.ends)) + self.slack(client)
        self.world.at(end + 1e-6, self._must_be_told, hold)

    def _must_be_told(self, hold: Hold) -> None:
        """Its holder learns of the loss by itself, whatever the masters do (P6, C7, C9)."""
        client: Any = hold.client
        if hold.attempt in self.excused:  # of masters that are closed nobody hears
            return
        gone = client.dead or client.exited or client.closing
        if hold.told or hold.normal or gone or (hold.let_go and not hold.late):
            return
        slack, now = self.slack(client), client.clock()
        if hold.let_go:  # its release has told it; `on_lost` follows when that is through, put off once if nobody read
            slack += 2 * self.parameters.node_timeout + PUT_OFF
        end = min(hold.lease.valid_until, hold.ends)
        if client.stopped or client.blocks or now < max(end, client.resumed_at) + slack:
            self.world.at(max(self.world.now + 0.01, client.true_time(end) + slack), self._must_be_told, hold)
        else:
            which = C7 if now >= hold.ends else P6
            self.fail(which, f"{hold.attempt} was over at {end:.4f}, at {now:.4f} its holder is not told")

    # -- what is left --------------------------------------------------------------------------------

    def clean(self) -> None:
        """Everything is healed and has had time to settle: what is over is gone (P7).  Who went without giving back may leave some."""
        for attempt in self._attempts:
            over = attempt.hold is None or attempt.hold.let_go or attempt.hold.over
            attempt.over = over and attempt not in self.excused
        self.line.clean()
        for master in self.masters:
            master.tick()
            for name, key, attempt in self._locks(master):
                wanted = not attempt.over and name.removeprefix(PREFIX) in attempt.names
                if wanted or self._stays(attempt, master) or str(key.value).startswith((RELEASED, EXPIRED)):
                    continue
                hold = attempt.hold
                if hold is not None and hold.late and self.world.now < self._guards_until(hold):
                    continue
                # R10 owes a release for as long as the key can live.  What a broken connection delivers
                # even later than that is bounded by its TTL, and by nothing else.  Nor does it owe one for as long as a
                # master keeps a key because its clock was set back, if it could not be reached before.
                stays = key.changed_at + self._lifetime(attempt) + master.jumped if master.jumped else 0.0
                owed = attempt.owed_until.get(master.index, math.inf)
                if key.changed_at < owed and not owed < self.world.now <= stays:
                    self.fail(P7, f"m{master.index} still has {name} of {attempt}, which is over")

    def _guards_until(self, hold: Hold) -> float:
        """What was lost is left alone until then, true time (R36).

        A client that stood still at `max_hold` loses the lease when it goes on; or it expired first.
        """
        reason = hold.lease.loss().reason if hold.told else ""
        loss = {"max_hold": hold.told_at, "expired": hold.until}.get(reason, -math.inf)
        lost_at: float = hold.client.true_time(max(min(hold.until, hold.ends), loss))
        return lost_at + self.parameters.after * (1 + self.parameters.drift_factor)

    def started(self, master: Master) -> None:
        """It is another process from now on."""

    def crashed(self, client: Any) -> None:
        """Look at every moment at which a key of ``client`` may have to be gone."""
        for attempt in self._attempts:
            if attempt.client is client:
                self.world.after(self._lifetime(attempt), self.freed)

    def freed(self) -> None:
        """No key of a dead holder outlives its TTL, counted from when it was last set (P3).

        What was still under way when its holder died may set it later; nobody can tell the difference.
        """
        for master in self.masters:
            master.tick()
            for name, key, attempt in self._locks(master):
                if not attempt.client.dead or str(key.value).startswith(EXPIRED):
                    continue
                if self.world.now > key.changed_at + self._lifetime(attempt) + master.jumped:
                    self.fail(P3, f"m{master.index} still has {name} of {attempt}, set at {key.changed_at:.3f}")

    def _lifetime(self, attempt: Attempt) -> float:
        return attempt.longest * (1 + self.parameters.drift_factor) + 3 * MILLISECOND

    def _locks(self, master: Master) -> list[tuple[str, Key, Attempt]]:
        found: list[tuple[str, Key]] = []
        for name in list(master.keys):
            if not name.endswith(NO_LOCK) and (key := master.find(name)) is not None:
                found += [(name, one) for one in (key, *(one for _, one in readers(master, name)))]
        return [(name, key, key.attempt) for name, key in found if key.attempt is not None]

    def forks(self, process: Any) -> None:
        """What it holds, owes and has sent is its parent's from now on, of which nobody hears any more."""
        self._forked[process] = self.world.now
        for attempt in self._attempts:
            if attempt.client is process:
                self.excused.add(attempt)
                self.inherited.setdefault(attempt, self.world.now)
                if attempt.hold is not None:
                    attempt.hold.over = attempt.hold.normal = True

    def has_closed(self, process: Any) -> None:
        """Its masters are closed: of all that it did nothing is left, nor comes later."""
        self._closed[process] = self.world.now
        mine = {attempt.token for attempt in self._attempts if attempt.client is process}
        mine |= {token for token, waiter in self.line.waiters.items() if waiter.client is process}
        self._soon(process, 0.0, mine.__contains__, f"{process} has closed its masters", for_good=mine)

    def is_over(self, process: Any, owner: str) -> None:
        """Whatever was done with a lock in the name of ``owner``, it is over, and nothing of it is left."""
        most = self._torn + self.slack(process)
        self._soon(process, most, lambda token: token.endswith(f":{owner}"), f"{owner} is at its end")

    def _soon(
        self, process: Any, most: float, ours: Callable[[str], bool], why: str, for_good: Iterable[str] = ()
    ) -> None:
        most += 2 * process.longest_way + UNSTEPPED
        since = self.world.now - UNREACHED - 4 * self.parameters.node_timeout
        self.world.after(most, self._not_there, process, ours, f"{why} since {self.world.now:.4f}", since, for_good)

    def _not_there(
        self, process: Any, ours: Callable[[str], bool], why: str, since: float, for_good: Iterable[str]
    ) -> None:
        """Where a master was within reach all the time ``since`` then.  Elsewhere it stays for its TTL."""
        if process.dead:
            return
        for line in process.lines.values():
            master = line.server.master
            master.tick()
            if max(line.well_since, process.true_time(process.resumed_at)) > since:
                self.unreached.update((token, master.index) for token in for_good)
                continue
            for name, key, attempt in self._locks(master):
                kept = str(key.value).startswith((RELEASED, EXPIRED)) or attempt in self.excused
                kept = kept or (attempt.token, master.index) in self.unreached  # since masters before these were closed
                guards = self.parameters.after and attempt.hold is not None and (attempt.hold.told or attempt.hold.late)
                if ours(attempt.token) and not (kept or guards):  # a lost one stays for its guard (R36)
                    self.fail(P7, f"{why}, and m{master.index} has {name} of {attempt}")
            for one in [
                one for key in master.keys.values() for token, one in (key.members or {}).items() if ours(token)
            ]:
                if master.now_ms < -(one.expires or 0):
                    self.fail(P7, f"{why}, and its mark still keeps readers away on m{master.index}")
            lined_up = {waiter.token for attempt, waiter in self._lines_up.items() if ours(attempt.token)}
            for token, waiter in self.line.waiters.items():
                drawn, mine = waiter.number, ours(token) or token in lined_up
                if drawn and mine and self.line._is_on(master, waiter, str(drawn)):
                    self.fail(NO_TICKET, f"{why}, and m{master.index} has a ticket of {waiter}")

    def came_out(self, process: Any) -> None:
        """Its main thread has got through an operation: if a Ctrl-C has struck there, it has to know."""
        if process.strikes:
            self.fail(R11, f"{process} was struck at {process.strikes[0]:.4f}, and its program was not")

    def interrupted(self, process: Any) -> None:
        """Its program has got the Ctrl-C: at once, for to clean up it only sends."""
        struck_at, process.strikes = process.strikes[0], []
        links = 2 * self.parameters.node_timeout + 10 * process.longest_way  # a release by hand, over new connections
        if self.setting.calm and self.world.now > struck_at + links + self.slack(process):
            self.fail(R11, f"{process} was struck at {struck_at:.4f}, and its program knows at {self.world.now:.4f}")

    def took(self, process: Any, seconds: float, what: str) -> None:
        """A round took so long: no longer than it takes to ask, where nothing goes wrong (R2)."""
        if self.setting.calm and process.naps < LATE / 250 and seconds > 2 * process.longest_way + LATE + self._torn:
            self.fail(
                PROMPT, f"{what} by {process} took {seconds:.4f} s, and its links {2 * process.longest_way:.4f} s"
            )

    def _at_most(self, hold: Hold) -> None:
        """No more holders than slots (R32)."""
        limit = self.parameters.slots
        if hold.lease.slot is None or not self.parameters.clocks_hold or not hold.valid():
            return
        others = {one for of in [*self._holds.values()] for one in of if one.lease.slot is not None and one.valid()}
        if len(others - {hold}) >= limit:
            self.fail(R32, f"{hold.attempt} has one of {limit} slots, and so have {others - {hold}}")

    def quiet(self) -> None:
        """Nobody waits: no master has a subscriber (R24)."""
        for master in self.masters:
            for channel, listening in master.listening.items():
                for tcp in listening:
                    ours = tcp.socket.pid == tcp.process.pid
                    if ours and not tcp.dead and not tcp.process.dead:
                        self.fail(QUIET, f"{tcp} still listens to {channel}")

    def _stays(self, attempt: Attempt, master: Master) -> bool:
        """Its key stays on ``master`` for its TTL: its holder is dead (P3), has forked, or closed masters that were away."""
        return attempt.client.dead or attempt in self.inherited or (attempt.token, master.index) in self.unreached

    def whole(self, hold: Hold) -> None:
        """All is well, and it is held for a while: each master has its key or one that stays, or had it when last asked."""
        renewed = self.world.now - hold.lease.ttl / 3 - self.slack(hold.client)
        for name in hold.lease.names:
            without = [
                f"m{one.index}"
                for one in self.masters
                if any(server.master is one for server in hold.client.servers)
                if self.behind.get((hold.attempt, one.index), -math.inf) < renewed
                if not any(
                    where == PREFIX + name and (attempt is hold.attempt or self._stays(attempt, one))
                    for where, _, attempt in self._locks(one)
                )
            ]
            if without and hold.valid():
                self.fail(WHOLE, f"{name} is held by {hold.attempt}, and {without} do not have it")
