"""The judge: what must hold, decided from what the world observed and from nothing else.

It knows no quorum and no rule of the algorithm.  It sees true time, every key of every master, and
what each client was told; a lease is valid as long as its own holder's clock says so.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from redlock import scripts
from redlock._core import wire
from redlock._core.refusals import ErrorReply

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from redlock._core.acquire import Grant
    from redlock._core.lease import LeaseState
    from redlock._core.wire import Call
    from redlock.errors import Vote
    from tests.simulation.client import Client
    from tests.simulation.master import Master
    from tests.simulation.parameters import Parameters
    from tests.simulation.world import World

MILLISECOND = 0.001
TINY = 1e-9

# The invariants by name; `Violation.invariant` is one of them.
P1 = "P1 exclusive"
P2 = "P2 fenced"
P3 = "P3 freed"
P5 = "P5 quarantined"
P7 = "P7 clean"
P8 = "P8 foreign"
R7 = "R7 worth having"
R12 = "R12 stays lost"
LIVE = "live"
ALL = (P1, P2, P3, P5, P7, P8, R7, R12, LIVE)


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
    over: bool = False  # it failed, or its lease was released
    released_on: set[int] = field(default_factory=set)  # masters that carried out its release
    owed_until: float = float("inf")  # true time until which its release is owed (R10)

    def __repr__(self) -> str:
        return f"{self.client.name}#{self.number}"


@dataclass(eq=False)
class Hold:
    """One grant, from its decision on."""

    client: Client
    attempt: Attempt
    lease: LeaseState
    fence: int | None
    invoked_at: float
    decided_at: float
    until: float  # `valid_until` when it was last looked at, on the client's clock
    over: bool = False  # released, lost or expired; never to be valid again

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
        self.last_fence: int | None = None
        self.masters: list[Master] = []
        self._attempts: list[Attempt] = []
        self._holds: dict[str, list[Hold]] = defaultdict(list)
        self._fences: dict[str, list[Hold]] = defaultdict(list)

    def fail(self, invariant: str, text: str) -> None:
        self.world.log("VIOLATION", invariant, text)
        raise Violation(invariant, text)

    # -- keys: P7, P8 --------------------------------------------------------------------------------

    def before(
        self, master: Master, call: Call
    ) -> Sequence[tuple[str, Attempt | None, str | None, int | None]]:
        """The lock keys that ``call`` names, as they are before it runs."""
        self.calls += 1
        if call.script is scripts.ANNOUNCE or call.script is scripts.STATUS:
            return ()
        found = []
        for name in call.keys:
            if not name.endswith(":fence"):
                key = master.find(name)
                found.append(
                    (name, None, None, None) if key is None else (name, key.attempt, key.value, key.expires)
                )
        return found

    def after(
        self,
        master: Master,
        call: Call,
        attempt: Attempt | None,
        before: Iterable[tuple[str, Attempt | None, str | None, int | None]],
        reply: Any,
    ) -> None:
        self.world.log("runs", f"m{master.index}", call.script.name, attempt, reply)
        for name, owner, value, expires in before:
            key = master.find(name)
            if key is None:
                if owner is not None and owner is not attempt:
                    self.fail(
                        P8, f"m{master.index}: {call.script.name} of {attempt} removed {name} of {owner}"
                    )
                continue
            if key.value == value and key.expires == expires and key.attempt is owner:
                continue
            if owner is not None and owner is not attempt:
                self.fail(P8, f"m{master.index}: {call.script.name} of {attempt} changed {name} of {owner}")
            if attempt is None:
                self.fail(P8, f"m{master.index}: {call.script.name} set {name} on behalf of nobody")
                return
            if owner is None and master.index in attempt.released_on:
                self.fail(
                    P7, f"m{master.index}: {call.script.name} of {attempt} set {name} behind its release"
                )
            longest = int(wire.milliseconds(attempt.longest))
            if key.expires is None or key.expires > master.now_ms + longest:
                self.fail(
                    P7,
                    f"m{master.index}: {name} of {attempt} expires {key.expires}, "
                    f"now is {master.now_ms} and its longest TTL {longest}",
                )
            key.attempt, key.changed_at = attempt, self.world.now
        if attempt is not None and call.script is scripts.RELEASE and not isinstance(reply, ErrorReply):
            attempt.released_on.add(master.index)

    def clean(self) -> None:
        """Everything is healed and has had time to settle: what is over is gone (P7)."""
        for master in self.masters:
            master.tick()
            for name, key in self._locks(master):
                attempt = key.attempt
                if not attempt.over or attempt.client.crashed:
                    continue
                # R10 owes a release for as long as the key can live.  What a broken connection delivers
                # even later than that is bounded by its TTL, and by nothing else.
                if key.changed_at < attempt.owed_until:
                    self.fail(P7, f"m{master.index} still has {name} of {attempt}, which is over")

    def crashed(self, client: Client) -> None:
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
            for name, key in self._locks(master):
                attempt = key.attempt
                if not attempt.client.crashed:
                    continue
                if self.world.now > key.changed_at + self._lifetime(attempt) + master.jumped:
                    self.fail(
                        P3, f"m{master.index} still has {name} of {attempt}, set at {key.changed_at:.3f}"
                    )

    def _lifetime(self, attempt: Attempt) -> float:
        return attempt.longest * (1 + self.parameters.drift_factor) + 3 * MILLISECOND

    def _locks(self, master: Master) -> list[tuple[str, Any]]:
        return [
            (name, key)
            for name in list(master.keys)
            if not name.endswith(":fence")
            and (key := master.find(name)) is not None
            and key.attempt is not None
        ]

    # -- leases: P1, P2, P5, R7, R12 -----------------------------------------------------------------

    def attempt(self, client: Client, names: tuple[str, ...], token: str, ttl: float) -> Attempt:
        attempt = Attempt(len(self._attempts), client, names, token, ttl)
        self._attempts.append(attempt)
        return attempt

    def granted(
        self,
        client: Client,
        attempt: Attempt,
        lease: LeaseState,
        grant: Grant,
        invoked_at: float,
        ttl: float,
        origins: dict[int, tuple[int, float, bool]],
    ) -> Hold:
        self.grants += 1
        self.last_fence = grant.fence
        hold = Hold(client, attempt, lease, grant.fence, invoked_at, self.world.now, grant.valid_until)
        self.world.log("granted", attempt, lease.names, grant.fence, f"until {grant.valid_until:.4f}")
        least = self.parameters.min_validity * ttl
        left = grant.valid_until - grant.decided_at
        if left < least - TINY:
            self.fail(R7, f"{attempt} was granted with {left:.4f} s left, {least:.4f} are the least")
        self._counted(attempt, [vote.outcome for vote in grant.votes()], origins)
        if grant.fence is not None and self.parameters.fences_hold:
            self._ordered(hold, attempt.names)
        self._alone(hold)
        for name in attempt.names:
            self._holds[name].append(hold)
        return hold

    def extended(
        self, hold: Hold, votes: Sequence[Vote], origins: dict[int, tuple[int, float, bool]]
    ) -> None:
        """An extension ended ``kept``."""
        valid = hold.valid()
        hold.until = hold.lease.valid_until
        self.world.log("extended", hold.attempt, f"until {hold.until:.4f}")
        if not valid:
            self.fail(R12, f"the lease of {hold.attempt} had ended and was extended")
        self._counted(hold.attempt, [vote.outcome for vote in votes], origins)
        self._alone(hold)

    def shortened(self, hold: Hold) -> None:
        """An extension was sent: from now on the shorter of the two validities counts (C6)."""
        hold.until = min(hold.until, hold.lease.valid_until)

    def ended(self, hold: Hold) -> None:
        """Its release was invoked."""
        hold.over = hold.attempt.over = True
        self.world.log("release", hold.attempt)

    def looked(self, hold: Hold) -> None:
        """A look at the lease, as users take them."""
        if not hold.valid() and hold.lease.valid:
            self.fail(R12, f"the lease of {hold.attempt} had ended and says that it is valid")

    def _alone(self, hold: Hold) -> None:
        # A second valid lease can only begin where something is granted or extended, so looking there
        # sees every overlap.
        if not self.parameters.clocks_hold or not hold.valid():
            return
        for name in hold.attempt.names:
            for other in self._holds[name]:
                if other is not hold and other.valid():
                    self.fail(P1, f"{name} is held by {hold.attempt} and by {other.attempt}")
            self._holds[name] = [other for other in self._holds[name] if other is hold or not other.over]

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

    def _counted(
        self, attempt: Attempt, outcomes: Sequence[str], origins: dict[int, tuple[int, float, bool]]
    ) -> None:
        """Votes of a process that started without the keys of its predecessor come late enough (P5)."""
        if not self.parameters.guard:
            return
        # Uptime and quarantine are measured by clocks whose rates P1 allows to differ.
        least = self.parameters.max_ttl * (1 - self.parameters.drift_factor)
        for master, outcome in enumerate(outcomes):
            if outcome == "granted":
                incarnation, born_at, forgot = origins[master]
                if forgot and self.world.now - born_at < least:
                    self.fail(
                        P5,
                        f"{attempt} counts a vote of m{master}, restarted without memory "
                        f"{self.world.now - born_at:.3f} s ago (start {incarnation})",
                    )
