"""A machine with virtual time: its processes, their threads, and what they have open.

A thread is a greenlet.  It gives way where it calls the kernel and has to wait, and wherever it may be preempted; then
the world goes on.  One thing happens at a time, so a run is a pure function of its seed.
"""

from __future__ import annotations

import asyncio
import errno
import math
import random
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from greenlet import getcurrent, greenlet

from tests.bench.judge import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulation.world import World

MOST_AT_ONCE = 20_000  # turns of threads, or calls of the kernel, while no time passes
SPINS = "progress"
EVER = math.inf


class Killed(BaseException):
    """The process is gone: nothing of it runs any more, and what is torn down has no effect."""


class Thread:
    """One thread, from its start to its end."""

    def __init__(self, process: Process, call: Callable[[], object], name: str) -> None:
        self.process = process
        self.name = name
        self.number = process.machine.count()
        self.locals: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
        self.over = False
        self.gone = False  # it is in the process that has forked this one, and not here
        self.error: BaseException | None = None
        self.waiting = True  # ... for `Machine.wake`, or for a time
        self.woken = False
        self.ticket = 0  # of this wait: what was meant for an earlier one is void
        self.until = EVER  # it waits no longer than that, in true time
        self.interrupt_in: int | None = None  # steps until a Ctrl-C strikes it
        self.interrupt_again: int | None = None  # ... and steps from then until another one does
        self.loop: Any = None  # the event loop that runs in it
        self.hooks: Any = None
        self.joining: list[Thread] = []
        self._call = call
        self.greenlet = greenlet(self._main, parent=process.machine.hub)

    def __repr__(self) -> str:
        return f"{self.process.name}.{self.name}"

    def _main(self) -> None:
        try:
            self._call()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - it is judged: see `Process.died`
            self.error = error
        finally:
            self.over = True
            for local in self.locals:  # what it has seen last must end with it
                object.__setattr__(local, "__dict__", {})
            self.locals.clear()
            self._call = None  # type: ignore[assignment]
            for thread in self.joining:
                self.process.machine.wake(thread)
            self.process.ended(self)


