"""Who breaks what is around the shipped client, and heals it all in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.bench.wire import ANSWERS, REQUESTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.run import Run
    from tests.bench.server import Server
    from tests.bench.users import Client
    from tests.bench.wire import Line, Tcp
    from tests.simulation.master import Master


MOST = 8  # processes


class Nemesis:
    """Each fault that is switched on strikes at random times, until `stop`.  A fault is a method with its name."""

    def __init__(self, run: Run) -> None:
        parameters = run.setting.base
        self.run, self.world, self.random = run, run.world, run.world.random
        self._ttl, self._max_ttl = parameters.ttl, parameters.max_ttl
        self._stopped = False
        self._heals: dict[int, Callable[[], None]] = {}
        self._count = 0
        self._slewed: list[Any] = []  # masters, or a client
        # Those that may be wrong about time in this episode (R35).  What was granted before has to be over first.
        wrong = (parameters.masters - 1) // 2 if parameters.confirm else 0
        self._wrong = self.random.sample(run.judge.masters, wrong) if wrong else []
        self._wrong_from = self.world.now + (0.0 if self.world.now < 1.0 else 1.1 * parameters.max_ttl)
        for fault, rate in parameters.faults:  # each with how often it strikes in a TTL
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
        self._for(self.random.choice((0.1, 1.0)) * self.random.random() * most, heal)

    def _for(self, ttls: float, heal: Callable[[], None]) -> None:
        self._count += 1
        self._heals[self._count] = heal
        self.world.after(ttls * self._ttl, self._heal, self._count)

    def _heal(self, number: int) -> None:
        heal = self._heals.pop(number, None)
        if heal is not None:
            heal()

    # -- whom it hits --------------------------------------------------------------------------------

    def _client(self) -> Client | None:
        alive = [client for client in self.run.clients if not (client.dead or client.exited or client.stopped)]
        return self.random.choice(alive) if alive else None

    def _link(self) -> Line | None:
        client = self._client()
        return None if client is None else self.random.choice(list(client.lines.values()))

    def _tcp(self) -> Tcp | None:
        line = self._link()
        return self.random.choice(line.tcps) if line is not None and line.tcps else None

    def _server(self) -> Server | None:
        up = [server for server in self.run.servers if server.master.up and not server.master.frozen]
        return self.random.choice(up) if up else None

    # -- the way -------------------------------------------------------------------------------------

    def _snap(self) -> None:
        if (tcp := self._tcp()) is not None:
            self.world.log("fault: snap", tcp)
            tcp.snap()

    def _hush(self) -> None:
        if (tcp := self._tcp()) is not None:
            self.world.log("fault: silent", tcp)
            tcp.silent = True

    def _cut(self) -> None:
        if (line := self._link()) is not None:
            self._cuts([line])

    def _isolate(self) -> None:
        client, server = self._client(), self._server()
        if self.random.random() < 0.5 and client is not None:
            self._cuts(list(client.lines.values()))
        elif server is not None:
            self._cuts([line for client in self.run.clients for line in client.lines.values() if line.server is server])

    def _exile(self) -> None:
        """A process reaches nobody for longer than its leases last."""
        if (client := self._client()) is not None:
            self._cuts(list(client.lines.values()), (REQUESTS,), 3.0)

    def _cuts(self, lines: list[Line], directions: tuple[int, ...] = (), most: float = 1.0) -> None:
        directions = directions or self.random.choice(((REQUESTS,), (ANSWERS,), (REQUESTS, ANSWERS)))
        self.world.log("fault: cut", lines, directions)
        for line in lines:
            line.cut(*directions)

        def heal() -> None:
            self.world.log("healed: cut", lines, directions)
            for line in lines:
                line.heal(*directions)

        self._until(most, heal)

    # -- masters -------------------------------------------------------------------------------------

    def _restart(self) -> None:
        self._stops(remember=True)

    def _amnesia(self) -> None:
        self._stops(remember=False)

    def _stops(self, *, remember: bool) -> None:
        server = self._server()
        if server is None or (server.master.durable and not remember):
            return
        remember = remember or self._remembers(server.master)
        self.run.restarted = True
        self.world.log("fault: stop", f"m{server.master.index}", "with" if remember else "without", "memory")
        server.stop()

        def heal() -> None:
            server.master.start(remember=remember)
            server.well_since = self.world.now
            self.world.log("healed: start", f"m{server.master.index}")
            if not (server.master.functions or server.master.scripts):
                self._until(0.0 if self._stopped else 0.5, load)

        def load() -> None:
            """Its start does that, or an operator later (R44)."""
            self.world.log("healed: library", f"m{server.master.index}")
            server.master.functions = True
            server.well_since = self.world.now

        self._until(1.0, heal)

    def _freeze(self) -> None:
        server = self._server()
        if server is None:
            return
        master = server.master
        self.world.log("fault: freeze", f"m{master.index}")
        master.freeze()
        incarnation = master.incarnation

        def heal() -> None:
            if master.incarnation == incarnation and master.frozen:
                self.world.log("healed: thaw", f"m{master.index}")
                master.thaw()
            server.well_since = self.world.now

        self._until(1.0, heal)

    def _replica(self) -> None:
        """One is a replica for a while, and then a master again.  Whoever asks it meanwhile knows; `CLIENT KILL` ends the
        connections of all others, as our pages advise.
        """
        server = self._server()
        if server is None or server.master.busy or server.master.refuses or self._remembers(server.master):
            return
        master = server.master
        self.run.restarted = True
        self.world.log("fault: replica", f"m{master.index}")
        server.replicate()
        incarnation = master.incarnation

        def heal() -> None:
            if master.incarnation == incarnation:
                self.world.log("healed: replica", f"m{master.index}")
                server.promote()
            server.well_since = self.world.now

        self._until(1.0, heal)

    def _library(self) -> None:
        """FUNCTION LOAD, or FUNCTION FLUSH (R44); half of the time the user may run no scripts while it is there."""
        for server in self.run.servers:
            if self.random.random() < 0.6:
                master = server.master
                master.functions = not master.functions
                self.world.log("fault: library", f"m{master.index}", master.functions)
                master.scripts = not master.functions or self.random.random() < 0.5

    def _flush(self) -> None:
        for server in self.run.servers:
            if self.random.random() < 0.6:
                self.world.log("fault: flush", f"m{server.master.index}")
                server.master.flush_scripts()

    def _refuse(self) -> None:
        server = self._server()
        if server is None or server.master.busy or server.master.refuses:
            return
        master, how = server.master, self.random.choice(("BUSY", "MISCONF", "OOM"))
        self.world.log("fault: refuse", f"m{master.index}", how)
        if how == "BUSY":
            master.busy = True
        else:
            master.refuses = how

        def heal() -> None:
            self.world.log("healed: refuse", f"m{master.index}")
            master.busy, master.refuses = False, ""
            server.well_since = self.world.now

        self._until(0.7, heal)

    def _slew(self) -> None:
        """The clocks of some masters run faster than `drift_factor` allows, or the clock of a client slower (R43)."""
        if self._slewed:
            return
        masters, client, rate = self.run.judge.masters, self._client(), self.random.choice((1.0833, 1.2))
        self._slewed = self.random.sample(masters, self.random.randint(1, len(masters)))
        if self.random.random() < 0.3 and client is not None:
            self._slewed, rate = [client], 1 / rate
        names = [getattr(one, "name", None) or f"m{one.index}" for one in self._slewed]
        self.world.log("fault: slew", names, rate)
        slew = self.run.judge.slewed()
        for one in self._slewed:
            one.runs(rate)

        def heal() -> None:
            self.world.log("healed: slew", names)
            slew.end = self.world.now
            for one in self._slewed:
                one.runs(self.run.rate())
            self._slewed = []

        self._until(10.0, heal)

    def _wander(self) -> None:
        """A clock runs at another rate from now on, within what `drift_factor` allows for."""
        one: Any = self.random.choice([*self.run.judge.masters, self._client()])
        if one is not None and one not in self._slewed:
            one.runs(self.run.rate())

    # -- processes -----------------------------------------------------------------------------------

    def _pause(self) -> None:
        if (client := self._client()) is not None:
            self.world.log("fault: pause", client)
            client.stop()

            def heal() -> None:
                self.world.log("healed: pause", client)
                client.go_on()

            self._until(1.5, heal)

    def _crash(self) -> None:
        if (client := self._client()) is not None and len(self.run.clients) < MOST:
            self.world.log("fault: crash", client)
            client.crash()
            self.run.judge.crashed(client)
            self.world.after(self.random.random() * self.run.setting.base.ttl, self._replace, client)

    def _replace(self, client: Client) -> None:
        if not self._stopped and client.users:
            self.run.add_client(threads=client.kind.threads)

    def _leave(self) -> None:
        client = self._client()
        if client is not None and not client.closing and client.masters is not None:
            self.world.log("fault: leave", client)
            client.leave()

    def _strike(self) -> None:
        client = self._client()
        if client is None or client.closing or (client.masters is None and client.users):
            return
        if client.kind.threads:
            again = self.random.randint(1, 60) if self.random.random() < 0.5 else None
            waiting = self.random.random() < 0.5
            client.machine.interrupt(client.main, self.random.randint(1, 400), again, waiting=waiting)
        else:
            tasks = [user.task for user in client.users if user.task is not None]
            if tasks:
                task = self.random.choice(tasks)
                self.world.log("fault: cancel", client)
                client.loop.call_soon_threadsafe(task.cancel)

    def _busy(self) -> None:
        if (client := self._client()) is not None:
            client.busy_for = self.random.random() * self.random.choice((0.05, 0.5)) * self.run.setting.base.ttl

    def _program(self) -> None:
        if len(self.run.clients) < MOST:
            self.run.add_program()

    def _fork(self, *, threads: bool = True) -> None:
        client = self._client()
        if client is not None and client.kind.threads is threads and not client.closing:
            client.forks = True

    def _branch(self) -> None:
        self._fork(threads=False)

    # -- a minority that is wrong about time (R35) ---------------------------------------------------

    def _lie(self) -> None:
        by = self.random.choice((-1.0, -0.3, 0.3, 0.7, 1.0, 1.1)) * self._max_ttl
        if self._wrong and self.world.now >= self._wrong_from:
            master = self.random.choice(self._wrong)
            master.stepped = True
            self.world.log("fault: clock", f"m{master.index}", f"{by:+.4f}")
            master.step(by)

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

        self._for(self.random.uniform(0.3, 0.4), heal)  # leases are renewed each third

    def _evict(self) -> None:
        if self._wrong and self.world.now >= self._wrong_from:
            master = self.random.choice(self._wrong)
            self.world.log("fault: evict", f"m{master.index}")
            master.lose_locks()

    def _remembers(self, master: Master) -> bool:
        """Its uptime, by which it is kept from voting, is wall time (R21)."""
        return bool(self._wrong) and (master in self._wrong or master.stepped)
