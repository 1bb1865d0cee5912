"""What was found out about one master, before anybody judges it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

Failure: TypeAlias = Literal["auth", "permission", "database", "protocol", "tls", "timeout", "connection"]

_DIGITS = 20  # of 64 bits


@dataclass(frozen=True, slots=True)
class RefusedCommand:
    """A master's error reply to something that a client has to do: its code (``READONLY``), and all of it."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Clock:
    """A master's wall clock less ours, in seconds, known to ``within`` (half a round trip)."""

    offset: float
    within: float


@dataclass(frozen=True, slots=True)
class MasterFacts:
    """One examination.  What is None or empty was not answered, or may not be asked.

    Attributes:
        failure: why it could not be examined to the end: no connection, or no answer in time.
        text: of the failure, without a password.
        connected: it got as far as an authenticated connection.
        at: when INFO was answered, on the clock of R5.
        announced: the longest TTL that any client announced, in seconds; 0: nobody did (R21).
        unannounced: what is in the place of that, and lets no client connect; as it is shown.
        durable: append-only file with appendfsync always.
        write: its refusal to change a key (READONLY, OOM, MOVED).
        refused: its refusal to do anything now (BUSY, LOADING).
        lacks: commands that every client needs and that it refuses, for it does not have them; what it says to each.
        missing: rights, in the words of an ACL rule; ``optional`` those that a client can do without.
    """

    name: str
    url: str
    user: str = "default"
    failure: Failure | None = None
    text: str = ""
    connected: bool = False
    at: float = 0.0
    latency: float | None = None
    clock: Clock | None = None
    info: Mapping[str, str] = field(default_factory=dict)
    appendonly: str | None = None
    appendfsync: str | None = None
    durable: bool = False
    announced: float = 0.0
    unannounced: str | None = None
    write: RefusedCommand | None = None
    refused: RefusedCommand | None = None
    lacks: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    def number(self, name: str) -> int | None:
        """A field of INFO."""
        value = self.info.get(name, "")
        return int(value) if value.isascii() and value.isdigit() and len(value) <= _DIGITS else None
