"""One run: build a world, break it, heal it, and see whether all promises were kept."""

from __future__ import annotations

import gc
import random
from contextlib import nullcontext
from typing import TYPE_CHECKING
from unittest import mock

from redlock._core import renewals, retry
from tests.simulation.actor import Actor
from tests.simulation.client import Client
from tests.simulation.faults import Nemesis
from tests.simulation.invariants import LIVE, Judge, Violation
from tests.simulation.master import Master
from tests.simulation.single_try import SlotTrier, Trier, reach
from tests.simulation.slot_user import SlotUser
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.network import Link
    from tests.simulation.parameters import Parameters

TRACE_LINES = 60
# Renewals are due at moments that are so far apart, of the TTL: the few leases of a run then meet often.
COARSE = mock.patch.object(renewals, "_STEP", 1 / 24)
SLICE = 0.05  # of the duration: how often the budget is looked at


def collect_rarely() -> None:
    """Have the garbage collector look seldom: what a run makes lives until its end, and looking took a sixth of it."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 1_000)


class Run:
    """One set of parameters, played to its end."""

    judged_by = Judge

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.world = world = World(parameters.seed)
        self.judge = self.judged_by(world, parameters)
        chance = world.random
        self.masters = [
            Master(
                world, self.judge, index, rate=self._rate(), offset=chance.uniform(-5.0, 5.0),
                age=chance.random() if chance.random() < parameters.young else chance.uniform(1e5, 1e6),
                durable=chance.random() < parameters.durable,
            )
            for index in range(parameters.masters)
        ]  # fmt: skip
        self.judge.masters = self.masters
        self.clients: list[Client] = []
        self.actors: list[Actor] = []

    def play(self) -> Run:
        """Raises `Violation` when a promise is broken."""
        with (
            mock.patch.object(retry, "chance", random.Random(self.parameters.seed)),
            COARSE if self.parameters.together else nullcontext(),
        ):
            self._play()
        return self

    def _play(self) -> None:
        parameters, world = self.parameters, self.world
        for _ in range(parameters.clients):
            self.add_client()
        restarted = False
        for episode in range(1, parameters.episodes + 1):
            nemesis = Nemesis(self)
            share = parameters.budget * episode / parameters.episodes
            until = world.now + parameters.duration / parameters.episodes
            while world.now < until and self.judge.calls < share:
                world.run(world.now + parameters.duration * SLICE)
            self._heal(nemesis)
            self._settle()
            self.judge.clean()
            self.judge.waits.silent(self.clients)
            restarted = restarted or nemesis.restarted
            if episode < parameters.episodes:
                self._go_on()
        self._live(restarted=restarted)
        world.run(world.now + 2 * parameters.max_ttl)
        self.judge.freed()
        self.judge.waits.silent(self.clients)

    def _heal(self, nemesis: Nemesis) -> None:
        """Safety held while things broke; from now on they must come right again."""
        self.world.log("everything heals")
        nemesis.stop()
        for client in self.clients:
            client.closing = True
            client.calm(down=True)
            client.resume(now=True)
        for actor in self.actors:
            actor.close()

    def _go_on(self) -> None:
        self.world.log("the next episode begins")
        for client in self.clients:
            client.closing = False
            client.calm(down=False)
        for actor in self.actors:
            actor.open()

    def _settle(self) -> None:
        """As long as it takes to be connected again and to have sent what is owed."""
        reconnect = 1.0 + 4 * self.parameters.node_timeout
        self.world.run(self.world.now + reconnect + 4 * self.parameters.node_timeout)

    def _live(self, *, restarted: bool) -> None:
        """A lone client gets every name within two TTLs, once the restarted may vote again."""
        parameters, world = self.parameters, self.world
        if parameters.guard and (restarted or parameters.young):
            world.run(world.now + 2.0 + parameters.max_ttl * (1 + parameters.drift_factor))
        client = next((client for client in self.clients if not client.crashed), None) or self.add_client()
        client.closing = True
        client.calm(down=True)
        longest = parameters.max_ttl * (1 + parameters.drift_factor)
        bound = parameters.free_after + max(master.jumped for master in self.masters) + 1.0
        for number in range(parameters.names):
            actor = SlotUser(client) if parameters.slots else Actor(client)
            actor.acquire([f"lock-{number}"], parameters.ttl, bound)
            world.run(world.now + bound + longest)
            if not actor.acquired:
                self.judge.fail(LIVE, f"lock-{number} was not granted within {bound:.3f} s after healing")

    # -- who takes part ------------------------------------------------------------------------------

    def add_client(self) -> Client:
        chance, parameters = self.world.random, self.parameters
        client = Client(
            self.world, self.judge, parameters, self.masters, f"c{len(self.clients)}", rate=self._rate(),
            skew=chance.random() * parameters.skew,
        )  # fmt: skip
        self.clients.append(client)
        if parameters.far:
            reach(client, len(self.clients))
        for link in client.links:
            client.connect(link)
        for _ in range(parameters.actors):
            kind = SlotUser if parameters.slots else Actor
            if parameters.far:
                kind = SlotTrier if parameters.slots else Trier
            actor = kind(client)
            actor.writes = not self.actors
            self.actors.append(actor)
            actor.think()
        return client

    def links_to(self, master: Master) -> list[Link]:
        alive = [client for client in self.clients if not client.crashed]
        return [client.links[master.index] for client in alive] + [
            client.hearing.subscribers[master.index] for client in alive
        ]

    def _rate(self) -> float:
        """At most half of what P1 allows two clocks to differ by; less where clocks step as well."""
        parameters = self.parameters
        most = 0.49 * parameters.drift_factor * parameters.spread * (0.5 if parameters.rate("step") else 1.0)
        chance = self.world.random
        return 1.0 + most * chance.choice((-1.0, 1.0, chance.uniform(-1.0, 1.0)))


def simulate(parameters: Parameters) -> Run:
    """Play it; a violation is raised with everything that is needed to see it again."""
    run = Run(parameters)
    try:
        return run.play()
    except Violation as violation:
        violation.add_note(report(run))
        raise
    except Exception as error:
        error.add_note(report(run))
        raise


def report(run: Run) -> str:
    lines = "\n".join(run.world.lines(TRACE_LINES))
    crowd = " --crowd" if run.parameters.contended else " --household" if run.parameters.together else ""
    crowd = " --periods" if run.parameters.at_least else crowd
    crowd = " --slots" if run.parameters.slots else crowd
    crowd = " --at-once" if run.parameters.far else " --confirmed" if run.parameters.confirm else crowd
    crowd = " --in-order" if run.parameters.fair else crowd
    crowd = " --come-and-go" if run.parameters.one_writer else " --readers" if run.parameters.readers else crowd
    crowd = " --guarded" if run.parameters.after else crowd
    return (
        f"seed {run.parameters.seed}: python -m tests.simulation{crowd} --trace {run.parameters.seed}\n"
        f"{run.parameters}\n{lines}"
    )
