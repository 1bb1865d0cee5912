"""Who may vote: restarted masters that may have forgotten, and two names of one server (R21, R22, C16).

A master that lost its keys would grant a lock that somebody still holds.  So it does not vote until
every lease that it can have forgotten has expired, which is `max_ttl` after its start.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redlock.errors import Outcome


class Facts(NamedTuple):
    """What a handshake tells about a master.  None: the master does not permit to ask."""

    run_id: str | None
    uptime: int | None  # whole seconds, as INFO has them
    durable: bool = False  # append-only file with appendfsync always: forgets nothing
    announced: float = 0.0  # the largest max_ttl that any client announced there


class NotCounted(NamedTuple):
    """Why a vote is not counted."""

    outcome: Outcome
    reason: str
    configuration: bool = False


_ROUNDED = 0.0015


class Voters:
    """What is known of each master of one `Masters`, and who may therefore vote."""

    def __init__(self, masters: Sequence[str], max_ttl: float, *, guard: bool) -> None:
        self._masters = masters
        self._guard = guard
        self._own_max_ttl = max_ttl
        self._differs = False  # and was told
        self.max_ttl = max_ttl  # the largest announced governs the quarantine
        size = len(masters)
        self._facts: list[Facts | None] = [None] * size  # of the present connection
        self._known: list[Facts | None] = [None] * size  # the last that had a run_id
        self._started_by = [-math.inf] * size  # latest moment, on our clock, at which it may have started
        self._heard_at = [-math.inf] * size  # when its process was last known to be alive
        # Who is heard later than this may vote; kept, as it is asked for with every vote.
        self.votes_from = [math.inf] * size

    def admit(self, master: int, facts: Facts, at: float) -> str | None:
        """A connection to ``master`` was made, and ``facts`` arrived at ``at``.

        Returns a sentence to log, once, if another client announced a different `max_ttl`.
        """
        before = self._known[master]
        self._facts[master] = facts
        if before is None or facts.run_id is None or before.run_id != facts.run_id:
            self._started_by[master] = self._latest_start(master, before, facts, at)
        # else the same process: what was judged of it stands
        if facts.run_id is not None:
            self._known[master] = facts
        self._heard_at[master] = at
        notice = None
        # What is announced is rounded to a millisecond; 0: nothing was.
        if facts.announced and abs(facts.announced - self._own_max_ttl) > _ROUNDED and not self._differs:
            self._differs = True
            notice = (
                f"clients of these masters use different max_ttl: {self._own_max_ttl:g} s here, "
                f"{facts.announced:g} s announced on {self._masters[master]}; the largest one decides how "
                "long a restarted master may not vote. Give all clients the same max_ttl"
            )
        self.max_ttl = max(self.max_ttl, facts.announced)
        self._recompute()
        return notice

    def _latest_start(self, master: int, before: Facts | None, facts: Facts, at: float) -> float:
        if facts.uptime is None:
            return at
        # INFO counts whole seconds of wall time: an uptime of 1 may have been 0.01 s.  Never early.
        started_by = at - max(0, facts.uptime - 1)
        if before is None:
            return -math.inf if facts.durable else started_by
        if facts.durable and before.durable and started_by >= self._heard_at[master]:
            return -math.inf  # it restarted, and has forgotten nothing, neither before nor since
        # Another process.  Whether it restarted, or is a replica that was promoted and was up all the
        # time, its uptime does not tell for sure: the last one may have granted locks until this moment.
        return at

    def heard(self, master: int, at: float) -> None:
        """The process behind the present connection was alive at ``at``."""
        self._heard_at[master] = at

    def why_not_counted(self, master: int, at: float) -> NotCounted | None:
        """Why the vote of ``master`` does not count at ``at``, or None if it does."""
        if at > self.votes_from[master]:
            return None
        facts = self._facts[master]
        first = self._first_with_same_run_id(master)
        if first is not None:
            return NotCounted(
                "error",
                f"is the same server as {self._masters[first]} (run_id {self._run_id(master)}): "
                "one server has one vote, remove one of the two from the masters",
                configuration=True,
            )
        if facts is not None and facts.uptime is None:
            return NotCounted(
                "error",
                "INFO is not permitted, so nobody can tell whether it restarted and forgot its locks: "
                "grant +info to this user (it counts from the next connection on: CLIENT KILL USER ends the present ones), "
                "or set restart_guard=False if a restart cannot lose them",
                configuration=True,
            )
        left = self.votes_from[master] - at
        return NotCounted(
            "quarantined",
            f"restarted and may have forgotten locks: its vote counts in {left:.1f} s "
            "(restart_guard=False switches this off)",
        )

    def quarantined_for(self, master: int, at: float) -> float:
        """Seconds until the vote of ``master`` counts again; 0 if it does."""
        return max(0.0, self.votes_from[master] - at)

    def _run_id(self, master: int) -> str | None:
        facts = self._facts[master]
        return facts.run_id if facts is not None else None

    def _first_with_same_run_id(self, master: int) -> int | None:
        mine = self._run_id(master)
        if mine is None:
            return None
        return next((other for other in range(master) if self._run_id(other) == mine), None)

    def _recompute(self) -> None:
        for master, facts in enumerate(self._facts):
            if facts is None or self._first_with_same_run_id(master) is not None:
                self.votes_from[master] = math.inf
            elif not self._guard:
                self.votes_from[master] = -math.inf
            elif facts.uptime is None:
                self.votes_from[master] = math.inf
            else:
                self.votes_from[master] = self._started_by[master] + self.max_ttl
