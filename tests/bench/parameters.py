"""What a seed decides before its run begins."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.bench.library import STEPPED

if TYPE_CHECKING:
    from collections.abc import Callable

# Events in one TTL.  Each seed has about a third of them.
FAULTS = (
    "snap",  # a connection breaks
    "hush",  # one goes silent: it takes bytes and passes nothing on
    "cut",  # the way between a process and a master holds what is sent; it arrives when it heals
    "isolate",  # all ways of one process, or of one master
    "restart",  # a master goes down and comes back, with its memory
    "amnesia",  # ... without
    "freeze",  # a master does nothing for a while
    "flush",  # SCRIPT FLUSH
    "refuse",  # MISCONF, OOM or BUSY for a while
    "pause",  # a process stands still
    "crash",  # a process is killed; another one comes later
    "leave",  # a program closes its masters, whatever is under way, and makes new ones
    "strike",  # a task is cancelled, or a Ctrl-C strikes the main thread
    "busy",  # a loop is blocked by a task
    "fork",  # a program with threads forks, and the child goes on
)
# What a user may do instead of what all do; each seed has about a quarter of them.
USES = (
    "dropped",  # its coroutine is thrown away while it waits, and another thread ends it
    "fair",  # it waits in order (R42)
    "period",  # a decorated function that runs once in a period (R28, R30)
)
HOWS = ("with", "with", "with", "hand", "hand", "hand", "slots", "shared", "leader")
REPLICA = "replica"  # a master is a replica for a while
MORE_FAULTS = (
    "program",  # `redlock-run` begins
    "branch",  # a program forks under its event loop, and the child runs a loop of its own
)

# What only R35 stands: a minority is wrong about time, another one in each episode.
WRONG_FAULTS = (
    "lie",  # a wall clock of it steps far, to and fro
    "evict",  # a master of it loses its lock keys
    "miss",  # ... and beside that: one master misses one renewal
)


@dataclass(frozen=True)
class Parameters:
    """One run.  Times in seconds; rates are relative to true time."""

    seed: int
    masters: int = 3
    clients: int = 3
    names: int = 1
    ttl: float = 2.0
    max_ttl: float = 4.0
    fence_ttl: float = 3600.0
    node_timeout: float = 0.25
    drift_factor: float = 0.01
    guard: bool = True
    durable: float = 0.0  # share of masters with appendfsync always
    delay: float = 0.002  # one way, typically
    slow: float = 0.0  # share of messages that take many times as long
    duration: float = 20.0  # until everything heals
    budget: int = 1500  # ... or so many script calls
    spread: float = 1.0  # share of the allowed difference of clock rates that is used
    skew: float = 0.0  # clients' wall clocks differ by at most so much
    announces: bool = True  # masters permit channels
    after: float = 0.0  # seconds for which names stay taken after a loss (R36)
    slots: int = 0  # of one group, which everybody wants one of
    confirm: bool = False  # an expiry is confirmed by more than one clock (R35)
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
        return self.guard or not self.forgets

    @property
    def forgets(self) -> bool:
        """A master may lose all that it had."""
        return bool(self.rate("amnesia") or self.rate("replica"))

    @property
    def fences_hold(self) -> bool:
        """The assumptions of P2, which are about memory only."""
        return self.skew < (self.max_ttl * self.guard if self.forgets else self.fence_ttl)

    def __str__(self) -> str:
        parts = [f"{field.name}={getattr(self, field.name)!r}" for field in fields(self)]
        return f"Parameters({', '.join(parts)})"


@dataclass(frozen=True)
class Setting:
    """One run of what is shipped."""

    base: Parameters
    threads: tuple[bool, ...] = ()  # of each process: whether it has threads, or an event loop
    calm: bool = False  # nothing goes wrong, and nobody is late
    split: float = 0.0  # share of what is sent that comes in two pieces
    window: int = 65536  # bytes that a master's kernel takes unread
    uneven: float = 1.0  # the longest way is so many times as long as the shortest
    stepped: tuple[str, ...] = STEPPED
    preempted: float = 0.0  # how often a thread is, in one step
    naps: float = 0.001  # for how long, typically
    late: float = 0.0  # share of wake-ups that take long
    longest_nap: float = 0.0  # ... at most
    epoll: bool = True
    users: int = 2  # of each process
    longest: float = 1.5  # TTLs for which a lock is held, at most
    hows: tuple[str, ...] = HOWS  # what users do, and in this proportion
    uses: tuple[str, ...] = ()  # of `USES`: half of what they do
    lists: tuple[tuple[int, ...], ...] = ()  # of each process its masters; none: all have all (R34)

    @property
    def seed(self) -> int:
        return self.base.seed

    def __str__(self) -> str:
        rest = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if name != "base")
        return f"Setting({rest}, {self.base})"


def draw(
    seed: int,
    *,
    threads: bool | None = None,
    calm: bool | None = None,
    more: bool = True,
    besides: dict[str, Any] | None = None,
    **fixed: Any,
) -> Setting:
    """``threads``: all processes have them, or none.  ``more``: users do what few programs do, too.
    ``fixed``: of the `Parameters`; ``besides``: of the `Setting`.

    Where it is ``calm`` nothing goes wrong: threads are preempted for some microseconds, and programs may close their
    masters.
    """
    pick = random.Random(f"shipped {seed}")
    ttl = pick.choice((2.0, 4.0, 8.0, 16.0))
    node_timeout = pick.choice((0.1, 0.25, ttl / 8))
    quiet = pick.random() < 0.25 if calm is None else calm
    on = {"leave": 0.3} if quiet and pick.random() < 0.3 else {}
    on = on if quiet else {fault: pick.choice((0.1, 0.3, 1.0)) for fault in FAULTS if pick.random() < 0.35}
    clients = pick.choice((1, 2, 2, 3))
    values: dict[str, Any] = {
        "masters": pick.choice((1, 3, 3, 3, 5, 5)), "clients": clients, "names": pick.choice((1, 1, 2, 3)),
        "ttl": ttl, "max_ttl": ttl * pick.choice((1.0, 1.5)), "node_timeout": node_timeout,
        "drift_factor": 0.01, "guard": pick.random() < 0.8, "durable": pick.choice((0.0, 0.0, 0.5)),
        "delay": node_timeout * pick.choice((0.004, 0.02, 0.1)), "slow": 0.0 if quiet else pick.choice((0.0, 0.02, 0.1)),
        "duration": ttl * pick.uniform(3.0, 8.0), "budget": pick.choice((400, 800, 1200)), "skew": pick.choice((0.0, 0.001, 1.0)),
        "spread": pick.choice((0.0, 1.0)), "slots": pick.choice((0, 0, 1, 3)), "announces": quiet or pick.random() < 0.9, "faults": tuple(on.items()),
    }  # fmt: skip
    values.update(fixed)
    worlds = [pick.random() < 0.5 if threads is None else threads for _ in range(values["clients"])]
    share = pick.choice((0.0, 0.02)) if quiet else pick.choice((0.0, 0.0005, 0.005, 0.02))
    drawn = Setting(
        Parameters(seed, **values),
        threads=tuple(worlds),
        calm=quiet,
        split=pick.choice((0.0, 0.1, 0.5)),
        window=65536 if quiet else pick.choice((65536, 65536, 1000, 300)),
        uneven=pick.choice((1.0, 3.0)) if quiet else pick.choice((1.0, 5.0, 20.0)),
        preempted=share,
        naps=(1e-7 if quiet else pick.choice((2e-6, 2e-5))) / share if share else 0.0,
        late=0.0 if quiet else pick.choice((0.0, 0.05)),
        longest_nap=0.0 if quiet else pick.choice((0.001, 0.03)),
        epoll=pick.random() < 0.8,
        users=pick.choice((1, 2, 2, 4, 8)),
    )
    if more:
        pick = random.Random(f"more of shipped {seed}")  # of its own: what else a seed means does not depend on it
        base, after = drawn.base, drawn.base.ttl * pick.choice((0.2, 0.5)) if pick.random() < 0.2 else 0.0
        confirms, on = base.masters >= 3 and pick.random() < 0.2, dict(base.faults)
        if "faults" not in fixed:
            on |= {fault: pick.choice((0.1, 0.3)) for fault in MORE_FAULTS if pick.random() < 0.25}
        uses = tuple(use for use in USES if pick.random() < 0.25)
        if confirms and not quiet and "faults" not in fixed:
            on |= {fault: pick.choice((0.3, 1.0, 3.0)) for fault in WRONG_FAULTS if pick.random() < 0.6}
        pick = random.Random(f"replicas of shipped {seed}")
        if not quiet and "faults" not in fixed and pick.random() < 0.25:
            on[REPLICA] = pick.choice((0.1, 0.3))
        longest = max(base.max_ttl, base.ttl + after)
        base = replace(base, after=after, max_ttl=longest, confirm=confirms, faults=tuple(on.items()))
        drawn = replace(drawn, base=base, uses=uses)
    return replace(drawn, **(besides or {}))


def struck(seed: int, threads: bool | None = None, **besides: Any) -> Setting:
    """Users are interrupted again and again, anywhere, and while they clean up; nothing else goes wrong (R11)."""
    besides = {"users": 2, "preempted": 0.0001, "naps": 1e-6, **besides}
    faults = (("strike", 60.0),)
    return draw(
        seed, threads=threads, calm=True, more=False, clients=2, ttl=16.0, max_ttl=16.0, duration=64.0, faults=faults,
        besides=besides,
    )  # fmt: skip


def wrong_clocks(seed: int) -> Setting:
    """A minority of masters is wrong about time, or loses lock keys, and an expiry is confirmed by more than one (R35)."""
    faults = (*dict.fromkeys(WRONG_FAULTS, 1.0).items(), ("crash", 0.3))
    return draw(seed, calm=False, more=False, masters=3, names=1, slots=0, confirm=True, faults=faults)


def slewed(seed: int) -> Setting:
    """Clocks wander within what is allowed for.  Those of masters run faster for a while, or that of a client slower (R43)."""
    drawn = draw(
        seed, calm=False, more=False, clients=3, names=1, slots=0, delay=0.002, slow=0.0, budget=2500,
        faults=(("slew", 0.5), ("wander", 1.0)), besides={"users": 2, "hows": ("hand",), "longest": 4.0},
    )  # fmt: skip
    return replace(drawn, base=replace(drawn.base, duration=20 * drawn.base.ttl))


def disagreeing(seed: int) -> Setting:
    """Two processes with incompatible lists of masters, which have one in common, far away.  Nothing goes wrong (R34)."""
    return draw(
        seed, calm=True, more=False, masters=5, clients=2, slots=0, faults=(),
        besides={"lists": ((0, 1, 2), (2, 3, 4)), "uneven": 1.0},
    )  # fmt: skip


def alone(seed: int, *, threads: bool, besides: dict[str, Any] | None = None, **fixed: Any) -> Setting:
    """One process with one user on five masters, and nothing goes wrong."""
    besides = {"users": 1, **(besides or {})}
    return draw(seed, threads=threads, calm=True, masters=5, clients=1, names=1, more=False, besides=besides, **fixed)


def _family(
    *, calm: bool | None = None, besides: dict[str, Any] | None = None, **fixed: Any
) -> Callable[[int], Setting]:
    return partial(draw, calm=calm, more=False, besides=besides, **fixed)


def guarded(seed: int) -> Setting:
    """Names that stay taken for a while after a loss (R36)."""
    return draw(seed, more=False, ttl=4.0, after=2.0, max_ttl=8.0, node_timeout=0.25, delay=0.01)


# What many programs do at once, by name.  None of them is another simulation: a family says what a seed may draw.
FAMILIES: dict[str, Callable[[int], Setting]] = {
    "shipped": draw,
    "crowd": _family(names=1, slots=0, clients=3, besides={"users": 8, "hows": ("with", "hand")}),  # many wait for one
    "household": _family(names=12, slots=0, clients=2, besides={"users": 6, "hows": ("hand",)}),  # many leases of one
    "rivals": _family(calm=True, names=1, slots=0, clients=3, masters=5, besides={"users": 4, "hows": ("hand",)}),
    "periods": _family(names=1, slots=0, besides={"users": 4, "hows": ("period",)}),  # once in a period (R28)
    "readers": _family(slots=0, names=1, besides={"users": 4, "hows": ("with", "shared", "shared")}),  # (R33)
    "slots": _family(slots=2, besides={"users": 4, "hows": ("slots",)}),  # (R32)
    "elections": _family(slots=0, besides={"users": 2, "hows": ("leader",)}),  # (R31)
    "in-order": _family(names=1, slots=0, besides={"users": 4, "hows": ("fair", "fair", "fair", "with")}),  # (R42)
    "functions": _family(calm=False, faults=(("library", 1.0), ("amnesia", 1.0), ("snap", 0.3))),  # (R44)
    "guarded": guarded,
    "confirmed": wrong_clocks,  # (R35)
    "struck": struck,  # (R11)
    "slewed": slewed,  # (R43)
    "disagreeing": disagreeing,  # (R34)
}
