"""Faults that strike at random times and are healed: what the nemesis of each simulation is made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.simulation.master import Master
    from tests.simulation.parameters import Parameters
    from tests.simulation.world import World

REQUESTS, ANSWERS = 0, 1  # the directions of a way


class Strikes(ABC):
    """Each fault that is switched on strikes at random times, until `stop`.  A fault is a method with its name."""

    def __init__(self, world: World, parameters: Parameters, masters: list[Master]) -> None:
        self.world: Any = world
        self.random = world.random
        self._ttl, self._max_ttl = parameters.ttl, parameters.max_ttl
        self._stopped = False
        self._heals: dict[int, Callable[[], None]] = {}
        self._count = 0
        # Those that may be wrong about time in this episode (R35).  What was granted before has to be over first.
        self._wrong = self.random.sample(masters, (parameters.masters - 1) // 2) if parameters.confirm else []
        self._wrong_from = world.now + (0.0 if world.now < 1.0 else 1.1 * parameters.max_ttl)

    def begin(self, faults: Iterable[tuple[str, float]]) -> None:
        """``faults``: each with how often it strikes in a TTL."""
        for fault, rate in faults:
            self._later(fault, rate / self._ttl)

    def _later(self, fault: str, rate: float) -> None:
        self.world.after(self.random.expovariate(rate), self._strikes, fault, rate)

    def _strikes(self, fault: str, rate: float) -> None:
        if not self._stopped:
            getattr(self, f"_{fault}")()
            self._later(fault, rate)

    def stop(self) -> None:
        """Heal everything, now."""
        self._stopped = True
        for number in list(self._heals):
            self._heal(number)

    def _until(self, most: float, heal: Callable[[], None]) -> None:
        """Undo it after at most ``most`` TTLs."""
        self._count += 1
        self._heals[self._count] = heal
        lasts = self.random.choice((0.1, 1.0)) * self.random.random() * most * self._ttl
        self.world.after(lasts, self._heal, self._count)

    def _heal(self, number: int) -> None:
        heal = self._heals.pop(number, None)
        if heal is not None:
            heal()

    # -- a minority that is wrong about time (R35) ---------------------------------------------------

    @abstractmethod
    def _link(self) -> Any:
        """From any client to any master."""

    def _lie(self) -> None:
        by = self.random.choice((-1.0, -0.3, 0.3, 0.7, 1.0, 1.1)) * self._max_ttl
        if self._wrong and self.world.now >= self._wrong_from:
            master = self.random.choice(self._wrong)
            master.stepped = True
            self._move(master, by)

    def _miss(self) -> None:
        """One master misses one renewal, or a few that come together: it gets them late, or never."""
        link = self._link()
        if link is None:
            return
        self.world.log("fault: miss", link)
        link.cut(REQUESTS)
        lost = self.random.random() < 0.5

        def heal() -> None:
            self.world.log("healed: miss", link)
            if lost:
                link.snap()
            link.heal(REQUESTS)

        self._count += 1
        self._heals[self._count] = heal
        lasts = self.random.uniform(0.3, 0.4) * self._ttl  # leases are renewed each third
        self.world.after(lasts, self._heal, self._count)

    def _evict(self) -> None:
        if self._wrong and self.world.now >= self._wrong_from:
            master = self.random.choice(self._wrong)
            self.world.log("fault: evict", f"m{master.index}")
            master.lose_locks()

    def _move(self, master: Master, by: float) -> None:
        self.world.log("fault: clock", f"m{master.index}", f"{by:+.4f}")
        master.step(by)

    def _remembers(self, master: Master) -> bool:
        """Its uptime, by which it is kept from voting, is wall time (R21)."""
        return bool(self._wrong) and (master in self._wrong or master.stepped)
