"""Everything that a seed decides before its run begins."""

from __future__ import annotations

from dataclasses import dataclass, fields

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
        return not self.rate("jump") and (self.guard or not self.forgets)

    @property
    def forgets(self) -> bool:
        """A master may lose all that it had."""
        return bool(self.rate("amnesia") or self.rate("replica"))

    @property
    def fences_hold(self) -> bool:
        """The assumptions of P2, which are about memory only."""
        if self.forgets and (not self.guard or self.rate("jump") or self.skew >= self.max_ttl):
            return False
        return self.skew < self.fence_ttl

    def __str__(self) -> str:
        parts = [f"{field.name}={getattr(self, field.name)!r}" for field in fields(self)]
        return f"Parameters({', '.join(parts)})"
