"""What is done to a lock, and what must hold all the same.

Those in the model must keep everything.  Those beyond it must show what breaks there, at least once, and
that fencing does not: a harness that cannot go red proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from .faults import GROUPS
from .history import MUST
from .settings import Settings

if TYPE_CHECKING:
    from .history import Must

# ``lost update``: the store that does not check fences was written by a holder whose time was over.
Shows: TypeAlias = Literal["exclusive", "lost update"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """``shows``: what is broken by it, where it is beyond the model; None: nothing may be."""

    name: str
    what: str
    settings: dict[str, Any] = field(default_factory=dict)
    must: tuple[Must, ...] = MUST
    shows: Shows | None = None

    def with_seed(self, seed: int, **changes: Any) -> Settings:
        return Settings(**{"seed": seed, **self.settings, **changes})


# Fences are unique and grow, whatever clocks and masters do.
_FENCED: Final[tuple[Must, ...]] = ("fenced",)
# How long a name may be blocked is another matter where an expiry is confirmed: two TTLs and two attempts, or more (P3).
_SAFE: Final[tuple[Must, ...]] = ("exclusive", "fenced", "prompt", "clean")
_STORY: Final[dict[str, Any]] = {
    "faults": ("kleppmann",),
    "clients": 4,
    "locks": 1,
    "work": "lasting",
    "duration": 20.0,
}
_LIBRARY: Final[dict[str, Any]] = {
    "faults": ("library", "forget", "lose"), "persistence": "none", "lanes": 2, "locks": 2, "duration": 15.0,
}  # fmt: skip

_ALL: Final = (
    Scenario("calm", "no fault at all", {"duration": 6.0}),
    Scenario("overrun", "no fault, but holders go on after their leases have ended, and release late",
             {"work": "overrun", "clients": 2, "workers": 6, "ttl": 0.8, "wait": 0.05}),
    Scenario("crowd", "many short sections on an even number of masters, which hang up now and then",
             {"faults": ("flush",), "masters": 4, "clients": 6, "locks": 2, "work": "brief", "wait": 0.01, "duration": 6.0}),
    Scenario("kill", "masters are killed and restarted, any number of them", {"faults": ("kill",)}),
    Scenario("amnesia-guarded", "masters forget everything in a restart, any number of them; the restart guard is on",
             {"faults": ("forget",), "persistence": "none"}),
    Scenario("rolling-restart",
             "forgetful masters restart one by one; a lease that is renewed is not lost, though others want it",
             {"faults": ("roll",), "persistence": "none", "masters": 3, "ttl": 1.5, "work": "steady"}, (*MUST, "kept")),
    Scenario("other-masters", "all masters are replaced by others, one at a time, while clients work (R34)",
             {"faults": ("move",), "masters": 6, "used": 3, "ttl": 1.2, "duration": 40.0}),
    Scenario("grow", "one master, then two, three, four and five, each when redlock-check --plan says so, while clients work (R34)",
             {"faults": ("grow",), "used": 1, "ttl": 1.2, "duration": 25.0, "locks": 2}),
    Scenario("masters-too-early", "half of the clients skip a list of masters: they are refused until the others have had it (R34)",
             {"faults": ("early",), "masters": 4, "used": 3, "ttl": 1.2, "duration": 15.0, "work": "brief", "locks": 2}),
    Scenario("pause", "masters are stopped and resumed, any number of them", {"faults": ("pause",)}),
    Scenario("strobe", "masters' clocks go forth and back within the allowance", {"faults": ("strobe",)}),
    Scenario("skewed-clocks", "clients' wall clocks are wrong, and jump", {"faults": ("wall",), "skew": 4.0, "locks": 2}),
    Scenario("jumping-clocks", "clients' wall clocks jump while leases run out",
             {"faults": ("wall",), "work": "lasting", "locks": 10, "lanes": 2}),
    Scenario("full-memory", "masters have no memory left", {"faults": ("memory",)}),
    Scenario("full-disk", "masters have no disk left; with appendfsync always they exit", {"faults": ("disk",)}),
    Scenario("full-disk-everysec", "masters have no disk left; with appendfsync everysec they refuse writes",
             {"faults": ("disk",), "persistence": "everysec", "restart_guard": False}),
    Scenario("flush", "SCRIPT FLUSH", {"faults": ("flush",)}),
    Scenario("functions", "no client may run scripts; the function library is flushed, loaded, and lost in restarts, while connections break (R44)",
             {**_LIBRARY, "functions": 6}),
    Scenario("functions-mixed", "the same, and half of the clients run scripts where it is missing (R44)", {**_LIBRARY, "functions": 3}),
    Scenario("lost-replies", "answers are lost after the command was applied", {"faults": ("lose",)}),
    Scenario("slow", "answers are late", {"faults": ("slow",)}),
    Scenario("half-replies", "only the beginning of an answer arrives", {"faults": ("half",)}),
    Scenario("one-isolated", "one master or one client is cut off", {"faults": ("one",)}),
    Scenario("one-way", "requests or answers do not get through", {"faults": ("oneway",)}),
    Scenario("partition", "two halves", {"faults": ("halves",)}),
    Scenario("ring", "each client reaches another majority", {"faults": ("ring",)}),
    Scenario("flapping", "links come and go", {"faults": ("flap",)}),
    Scenario("stop-clients", "clients are stopped for longer than the TTL", {"faults": ("stop",), "work": "visited", "clients": 8, "locks": 12, "ttl": 1.2, "lanes": 2}),
    Scenario("kill-clients", "clients are killed, others come", {"faults": ("crash",)}),
    Scenario("leaders", "all clients are candidates, which are stopped and killed; another one leads soon",
             {"faults": ("crash", "stop"), "persistence": "everysec", "restart_guard": False, "work": "leading", "locks": 2, "ttl": 1.2,
              "duration": 15.0}, (*MUST, "handover")),
    Scenario("readers", "many read and some write; masters and clients are killed, stopped and cut off",
             {"faults": ("kill", "pause", "crash", "stop", "one"), "work": "sharing", "clients": 8, "locks": 2, "ttl": 1.5, "lanes": 2,
              "duration": 15.0}),
    Scenario("slots", "all want one of three slots; masters and clients are killed and paused",
             {"faults": ("kill", "pause", "crash", "stop"), "work": "slots", "locks": 1, "slots": 3, "ttl": 1.5, "lanes": 2,
              "duration": 15.0}, (*MUST, "slots")),
    Scenario("in-order",
             "all wait in order; waiters are killed and stopped, a minority of masters is cut off: the first waiter is served first (R42)",
             {"faults": ("crash", "stop", "minority"), "work": "queueing", "clients": 8, "workers": 1, "locks": 2, "ttl": 1.5, "lanes": 2,
              "skew": 3.0, "duration": 20.0}, (*MUST, "order")),
    Scenario("transactions", "fenced transactions in PostgreSQL; holders are stopped and killed in the middle, masters killed and paused (R39)",
             {"faults": ("stop", "crash", "kill", "pause"), "work": "transactions", "ttl": 1.2, "lanes": 2, "duration": 20.0}),
    Scenario("clock-jump-confirmed", "the clocks of a minority jump; an expiry is confirmed by more than one clock (R35)",
             {"faults": ("liar",), "confirm_expiry": True, "locks": 2, "duration": 15.0}, _SAFE),
    Scenario("strobe-confirmed", "the clocks of a minority go forth and back again and again, while each client reaches another majority; an expiry is confirmed (R35)",
             {"faults": ("swing", "ring"), "confirm_expiry": True, "lanes": 2, "locks": 2, "clients": 8, "duration": 15.0}, _SAFE),
    Scenario("eviction-confirmed", "a minority loses its lock keys; an expiry is confirmed (R35)",
             {"faults": ("evict",), "confirm_expiry": True, "locks": 2}, _SAFE),
    Scenario("kleppmann-confirmed", "Kleppmann's story: the one master that two halves share forgets early; the other half is refused (R35)",
             {**_STORY, "confirm_expiry": True}, _SAFE),
    Scenario("slewed", "the clocks of three of five masters run 8.3 % too fast, from before the clients come: they measure it, and get no lock (R43)",
             {"faults": ("slewed",), "work": "lasting", "locks": 2, "ttl": 4.0, "wait": 0.05}),
    Scenario("everything", "all of it, two at once",
             {"faults": GROUPS["all"], "named": (), "persistence": "none", "lanes": 2, "duration": 25.0, "skew": 1.0}),
    Scenario("client-pause", "Kleppmann's first: a holder is stopped, and writes after its lease has ended, without checking it",
             {"faults": ("stop",), "work": "naive", "clients": 8, "locks": 4, "ttl": 1.2, "lanes": 3}, _FENCED, "lost update"),
    Scenario("clock-jump", "Kleppmann's second: masters' clocks jump, and locks expire early",
             {"faults": ("clock",), "restart_guard": False, "locks": 2}, _FENCED, "exclusive"),
    Scenario("kleppmann", "Kleppmann's story: the one master that two halves share forgets early, and both hold the lock",
             dict(_STORY), _FENCED, "exclusive"),
    Scenario("eviction", "a minority loses its lock keys, and leases on a bare majority are not alone",
             {"faults": ("evict", "ring"), "lanes": 2, "locks": 2, "clients": 8, "duration": 15.0}, _FENCED, "exclusive"),
    Scenario("amnesia", "masters forget everything in a restart and vote at once; the restart guard is off",
             {"faults": ("forget",), "persistence": "none", "restart_guard": False, "lanes": 2, "locks": 2}, _FENCED, "exclusive"),
    Scenario("slewed-briefly", "the clocks of a majority run 8.3 % too fast between two measurements: no client sees it, and locks expire early",
             {"faults": ("slew",), "work": "lasting", "locks": 2, "max_ttl": 20.0, "wait": 0.05}, _FENCED, "exclusive"),
    Scenario("readers-clock-jump", "masters' clocks jump, and a writer is in among readers",
             {"faults": ("clock",), "restart_guard": False, "work": "sharing", "clients": 8, "locks": 2, "ttl": 1.5}, _FENCED, "exclusive"),
    Scenario("slots-amnesia", "masters forget who has which slot, and vote at once: two have the same one",
             {"faults": ("forget",), "persistence": "none", "restart_guard": False, "work": "slots", "clients": 8, "locks": 1, "slots": 2, "ttl": 1.5,
              "lanes": 2, "duration": 15.0}, _FENCED, "exclusive"),
)  # fmt: skip

SCENARIOS: Final[dict[str, Scenario]] = {scenario.name: scenario for scenario in _ALL}


def in_model() -> list[Scenario]:
    return [scenario for scenario in _ALL if scenario.shows is None]


def beyond_model() -> list[Scenario]:
    return [scenario for scenario in _ALL if scenario.shows is not None]
