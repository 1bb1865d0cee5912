"""Everything that a seed decides before its run begins."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace
from typing import Any

# What can be switched on and off by itself.  The numbers are events in one TTL.  Each seed has about
# half of them: with all faults on all the time, little is ever granted and little can go wrong.
FAULTS = (
    "snap",  # a connection breaks; what is under way on it may arrive, its answers do not
    "cut",  # a link holds requests, answers or both; they arrive when it heals
    "isolate",  # all links of one client, or of one master, are cut
    "restart",  # a master goes down and comes back, with its memory
    "amnesia",  # a master goes down and comes back without
    "freeze",  # a master does nothing for a while, its kernel keeps what arrives
    "flush",  # SCRIPT FLUSH
    "refuse",  # MISCONF, OOM or BUSY for a while
    "step",  # a master's wall clock steps, within what P1 allows
    "jump",  # ... and beyond it
    "pause",  # a client stands still, its clock runs on (SIGSTOP, a long garbage collection)
    "crash",  # a client is gone; another one starts later
    "cancel",  # an operation is interrupted while it waits, or while it sends
    "wall",  # a client's wall clock steps
)

# ... that only R35 stands: a minority is wrong about time, another one in each episode.
WRONG_FAULTS = (
    "lie",  # a wall clock of it steps far, to and fro
    "evict",  # a master of it loses its lock keys
    "miss",  # ... and beside that: one master misses one renewal
)

# ... of the connections on which masters announce releases (R24).
FEED_FAULTS = (
    "deaf",  # one breaks
    "hush",  # one holds requests, announcements or both
)

# What keeps nobody from hearing of a release.
HARMLESS = frozenset(("step", "jump", "cancel", "crash", "wall"))


@dataclass(frozen=True)
class Parameters:
    """One run.  Times in seconds; rates are relative to true time."""

    seed: int
    masters: int = 3
    clients: int = 3
    actors: int = 1  # threads of one client, which share its links
    names: int = 1
    several: float = 0.0  # share of acquires that want all names at once
    ttl: float = 2.0
    max_ttl: float = 4.0
    fence_ttl: float = 3600.0
    node_timeout: float = 0.25
    patience: float = 0.5
    drift_factor: float = 0.01
    min_validity: float = 0.5  # share of the TTL
    guard: bool = True
    durable: float = 0.0  # share of masters with appendfsync always
    young: float = 0.0  # share of masters that started just before the run
    delay: float = 0.002  # one way, typically
    eager: float = 0.3  # longest wait between two attempts, in TTLs
    slow: float = 0.0  # share of messages that take many times as long
    duration: float = 20.0  # until everything heals
    budget: int = 1500  # ... or so many script calls
    episodes: int = 1  # how often it does: each is a part of the duration and the budget
    spread: float = 1.0  # share of the allowed difference of clock rates that is used
    skew: float = 0.0  # clients' wall clocks differ by at most so much
    keep: float = 0.0  # share of holds that a renewer looks after
    limited: float = 0.0  # share of those that have a max_hold
    deserted: float = 0.0  # share of those whose owner ends without releasing
    abandoned: float = 0.0  # share of these that nobody can release any more: their `with` is torn down
    announces: bool = True  # masters permit channels
    lost: float = 0.0  # share of announcements that get lost
    lag: float = 1.0  # how many times as long as other messages they take, typically
    patient: float = 0.0  # share of acquires that wait for ten TTLs
    contended: bool = False  # drawn by `crowd`
    together: bool = False  # drawn by `household`
    after: float = 0.0  # seconds for which names stay taken after a loss (R36); drawn by `guarded`
    watches: float = 0.0  # share of what is done that watches who holds a name, for a few changes
    looks: float = 0.0  # share of what is done that takes nothing: waits until a name is free, lists all locks
    at_least: float = 0.0  # share of acquires with a `hold_at_least`
    readers: float = 0.0  # share of acquires that are shared (R33); drawn by `readers_and_writers`
    fair: float = 0.0  # share of other acquires that wait in order (R42); drawn by `in_order`
    one_writer: bool = False  # ... all others read, come and go, and extend nothing; drawn by `come_and_go`
    slots: int = 0  # of one group, which everybody wants one of; drawn by `slots`
    confirm: bool = False  # an expiry is confirmed by more than one clock (R35); drawn by `confirmed`
    far: float = 0.0  # all links but one are so many times as long; drawn by `at_once`
    faults: tuple[tuple[str, float], ...] = ()

    def rate(self, fault: str) -> float:
        """How often it strikes, in events per TTL; 0 when it is switched off."""
        return dict(self.faults).get(fault, 0.0)

    @property
    def free_after(self) -> float:
        """Seconds in which every name becomes free where all is well, whatever has happened to its holder."""
        return (3.5 if self.confirm else 2) * self.max_ttl * (1 + self.drift_factor)

    @property
    def clocks_hold(self) -> bool:
        """The assumptions of P1 about clocks and memory."""
        return not self.rate("jump") and (self.guard or not self.forgets)

    @property
    def forgets(self) -> bool:
        """A master may lose all that it had."""
        return bool(self.rate("amnesia") or self.rate("replica"))

    @property
    def undisturbed(self) -> bool:
        """Nothing goes wrong, but that several want the same."""
        return not (self.faults or self.slow or self.young or self.slots)

    @property
    def calm(self) -> bool:
        """A listener hears of every release, and soon."""
        faults = {fault for fault, _ in self.faults}
        return self.announces and not (self.lost or self.slow or self.young) and faults <= HARMLESS

    @property
    def fences_hold(self) -> bool:
        """The assumptions of P2, which are about memory only."""
        if self.forgets and (not self.guard or self.rate("jump") or self.skew >= self.max_ttl):
            return False
        return self.skew < self.fence_ttl

    def __str__(self) -> str:
        parts = [f"{field.name}={getattr(self, field.name)!r}" for field in fields(self)]
        return f"Parameters({', '.join(parts)})"


def draw(seed: int, **fixed: Any) -> Parameters:
    """The parameters of ``seed``; ``fixed`` overrides some of them, for directed runs."""
    pick = random.Random(f"parameters of {seed}")
    ttl = pick.choice((1.0, 2.0, 4.0, 8.0, 16.0))
    max_ttl = ttl * pick.choice((1.0, 1.5, 2.5))
    node_timeout = ttl * pick.choice((0.05, 0.12, 0.33))
    on = {fault: pick.choice((0.05, 0.2, 0.6)) for fault in FAULTS if pick.random() < 0.35}
    if on.get("jump") and pick.random() < 0.5:
        del on["jump"]  # keeps P1 under judgement in most runs
    guard = pick.random() < 0.85
    if on.get("amnesia"):
        on.pop("jump", None)  # a jump ends a quarantine early, and then nothing is promised
    short = pick.random() < 0.15  # fences that are forgotten while the run lasts
    fence_ttl = max_ttl * pick.choice((1.0, 2.0)) if short else 3600.0
    if short:
        on.pop("jump", None)
    if on.get("amnesia"):
        skew = pick.choice((0.0, 0.5, 0.98)) * max_ttl
    elif short:
        skew = pick.choice((0.0, 0.5, 0.98)) * fence_ttl
    else:
        skew = pick.choice((0.0, 0.001, 1.0, 3600.0 - 1))
    if skew < 1.0 or on.get("amnesia") or short:
        on.pop("wall", None)
    values: dict[str, Any] = {
        "masters": pick.choice((1, 2, 3, 3, 3, 3, 4, 5, 5, 5)),
        "clients": pick.choice((2, 2, 3, 4)),
        "actors": pick.choice((1, 1, 2)),
        "names": pick.choice((1, 1, 1, 2)),
        "several": pick.choice((0.0, 0.0, 0.3)),
        "ttl": ttl,
        "max_ttl": max_ttl,
        "fence_ttl": fence_ttl,
        "node_timeout": node_timeout,
        "patience": node_timeout * pick.choice((1.0, 2.0, 4.0)),
        "drift_factor": pick.choice((0.01, 0.05, 0.1)),
        # More would fail on delays that are nobody's fault.
        "min_validity": pick.choice((0.8 if node_timeout < 0.2 * ttl else 0.5, 0.5, 0.5, 0.1, 0.02)),
        "guard": guard,
        "durable": pick.choice((0.0, 0.0, 0.5)),
        "young": pick.choice((0.0, 0.0, 0.3)),
        "delay": node_timeout * pick.choice((0.02, 0.1, 0.2)),
        "eager": pick.choice((0.03, 0.2, 0.5)),
        "slow": pick.choice((0.0, 0.02, 0.1, 0.3)),
        "duration": ttl * pick.uniform(8.0, 20.0),
        "budget": pick.choice((600, 900, 1200)),
        "episodes": pick.choice((1, 2, 3)),
        "spread": pick.choice((0.0, 1.0, 1.0)),
        "skew": skew,
        "keep": pick.choice((0.0, 0.4, 0.8)),
        "limited": pick.choice((0.0, 0.0, 0.3)),
        "deserted": pick.choice((0.0, 0.0, 0.2)),
    }
    # Drawn last, so that the rest of what a seed means does not depend on it.
    values |= {
        "announces": pick.random() < 0.9,
        "lost": pick.choice((0.0, 0.0, 0.1, 0.5, 1.0)),
        "lag": pick.choice((0.2, 1.0, 1.0, 5.0)),
    }
    on |= {fault: pick.choice((0.2, 0.6)) for fault in FEED_FAULTS if pick.random() < 0.35}
    values["faults"] = tuple(on.items())
    values.update(fixed)
    return Parameters(seed, **values)


def crowd(seed: int, **fixed: Any) -> Parameters:
    """Many wait for what is held for long, with long pauses: whoever is not woken is late (R24).

    In most of these runs nothing goes wrong, and whoever listens hears of every release.
    """
    pick = random.Random(f"crowd of {seed}")
    ttl = pick.choice((4.0, 16.0, 30.0))
    node_timeout = ttl * pick.choice((0.01, 0.03, 0.1))
    values: dict[str, Any] = {
        "masters": pick.choice((1, 2, 3, 3, 4, 5, 5)), "clients": pick.choice((3, 5, 8, 12)),
        "actors": pick.choice((1, 1, 3)), "names": pick.choice((1, 1, 1, 2)), "ttl": ttl, "max_ttl": 2 * ttl,
        "fence_ttl": 3600.0, "skew": pick.choice((0.0, 1.0)), "node_timeout": node_timeout,
        "patience": 2 * node_timeout, "delay": node_timeout * pick.choice((0.005, 0.02, 0.1)), "eager": 0.5,
        "duration": ttl * 12, "budget": 1500, "episodes": 1, "patient": pick.choice((0.5, 1.0)), "contended": True,
        "keep": 0.8, "limited": 0.0, "lag": pick.choice((0.2, 1.0, 5.0)), "announces": True, "lost": 0.0, "slow": 0.0,
        "faults": (),
    }  # fmt: skip
    if pick.random() < 0.3:
        on = {fault: 0.2 for fault in ("snap", "isolate", "freeze", "pause") if pick.random() < 0.3}
        on |= {fault: pick.choice((0.2, 1.0)) for fault in FEED_FAULTS if pick.random() < 0.6}
        values |= {"faults": tuple(on.items()), "slow": pick.choice((0.0, 0.1))}
        values["lost"] = pick.choice((0.0, 0.1))
    return draw(seed, **(values | fixed))


def household(seed: int, **fixed: Any) -> Parameters:
    """Each client holds many names for long, so that several leases are due at one moment and are renewed together."""
    pick = random.Random(f"household of {seed}")
    values: dict[str, Any] = {
        "clients": 2, "actors": pick.choice((6, 10)), "names": pick.choice((12, 20)),
        "several": pick.choice((0.0, 0.0, 0.1)), "keep": 1.0, "patient": 0.5, "duration": 0.0, "budget": 3000,
        "together": True,
    }  # fmt: skip
    drawn = draw(seed, **(values | fixed))
    return drawn if "duration" in fixed else replace(drawn, duration=drawn.ttl * pick.uniform(4.0, 8.0))


def periods(seed: int, **fixed: Any) -> Parameters:
    """Jobs that take a moment, and may run once in a period: others try at once, and again and again (R28)."""
    pick = random.Random(f"periods of {seed}")
    values: dict[str, Any] = {
        "clients": pick.choice((2, 3, 5)), "names": pick.choice((1, 1, 2)), "eager": 0.03, "at_least": 1.0,
        "looks": pick.choice((0.0, 0.3)),
        "keep": pick.choice((0.0, 0.5)), "deserted": pick.choice((0.0, 0.3)), "abandoned": pick.choice((0.0, 1.0)),
    }  # fmt: skip
    return draw(seed, **(values | fixed))


def rivals(seed: int, **fixed: Any) -> Parameters:
    """Many want the same and try at once, so that masters refuse who is granted it, and nothing else goes wrong (R37)."""
    pick = random.Random(f"rivals of {seed}")
    ttl = pick.choice((8.0, 16.0, 30.0))
    node_timeout = ttl * pick.choice((0.01, 0.03))
    values: dict[str, Any] = {
        "masters": pick.choice((3, 3, 5, 5, 4)), "clients": pick.choice((3, 5, 8)), "ttl": ttl, "max_ttl": 2 * ttl,
        "node_timeout": node_timeout, "patience": 2 * node_timeout, "delay": node_timeout * pick.choice((0.02, 0.1)),
        "eager": pick.choice((0.03, 0.2)), "fence_ttl": 3600.0, "skew": 0.001, "keep": 1.0, "slow": 0.0, "young": 0.0,
        "patient": 0.5, "faults": (),
    }  # fmt: skip
    return draw(seed, **(values | fixed))


def guarded(seed: int, **fixed: Any) -> Parameters:
    """Names stay taken for a while after a loss or a crash, and clocks of masters may step by so much (R36)."""
    pick = random.Random(f"guarded of {seed}")
    ttl = pick.choice((2.0, 4.0, 8.0))
    after = ttl * pick.choice((0.2, 0.5, 1.0))
    on = {fault: pick.choice((0.2, 0.6)) for fault in ("isolate", "cut", "freeze", "pause", "crash", "cancel", "snap")}
    values: dict[str, Any] = {
        "ttl": ttl, "max_ttl": 2 * ttl, "after": after, "fence_ttl": 3600.0, "skew": 0.001, "eager": 0.03,
        "node_timeout": ttl * pick.choice((0.05, 0.12)), "keep": pick.choice((0.4, 0.8)), "limited": 0.5,
        "deserted": pick.choice((0.0, 0.2)), "several": 0.0, "faults": tuple(on.items()),
    }  # fmt: skip
    values["patience"], values["delay"] = 2 * values["node_timeout"], values["node_timeout"] * pick.choice((0.02, 0.1))
    if pick.random() < 0.5:
        values["faults"] = (*[one for one in on.items() if pick.random() < 0.5], ("step", 2.0))
    return draw(seed, **(values | fixed))


def readers_and_writers(seed: int, **fixed: Any) -> Parameters:
    """Some read and some write, some of these go on as readers (R33)."""
    pick = random.Random(f"readers and writers of {seed}")
    values: dict[str, Any] = {
        "clients": pick.choice((2, 3, 5)), "actors": pick.choice((1, 2, 3)), "readers": pick.choice((0.3, 0.6, 0.9)),
        "names": pick.choice((1, 1, 2)), "looks": pick.choice((0.0, 0.0, 0.2)), "keep": pick.choice((0.0, 0.4, 0.8)),
    }  # fmt: skip
    return draw(seed, **(values | fixed))


def come_and_go(seed: int, **fixed: Any) -> Parameters:
    """So many read that somebody always does, and one wants to write: that is what its mark is for (R33)."""
    pick = random.Random(f"come and go of {seed}")
    values: dict[str, Any] = {
        "clients": pick.choice((3, 5)), "actors": pick.choice((2, 3)), "names": 1, "several": 0.0, "readers": 1.0,
        "one_writer": True, "keep": 0.0, "looks": 0.0, "slow": 0.0, "lost": 0.0, "young": 0.0, "announces": True,
        "patient": 1.0, "budget": 3000, "min_validity": 0.02, "faults": (("crash", 0.2),) if pick.random() < 0.3 else (),
    }  # fmt: skip
    return draw(seed, **(values | fixed))


def in_order(seed: int, **fixed: Any) -> Parameters:
    """Most wait in order (R42), some do not; in half of the runs nothing goes wrong but that waiters die and are interrupted."""
    pick = random.Random(f"in order of {seed}")
    values: dict[str, Any] = {
        "clients": pick.choice((3, 4, 6)), "actors": pick.choice((1, 1, 2)), "names": pick.choice((1, 1, 1, 2)),
        "ttl": pick.choice((4.0, 8.0)), "max_ttl": 8.0, "node_timeout": 0.25, "patience": 0.5, "fence_ttl": 3600.0,
        "delay": pick.choice((0.001, 0.005)), "patient": pick.choice((0.5, 1.0)), "fair": pick.choice((1.0, 1.0, 0.7)),
        "budget": 1500, "looks": 0.0, "keep": pick.choice((0.0, 0.5, 0.8)), "confirm": pick.random() < 0.2,
    }  # fmt: skip
    if pick.random() < 0.5:
        on = {fault: pick.choice((0.2, 0.6)) for fault in ("crash", "cancel") if pick.random() < 0.6}
        values |= {"faults": tuple(on.items()), "slow": 0.0, "young": 0.0, "lost": 0.0}
    return draw(seed, **(values | fixed))


def slots(seed: int, **fixed: Any) -> Parameters:
    """All want one of few slots (R32).  In half of the runs many wait with long pauses, as in a `crowd`."""
    pick = random.Random(f"slots of {seed}")
    values: dict[str, Any] = {"names": 1, "several": 0.0, "slots": pick.choice((1, 2, 2, 3, 4))}
    if pick.random() < 0.5:
        return crowd(seed, **(values | {"actors": pick.choice((1, 2, 3)), "contended": False} | fixed))
    values |= {"clients": pick.choice((2, 3, 5)), "actors": pick.choice((1, 2, 3))}
    return draw(seed, **(values | fixed))


def confirmed(seed: int, **fixed: Any) -> Parameters:
    """A minority of masters is wrong about time, or loses lock keys, and an expiry is confirmed by more than one (R35)."""
    pick = random.Random(f"confirmed of {seed}")
    values: dict[str, Any] = {
        "masters": pick.choice((3, 3, 3, 5, 5, 4, 6)), "clients": pick.choice((2, 3, 4)), "fence_ttl": 3600.0,
        "confirm": True, "looks": 0.0, "min_validity": pick.choice((0.5, 0.1, 0.02)), "skew": pick.choice((0.0, 0.001, 1.0)),
    }  # fmt: skip
    drawn = draw(seed, **(values | fixed))
    if "faults" in fixed:
        return drawn
    on = dict(drawn.faults)
    on.pop("jump", None)
    on |= {fault: pick.choice((0.3, 1.0, 3.0)) for fault in WRONG_FAULTS if pick.random() < 0.8}
    return replace(drawn, faults=tuple(on.items()))


def at_once(seed: int, **fixed: Any) -> Parameters:
    """All try once in the same instant, for a name, for two names or for a slot that nobody has (C3)."""
    pick = random.Random(f"at once of {seed}")
    kind = pick.choice(("name", "names", "slots"))
    values: dict[str, Any] = {
        "masters": pick.choice((3, 3, 5)), "clients": pick.choice((2, 3, 5, 8)), "names": 2 if kind == "names" else 1,
        "slots": pick.choice((1, 2)) if kind == "slots" else 0, "ttl": 16.0, "max_ttl": 16.0, "node_timeout": 0.25,
        "patience": 0.5, "delay": 0.001, "far": 15.0, "duration": 8.0 * 20, "budget": 100_000, "min_validity": 0.5,
    }  # fmt: skip
    return Parameters(seed, **(values | fixed))
