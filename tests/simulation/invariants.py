"""The judge: what must hold, decided from what the world observed and from nothing else.

It knows no quorum and no rule of the algorithm.  It sees true time, every key of every master, and
what each client was told; a lease is valid as long as its own holder's clock says so.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from redlock import scripts
from redlock._core import wire
from redlock._core.outcomes import ErrorReply
from tests.simulation.line import Line
from tests.simulation.parameters import WRONG_FAULTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from redlock._core.wire import Call
    from tests.simulation.master import Key, Master
    from tests.simulation.parameters import Parameters
    from tests.simulation.world import World

MILLISECOND = 0.001
TINY = 1e-9
LOOKS = (scripts.STATUS, scripts.LOOK, scripts.SCAN)


def _of(*verbs: str) -> tuple[scripts.Script, ...]:
    return tuple(script for script in scripts.ALL if script.verb in verbs)


ACQUIRES, OCCUPIES, EXTENDS, RENEWS = _of("acquire"), _of("occupy"), _of("extend"), _of("renew")
REPAIRS, RELEASES = _of("repair"), _of("release", "vacate")
RELEASED = "released:"  # in front of a token: nobody may have the name yet
EXPIRED = "expired:"  # in front of a token: nobody can tell whether its last lease is over (R35)
NO_LOCK = (":fence", ":grant", ":tickets")  # keys that end so stand beside that of a lock

# The invariants by name; `Violation.invariant` is one of them.
P1 = "P1 exclusive"
P2 = "P2 fenced"
P3 = "P3 freed"
P5 = "P5 quarantined"
P6 = "P6 told in time"
P7 = "P7 clean"
P8 = "P8 foreign"
R2 = "R2 no longer than needed"
R12 = "R12 stays lost"
R13 = "R13 not given up"
R36 = "R36 guarded"
R32 = "R32 at most"
R28 = "R28 at least"
AGREEMENT = "R34 one works on"
R28_END = "R28 no longer"
C7 = "C7 not held for longer"
LIVE = "live"


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


PREFIX = "redlock:"


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
    owed_until: float = float("inf")  # true time until which its release is owed (R10)
    denied_on: set[int] = field(default_factory=set)  # masters that said the key is not its own
    denied: list[tuple[Call, int]] = field(default_factory=list)  # ... and in answer to what
    hold: Hold | None = None  # what was granted for it
    gave: dict[int, int] = field(default_factory=dict)  # by master: which slot it gave (R32)
    repaired: dict[int, float] = field(default_factory=dict)  # by master: when a repair was sent there last, true time

    def __repr__(self) -> str:
        return f"{self.client.name}#{self.number}"


@dataclass(eq=False)
class Hold:
    """One grant, from its decision on."""

    client: Any
    attempt: Attempt
    lease: Any
    fence: int | None
    invoked_at: float
    decided_at: float
    until: float  # `valid_until` when it was last looked at, on the client's clock
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

    def valid(self) -> bool:
        """Whether its holder may believe in it now.  What has ended once has ended for good."""
        if not self.over and (self.client.crashed or self.lease.lost or self.client.clock() >= self.until):
            self.over = True
        return not self.over


class Judge:
    """Sees everything, and raises `Violation` at the first promise that is broken."""

    def __init__(self, world: World, parameters: Parameters) -> None:
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

    def fail(self, invariant: str, text: str) -> None:
        self.world.log("VIOLATION", invariant, text)
        raise Violation(invariant, text)

    # -- keys: P7, P8 --------------------------------------------------------------------------------

    def before(self, master: Master, call: Call) -> Sequence[tuple[Where, Attempt | None, str | None, int | None]]:
        """The lock keys that ``call`` names, as they are before it runs."""
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
        self.world.log("runs", f"m{master.index}", call.script.name, attempt, reply)
        self.line.after(master, call)
        together = self._together(call)
        whose = {name: one for one, names in together for name in names}
        if call.script in RENEWS and not isinstance(reply, ErrorReply):
            for (one, _), answer in zip(together, reply, strict=True):
                if one is not None and isinstance(answer, bytes):
                    one.denied_on.add(master.index)
                    one.denied.append((call, master.index))
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
            attempt.denied.append((call, master.index))

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

    def clean(self) -> None:
        """Everything is healed and has had time to settle: what is over is gone (P7)."""
        self.line.clean()
        for master in self.masters:
            master.tick()
            for name, key, attempt in self._locks(master):
                wanted = not attempt.over and name.removeprefix(PREFIX) in attempt.names
                if wanted or self._may_stay(attempt, master) or str(key.value).startswith((RELEASED, EXPIRED)):
                    continue
                hold = attempt.hold
                if hold is not None and hold.late and self.world.now < self._guards_until(hold):
                    continue
                # R10 owes a release for as long as the key can live.  What a broken connection delivers
                # even later than that is bounded by its TTL, and by nothing else.  Nor does it owe one for as long as a
                # master keeps a key because its clock was set back, if it could not be reached before.
                stays = key.changed_at + self._lifetime(attempt) + master.jumped if master.jumped else 0.0
                if key.changed_at < attempt.owed_until and not attempt.owed_until < self.world.now <= stays:
                    self.fail(P7, f"m{master.index} still has {name} of {attempt}, which is over")

    def _may_stay(self, attempt: Attempt, master: Master) -> bool:
        """For its TTL."""
        return bool(attempt.client.crashed)

    def _guards_until(self, hold: Hold) -> float:
        """What was lost is left alone until then, true time (R36)."""
        lost_at: float = hold.client.true_time(min(hold.until, hold.ends))
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
                if not attempt.client.crashed or str(key.value).startswith(EXPIRED):
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

    # -- leases: P1, P2, P5, R7, R12 -----------------------------------------------------------------

    def attempt(self, client: Any, names: tuple[str, ...], token: str, ttl: float) -> Attempt:
        attempt = Attempt(len(self._attempts), client, names, token, ttl, self.world.now)
        self._attempts.append(attempt)
        self._by_token[token] = attempt
        return attempt

    def looked(self, hold: Hold) -> None:
        """A look at the lease, as users take them."""
        if not hold.valid() and hold.lease.valid:
            self.fail(R12, f"the lease of {hold.attempt} had ended and says that it is valid")

    # -- the rest of the judgement -------------------------------------------------------------------

    def _alone(self, hold: Hold) -> None:
        # A second valid lease can only begin where something is granted or extended, so looking there
        # sees every overlap.
        if not self.parameters.clocks_hold or not hold.valid():
            return
        for name in hold.attempt.names:
            for other in self._holds[name]:
                together = hold.lease.mode.shared and other.lease.mode.shared
                if self.parameters.confirm:  # readers are not on record: a wrong clock lets a writer in
                    first = min(hold, other, key=lambda one: one.decided_at)
                    together = together or first.lease.mode.shared
                if other is not hold and not together and other.valid():
                    self.fail(P1, f"{name} is held by {hold.attempt} and by {other.attempt}")
            self._holds[name] = [other for other in self._holds[name] if other is hold or not other.over]

    def _none_too_early(self, hold: Hold) -> None:
        """Nobody else may have it yet (R28).  A clock that steps is not judged: P1 allows that for a whole TTL."""
        if not self.parameters.clocks_hold or any(map(self.parameters.rate, ("step", "slew", *WRONG_FAULTS))):
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
        if not after or self.parameters.rate("step") or not self.parameters.clocks_hold:
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
        where = f"m{master.index}: the release of {attempt} keeps {name}"
        if attempt.hold is None or not attempt.hold.lease.hold_at_least:
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
