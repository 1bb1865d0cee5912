"""What one run is: everything that the plan, the session and the clients have to agree on.  Pure."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from .faults import FAULTS

if TYPE_CHECKING:
    from collections.abc import Callable

Persistence: TypeAlias = Literal["none", "everysec", "always"]
# ``mixed``: sections shorter and longer than the TTL, extended, re-entered, cancelled, handed over.
# ``lasting``: mostly longer than the TTL, extended or not.
# ``visited``: the same, but only the first worker of each client; the others look in wherever nobody is.
# ``overrun``: leases run out, and their holders release them late.
# ``brief``: short sections and hardly any pause, for as much contention as possible.
# ``steady``: the first worker of each client keeps what it gets, and all the others want it.
# ``leading``: all are candidates, and lead for shorter and longer than the TTL.
# ``sharing``: many read and some write, of these some go on as readers.
# ``slots``: as ``mixed``, without handing over: every name has slots.
# ``transactions``: the store that checks fences is in PostgreSQL, and every use of it is one of `redlock.fenced`.
# ``queueing``: all wait in order, for short sections.
# ``naive``: a holder who looks at its lease only before it begins.
Work: TypeAlias = Literal[
    "mixed",
    "lasting",
    "visited",
    "overrun",
    "brief",
    "steady",
    "naive",
    "leading",
    "sharing",
    "slots",
    "transactions",
    "queueing",
]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All times are seconds.  With the same settings the same plan is made, see `chaos.plan`."""

    seed: int
    duration: float = 10.0  # of the faults; starting, settling and looking come on top
    masters: int = 5
    used: int = 0  # how many of them are in the lists of clients at first; 0: all
    clients: int = 6  # processes, each with `workers`
    workers: int = 2  # threads or tasks, which share their process and its `Masters`
    locks: int = 3
    slots: int = 0  # of each name, every worker wants one; 0: the names are locks
    faults: tuple[str, ...] = ()
    named: tuple[str, ...] | None = None  # those of them that were asked for by name; None: all
    lanes: int = 1  # faults at once
    ttl: float = 2.0
    node_timeout: float = 0.25
    drift_factor: float = 0.01
    max_ttl: float | None = None  # None: the TTL
    restart_guard: bool = True
    confirm_expiry: bool = False  # (R35)
    functions: int = 0  # so many clients have a user who may run no scripts (R44); each start of a master loads them
    persistence: Persistence = "always"
    work: Work = "mixed"
    skew: float = 0.0  # clients' wall clocks are wrong by up to this from the beginning
    wait: float | None = None  # seconds between attempts, at most; None: what the library does by itself
    server: str | None = None  # the program; None: the one that `redlock.testing` finds
    variant: str | None = None

    @property
    def longest_ttl(self) -> float:
        return self.ttl if self.max_ttl is None else self.max_ttl

    @property
    def of_masters(self) -> dict[str, Any]:
        """The options of `redlock.Masters` that every client has."""
        return {
            "node_timeout": self.node_timeout,
            "drift_factor": self.drift_factor,
            "max_ttl": self.longest_ttl,
            "restart_guard": self.restart_guard,
            "confirm_expiry": self.confirm_expiry,
        }

    @property
    def must_strike(self) -> tuple[str, ...]:
        """The faults without which a run proves nothing."""
        return tuple(fault for fault in self.faults if self.named is None or fault in self.named)

    @property
    def quarantine(self) -> float:
        """How long a restarted master is away after its restart, at most (R21)."""
        return self.longest_ttl + 1.0 if self.restart_guard else 0.0

    @property
    def first_list(self) -> tuple[int, ...]:
        """The masters that clients use at first."""
        return tuple(range(1, (self.used or self.masters) + 1))

    @property
    def lock_names(self) -> tuple[str, ...]:
        """The locks that a master may have keys of: of a group each slot."""
        if not self.slots:
            return self.wanted_names
        return tuple(f"{name}#{slot}" for name in self.wanted_names for slot in range(self.slots))

    @property
    def wanted_names(self) -> tuple[str, ...]:
        """What workers ask for."""
        return tuple(f"lock-{number}" for number in range(1, self.locks + 1))

    def check(self) -> None:
        """Raises `ValueError` for what cannot be right, with the value and what is allowed."""
        for name, (allowed, right) in _RULES.items():
            value = getattr(self, name)
            if not right(value):
                raise ValueError(f"--{name.replace('_', '-')} is {value}, it must be {allowed}")
        unknown = [fault for fault in self.faults if fault not in FAULTS]
        if unknown:
            raise ValueError(f"--faults: there is no {unknown[0]!r}, only {', '.join(FAULTS)}")
        if self.used > self.masters:
            raise ValueError(f"--used is {self.used}, it must be at most the number of masters ({self.masters})")
        if self.node_timeout > self.ttl / 3:  # R7
            raise ValueError(
                f"--node-timeout is {self.node_timeout:g}, it must be at most a third of the TTL ({self.ttl:g})"
            )
        if (self.slots > 0) != (self.work == "slots"):
            raise ValueError(
                f"--slots is {self.slots} with --work {self.work}: --slots goes with --work slots, each with the other"
            )
        if self.longest_ttl < self.ttl:
            raise ValueError(f"--max-ttl is {self.longest_ttl:g}, it must be at least the TTL ({self.ttl:g})")

    def dumps(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def loads(cls, text: str) -> Settings:
        values = json.loads(text)
        named = values["named"]
        return cls(**{**values, "faults": tuple(values["faults"]), "named": None if named is None else tuple(named)})


def _positive(value: float) -> bool:
    return 0 < value < math.inf


_LONGEST: Final = 3600.0  # seconds: the fences of clients live for no longer, and no lock may outlive its fence
_UP_TO_AN_HOUR: Final = f"more than 0 and at most {_LONGEST:g} seconds"


# More than 200 clients have no address of their own in `chaos.backends`.
_RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "duration": ("more than 0 seconds", _positive),
    "used": ("at least 0", lambda value: value >= 0),
    "masters": ("from 1 to 50", lambda value: 1 <= value <= 50),  # noqa: PLR2004
    "clients": ("from 1 to 200", lambda value: 1 <= value <= 200),  # noqa: PLR2004
    "workers": ("at least 1", lambda value: value >= 1),
    "locks": ("at least 1", lambda value: value >= 1),
    "slots": ("at least 0", lambda value: value >= 0),
    "lanes": ("at least 1", lambda value: value >= 1),
    "ttl": (_UP_TO_AN_HOUR, lambda value: 0 < value <= _LONGEST),
    "max_ttl": (_UP_TO_AN_HOUR, lambda value: value is None or 0 < value <= _LONGEST),
    "skew": ("0 seconds or more", lambda value: 0 <= value < math.inf),
    "node_timeout": ("more than 0 seconds", _positive),
    "drift_factor": ("from 0 to 0.5, not included", lambda value: 0 <= value < 0.5),  # noqa: PLR2004
}
