"""The result of a check of the masters: plain records, the same in Python and in JSON."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

SCHEMA = 1  # of `Health.as_dict`. It rises when a field is removed or changes its meaning, not when one is added

Level: TypeAlias = Literal["warning", "critical"]
Status: TypeAlias = Literal["OK", "WARNING", "CRITICAL"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, and what to do about it.

    Attributes:
        level: ``critical`` for a master: its vote does not count, or cannot be trusted. ``critical`` for the quorum:
            no lock can be taken. ``warning``: it works, but something should be changed.
        code: one of those listed in docs/redlock-check.md.
        message: what is wrong, for people. Its words may change.
        advice: what to do, for people. Its words may change.
    """

    level: Level
    code: str
    message: str
    advice: str


@dataclass(frozen=True, slots=True)
class MasterHealth:
    """The state of one master, as far as it tells. None: it did not say, or we may not ask.

    Attributes:
        url: its address, without user and password.
        name: host and port, or the path of a socket, as in a `Vote`.
        votes: whether its vote would count now.
        reachable: whether we could connect, and it answered.
        latency_ms: milliseconds of a round trip, the median of a few.
        role: ``master``, ``replica`` or ``sentinel``.
        flavour: ``redis``, ``valkey`` or the name that the server gives itself.
        quarantined_s: seconds for which its vote does not count yet, as it may have forgotten locks (R21).
        clock_offset_ms: milliseconds of its wall clock from the median of all masters.
        rights_missing: rights that its user lacks, in the words of an ACL rule.
    """

    url: str
    name: str
    votes: bool
    reachable: bool
    latency_ms: float | None = None
    role: str | None = None
    flavour: str | None = None
    version: str | None = None
    run_id: str | None = None
    uptime_s: int | None = None
    quarantined_s: float = 0.0
    appendonly: str | None = None
    appendfsync: str | None = None
    maxmemory: int | None = None
    used_memory: int | None = None
    maxmemory_policy: str | None = None
    replicas: int | None = None
    clock_offset_ms: float | None = None
    rights_missing: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Probe:
    """How a real lock on a throw-away name was acquired, extended and released.

    Attributes:
        ok: whether all three worked.
        seconds: the time that they took together.
        fence: the fencing token of the lease. None: there was no lease.
        error: why it did not work. None: it worked.
    """

    ok: bool
    seconds: float
    fence: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class QuorumHealth:
    """The masters as a whole.

    Attributes:
        size: how many masters are configured.
        majority: how many masters have to grant a lock.
        voting: how many masters have a vote that would count now.
        can_lose: how many voting masters may fail while locks can still be taken.
        max_ttl: the longest TTL of this deployment, in seconds. A restarted master does not vote for that long.
        probe: how a real lock worked. None: there was no probe.
    """

    size: int
    majority: int
    voting: int
    can_lose: int
    max_ttl: float
    probe: Probe | None


@dataclass(frozen=True, slots=True)
class MastersList:
    """A list of masters that clients use (R34).

    Attributes:
        masters: their names, in their order.
        recorded: whether it is in use: clients with an incompatible list give way to it. False: it gives way itself.
        refused: it gives way, and its clients get no lock. A list that gives way and is not refused only warns.
        several: whether more than one client has announced it. A client with several event loops, or with forked
            children, counts as several.
        seen_s: seconds since it was announced, the least of all masters.
        known_to: the masters that know it.
    """

    masters: tuple[str, ...]
    recorded: bool
    several: bool
    seen_s: float
    known_to: tuple[str, ...]
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Health:
    """Whether locks can be taken, and whether they are safe. `redlock-check` prints this.

    It describes one moment and promises nothing: the state may have changed before you read it.

    Attributes:
        status: ``OK``: nothing is wrong. ``WARNING``: locks can be taken, but something is wrong. ``CRITICAL``: no lock
            can be taken.
        summary: one sentence for people: what is wrong, and what to do next.
        quorum: the masters as a whole.
        masters: each master, in the order of the configuration.
        findings: what is wrong with the quorum as a whole. The findings of one master are in `masters`.
        fleet: the lists of masters that clients use now, as far as these masters know (R34).
    """

    status: Status
    summary: str
    quorum: QuorumHealth
    masters: tuple[MasterHealth, ...]
    findings: tuple[Finding, ...]
    fleet: tuple[MastersList, ...] = ()

    @property
    def ok(self) -> bool:
        """True if nothing at all is wrong."""
        return self.status == "OK"

    def as_dict(self) -> dict[str, Any]:
        """The same as plain types, as ``redlock-check --json`` prints it. ``schema`` is the version of the format."""
        return {"schema": SCHEMA, **_plain(self)}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value
