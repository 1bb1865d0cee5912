"""`redlock-run`: a process that lives for one lock, and its command.

The shipped program runs, but for what forks and watches (`redlock._cli.job`): a command is a time for which it runs, and
its guard ends it at the times of its last order, whatever becomes of redlock-run.
"""

from __future__ import annotations

import math
import signal
from typing import TYPE_CHECKING, Any

from tests.bench.judge import ERROR, P1
from tests.bench.users import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.bench.judge import Hold
    from tests.bench.run import Run

DONE, LOST, NOT_ACQUIRED = 0, 70, 75


class Program(Client):
    """One process of `redlock-run`."""

    def __init__(self, run: Run, name: str, **clocks: float) -> None:
        super().__init__(run, name, threads=True, **clocks)
        self.users = []
        self.handlers: dict[int, Any] = {}
        self.said: list[str] = []
        self.job: Command | None = None  # once there is one
        self.code: int | None = None

    @property
    def idle(self) -> bool:
        return self.exited

    def struck(self, thread: Any) -> None:
        """A Ctrl-C: it has a handler for that."""
        handler: Any = self.handlers.get(signal.SIGINT)
        if handler is None:
            super().struck(thread)
        thread.interrupt_in = None
        handler(signal.SIGINT, None)

    def _arguments(self) -> list[str]:
        base, chance = self.setting.base, self.chance
        slots = bool(base.slots) and chance.random() < 0.3
        shared = not slots and chance.random() < 0.2
        said = [
            "group" if slots else f"lock-{chance.randrange(base.names)}",
            "--masters", ",".join(f"redis://m{server.master.index}" for server in self.servers),
            "--ttl", repr(base.ttl), "--max-ttl", repr(base.max_ttl), "--node-timeout", repr(base.node_timeout),
            "--grace", repr(base.ttl * chance.choice((0.0, 0.1, 0.3))),
        ]  # fmt: skip
        said += ["--no-wait"] if chance.random() < 0.3 else ["--wait", repr(3 * base.ttl)]
        said += ["--guard", repr(base.after)] * bool(base.after)
        said += ["--no-restart-guard"] * (not base.guard) + ["--confirm-expiry"] * base.confirm
        said += ["--slots", str(base.slots)] * slots + ["--shared"] * shared + ["--verbose"] * (chance.random() < 0.3)
        said += ["--max-hold", repr(base.ttl * chance.uniform(0.3, 2.0))] * (chance.random() < 0.15)
        self.said = [*said, "--", "work"]
        return self.said

    def _main(self) -> None:
        module = self.library["_cli.run"]
        judge, world, process, began = self.judge, self.world, self, self.world.now

        class Guarded(module.Run):  # type: ignore[misc, name-defined]
            def _guarded(self, lease: Any) -> int:
                hold = judge.given(process, lease, began, None, False)
                hold.normal = True  # nobody has asked to be told
                self._job.hold = hold
                try:
                    code: int = super()._guarded(lease)
                finally:
                    if not process.dead:
                        hold.hold_at_least = lease._state.hold_at_least  # for the guard (R36)
                        self._job.judged(process)
                        judge.ended(hold)
                        if self._lost and self._guard and lease.shared:
                            judge.excused.add(hold.attempt)  # a reader's keys stay until then
                return code

        ours = {
            "Run": Guarded, "Job": lambda *_, **__: Command(self, module), "JobSignals": lambda: Signals(self),
            "signal": Handlers(self), "exists": lambda _: False, "_say": lambda text: world.log("says", self, text),
        }  # fmt: skip
        assert ours.keys() <= vars(module).keys(), "redlock-run calls something by another name"
        vars(module).update(ours)
        vars(self.library.modules["redlock"])["Masters"] = (
            self.kind.masters
        )  # it is looked up late, and in the wrong copy
        module.arguments.find_room = lambda *_: None
        self.code = module.main(self._arguments())
        world.log("exits", self, self.code)
        self._look(self.code)
        judge.has_closed(self)
        self.run.closed(self)
        self.exited = True

    def _look(self, code: int) -> None:
        right = self.setting.calm and "strike" not in dict(self.setting.base.faults)
        if right and code not in (DONE, NOT_ACQUIRED, LOST * ("--max-hold" in self.said)):
            self.judge.fail(ERROR, f"{self} has ended with {code}, and nothing goes wrong")

    def work(self) -> tuple[float, float]:
        """How long the command runs, and how long after SIGTERM."""
        ttl, chance = self.setting.base.ttl, self.chance
        lasts = chance.choice((0.0, 0.1, 0.5, 2.0)) * chance.random() * ttl
        return lasts, chance.choice((0.0, 0.05, 10.0)) * ttl


