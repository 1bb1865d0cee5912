"""A renewer in the scripted world: it does what those of the shells do, and nobody is asleep."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from redlock._core.renewals import Renewal
from redlock._io.renewer import Renewer
from tests.core.world import Master, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.lease import LeaseState
    from redlock._core.protocols import Observing
    from redlock._core.renewals import Presence, Task
    from redlock._core.settings import LockSpec

TTL = 12.0
VALIDITY = TTL * 0.99 - 0.002


def rest(operation: Any) -> Any:
    """What is left of an operation whose Send has been carried out."""
    event = None
    while True:
        try:
            effect = operation.send(event)
        except StopIteration as stop:
            return stop.value
        event = yield effect


class Told:
    """The holder of a lease, and the observer as well: the times at which they were told."""

    def __init__(self, world: World) -> None:
        self.lost_at: list[float] = []
        self.kept_at: list[float] = []
        self._world = world

    def presence(self) -> Presence:
        return "here"

    def notify_lost(self, on_lost: object) -> None:
        assert on_lost is None
        self.lost_at.append(self._world.now)

    def lost(self, lease: LeaseState) -> None:
        """The observer is told with the holder, see `notify_lost`."""

    def extended(self, lease: LeaseState, *, renewed: bool) -> None:
        assert renewed, "it was no holder who extended it"
        self.kept_at.append(self._world.now)

    def released(self, name: str, lease: LeaseState) -> None:
        assert name == lease.name


def renewal_of(
    world: World,
    spec: LockSpec,
    lease: LeaseState,
    *,
    renew: bool = True,
    max_hold: float | None = None,
    spread: float = 0.5,
    make: Callable[..., Renewal] = Renewal,
) -> tuple[Renewal, Told]:
    told = Told(world)
    settings = world.settings._replace(random=lambda: spread, observer=cast("Observing", told))
    return make(settings, spec._replace(auto_extend=renew, max_hold=max_hold), lease, told, world.now), told


@dataclass(eq=False)
class Held:
    spec: LockSpec
    lease: LeaseState
    renewal: Renewal
    told: list[float]
    kept: list[float]


class Scene(Renewer):
    """A client that holds ``leases`` leases, granted at one moment.  It is its own `Port`, and its connections."""

    here, closed, stopped = True, False, ()

    def __init__(self, *masters: Master, leases: int = 0, names: int = 1, **options: Any) -> None:
        port: Any = self
        super().__init__(port, port)
        self.world = World(*(masters or [Master()] * 3))
        self.started: list[tuple[Task, list[Renewal]]] = []
        self.held = [self.hold(number, names, **options) for number in range(leases)]

    def hold(self, number: int = 0, names: int = 1, *, ttl: float = TTL, lease: Any = None, **options: Any) -> Held:
        world = self.world
        spec = world.spec(*(f"{number}-{name}" for name in range(names)), ttl=ttl)
        state = world.lease(spec, token=f"token-{number}", **(lease or {}))
        renewal, told = renewal_of(world, spec, state, make=self.add, **options)
        return Held(spec, state, renewal, told.lost_at, told.kept_at)

    @property
    def leases(self) -> list[LeaseState]:
        return [held.lease for held in self.held]

    def wake(self) -> list[list[Renewal]]:
        """At its time.  Returns whose operations it has begun: `started` has them."""
        if self.wakes_at < math.inf:
            self.world.now = max(self.world.now, self.wakes_at)
        self.work(self.world.now)
        return [renewals for _, renewals in self.started]

    def finish(self) -> list[list[str]]:
        """Run what was begun.  Returns how it ended for each of those who were together, and did not leave."""
        ended: list[list[str]] = []
        while self.started:
            task, renewals = self.started.pop(0)
            try:
                ended.append([extension.kind for extension in self.world.run(task).values()])
            finally:
                self.ended(renewals)
        return ended

    def begin(self) -> None:
        """Begin what is due first."""
        while not self.started:
            assert self.wakes_at < math.inf, "nothing is due any more"
            self.wake()

    def go(self) -> list[list[str]]:
        """What is due first is done, and what comes of it at once."""
        self.begin()
        ended = self.finish()
        at_once = self.world.now
        while self.wakes_at <= at_once:
            self.wake()
            ended += self.finish()
        return ended

    def now(self) -> float:
        return self.world.now

    def tick_at(self, at: float) -> None:
        """Nobody is asleep."""

    def call_soon(self, call: Callable[[], object]) -> None:
        call()

    def start(self, task: Task, renewals: list[Renewal]) -> None:
        self.started.append((task, renewals))

    def leave(self, place: Any) -> None:
        """Nobody is in line."""
