"""What was found out about one master, before the verdict."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redlock._core.wire import Announced, Known
    from redlock._health.records import FleetEntry

Failure: TypeAlias = Literal["auth", "permission", "database", "protocol", "tls", "timeout", "connection"]

_DIGITS = 20  # of a number of 64 bits


@dataclass(frozen=True, slots=True)
class RefusedCommand:
    """A master's error reply to a command that every client needs: its code (``READONLY``), and the whole text."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """A master's wall clock less ours, in seconds. It is exact to ``within`` seconds (half a round trip)."""

    offset: float
    within: float


@dataclass(frozen=True, slots=True)
class ClockRate:
    """By how much a master's clock runs faster than ours (0.083: 8.3 %), exact to ``within`` (R43)."""

    faster: float
    within: float


@dataclass(frozen=True, slots=True)
class MasterFacts:
    """The result of one examination. None or empty: the master did not answer that, or we may not ask it.

    Attributes:
        failure: why the examination did not get to its end: no connection, or no answer in time.
        text: the text of the failure, without a password.
        connected: there was an authenticated connection.
        at: the time when INFO was answered, on the clock of R5.
        latency: seconds of a round trip.
        announced: the longest TTL that any client announced, and how long that still holds; None: no client did (R21).
        known: whose data it has, and for how long clients know that (R21).
        lists: the lists of masters that clients announced there and that count now (R34). None: it does not say.
        ways: how clients that work take an expiry: ``confirmed``, ``trusted`` or both (R35).
        asked_at: its wall clock when it was asked for the lists.
        silent: the hosts of connections that run scripts and have no name: each client of a version before has one, and
            announces no list. Empty also if we may not ask.
        unannounced: a wrong value in the place of ``announced``, as text. It keeps every client from connecting.
        durable: it has an append-only file with appendfsync always.
        write: its refusal to change a key (READONLY, OOM, MOVED).
        refused: its refusal of every command (BUSY, LOADING).
        lacks: commands that every client needs and that the master does not have, with its answer to each.
        missing: rights that a client needs and its user lacks, in the words of an ACL rule.
        library: the fingerprint of the function library, "" if there is none; None: the user may not call it (R44).
        needless: rights that its user has, and that no client needs. Not asked for the user `default`.
        own: what is wrong with the connection that this process uses for its locks; empty: nothing, or it has none.
        optional: rights that the user lacks and a client can do without.
    """

    name: str
    url: str
    user: str = "default"
    failure: Failure | None = None
    text: str = ""
    connected: bool = False
    at: float = 0.0
    latency: float | None = None
    clock: ClockOffset | None = None
    rate: ClockRate | None = None
    info: Mapping[str, str] = field(default_factory=dict)
    appendonly: str | None = None
    appendfsync: str | None = None
    durable: bool = False
    announced: Announced | None = None
    known: Known | None = None
    lists: tuple[FleetEntry, ...] | None = None
    ways: frozenset[str] = frozenset()
    asked_at: float = 0.0
    silent: tuple[str, ...] = ()
    unannounced: str | None = None
    write: RefusedCommand | None = None
    refused: RefusedCommand | None = None
    lacks: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    library: str | None = None
    needless: tuple[str, ...] = ()
    own: str = ""

    @property
    def uptime(self) -> int | None:
        """In whole seconds, as a client reads it: 0 if its clock was set back to before its start."""
        before, minus, after = self.info.get("uptime_in_seconds", "").partition("-")
        return 0 if minus and not before and after.isdecimal() else self.number("uptime_in_seconds")

    def number(self, name: str) -> int | None:
        """A field of INFO that is a whole number. None: it is missing, or is not a whole number."""
        value = self.info.get(name, "")
        return int(value) if value.isascii() and value.isdigit() and len(value) <= _DIGITS else None
