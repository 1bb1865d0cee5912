"""The judge: what must hold, decided from what the world observed and from nothing else.

It knows no quorum and no rule of the algorithm.  It sees true time, every key of every master, and
what each client was told; a lease is valid as long as its own holder's clock says so.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from redlock import scripts
from redlock._core import wire
from redlock._core.confirm import ConfirmingBallot, PhantomRound
from redlock._core.outcomes import ErrorReply
from redlock._core.rounds import Round
from redlock._core.whole import AGAIN
from tests.simulation.line import A_SECOND, IN_ORDER, LEFT, Line
from tests.simulation.parameters import WRONG_FAULTS
from tests.simulation.tries import ENDS, SOMEBODY_WINS, Tries
from tests.simulation.waits import ANYWAY, APART, PROMPT, QUIET, WOKEN, Waits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from redlock._core.ballots import Grant
    from redlock._core.effects import Send
    from redlock._core.inspect import LockStatus
    from redlock._core.quorum import Tally
    from redlock._core.wire import Call
    from redlock.errors import Vote
    from tests.simulation.client import Client
    from tests.simulation.master import Key, Master
    from tests.simulation.parameters import Parameters
    from tests.simulation.renewer import Lease
    from tests.simulation.world import World

MILLISECOND = 0.001
TINY = 1e-9
LOOKS = (scripts.STATUS, scripts.LOOK, scripts.SCAN)
ACQUIRES = (
    scripts.ACQUIRE, scripts.ACQUIRE_SHARED, scripts.ACQUIRE_RECORDED, scripts.ACQUIRE_SHARED_RECORDED,
    scripts.ACQUIRE_FAIR, scripts.ACQUIRE_FAIR_RECORDED,
)  # fmt: skip
OCCUPIES = (scripts.OCCUPY, scripts.OCCUPY_RECORDED)
EXTENDS = (scripts.EXTEND, scripts.EXTEND_SHARED, scripts.EXTEND_RECORDED, scripts.EXTEND_RESUMED)
RENEWS = (scripts.RENEW, scripts.RENEW_RECORDED)
REPAIRS = (scripts.REPAIR, scripts.REPAIR_SHARED, scripts.REPAIR_RECORDED)
VACATES = (scripts.VACATE, scripts.VACATE_RECORDED)
RELEASES = (scripts.RELEASE, scripts.RELEASE_RECORDED, *VACATES, scripts.RELEASE_SHARED)
RELEASED = "released:"  # in front of a token: nobody may have the name yet
EXPIRED = "expired:"  # in front of a token: nobody can tell whether its last lease is over (R35)
NO_LOCK = (":fence", ":grant", ":tickets")  # keys that end so stand beside that of a lock
MANY = 60  # renewals in one TTL: they are tried again after a twentieth of it

# The invariants by name; `Violation.invariant` is one of them.
P1 = "P1 exclusive"
P2 = "P2 fenced"
P3 = "P3 freed"
P5 = "P5 quarantined"
P6 = "P6 told in time"
P7 = "P7 clean"
P8 = "P8 foreign"
R2 = "R2 no longer than needed"
R7 = "R7 worth having"
R12 = "R12 stays lost"
R13 = "R13 not given up"
R15 = "R15 let go"
R36 = "R36 guarded"
R37 = "R37 made whole"
R32 = "R32 at most"
R28 = "R28 at least"
AGREEMENT = "R34 one works on"
R28_END = "R28 no longer"
R33 = "R33 writers get in"
R29 = "R29 listed"
R41 = "R41 watched"
FREE = "it was free"
C7 = "C7 not held for longer"
LIVE = "live"
ALL = (
    P1, P2, P3, P5, P6, P7, P8, R2, R7, R12, R13, R15, R36, R37, R28, R28_END, R29, R32, R33, FREE, R41, C7, WOKEN,
    ANYWAY, QUIET, APART, SOMEBODY_WINS, ENDS, IN_ORDER, A_SECOND, LEFT, LIVE,
)  # fmt: skip


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
    client: Client
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

    client: Client
    attempt: Attempt
    lease: Lease
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
    watched: bool = False
    renewed: bool = False
    ends: float = math.inf  # max_hold, on the client's clock
    on_told: Callable[[], None] | None = None  # called then
    told: int = 0  # how often its holder was told that it is lost
    told_at: float = math.nan  # ... the last time, on the client's clock
    deserted_at: float | None = None  # true time at which its owner ended
    abandoned: bool = False  # ... and left nobody who could release it
    renewals: deque[float] = field(default_factory=lambda: deque(maxlen=MANY))  # on the client's clock

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
        self.lists = 0
        self.watches = 0
        self.writes = 0
        self.last_fence: int | None = None
        self.masters: list[Master] = []
        self.waits = Waits(self)
        self.tries = Tries(self)
        self.line = Line(self)
        self._attempts: list[Attempt] = []
        self._by_token: dict[str, Attempt] = {}
        self.together: Counter[int] = Counter()  # rounds, by how many leases they renewed
        self._watched: list[Hold] = []
        self._holds: dict[str, list[Hold]] = defaultdict(list)
        self._at_least: dict[str, list[Hold]] = defaultdict(list)
        self._fences: dict[str, list[Hold]] = defaultdict(list)
        self._guarded: dict[str, list[Hold]] = defaultdict(list)

    def fail(self, invariant: str, text: str) -> None:
        self.world.log("VIOLATION", invariant, text)
        raise Violation(invariant, text)

    def wrote(self, client: Client, since: float, *, granted: bool) -> None:
        """A writer has waited for readers who come and go: no longer than one of them may stay (R33).

        Besides, it tries again when its pause is over; and readers who were refused may be in its way for a moment.
        """
        parameters, waited = self.parameters, self.world.now - since
        self.writes += granted
        pauses = 3 * (parameters.eager * parameters.ttl + 2 * parameters.node_timeout)
        most = parameters.ttl * (1 + 2 * parameters.drift_factor) + pauses
        if waited > most:
            self.fail(R33, f"{client} has waited to write for {waited:.3f} s, at most {most:.3f} s are right")

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
            name, reader = where
            attempt = whose.get(name, attempt)
            key = find(master, where)
            if key is None:
                if owner is not None and owner is not attempt:
                    self.fail(P8, f"m{master.index}: {call.script.name} of {attempt} removed {name} of {owner}")
                if (
                    value is not None
                    and call.script in (scripts.RELEASE, scripts.RELEASE_RECORDED, scripts.VACATE)
                    and reader is None
                ):
                    self._announces(master, call, name, value)
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

    def _announces(self, master: Master, call: Call, key: str, token: str) -> None:
        """A release has removed a key."""
        self.waits.released(master.index, wire.channel(key), token)
        if call.script in VACATES:
            group, slots = call.args[1], call.args[3 if call.script is scripts.VACATE else 4 :]
            self.waits.released(master.index, group, f"{slots[call.keys.index(key)]} {token}")

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

    def whose(self, call: Call) -> Attempt | None:
        """On whose behalf a repair runs."""
        assert call.script in REPAIRS
        return self._by_token.get(call.args[1])

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
        return attempt.client.crashed

    def _guards_until(self, hold: Hold) -> float:
        """What was lost is left alone until then, true time (R36)."""
        lost_at = hold.client.true_time(min(hold.until, hold.ends))
        return lost_at + self.parameters.after * (1 + self.parameters.drift_factor)

    def started(self, master: Master) -> None:
        """It is another process from now on."""

    def crashed(self, client: Client) -> None:
        """Look at every moment at which a key of ``client`` may have to be gone."""
        self.line.died()
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

    def attempt(self, client: Client, names: tuple[str, ...], token: str, ttl: float) -> Attempt:
        attempt = Attempt(len(self._attempts), client, names, token, ttl, self.world.now)
        self._attempts.append(attempt)
        self._by_token[token] = attempt
        return attempt

    def granted(
        self,
        client: Client,
        attempt: Attempt,
        lease: Lease,
        grant: Grant,
        invoked_at: float,
        ttl: float,
        origins: dict[int, tuple[int, float, bool]],
    ) -> Hold:
        self.grants += 1
        self.waits.granted()
        self.last_fence = grant.fence
        hold = Hold(client, attempt, lease, grant.fence, invoked_at, self.world.now, grant.valid_until)
        if lease.hold_at_least:
            # If its holder dies now, what was granted is all that keeps others out: as long as the masters may take to answer.
            slowest = ttl * (1 - self.parameters.drift_factor) - 2 * MILLISECOND - self.parameters.node_timeout
            left = grant.valid_until - grant.decided_at
            if left < min(lease.hold_at_least, slowest) - TINY:
                self.fail(R28, f"{attempt} was granted with {left:.4f} s left, and keeps others out for no longer")
            hold.kept_until = client.true_time(min(grant.decided_at + lease.hold_at_least, grant.valid_until))
        self.world.log("granted", attempt, lease.names, grant.fence, f"until {grant.valid_until:.4f}")
        least = self.parameters.min_validity * ttl
        left = grant.valid_until - grant.decided_at
        if left < least - TINY:
            self.fail(R7, f"{attempt} was granted with {left:.4f} s left, {least:.4f} are the least")
        attempt.hold = hold
        self._counted(attempt, [vote.outcome for vote in grant.votes()], origins)
        if grant.fence is not None and self.parameters.fences_hold:
            self._ordered(hold, attempt.names)
        self._at_most(hold)
        self._alone(hold)
        self._none_too_early(hold)
        self._after_the_guards(hold)
        self.line.granted(hold, attempt, attempt.sent_at, client.driven)
        for name in attempt.names:
            self._holds[name].append(hold)
        return hold

    def extended(
        self, hold: Hold, votes: Sequence[Vote], origins: dict[int, tuple[int, float, bool]], call: Call
    ) -> None:
        """An extension ended ``kept``."""
        denied = [master for what, master in hold.attempt.denied if what is call]
        for master, vote in enumerate(votes):
            if vote.outcome == "granted" and master in denied:
                self.fail(R12, f"{hold.attempt} was extended by the vote of m{master}, which had denied it")
        valid = hold.valid()
        hold.until = hold.lease.valid_until
        self.world.log("extended", hold.attempt, f"until {hold.until:.4f}")
        if not valid:
            self.fail(R12, f"the lease of {hold.attempt} had ended and was extended")
        self._counted(hold.attempt, [vote.outcome for vote in votes], origins)
        self._at_most(hold)
        self._alone(hold)
        self._expect(hold)

    def denied(self, hold: Hold, call: Call) -> None:
        """An extension ended ``lost``, before its time was over and not because of another one: that has to be proved (R13)."""
        denied = [master for what, master in hold.attempt.denied if what is call]
        if len(denied) < len(self.masters) // 2 + 1:
            self.fail(R13, f"{hold.attempt} is taken for lost, and only {denied} of {len(self.masters)} have denied it")

    def shortened(self, hold: Hold) -> None:
        """An extension was sent: from now on the shorter of the two validities counts (C6)."""
        if hold.lease.valid_until < hold.until:
            hold.until = hold.lease.valid_until
            self._expect(hold)

    def ended(self, hold: Hold) -> None:
        """Its release was invoked."""
        hold.late = not hold.valid()
        hold.over = hold.attempt.over = hold.let_go = True
        if hold.late:
            self.world.after(PROMPT, self._must_be_told, hold)
        self.world.log("release", hold.attempt)
        self.line.released(hold)

    def looked(self, hold: Hold) -> None:
        """A look at the lease, as users take them."""
        if not hold.valid() and hold.lease.valid:
            self.fail(R12, f"the lease of {hold.attempt} had ended and says that it is valid")

    # -- keeping: P6, R13, R15, C7 -------------------------------------------------------------------

    def watch(self, hold: Hold, *, renew: bool, max_hold: float | None) -> None:
        """From now on a renewer looks after it."""
        hold.watched, hold.renewed = True, renew
        if max_hold is not None:
            hold.ends = hold.client.clock() + max_hold
        self._watched.append(hold)
        self._expect(hold)
        if self.parameters.undisturbed:
            # It is looked at a quarter later at most, together with others, and another thread may come in between.
            late = 2 * self.parameters.node_timeout + PROMPT
            for after in (0.0, AGAIN):
                since = hold.client.true_time(hold.client.clock() + after + self.parameters.node_timeout) - TINY
                self.world.at(since + late, self._must_be_whole, hold, since)

    def _must_be_whole(self, hold: Hold, since: float) -> None:
        """Masters that lack its key were sent it, some time after the grant and a second later (R37)."""
        stands = hold.client.paused or hold.deserted_at is not None
        if stands or hold.let_go or hold.lease.extensions or not hold.valid():
            return
        for master in self.masters:
            lacks = [name for name in hold.attempt.names if not self._has(master, PREFIX + name, hold.attempt)]
            if lacks and hold.attempt.repaired.get(master.index, -math.inf) < since:
                self.fail(
                    R37, f"m{master.index} lacks {lacks} of {hold.attempt}, and was not sent it since {since:.4f}"
                )

    def _has(self, master: Master, name: str, attempt: Attempt) -> bool:
        master.tick()
        found = (find(master, (name, None)), *(one for _, one in readers(master, name)))
        return any(key is not None and key.attempt is attempt for key in found)

    def _expect(self, hold: Hold) -> None:
        """Its end has moved: look whether its holder is told then, and not only later."""
        if hold.watched:
            end = hold.client.true_time(min(hold.until, hold.ends))
            # Its thread may have come to it only when it was over.
            self.world.at(max(end, self.world.now) + PROMPT, self._must_be_told, hold)

    def _must_be_told(self, hold: Hold) -> None:
        """Its holder learns of the loss by itself, whatever the masters do (P6, C7, C9)."""
        client = hold.client
        if not hold.watched or hold.told or client.crashed or client.paused:
            return
        if hold.let_go and not hold.late:
            return
        now = client.clock()
        if now >= hold.ends:
            self.fail(C7, f"{hold.attempt} is held for {now - hold.ends:.4f} s longer than it may be")
        if hold.late or now >= hold.until:
            self.fail(P6, f"{hold.attempt} was lost at {hold.until:.4f}, at {now:.4f} its holder is not told")

    def resumed(self, client: Client) -> None:
        """It goes on after a pause; nothing of it has run yet, so nothing can have been told."""
        now = client.clock()
        self._watched = [hold for hold in self._watched if not (hold.told or hold.normal)]
        for hold in self._watched:
            if hold.client is client:
                if now >= hold.until and hold.lease.valid:
                    self.fail(P6, f"{hold.attempt} ended at {hold.until:.4f}, the first look says it is valid")
                self.world.after(PROMPT, self._must_be_told, hold)

    def told(self, hold: Hold) -> None:
        """Its holder was told that it is lost."""
        hold.told += 1
        lease, now = hold.lease, hold.client.clock()
        hold.told_at = now
        self.world.log("told", hold.attempt, lease)
        if hold.told > 1:
            self.fail(P6, f"the holder of {hold.attempt} was told twice")
        if hold.normal or lease.valid or not lease.lost:
            self.fail(P6, f"the holder of {hold.attempt} was told, and it is not lost: {lease}")
        reason = lease.loss().reason
        if reason == "max_hold":
            if now < hold.ends - TINY:
                self.fail(C7, f"{hold.attempt} could have been held for another {hold.ends - now:.4f} s")
        elif now < hold.until - TINY:
            if len(hold.attempt.denied_on) <= len(self.masters) // 2:
                self.fail(R13, f"{hold.attempt} was given up ({reason}), and no majority has denied it")
        else:
            self._tried(hold)

    def _tried(self, hold: Hold) -> None:
        """It ran out although it is renewed: that was tried to the end."""
        client, longest = hold.client, hold.attempt.longest
        if not hold.renewed or hold.deserted_at is not None or client.resumed_at > hold.until - longest:
            return
        last = hold.renewals[-1] if hold.renewals else -math.inf
        pause = 2 * self.parameters.node_timeout + longest / 20 + PROMPT
        if last < hold.until - pause:
            self.fail(R13, f"{hold.attempt} ended at {hold.until:.4f}, the last renewal was at {last:.4f}")

    def renews(self, hold: Hold) -> None:
        """Its renewer sends an extension."""
        renewals, now = hold.renewals, hold.client.clock()
        if len(renewals) == MANY and now - renewals[0] < self.parameters.ttl / 2:
            self.fail(R13, f"{hold.attempt} is renewed {MANY} times in {now - renewals[0]:.4f} s")
        renewals.append(now)

    def gave_up(self, hold: Hold, release: Send) -> None:
        """Its renewer releases it: it was held for as long as it may be (C7), or nobody else can release it (R15)."""
        attempt = hold.attempt
        attempt.over = hold.let_go = True
        hold.late = not hold.abandoned
        assert release.owed_until is not None
        attempt.owed_until = hold.client.true_time(release.owed_until)

    def released(self, hold: Hold, *, ours: bool | None) -> None:
        """Its release is over; None: it was interrupted."""
        hold.normal = ours is True
        if hold.normal and hold.told:
            self.fail(P6, f"{hold.attempt} was released, and its holder had been told that it is lost")

    def deserted(self, hold: Hold) -> None:
        """Its owner has ended without releasing it."""
        hold.deserted_at = self.world.now
        self.world.log("deserted", hold.attempt)
        longest = hold.attempt.longest
        self.world.after(longest / 3 + self._lifetime(hold.attempt), self._forgotten, hold)

    def abandoned(self, hold: Hold) -> None:
        """... and nobody else can release it: its renewer does, at once (R15)."""
        if hold.lease.valid:
            self.fail(R15, f"{hold.attempt} is nobody's any more, and its renewer has not released it")

    def _forgotten(self, hold: Hold) -> None:
        """What nobody keeps is gone a TTL later.  What was under way when its owner ended may be late."""
        assert hold.deserted_at is not None
        if hold.client.crashed:
            return  # P3 has it
        for master in self.masters:
            master.tick()
            for name, key, attempt in self._locks(master):
                late = key.changed_at > hold.deserted_at or master.jumped
                if attempt is hold.attempt and not late:
                    self.fail(R15, f"m{master.index} has {name} of {hold.attempt}, whose owner has ended")

    def sent(self, request: Send, attempt: Attempt | None) -> None:
        """A request is written: none that keeps a lease which was let go."""
        script = request.call.script
        if attempt is not None and script in REPAIRS:
            attempt.repaired |= dict.fromkeys(request.to or (), self.world.now)
        together = self._together(request.call)
        if together:
            self.together[len(together)] += 1
        for one in [one for one, _ in together] or [attempt]:
            hold = None if one is None else one.hold
            if hold is None:
                continue
            if hold.let_go and script in (*EXTENDS, *RENEWS, *REPAIRS):
                self.fail(R15, f"{script.name} of {one} is sent behind its release")
            if hold.deserted_at is not None and script in (*EXTENDS, *RENEWS):
                self.fail(R15, f"{script.name} of {one} is sent, and its owner has ended")

    def timed_out(self, request: Send) -> None:
        """Its waiter is told that its time is up: what it was told had not decided it (R2)."""
        assert isinstance(request, Round)
        if request.call.script in LOOKS or isinstance(request, PhantomRound):  # they wait for all, or for one alone
            return
        if self._decided(request, request.tally):
            outcomes = [vote.outcome for vote in request.tally.votes()]
            self.fail(R2, f"{request.call.script.name} is waited for to the end of its time, and has {outcomes}")

    def _decided(self, request: Send, tally: Tally) -> bool:
        outcomes = [vote.outcome for vote in tally.votes()]
        open_, need = outcomes.count("pending"), tally.need  # whether that is right others judge
        won, denied = outcomes.count("granted"), outcomes.count("held")
        if request.call.script in OCCUPIES:  # a vote counts for the slot that was given
            gave = self._by_token[request.call.args[1]].gave
            slots = Counter(gave[master] for master, outcome in enumerate(outcomes) if outcome == "granted")
            won = max(slots.values(), default=0)
        possible = won + open_ >= need
        if isinstance(request, ConfirmingBallot):  # nobody has it there, and it may be confirmed (R35)
            possible = won + len(request.shown) + open_ >= need
        if request.call.script in (*EXTENDS, *RELEASES):  # where denials prove something (R13)
            possible = denied < need and (possible or denied + open_ >= need)
        return won >= need or not possible

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

    def _at_most(self, hold: Hold) -> None:
        """No more holders than slots, whichever slot each of them believes to have (R32)."""
        limit = self.parameters.slots
        if not limit or not self.parameters.clocks_hold or not hold.valid():
            return
        others = {other for name in list(self._holds) for other in self._holds[name] if other.valid()} - {hold}
        if len(others) >= limit:
            self.fail(R32, f"{hold.attempt} has one of {limit} slots, and so have {others}")

    def _none_too_early(self, hold: Hold) -> None:
        """Nobody else may have it yet (R28).  A clock that steps is not judged: P1 allows that for a whole TTL."""
        if not self.parameters.clocks_hold or any(map(self.parameters.rate, ("step", *WRONG_FAULTS))):
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

    # -- looking -------------------------------------------------------------------------------------

    def held(self) -> set[Hold]:
        """The leases that are valid now."""
        return {hold for holds in self._holds.values() for hold in holds if hold.valid()}

    def was_free(self, names: Sequence[str], before: set[Hold]) -> None:
        """Somebody waited until all of them were free, and was told so: none had one holder all the time."""
        for hold in before:
            if self.parameters.clocks_hold and not set(names).isdisjoint(hold.attempt.names) and hold.valid():
                self.fail(FREE, f"{names} were never all free: {hold.attempt} has had them all the time")

    def listed(self, found: Sequence[str], before: set[Hold]) -> None:
        """Somebody was told all the names that are held: each once, and none that was held all the time is missing (R29)."""
        self.lists += 1
        if len(set(found)) < len(found):
            self.fail(R29, f"{found} has a name twice")
        held = {name for hold in before if hold.valid() for name in hold.attempt.names}
        if self.parameters.clocks_hold and not held <= set(found):
            self.fail(R29, f"{sorted(held.difference(found))} were held all the time, and only {found} were listed")

    def watched(self, name: str, told: Sequence[LockStatus], status: LockStatus, before: set[Hold]) -> None:
        """A watcher was told of a change: it is one, never back in fences, and free only if somebody did not hold it (R41)."""
        self.watches += 1
        if told and (told[-1].token, set(told[-1].shared)) == (status.token, set(status.shared)):
            self.fail(R41, f"{name}: {status.token} was told twice")
        holds = [hold for one in (*told, status) if (hold := self._hold_of(one)) is not None]
        fences = [hold.fence or 0 for hold in holds]
        if self.parameters.fences_hold and fences != sorted(fences):
            self.fail(R41, f"{name}: the holders that a watcher was told have the fences {fences}")
        if status.token is None and not status.shared:
            self.was_free([name], before)

    def _hold_of(self, status: LockStatus) -> Hold | None:
        attempt = self._by_token.get(status.token or "")
        return None if attempt is None else attempt.hold

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

    def _counted(self, attempt: Attempt, outcomes: Sequence[str], origins: dict[int, tuple[int, float, bool]]) -> None:
        """Votes of a process that started without the keys of its predecessor come late enough (P5)."""
        if not self.parameters.guard:
            return
        # Uptime and quarantine are measured by clocks whose rates P1 allows to differ.
        least = self.parameters.max_ttl * (1 - self.parameters.drift_factor)
        for master, outcome in enumerate(outcomes):
            if outcome == "granted":
                incarnation, age, forgot = origins[master]
                if forgot and age < least:
                    self.fail(
                        P5,
                        f"{attempt} counts a vote of m{master}, restarted without memory "
                        f"{age:.3f} s before (start {incarnation})",
                    )
