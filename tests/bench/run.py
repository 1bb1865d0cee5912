"""One run of what is shipped: processes and masters are made, broken and healed, and all must be in order again."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import traceback
import typing
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

from redlock._core.subscriptions import LINGER
from tests.bench.command import Program, Told
from tests.bench.faults import Nemesis
from tests.bench.judge import ERROR, HANGS, KNOWN, LEFT, LIVE, Judge
from tests.bench.library import replaced
from tests.bench.machine import Machine
from tests.bench.parameters import Setting
from tests.bench.server import Server
from tests.bench.users import Client, User
from tests.simulation.master import ENGINE, REPLACED, Keyspace, Master
from tests.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.bench.library import Patch

TRACE_LINES = 80
# A "thread" is a daemon of redlock-run, which ends with it.
_OF_THE_PROGRAM = ("main", "user", "leaver", "collector", "thread")


class _Log(logging.Handler):
    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run

    def emit(self, record: logging.LogRecord) -> None:
        self._run.record(record)


class Run:
    """One setting, played to its end."""

    user = User  # what the users of its processes are
    judged_by: type[Judge] = Judge

    def __init__(self, setting: Setting, patches: tuple[Patch, ...] = ()) -> None:
        self.setting = setting
        self.users = setting.users  # of the next process
        self.patches = patches
        base = setting.base
        self.world = world = World(base.seed)
        self.machine = Machine(world)
        self.machine.late, self.machine.longest = setting.late, setting.longest_nap
        self.judge = self.judged_by(world, base, setting, self.machine)
        chance = world.random
        self.servers = [
            Server(
                Master(
                    world, self.judge, index, rate=self.rate(), offset=chance.uniform(-5.0, 5.0),
                    age=chance.uniform(1e5, 1e6), durable=chance.random() < base.durable,
                ),
                self.judge,
            )
            for index in range(base.masters)
        ]  # fmt: skip
        self.judge.masters = [server.master for server in self.servers]
        self.clients: list[Client] = []
        self.complaints: list[str] = []
        self.restarted = False
        # Until votes count of masters whose clocks were slewed: what they may have forgotten is over (R43).
        self.measured = (KNOWN + 1.0) * base.max_ttl + 2.0 if base.rate("slew") else 0.0

    def rate(self) -> float:
        most = 0.49 * self.setting.base.drift_factor * self.setting.base.spread
        return 1.0 + self.world.random.uniform(-most, most)

    def add_client(self, *, threads: bool) -> None:
        self._add(partial(Client, self, f"{'t' if threads else 'a'}{len(self.clients)}", threads=threads))

    def add_program(self) -> None:
        """`redlock-run`."""
        self._add(partial(Program, self, f"r{len(self.clients)}"))

    def begin(self, words: Sequence[str], lasts: float, obeys: float) -> Told:
        """`redlock-run` with these arguments, and such a command."""
        self._add(partial(Told, self, f"r{len(self.clients)}", words, (lasts, obeys)))
        return self.clients[-1]  # type: ignore[return-value]

    def _add(self, kind: Callable[..., Client]) -> None:
        chance, skew = self.world.random, self.setting.base.skew
        rate = self.rate()
        self.clients.append(kind(rate=rate, offset=chance.uniform(0.0, 1e5), skew=chance.random() * skew))

    def made(self, client: Client) -> None:
        """Its library is loaded, and nothing of it has run."""

    # -- playing -------------------------------------------------------------------------------------

    def play(self) -> Run:
        """Raises `Violation` when a promise is broken."""
        for clear in typing._cleanups:  # type: ignore[attr-defined] # they keep copies of the library
            clear()
        typing.clear_overloads()
        gc.collect()  # what of earlier runs is broken off now must not do so in this one
        collects = gc.isenabled()
        handler = _Log(self)
        log = logging.getLogger("redlock")
        log.addHandler(handler)
        unraisable, sys.unraisablehook = sys.unraisablehook, self._swallowed
        gc.disable()  # when it collects must depend on nothing that was before
        try:
            with mock.patch.dict(REPLACED, replaced(self.patches)):
                self._play()
        finally:
            self._tear_down()
            log.removeHandler(handler)
            sys.unraisablehook = unraisable
            if collects:
                gc.enable()
        return self

    def _tear_down(self) -> None:
        self.machine.tear_down()
        ENGINE.keyspace = Keyspace()  # that of the last script has all of this run
        for client in self.clients:
            for task in [task for loop in client.loops for task in asyncio.all_tasks(loop)]:
                with suppress(BaseException):  # it has no process any more
                    task.get_coro().close()

    def record(self, record: logging.LogRecord) -> None:
        """What the library logs as an error is one: nobody here gives it a callback that raises."""
        if record.levelno < logging.ERROR:
            return
        text = record.getMessage()
        if self.setting.lists and "use masters that are incompatible" in text:  # one of them gives way (R34)
            return
        if record.exc_info and record.exc_info[1] is not None:
            text += "\n" + "".join(traceback.format_exception(record.exc_info[1]))
        self.complaints.append(text)

    def _swallowed(self, what: Any) -> None:
        """Python has swallowed what was raised in a weak reference's callback: a Ctrl-C, whose program never knows."""
        thread = self.machine.current
        if isinstance(what.exc_value, KeyboardInterrupt) and thread is not None:
            thread.process.strikes.pop()  # one before it may be on its way
        else:
            self.complaints.append(repr(what))

    def _play(self) -> None:
        base, world = self.setting.base, self.world
        for threads in self.setting.threads:
            self.add_client(threads=threads)
        nemesis = Nemesis(self)
        while world.now < base.duration and self.judge.calls < base.budget:
            self._go(base.duration / 20)
        world.log("everything heals")
        nemesis.stop()
        for client in self.clients:
            client.stopping = True
            for line in client.lines.values():
                line.slow, line.window = 0.0, Setting.window
        self._all_idle()
        self._go(1.5 + 8 * base.node_timeout)
        self.judge.clean()
        self._go(2 * LINGER + 1.0)
        self.judge.quiet()
        self._live()
        for client in self._alive():
            client.stopping_for_good = True
        self._wait(lambda: all(client.exited for client in self._alive()), 5.0 + 10 * base.node_timeout, "exits")
        self._go(1.0 + base.max_ttl * 2.2)
        self.judge.clean()
        self.judge.freed()

    def _alive(self) -> list[Client]:
        return [client for client in self.clients if not client.dead]

    def _go(self, seconds: float) -> None:
        self.world.run(self.world.now + seconds)
        self._look()

    def _look(self) -> None:
        if self.machine.violation is not None:
            raise self.machine.violation
        for client in self.clients:
            client.main_died()
            if client.loop is not None and client.loop.complaints:
                context = client.loop.complaints[0]
                error = context.get("exception")
                text = "" if error is None else "".join(traceback.format_exception(error))
                self.judge.fail(ERROR, f"the loop of {client}: {context}\n{text}")
        if self.complaints:
            self.judge.fail(ERROR, self.complaints[0])

    def _wait(self, done: Any, most: float, what: str) -> None:
        until = self.world.now + most
        while not done():
            if self.world.now >= until:
                self.judge.fail(HANGS, f"in {most:.1f} s nobody {what}:\n{self.stacks()}")
            self._go(0.1)

    def _jumped(self) -> float:
        """For so much longer keys may be there, where a clock was set back."""
        return max(master.jumped for master in self.judge.masters)

    def _all_idle(self) -> None:
        """All that was begun comes to its end: at the latest when the keys of those that are gone have expired."""
        base = self.setting.base
        most = 5.0 + 3.2 * base.ttl + 0.5 * base.max_ttl + base.free_after + 20 * base.node_timeout + self._jumped()
        most += self.measured
        self._wait(lambda: all(client.idle for client in self._alive()), most, "comes to its end")

    def _live(self) -> None:
        """Each client that is left gets every name, and then every master has it."""
        base = self.setting.base
        self._go(self._jumped() + self.measured)
        if base.guard and self.restarted:
            self._go(2.0 + base.max_ttl * (1 + base.drift_factor))
        if self.setting.lists and not self.judge.works:
            self.judge.fail(LIVE, "with neither list of masters anybody gets a lock")
        for client in self._alive():
            if client.exited:
                continue  # it was there for one lock
            if self.setting.lists and client.servers not in self.judge.works:
                continue  # it gives way
            for number in range(base.names):
                client.asks = f"lock-{number}"
                bound = base.free_after + 2.0
                self._wait(lambda client=client: client.asks is None, bound + 5.0, f"gives {client} lock-{number}")

    def closed(self, client: Client) -> None:
        """The masters of ``client`` are closed."""
        if client.descriptors:  # of a driver that was half made when a Ctrl-C struck: the collector closes them
            gc.collect()
        left = {fd: type(one).__name__ for fd, one in client.descriptors.items()}
        threads = [one for one in client.threads if not (one.over or one.gone or one.name.startswith(_OF_THE_PROGRAM))]
        if left or threads:
            self.judge.fail(LEFT, f"{client} has closed its masters, and has {left} and {threads}")

    def stacks(self) -> str:
        """Where each thread is."""
        lines = []
        for client in self._alive():
            for thread in client.threads:
                if not thread.over and thread.greenlet and (frame := thread.greenlet.gr_frame) is not None:
                    lines += [f"{thread}:", "".join(traceback.format_stack(frame)[-6:])]
            if client.loop is not None and not client.loop.is_closed():
                for task in asyncio.all_tasks(client.loop):
                    lines += [repr(task), *(f"  {frame}" for frame in task.get_stack())]
        return "\n".join(lines)


def play(setting: Setting, patches: tuple[Patch, ...] = ()) -> Run:
    run = Run(setting, patches)
    try:
        return run.play()
    except Exception as error:
        error.add_note(report(run))
        raise


def report(run: Run, family: str = "shipped") -> str:
    lines, seed = "\n".join(run.world.lines(TRACE_LINES)), run.setting.seed
    how = f"--family {family}" if run.judged_by is Judge else "--replay"
    return f"seed {seed}: python -m tests.simulation {how} --trace {seed}\n{run.setting}\n{lines}"