class Machine:
    """Who runs, and who waits for what."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.hub = getcurrent()
        self.current: Thread | None = None
        self.processes: list[Process] = []
        self.late = 0.0  # share of wake-ups that take long
        self.longest = 0.0  # ... at most so many seconds
        self.violation: Violation | None = None
        self._count = 0
        self._turns, self._turned_at = 0, -1.0

    def count(self) -> int:
        self._count += 1
        return self._count

    # -- threads -------------------------------------------------------------------------------------

    def start(self, thread: Thread) -> None:
        self.world.log("starts", thread)
        thread.process.threads.append(thread)
        self.world.after(self._latency(), self._run, thread, thread.ticket)

    def wait(self, until: float | None = None) -> bool:
        """The running thread waits until it is woken, or until ``until`` in true time.  True: it was woken."""
        thread = self._caller()
        thread.ticket += 1
        thread.waiting, thread.woken, thread.until = True, False, EVER if until is None else until
        if thread.until < EVER:
            self.world.at(thread.until + self._latency(), self._run, thread, thread.ticket)
        self._give_way(thread)
        return thread.woken

    def pause(self, seconds: float) -> None:
        """The running thread does not run for so long, whoever wakes it."""
        thread = self._caller()
        thread.ticket += 1
        thread.waiting = thread.woken = True
        self.world.after(seconds, self._run, thread, thread.ticket)
        self._give_way(thread)

    def wake(self, thread: Thread) -> None:
        if thread.waiting and not thread.woken:
            thread.woken = True
            self.world.after(self._latency(), self._run, thread, thread.ticket)

    def _caller(self) -> Thread:
        thread = self.current
        if thread is None:
            raise RuntimeError("nothing may wait here: no thread runs")
        if thread.process.dead:
            raise Killed
        return thread

    def _latency(self) -> float:
        chance = self.world.random
        if self.late and chance.random() < self.late:
            return chance.random() * self.longest
        return chance.random() * 2e-5

    def _give_way(self, thread: Thread) -> None:
        self.hub.switch()
        if thread.process.dead:
            raise Killed
        if thread.interrupt_in is not None and thread.interrupt_in <= 0:
            thread.woken = True  # if it goes on, it has to look
            thread.process.struck(thread)

    def _run(self, thread: Thread, ticket: int) -> None:
        process = thread.process
        if thread.over or thread.gone or not thread.waiting or thread.ticket != ticket or process.dead:
            return
        if process.stopped:
            process.parked.append((thread, ticket))
            return
        thread.waiting = False
        self.progress(thread)
        self.switch(thread)
        if self.violation is not None:
            raise self.violation

    def progress(self, what: object) -> None:
        """A turn, or a call of the kernel, begins.  A thread that never waits would go on for ever in virtual time."""
        if self.world.now > self._turned_at:
            self._turns, self._turned_at = 0, self.world.now
        self._turns += 1
        if self._turns > MOST_AT_ONCE:
            self.violation = self.violation or Violation(SPINS, f"{what} runs and runs, and no time passes")
            raise self.violation

    def switch(self, thread: Thread, error: type[BaseException] | None = None) -> None:
        """Let ``thread`` go on until it gives way."""
        self.current = thread
        if thread.loop is not None:
            asyncio._set_running_loop(thread.loop)
            sys.set_asyncgen_hooks(*thread.hooks)
        try:
            if error is None:
                thread.greenlet.switch()
            else:
                thread.greenlet.throw(error)
        finally:
            thread.loop = asyncio._get_running_loop()
            if thread.loop is not None:
                thread.hooks = (*sys.get_asyncgen_hooks(),)  # the collector sees no hooks in what `sys` returns
                asyncio._set_running_loop(None)
                sys.set_asyncgen_hooks(None, None)
            self.current = None

    # -- interruptions -------------------------------------------------------------------------------

    def interrupt(self, thread: Thread, steps: int, again: int | None, *, waiting: bool) -> None:
        """A Ctrl-C strikes ``thread`` after so many of its steps; and ``again`` after so many more.

        ``waiting``: it does so at once where it waits.
        """
        if thread.over or thread.process.dead:
            return
        thread.interrupt_in, thread.interrupt_again = steps, again
        if thread.waiting and waiting:
            thread.interrupt_in = 0
            self.world.after(self._latency(), self._run, thread, thread.ticket)

    # -- the end -------------------------------------------------------------------------------------

    def tear_down(self) -> None:
        """Nothing of any process runs any more; every frame ends here, and not later by the collector."""
        for process in self.processes:
            process.dead = True
            process.descriptors.clear()
        for process in self.processes:
            for thread in process.threads:
                while not thread.over and thread.greenlet:
                    self.switch(thread, Killed)
                if not thread.over:  # it never began
                    thread.over = True
                    thread.greenlet = thread._call = None  # type: ignore[assignment]


class Descriptor:
    """What a number of a process stands for."""

    fd = -1

    def __init__(self, process: Process) -> None:
        self.process = process
        self.pid = process.pid  # who opened it: a forked child has its copies, and must not use them
        process.open(self)

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def hung_up(self) -> bool:
        return False

    def shut(self) -> None:
        """The last number is closed."""


class Process:
    """One process: its clocks, its threads and its descriptors."""

    def __init__(self, machine: Machine, name: str, *, rate: float, offset: float, skew: float, seed: object) -> None:
        self.machine = machine
        self.world = machine.world
        self.name = name
        self.chance = random.Random(f"{seed} {name}")
        self.pid = 1000 + machine.count()
        self.threads: list[Thread] = []
        self.descriptors: dict[int, Descriptor] = {}
        self.dead = self.stopped = self.exited = False
        self.loading = 0  # modules, or somebody looks at all of it
        self.parked: list[tuple[Thread, int]] = []
        self.resumed_at = -math.inf  # on its clock
        self.strikes: list[float] = []  # of each Ctrl-C that its program has not seen yet
        self.stalled = 0.0  # seconds for which it did not run, in sum
        self.skew = skew
        self.at_exit: list[Callable[[], object]] = []
        self.at_fork: list[Callable[[], object]] = []
        self.watchers: list[tuple[Thread, Callable[[], Any]]] = []
        self.died: list[Thread] = []
        self.steps_in = EVER  # steps until one of its threads is preempted
        self.preempted = 0.0  # how often in one step, on average
        self.naps = 0.0  # ... for so many seconds, typically
        self._rate, self._offset = rate, offset
        machine.processes.append(self)

    def __repr__(self) -> str:
        return self.name

    def clock(self) -> float:
        return self._offset + self._rate * self.world.now

    def runs(self, rate: float) -> None:
        """From now on.  No thread that waits for a time wakes too late; where the clock is slower now, it wakes early."""
        faster = rate > self._rate
        waits = [
            (one, self._offset + self._rate * one.until) for one in self.threads if one.waiting and one.until < EVER
        ]
        self._offset += (self._rate - rate) * self.world.now
        self._rate = rate
        for thread, clock in waits if faster else ():
            thread.until = max(self.world.now, self.true_time(clock))
            self.world.at(thread.until, self.machine._run, thread, thread.ticket)

    def true_time(self, clock: float) -> float:
        return (clock - self._offset) / self._rate

    def wall(self) -> float:
        return 1_700_000_000.0 + self.world.now + self.skew

    def in_(self, seconds: float | None) -> float | None:
        """True time after so many seconds of its clock."""
        return None if seconds is None else self.world.now + max(0.0, seconds) / self._rate

    # -- threads -------------------------------------------------------------------------------------

    def spawn(self, call: Callable[[], object], name: str) -> Thread:
        thread = Thread(self, call, name)
        self.machine.start(thread)
        return thread

    def ended(self, thread: Thread) -> None:
        if thread.error is not None:
            self.died.append(thread)
            self.world.log("died", thread, repr(thread.error))

    @property
    def main(self) -> Thread:
        return self.threads[0]

    def preempt(self, share: float, naps: float) -> None:
        self.preempted, self.naps = share, naps
        self._next_preemption()

    def _next_preemption(self) -> None:
        self.steps_in = 1 + int(self.chance.expovariate(self.preempted)) if self.preempted else EVER

    def step(self) -> None:
        """Between any two statements of the library, and around each call of the kernel."""
        thread = self.machine.current
        if thread is None or self.dead or self.loading:
            return
        if thread.interrupt_in is not None:
            thread.interrupt_in -= 1
            if thread.interrupt_in <= 0:
                self.struck(thread)
        self.steps_in -= 1
        if self.steps_in <= 0:
            self._next_preemption()
            self.machine.pause(self.chance.expovariate(1 / self.naps))

    def struck(self, thread: Thread) -> None:
        """A Ctrl-C, in its main thread."""
        thread.interrupt_in, thread.interrupt_again = thread.interrupt_again, None
        self.world.log("Ctrl-C", thread)
        self.strikes.append(self.world.now)
        raise KeyboardInterrupt

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """Under ``with``: no other thread runs, and nothing strikes."""
        self.loading += 1
        try:
            yield
        finally:
            self.loading -= 1

    def called(self) -> None:
        """A call of the kernel."""
        if self.dead:
            raise Killed
        self.machine.progress(self.machine.current or self)

    # -- descriptors ---------------------------------------------------------------------------------

    def open(self, descriptor: Descriptor) -> None:
        fd = 3
        while fd in self.descriptors:  # the kernel takes the lowest one
            fd += 1
        descriptor.fd = fd
        self.descriptors[fd] = descriptor

    def find(self, fd: int) -> Descriptor:  # of a process that is gone nothing is open
        descriptor = self.descriptors.get(fd)
        if descriptor is None:
            raise OSError(errno.EBADF, "Bad file descriptor")
        return descriptor

    def close(self, fd: int) -> None:
        descriptor = self.find(fd)
        del self.descriptors[fd]
        if descriptor.pid == self.pid:  # else the parent has it still
            descriptor.shut()
            self.changed()

    def changed(self) -> None:
        """Something that threads wait for may be there."""
        for thread, ready in self.watchers:
            if not thread.woken and ready():
                self.machine.wake(thread)

    def wait_for(self, ready: Callable[[], Any], seconds: float | None) -> Any:
        """What ``ready`` returns when that is something, or after so many seconds."""
        self.called()
        found = ready()
        if found or seconds == 0:
            return found
        until = self.in_(seconds)
        watcher = (self.machine._caller(), ready)
        self.watchers.append(watcher)
        try:
            while True:
                woken = self.machine.wait(until)
                found = ready()
                if found or not woken:
                    return found
        finally:
            self.watchers.remove(watcher)

    # -- what befalls it -----------------------------------------------------------------------------

    def stop(self) -> None:
        """SIGSTOP."""
        self.stopped = True
        self.stalled -= self.world.now

    def go_on(self) -> None:
        if self.dead or not self.stopped:
            return
        self.stopped = False
        self.stalled += self.world.now
        self.resumed_at = self.clock()
        parked, self.parked = self.parked, []
        self.chance.shuffle(parked)
        for thread, ticket in parked:
            self.world.after(self.machine._latency(), self.machine._run, thread, ticket)

    def crash(self) -> None:
        """SIGKILL.  What it has handed to its kernel still leaves."""
        self.dead = True
        for descriptor in list(self.descriptors.values()):
            if descriptor.pid == self.pid:
                descriptor.shut()
        self.descriptors.clear()

    def fork(self, *, hooks: bool) -> None:
        """From here on the running thread is that of a forked child, and nobody sees what becomes of the parent.

        ``hooks``: Python knows of it, and runs what was registered.
        """
        self.pid = 1000 + self.machine.count()
        survivor = self.machine.current
        for thread in self.threads:
            thread.gone = thread.gone or thread is not survivor  # what it holds it holds for ever
        if hooks:
            for hook in self.at_fork:
                hook()
