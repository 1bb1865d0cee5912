"""Records that clients leave on a master (R21, R34, R35), read without a script: the health check writes none."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from redlock._core import wire

if TYPE_CHECKING:
    from collections.abc import Mapping


class FleetEntry(NamedTuple):
    """A list of masters that clients use."""

    seen: float  # last, on the master's clock
    life: float  # it holds for so many seconds
    several: bool  # more than one client has announced it
    status: str  # see fleet.lua
    names: frozenset[str]


def look_known(info: Mapping[str, str], record: bytes, now: float) -> wire.Known | None:
    """What known.lua answers, from INFO, the record and the time there: the script itself would write a record."""
    if (replid := info.get("master_replid")) is None:
        return None
    if info.get("second_repl_offset", "-1") == "-1":
        return wire.Known(replid, None)
    known, _, since = record.partition(b" ")
    return wire.Known(
        replid, max(0.0, now - int(since) / 1000) if known == replid.encode() and wire.are_digits(since) else 0.0
    )


def read_announced(value: bytes) -> float:
    """The value of the key, as the script reads it.  0: the script replaces it.  ValueError: the script refuses it."""
    try:
        ms = float(value)
    except ValueError:
        return 0.0
    if ms >= wire.BEYOND:
        raise wire.BadReply(wire.odd(value))
    return ms / 1000 if ms > 0 else 0.0


def read_way(value: bytes) -> tuple[float, float] | None:
    """Since when, and for how long, clients are known that treat an expiry in one way. None: the script drops it."""
    match value.split(b" "):
        case [seen, life] if wire.are_digits(seen, life):
            return int(seen) / 1000, int(life) / 1000
    return None


def read_fleet_entry(value: bytes) -> FleetEntry | None:
    """A value of the hash.  None: the script drops it."""
    head, _, names = value.partition(b"\n")
    match head.split(b" "):
        case [seen, life, bytes(client), (b"1" | b"2" | b"-" | b"~") as status] if (
            wire.are_digits(seen, life) and names
        ):
            return FleetEntry(
                int(seen) / 1000, int(life) / 1000, client == b"*", status.decode(), frozenset(wire.lines(names))
            )
    return None
