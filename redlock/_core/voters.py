"""Which masters may vote (R21, R22, R34, R43, C16).

A restarted master may have lost its keys, and would grant a lock that another client still holds.  So it does not vote
until every lease that it can have forgotten has expired: that is the largest announced `max_ttl` after its start.  See
`rates.py` for masters whose clocks run too fast, and `fleet.py` for clients whose list of masters gets them no votes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from redlock._core import wire
from redlock._core.kernel import quorum, validity
from redlock._core.outcomes import Failure
from redlock._core.rates import Rates, Reading
from redlock.errors import Vote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redlock._core.fleet import Fleet


class Facts(NamedTuple):
    """What a handshake tells about a master.  None: the master does not permit the question."""

    run_id: str | None
    uptime: int | None  # in whole seconds, as INFO has it
    durable: bool = False  # it has an append-only file with appendfsync always, and forgets nothing
    announced: wire.Announced | None = None  # what it said to our max_ttl; None: it takes no announcement
    lists: wire.Lists | None = None  # what it said to our list of masters; None: it takes no announcement (R34)
    asked_at: float = -math.inf  # when both were sent
    clock: float | None = None  # in seconds, as INFO has it: by this clock it counts its uptime
    known: wire.Known | None = None  # whose data it has; None: it does not say
    functions: bool = False  # this connection calls functions, not scripts (R44)


_ROUNDED = 0.0015  # seconds; values of max_ttl that differ by less are the same


class Voters:
    """What is known of each master of one `Masters`, and which of them may vote."""

    def __init__(
        self,
        masters: Sequence[str],
        max_ttl: float,
        *,
        restart_guard: bool,
        fleet: Fleet | None = None,
        drift: float = 0.01,
    ) -> None:
        """``fleet``: what is known of the lists of others; None: lists are ignored (R34)."""
        self._masters = masters
        self.fleet = fleet
        # A grant counts if it was asked for after the first, and lasts until the second at most: in between, other
        # clients know our list (R34) and our `max_ttl`.
        self.known_from, self.known_until = -math.inf, math.inf
        self._restart_guard = restart_guard
        self.max_ttl = self.announces = max_ttl  # ours, and the announced one: a check announces none of its own
        # The clocks of masters may run faster than ours, and slower.
        self._counts, self._slower = wire.LIFE * max_ttl * (1 - drift), 1 + drift
        self._differs = False  # another client announced a different max_ttl, and that was logged
        size = len(masters)
        self.rates = Rates(size, drift)
        self._said_at = [-math.inf] * size  # when it got our max_ttl; infinity: it does not take it
        # The largest announced there, until when that applies, and the process that said so.
        self._longest: list[tuple[float, float, str | None]] = [(max_ttl, -math.inf, None)] * size
        self._facts: list[Facts | None] = [None] * size  # of the present connection
        self._known: list[Facts | None] = [None] * size  # the last facts with a run_id
        self._started_by = [-math.inf] * size  # the latest moment, on our clock, at which it may have started
        self._met_at = [math.inf] * size  # when this process was met first
        self._replids: list[str | None] = [None] * size  # whose data this process has
        self.replaced = [False] * size  # it was a replica for a moment, and has not voted since
        self._clocks: list[float | None] = [None] * size  # by how much its clock was ahead of ours
        self._heard_at = [-math.inf] * size  # when its process was last known to be alive
        self._admitted_from = [math.inf] * size  # it is quarantined until this time
        self.votes_from = [math.inf] * size  # an answer counts if it comes later; stored, for every vote needs it
        self._follow_fleet()

    def admit(self, master: int, facts: Facts, at: float) -> str | None:
        """A connection was made, and ``facts`` arrived at ``at``.  Returns what to log: that a `max_ttl` differs."""
        before = self._known[master]
        self._facts[master] = facts
        if before is None or facts.run_id is None or before.run_id != facts.run_id:
            self._started_by[master], self._met_at[master] = self._latest_start(master, before, facts, at), at
            self._clocks[master] = None if facts.clock is None else facts.clock - at
            self._replids[master], self.replaced[master] = None, False
            self.rates.forget(master)
        # otherwise it is the same process, and `_started_by` stays as it is
        if facts.run_id is not None:
            self._known[master] = facts
        self._heard_at[master] = at
        self.known_answered(master, facts.known, at)
        self.lists_answered(master, facts.lists, facts.asked_at, at)
        return self.max_ttl_answered(master, facts.announced, facts.asked_at, at)

    def known_answered(self, master: int, known: wire.Known | None, at: float) -> None:
        """``master`` said whose data it has (R21); None: it does not say.  Other data may have replaced it just now."""
        before = self._replids[master]
        if known is None or known.replid == before:
            return
        self._replids[master] = known.replid
        if before is None and known.age is None:
            return
        since = at - known.age if before is None and known.age is not None else at
        if since > self._started_by[master]:
            self._started_by[master], self._met_at[master], self.replaced[master] = since, at, True
            self._recompute()

    def max_ttl_answered(self, master: int, announced: wire.Announced | None, sent_at: float, at: float) -> str | None:
        """``master`` answered to our `max_ttl` of ``sent_at``; None: it takes none.  Returns as `admit` does."""
        self._said_at[master] = math.inf if announced is None else sent_at
        if announced is not None:
            value, until, process = self._longest[master]
            # An announcement to a process before this one applies until it expires: the master may have forgotten it.
            if process == self._run_id(master) or until <= at or value <= announced.max_ttl:
                left = min(announced.left, wire.LIFE * announced.max_ttl) * self._slower + validity.ROUNDING
                self._longest[master] = announced.max_ttl, at + left, self._run_id(master)
        self._recompute()
        if announced is None or abs(announced.max_ttl - self.max_ttl) <= _ROUNDED or self._differs:
            return None
        self._differs = True
        said = f"{self.max_ttl:g} s here, {announced.max_ttl:g} s announced on {self._masters[master]}"
        why = "the largest one decides how long a restarted master may not vote"
        return f"clients of these masters use different max_ttl: {said}; {why}. Give all clients the same max_ttl"

    def longest(self, at: float) -> tuple[float, float, str]:
        """The `max_ttl` that applies at ``at``, until when, and the master on which it is announced; "": it is ours."""
        announced = zip(self._longest, self._masters, strict=True)
        found = [(value, until, name) for (value, until, _), name in announced if until > at]
        return max([one for one in found if one[0] > self.max_ttl + _ROUNDED], default=(self.max_ttl, math.inf, ""))

    def time_answered(self, master: int, clock: float, sent_at: float, at: float) -> float:
        """Returns in how many seconds to ask again; 0.0: at the next announcement."""
        pause = self.rates.answered(master, Reading(clock, sent_at, at), self.longest(at)[0])
        self._follow_fleet()
        return pause

    def lists_answered(self, master: int, lists: wire.Lists | None, sent_at: float, at: float) -> None:
        """``master`` answered our announcement of ``sent_at``.  None: it does not take any (R34)."""
        if self.fleet is not None:
            self.fleet.answered(master, lists, sent_at, at)
        self._recompute()

    def down(self, master: int, at: float) -> None:
        """An attempt to connect to ``master`` has failed."""
        if self.fleet is not None:
            self.fleet.down(master, at)
            self._recompute()

    def begin_in(self, at: float) -> float:
        """Seconds until votes count, if nothing but a master's silence keeps them from that (R34); else 0."""
        return max(0.0, self.known_from - at) if self.known_from < math.inf else 0.0

    def awaits(self, master: int, at: float) -> bool:
        """Whether an answer of ``master`` is all that keeps votes from counting: connect to it now (R34)."""
        return self.fleet is not None and self.fleet.refuses and self.fleet.awaits(master, at)

    @property
    def refused(self) -> bool:
        """We give way to clients with other masters: no vote counts, and no lease is valid any more (R34)."""
        return self.fleet is not None and bool(self.fleet.refusal)

    def _latest_start(self, master: int, before: Facts | None, facts: Facts, at: float) -> float:
        if facts.uptime is None:
            return at
        # INFO counts whole seconds of wall time: an uptime of 1 may be 0.01 s.  So the start is never taken too early.
        started_by = at - max(0, facts.uptime - 1)
        if before is None:
            return -math.inf if facts.durable else started_by
        if facts.durable and before.durable and started_by >= self._heard_at[master]:
            return -math.inf  # it restarted, but was durable before and after: it has forgotten nothing
        # It restarted, or a replica was promoted: until now the process before it may have granted locks.
        return at

    def _ahead(self, master: int) -> float:
        """How far its clock is ahead of a majority.  Set after the start, it makes the uptime that much too long."""
        mine, need = self._clocks[master], quorum.majority(len(self._masters))
        others = sorted(clock for clock in self._clocks if clock is not None)
        return 0.0 if mine is None or len(others) < need else max(0.0, mine - others[need - 1])

    def heard(self, master: int, at: float) -> None:
        """The master's process at the end of the present connection was alive at ``at``."""
        self._heard_at[master] = at

    def refusals(self) -> tuple[Vote, ...]:
        reason = "" if self.fleet is None else self.fleet.refusal
        return tuple(Vote(master, "error", None, reason) for master in self._masters)

    def why_not_counted(self, master: int, at: float) -> Failure | None:
        if at > self.votes_from[master]:
            return None
        if self.fleet is not None and self.fleet.refusal:
            return Failure("error", self.fleet.refusal, configuration=True)
        facts = self._facts[master]
        first = self._first_with_same_run_id(master)
        if first is not None:
            same = f"is the same server as {self._masters[first]} (run_id {self._run_id(master)})"
            text = f"{same}: one server has one vote, remove one of the two from the masters"
            return Failure("error", text, configuration=True)
        if facts is not None and facts.uptime is None:
            unseen = "INFO is not permitted, so a restart in which it forgot its locks would go unseen"
            grant = "grant +info to this user, and end its connections (CLIENT KILL USER), as only new ones have it"
            without = "docs/concepts/restarts.md says which deployments may do without"
            return Failure("error", f"{unseen}: {grant}; {without}", configuration=True)
        if wrong := self.rates.why_not_counted(master, at):
            return Failure("quarantined", wrong)
        left = self._admitted_from[master] - at
        if left < 0:
            text = "no vote counts before all masters have said which lists of masters are in use, or were silent for"
            return Failure("quarantined", f"{text} node_timeout (R34)")
        value, _, name = self.longest(at)
        did = "has another master_replid, as after REPLICAOF," if self.replaced[master] else "restarted"
        longer = f", as a client has announced max_ttl={value:g} s on {name} ({self.max_ttl:g} s here)" if name else ""
        text = f"{did} and may have forgotten locks: its vote counts in {max(left, 0.1):.1f} s{longer}"
        return Failure("quarantined", f"{text} (if it is brand-new, see docs/concepts/restarts.md)")

    def quarantined_for(self, master: int, at: float) -> float:
        """Seconds until the vote of ``master`` counts, once votes count at all; 0: it counts now."""
        return max(0.0, self._admitted_from[master] - at, self.rates.votes_from(master) - at)

    def _run_id(self, master: int) -> str | None:
        facts = self._facts[master]
        return facts.run_id if facts is not None else None

    def _first_with_same_run_id(self, master: int) -> int | None:
        mine = self._run_id(master)
        return None if mine is None else next((other for other in range(master) if self._run_id(other) == mine), None)

    def _recompute(self) -> None:
        refused, admitted_from = self.refused, self._admitted_from
        for master, facts in enumerate(self._facts):
            if facts is None or refused or self._first_with_same_run_id(master) is not None:
                admitted_from[master] = math.inf
            elif not self._restart_guard:
                admitted_from[master] = -math.inf
            elif facts.uptime is None:
                admitted_from[master] = math.inf
            else:
                started = min(self._started_by[master] + self._ahead(master), self._met_at[master])
                others = (min(started + value, until) for value, until, _ in self._longest)
                admitted_from[master] = max(started + self.max_ttl, *others)
        self._follow_fleet()

    def _follow_fleet(self) -> None:
        said = sorted(self._said_at, reverse=True)[: quorum.majority(len(self._masters))]
        self.known_until = min(said, default=0.0) + self._counts
        if self.fleet is not None:
            self.known_from, self.known_until = self.fleet.counts_from, min(self.known_until, self.fleet.known_until)
        for master, admitted_from in enumerate(self._admitted_from):
            self.votes_from[master] = max(admitted_from, self.known_from, self.rates.votes_from(master))
