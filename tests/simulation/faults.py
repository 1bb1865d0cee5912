"""The actor that breaks things, and heals them all in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.network import ANSWERS, REQUESTS
from tests.simulation.strikes import Strikes

if TYPE_CHECKING:
    from tests.simulation.client import Client
    from tests.simulation.master import Master
    from tests.simulation.network import Link
    from tests.simulation.run import Run


class Nemesis(Strikes):
    def __init__(self, run: Run) -> None:
        super().__init__(run.world, run.parameters, run.masters)
        self.run = run
        self.restarted = False
        # Within the drift of the shortest TTL that is asked for, and the guard, all steps of a run together (P1, R36).
        self._steps_left = [
            (0.45 * run.parameters.drift_factor * 0.5 * run.parameters.ttl + run.parameters.after * 0.9)
            / run.parameters.episodes
            for _ in run.masters
        ]
        self.begin(run.parameters.faults)

    # -- whom it hits --------------------------------------------------------------------------------

    def _client(self) -> Client | None:
        alive = [client for client in self.run.clients if not client.crashed]
        return self.random.choice(alive) if alive else None

    def _link(self) -> Link | None:
        client = self._client()
        return self.random.choice(client.links) if client is not None else None

    def _master(self) -> Master | None:
        up = [master for master in self.run.masters if master.up and not master.frozen]
        return self.random.choice(up) if up else None

    # -- links ---------------------------------------------------------------------------------------

    def _snap(self) -> None:
        link = self._link()
        if link is not None:
            self.world.log("fault: snap", link)
            link.snap()

    def _cut(self) -> None:
        link = self._link()
        if link is not None:
            self._cut_links([link])

    def _isolate(self) -> None:
        client, master = self._client(), self._master()
        if self.random.random() < 0.5 and client is not None:
            self._cut_links([*client.links, *client.hearing.subscribers])
        elif master is not None:
            self._cut_links(self.run.links_to(master))

    def _cut_links(self, links: list[Link]) -> None:
        directions = self.random.choice(((REQUESTS,), (ANSWERS,), (REQUESTS, ANSWERS)))
        self.world.log("fault: cut", links, directions)
        for link in links:
            link.cut(*directions)

        def heal() -> None:
            self.world.log("healed: cut", links, directions)
            for link in links:
                link.heal(*directions)

        self._until(1.5, heal)

    # -- what is announced (R24) ---------------------------------------------------------------------

    def _subscriber(self) -> Link | None:
        client = self._client()
        subscribers = (
            [subscriber for subscriber in client.hearing.subscribers if subscriber.connection is not None]
            if client
            else []
        )
        return self.random.choice(subscribers) if subscribers else None

    def _deaf(self) -> None:
        subscriber = self._subscriber()
        if subscriber is not None:
            self.world.log("fault: snap", subscriber)
            subscriber.snap()

    def _hush(self) -> None:
        subscriber = self._subscriber()
        if subscriber is not None:
            self._cut_links([subscriber])

    # -- masters -------------------------------------------------------------------------------------

    def _restart(self) -> None:
        self._stop_master(remember=True)

    def _amnesia(self) -> None:
        self._stop_master(remember=False)

    def _stop_master(self, *, remember: bool) -> None:
        master = self._master()
        if master is None or (master.durable and not remember):
            return
        remember = remember or self._remembers(master)
        self.restarted = True
        self.world.log("fault: stop", f"m{master.index}", "with" if remember else "without", "memory")
        master.stop()
        for link in self.run.links_to(master):
            link.hang_up()

        def heal() -> None:
            master.start(remember=remember)
            self.world.log("healed: start", f"m{master.index}")

        self._until(1.0, heal)

    def _freeze(self) -> None:
        master = self._master()
        if master is None:
            return
        self.world.log("fault: freeze", f"m{master.index}")
        master.freeze()
        incarnation = master.incarnation

        def heal() -> None:
            if master.incarnation == incarnation and master.frozen:
                self.world.log("healed: thaw", f"m{master.index}")
                master.thaw()

        self._until(1.5, heal)

    def _flush(self) -> None:
        for master in self.run.masters:
            if self.random.random() < 0.6:
                self.world.log("fault: flush", f"m{master.index}")
                master.flush_scripts()

    def _refuse(self) -> None:
        master = self._master()
        if master is None or master.busy or master.refuses:
            return
        how = self.random.choice(("BUSY", "MISCONF", "MISCONF", "OOM"))
        self.world.log("fault: refuse", f"m{master.index}", how)
        if how == "BUSY":
            master.busy = True
        else:
            master.refuses = how

        def heal() -> None:
            self.world.log("healed: refuse", f"m{master.index}")
            master.busy, master.refuses = False, ""

        self._until(0.7, heal)

    def _step(self) -> None:
        master = self.random.choice(self.run.masters)
        by = self.random.uniform(0.2, 1.0) * self._steps_left[master.index]
        self._steps_left[master.index] -= by
        self._move(master, self.random.choice((-by, by)))

    def _jump(self) -> None:
        by = self.random.choice((-2.0, -0.5, 0.5, 1.0, 5.0)) * self.run.parameters.ttl
        self._move(self.random.choice(self.run.masters), by)

    # -- clients -------------------------------------------------------------------------------------

    def _pause(self) -> None:
        client = self._client()
        if client is None or client.paused:
            return
        seconds = self.random.choice((0.1, 0.6, 2.0)) * self.random.random() * self.run.parameters.ttl
        self.world.log("fault: pause", client, f"{seconds:.4f}")
        client.pause(seconds)
        self.world.after(seconds, client.resume)

    def _crash(self) -> None:
        client = self._client()
        if client is None:
            return
        self.world.log("fault: crash", client)
        client.crash()
        self.world.after(self.random.random() * self.run.parameters.ttl, self._replace)

    def _replace(self) -> None:
        if not self._stopped:
            self.run.add_client()

    def _cancel(self) -> None:
        client = self._client()
        if client is None or client.paused:
            return
        tasks = [task for task in client.tasks if not task.background]
        if not tasks:
            return
        task = self.random.choice(tasks)
        if self.random.random() < 0.5:
            self.world.log("fault: interrupt", client, task.attempt)
            task.strike()
        else:  # in the middle of its next request to all
            task.interrupt_in = self.random.randint(0, len(client.links))

    def _wall(self) -> None:
        client = self._client()
        if client is not None:
            client.skew = self.random.random() * self.run.parameters.skew
            self.world.log("fault: wall clock", client, f"{client.skew:.3f}")
