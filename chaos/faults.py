"""Everything that can be done to masters, links and clients.  Only names and facts; `chaos.nemesis` does it."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection

# What it strikes: a master, the links between clients and masters, or client processes.
Kind: TypeAlias = Literal["master", "link", "client"]


@dataclass(frozen=True, slots=True)
class Fault:
    """``lasts``: for how long, in TTLs, from and to.  ``in_model``: P1 has to survive it."""

    name: str
    kind: Kind
    what: str
    lasts: tuple[float, float] = (0.15, 1.0)
    in_model: bool = True


_ALL: Final = (
    Fault("kill", "master", "SIGKILL, and restarted with its data"),
    Fault("forget", "master", "SIGKILL, and restarted without its data"),
    Fault("roll", "master", "forget, all in turn: the next one when the one before votes again", (0.1, 0.4)),
    Fault("pause", "master", "SIGSTOP, and resumed"),
    Fault("strobe", "master", "its clock goes forth and back by less than the allowance for drift", (0.2, 0.5)),
    Fault("clock", "master", "its clock jumps ahead by more than the TTL, and back", (1.0, 1.5), in_model=False),
    Fault(
        "liar",
        "master",
        "the clocks of a minority jump, in either direction, and back: of the same one all the time",
        (0.3, 1.2),
        in_model=False,
    ),
    Fault(
        "swing",
        "master",
        "the clocks of a minority go forth and back by up to two TTLs, again and again: of the same one all the time",
        (1.0, 2.0),
        in_model=False,
    ),
    Fault(
        "evict",
        "master",
        "a minority loses its lock keys, as by eviction: the same one all the time",
        (0.02, 0.1),
        in_model=False,
    ),
    Fault(
        "slew",
        "master",
        "the clocks of a majority run 8.3 % too fast for a while, as chrony's do that correct an offset",
        (1.5, 2.5),
        in_model=False,
    ),
    Fault(
        "slewed",
        "master",
        "the same, from before the clients come, and for so long that they measure it (R43)",
        (2.0, 2.5),
        in_model=False,
    ),
    Fault("memory", "master", "its memory is full, so that it takes no lock but releases"),
    Fault("disk", "master", "its disk is full, so that it takes no write"),
    Fault("flush", "master", "SCRIPT FLUSH", (0.02, 0.1)),
    Fault(
        "library",
        "master",
        "the function library is replaced, flushed and loaded again; each load breaks the connections (R44)",
        (0.2, 1.0),
    ),
    Fault("lose", "master", "it carries out commands, but its answers are lost and connections break"),
    Fault("slow", "master", "its answers are late"),
    Fault("half", "master", "the first bytes of an answer arrive, the rest does not", (0.1, 0.6)),
    Fault("one", "link", "one master or one client is cut off, both ways"),
    Fault("oneway", "link", "requests or answers of some masters do not get through to some clients"),
    Fault("minority", "link", "a minority of the masters is cut off from all clients, both ways"),
    Fault("halves", "link", "clients and masters fall into two halves"),
    Fault("ring", "link", "each client reaches another majority", (0.5, 1.5)),
    Fault(
        "kleppmann",
        "link",
        "Kleppmann's story: two halves share one master, and its clock jumps while one of them holds",
        (5.0, 7.0),
        in_model=False,
    ),
    Fault("flap", "link", "links of one master come and go", (0.5, 1.2)),
    Fault("stop", "client", "SIGSTOP for longer than the TTL", (1.2, 1.8)),
    Fault("crash", "client", "SIGKILL, and another client comes in its place", (0.1, 0.5)),
    Fault(
        "move",
        "client",
        "half of them are killed, and come back with the next list of masters; then the others",
        (0.1, 0.4),
    ),
    Fault(
        "early",
        "client",
        "half of them are killed, and come back with the list after the next one; then the others get both, in turn",
        (0.1, 0.4),
    ),
    Fault(
        "grow",
        "client",
        "half of them are killed, and come back with one master more; then the others, when redlock-check --plan says so",
        (0.1, 0.4),
    ),
    Fault("wall", "client", "its wall clock jumps, in either direction, and back", (0.5, 1.2)),
)

FAULTS: Final[dict[str, Fault]] = {fault.name: fault for fault in _ALL}

# Those that set clocks of masters.
CLOCKS: Final = ("strobe", "clock", "liar", "swing", "slew", "slewed", "kleppmann")
# What chrony does to a clock by default: so much in a second.
SLEW: Final = 0.0833
# Those that give clients another list of masters.
MOVES: Final = ("move", "early", "grow")

# Words for several, as `--faults` takes them.  A roll leaves the masters to nothing else for as long as it takes, and a move the
# clients.  What came later than these words is not in them either: a seed means the same plan as before.
GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "partition": ("one", "oneway", "halves", "ring", "flap"),
    "all": tuple(
        fault.name
        for fault in _ALL
        if fault.in_model and fault.name not in ("disk", "roll", "minority", "library", *MOVES)
    ),
}


def unknown(kind: str, name: str, known: Collection[str]) -> str:
    """Of a name that somebody typed: which one was meant, or all that there are."""
    close = difflib.get_close_matches(name, known, 1)
    return f"there is no {kind} {name!r}" + (f": did you mean {close[0]}?" if close else f", only {', '.join(known)}")


def named(text: str) -> tuple[str, ...]:
    """The faults of a comma-separated list, each once.  Raises `ValueError` for a name that is none, or if there is none."""
    found: dict[str, None] = {}
    if not _words(text):
        raise ValueError(f"--faults is {text!r}, it must name one at least; --scenario calm has none")
    for name in _words(text):
        if name not in FAULTS and name not in GROUPS:
            raise ValueError(unknown("fault", name, (*FAULTS, *GROUPS)))
        found.update(dict.fromkeys(GROUPS.get(name, (name,))))
    return tuple(found)


def by_name(text: str) -> tuple[str, ...]:
    """Those of such a list that are in it themselves, and not as one of several."""
    return tuple(name for name in _words(text) if name in FAULTS)


def _words(text: str) -> list[str]:
    return [word for part in text.split(",") if (word := part.strip())]
