"""What a check of the masters comes to: plain records, the same in Python and in JSON."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

SCHEMA = 1  # of `Health.as_dict`: raised when a field goes or changes its meaning, not when one is added

Level: TypeAlias = Literal["warning", "critical"]
Status: TypeAlias = Literal["OK", "WARNING", "CRITICAL"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, and what to do about it.

    ``critical``: the vote of this master does not count, or cannot be trusted; of the quorum: no lock can be
    taken.  ``warning``: it works, and something should be changed all the same.  ``code`` is one of those
    listed in docs/redlock-check.md; ``message`` and ``advice`` are for people and may be worded anew.
    """

    level: Level
    code: str
    message: str
    advice: str


@dataclass(frozen=True, slots=True)
class MasterHealth:
    """What one master says of itself.  None: it did not say, or may not be asked.

    Attributes:
        url: without user and password.
        name: host and port, or the path of a socket, as in a `Vote`.
        votes: whether its vote would count now.
        reachable: it was connected to, and answered.
        latency_ms: of a round trip, the median of a few.
        role: ``master``, ``replica`` or ``sentinel``.
        flavour: ``redis``, ``valkey`` or what the server calls itself.
        quarantined_s: seconds for which its vote does not count, as it may have forgotten locks (R21).
        clock_offset_ms: of its wall clock from the median of all masters.
        rights_missing: what its user is not allowed to do, in the words of an ACL rule.
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
    """A real lock on a throw-away name: acquired, extended and released.

    Attributes:
        ok: all three worked.
        seconds: they took together.
        fence: the fencing token that it got.
        error: why it did not work.
    """

    ok: bool
    seconds: float
    fence: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class QuorumHealth:
    """The masters as a whole.

    Attributes:
        size: how many are configured.
        majority: how many have to grant a lock.
        voting: how many of them have a vote that would count now.
        can_lose: how many of those may fail before no lock can be taken.
        max_ttl: the longest TTL of this deployment, in seconds: so long a restarted master does not vote.
        probe: None where there was none.
    """

    size: int
    majority: int
    voting: int
    can_lose: int
    max_ttl: float
    probe: Probe | None


@dataclass(frozen=True, slots=True)
class Health:
    """Whether locks can be taken, and whether they are safe: what `redlock-check` prints.

    A look, not a promise: it may have changed before you read it.

    Attributes:
        status: ``OK``; ``WARNING``: locks can be taken, and something is wrong; ``CRITICAL``: none can.
        summary: one sentence for people: what is wrong, and what to do next.
        quorum: the masters as a whole.
        masters: each of them, in the order in which they were configured.
        findings: what is wrong with the quorum as a whole; those of one master are in `masters`.
    """

    status: Status
    summary: str
    quorum: QuorumHealth
    masters: tuple[MasterHealth, ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Nothing is wrong at all."""
        return self.status == "OK"

    def as_dict(self) -> dict[str, Any]:
        """What ``redlock-check --json`` prints; ``schema`` says which version of it."""
        return {"schema": SCHEMA, **_plain(self)}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value