class Told(Program):
    """One that a scene has begun."""

    def __init__(self, run: Run, name: str, words: Sequence[str], work: tuple[float, float], **clocks: float) -> None:
        self._words, self._work = words, work
        super().__init__(run, name, **clocks)

    def _arguments(self) -> list[str]:
        masters = ",".join(f"redis://m{server.master.index}" for server in self.servers)
        return [*self._words, "--no-restart-guard", "--masters", masters, "--", "work"]

    def _look(self, code: int) -> None: ...

    def work(self) -> tuple[float, float]:
        return self._work

    @property
    def works(self) -> bool:
        """Does its command run?"""
        return self.job is not None and self.job.works

    @property
    def done(self) -> bytes:
        """What its guard has done to that."""
        return self.job.done if self.job is not None else b""

    @property
    def lease(self) -> Any:
        assert self.job is not None
        assert self.job.hold is not None
        return self.job.hold.lease


class Handlers:
    """`signal`."""

    def __init__(self, process: Program) -> None:
        self._process = process

    def __getattr__(self, name: str) -> Any:
        return getattr(signal, name)

    def signal(self, number: int, handler: Any) -> Any:
        before = self._process.handlers.get(number)
        self._process.handlers[number] = handler if callable(handler) else None
        return before

    def getsignal(self, number: int) -> Any:
        return self._process.handlers.get(number)

    def pthread_sigmask(self, *_: Any) -> None: ...


class Signals:
    """Those that come while the command runs."""

    def __init__(self, process: Program) -> None:
        self._process, self._arrived = process, list[int]()
        self.event = process.system.modules["threading"].Event()
        self._before: Any = None

    def __enter__(self) -> Signals:
        self._before = self._process.handlers.get(signal.SIGINT)
        self._process.handlers[signal.SIGINT] = self._arrive
        return self

    def __exit__(self, *_: object) -> None:
        self._process.handlers[signal.SIGINT] = self._before

    def _arrive(self, number: int, _: Any) -> None:
        self._arrived.append(number)
        self.event.set()

    def wake(self) -> None:
        self.event.set()

    def take(self) -> list[int]:
        self.event.clear()
        arrived, self._arrived = self._arrived, []
        return arrived

    def close(self) -> None: ...


class Command:
    """`redlock._cli.job.Job`, and its watchdog."""

    group, asked_to_end = 0, False

    def __init__(self, process: Program, module: Any) -> None:
        self.dog = self
        self.hold: Hold | None = None
        self._process, self._module = process, module
        process.job = self
        self._lasts, self._obeys = process.work()
        self._begun = False
        self._ends_at = self._term_at = self._kill_at = math.inf
        self._news = self._done = b""
        self._code = 0

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None: ...

    # -- the watchdog --------------------------------------------------------------------------------

    def wait_until_ready(self) -> None: ...

    def _watch(self) -> None:
        """Do what the guard has done by now, by its last order."""
        now, module = self._process.clock(), self._module
        if now >= self._term_at and module.TERMINATED not in self._done:
            self._did(module.TERMINATED, self._term_at + self._obeys)
        if now >= self._kill_at and module.KILLED not in self._done:
            self._did(module.KILLED, self._kill_at)

    def _did(self, what: bytes, ends_at: float) -> None:
        if self._begun and self._ends_at > ends_at:
            self._ends_at, self._code = ends_at, 143
        self._news, self._done = self._news + what, self._done + what

    def order(self, term_at: float, kill_at: float) -> None:
        self._watch()
        self._term_at, self._kill_at = term_at, kill_at

    def overdue(self) -> bool:
        return self._process.clock() >= self._kill_at

    def silent(self) -> float:
        return 0.0

    def dismiss(self) -> None:
        self._term_at = self._kill_at = math.inf

    def heard(self) -> bytes:
        self._watch()
        return self.had_done()

    def had_done(self) -> bytes:
        news, self._news = self._news, b""
        return news

    # -- the command ---------------------------------------------------------------------------------

    @property
    def works(self) -> bool:
        self._watch()
        return self._begun and self._process.clock() < self._ends_at

    @property
    def done(self) -> bytes:
        self._watch()
        return self._done

    def begin(self, _: Any) -> None:
        self._process.system.sleep(0.0)
        self._begun, self._ends_at = True, self._process.clock() + self._lasts

    def wait(self, signals: Signals, look: Callable[[], bool]) -> int | None:
        clock = self._process.clock
        while True:
            if not look():
                return None
            self._watch()
            now = clock()
            if now >= self._ends_at:
                return self._code
            pause = min(at - now for at in (self._ends_at, self._term_at, self._kill_at) if at > now)
            signals.event.wait(min(pause, 0.1 * self._process.setting.base.ttl))
            if signals.take() or self._process.stopping:
                self._ends_at = min(self._ends_at, clock() + min(self._obeys, 0.05 * self._process.setting.base.ttl))

    def send(self, _: int) -> None:
        self._watch()
        self._ends_at = min(self._ends_at, self._process.clock())

    def reap(self) -> None: ...

    def judged(self, process: Program) -> None:
        """It has ended before its lease did (C23)."""
        self._watch()
        assert self.hold is not None
        until = self.hold.lease.valid_until
        if self._begun and self._ends_at > until:
            process.judge.fail(P1, f"the command of {process} ends at {self._ends_at:.4f}, its lease at {until:.4f}")
