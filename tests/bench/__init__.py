"""Scenes: what programs do, played on the simulated machine, in threads and in tasks, in virtual time.

    @scene(ttl=10.0)
    def test_max_hold_ends_a_lease(at):                       # C7
        lock, began = at.masters.lock("job", max_hold=3.0), at.now
        lease = yield lock.acquire
        assert (yield partial(lease.wait_lost, 10))
        assert at.exactly(began + 3.0)

A scene is a generator that yields calls.  The library as it ships runs each of them in virtual time: in a thread the
call returns its result, in a task it returns something to await, and the result of that is sent back.  An error of the
call is raised at the ``yield``.

A scene of several lives is no generator: it returns a list of them.  Each life is a process of its own; a tuple of lives
is one process, with a thread or a task for each.  A coroutine function is a scene of tasks alone.

Nothing is random and nothing is late that the scene does not make so.  When all lives have ended, the judge of the
simulation looks: what was given back has left no key (P7).
"""

from __future__ import annotations

import functools
import inspect
import math
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from tests.bench.parameters import Setting, draw
from tests.bench.run import Run
from tests.bench.users import Steps as Steps, User
from tests.bench.wire import ANSWERS, REQUESTS

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tests.bench.command import Told
    from tests.bench.library import Patch
    from tests.bench.server import Server
    from tests.bench.users import Client

Life: TypeAlias = "Callable[[At], Steps]"
PROMPT = 0.05  # seconds within which a moment is met: what a few messages and a tick of the background take
LONGEST = 1000.0  # seconds of virtual time for a scene
MACHINE: dict[str, Any] = {"preempted": 0.0, "late": 0.0, "split": 0.0, "uneven": 1.0, "lists": ()}
WORLD: dict[str, Any] = {
    "masters": 5, "names": 1, "ttl": 10.0, "max_ttl": 60.0, "node_timeout": 0.25, "delay": 0.001, "guard": False, "durable": 0.0,
    "spread": 0.0, "skew": 0.0, "slots": 0, "faults": (), "duration": 1e6, "budget": 10**9,
}  # fmt: skip


def _each(do: Callable[..., object]) -> Callable[..., None]:
    def of_some(at: At, masters: int | Iterable[int] = 5, *more: Any, **options: Any) -> None:
        for server in at._servers(masters):
            do(at, server, *more, **options)

    return of_some


def _directions(*, requests: bool = True, answers: bool = True) -> list[int]:
    return [REQUESTS] * requests + [ANSWERS] * answers


class At:
    """What one life of a scene sees, and what it may do to the world."""

    def __init__(self, client: Client, play: Play) -> None:
        self.client, self.play = client, play
        self.masters, self.errors, self.library = client.masters, client.errors, client.library
        self.threads: bool = client.kind.threads
        self.servers = client.servers

    @property
    def now(self) -> float:
        """True time."""
        return self.client.world.now

    def sleep(self, seconds: float) -> Callable[[], Any]:
        return partial(self.client.kind.sleep, seconds)

    def block(self, seconds: float) -> None:
        """As `time.sleep` does: on an event loop nothing else runs."""
        self.client.machine.pause(seconds)

    def until(self, true: Callable[[], Any], most: float = 100.0, *, tick: float = 0.01) -> Steps:
        """``yield from`` it: wait for what must become true."""
        end = self.now + most
        while not true():
            assert self.now < end, f"not true within {most} s"
            yield self.sleep(tick)

    def exactly(self, time: float) -> bool:
        """Is it that time, or hardly later?"""
        assert 0.0 <= self.now - time < PROMPT, f"it is {self.now - time:+.3f} s from then"
        return True

    @property
    def log(self) -> list[str]:
        """What all processes have logged."""
        return self.play.log

    def expects(self, *errors: str) -> None:
        """The library may log errors with these words, which are violations elsewhere."""
        self.play.expected.extend(errors)

    def within(self, lock: Any, body: Life | None = None) -> Callable[[], Any]:
        """``with lock as lease``, or its asynchronous form; ``body`` is given the lease."""
        return partial(self.client.kind.within, lock, body or (lambda _: self.nothing()))

    def nothing(self) -> Steps:
        yield self.sleep(0.0)

    def raises(self, error: Any, call: Callable[[], Any], match: str | None = None) -> Steps:
        """``yield from`` it: the error that ``call`` raises."""
        with pytest.raises(error, match=match) as caught:
            yield call
        return caught.value

    def none_left(self, after: float = 0.1) -> Steps:
        """``yield from`` it: so much later no master has the key of the job (P7)."""
        yield self.sleep(after)
        assert self.keys() == 0

    def held(self, name: str | list[str], *, then: float = 0.0, **options: Any) -> Steps:
        """``yield from`` it: a lock that has been taken, and its lease, ``then`` seconds later."""
        lock = self.masters.lock(name, **options)
        lease = yield lock.acquire
        if then:
            yield self.sleep(then)
        return lock, lease

    def takes(self, name: str, *, lasts: float = 0.0, **options: Any) -> Steps:
        """``yield from`` it: take this lock, and give it back so much later."""
        lock, _ = yield from self.held(name, then=lasts, **options)
        yield lock.release

    def begin(self, job: Steps | Callable[[], Any]) -> Callable[[], Any]:
        """Go on with these steps, or this call, beside this life, in a thread or a task: the job that `over` knows."""
        return partial(self.client.kind.begin, job if inspect.isgenerator(job) else _awaited(job))

    def done(self, job: Steps | Callable[[], Any]) -> Steps:
        """``yield from`` it: the job has gone on beside this life, and has ended."""
        begun = yield self.begin(job)
        yield from self.until(lambda: self.over(begun))

    def over(self, job: Any) -> bool:
        """Has it ended?  Raises what ended it."""
        if not self.threads and job.done():
            job.result()
        return bool(job.over if self.threads else job.done())

    # -- masters -------------------------------------------------------------------------------------

    # Each of them takes all masters, so many, or those with these numbers.
    freeze = _each(lambda _, server: server.master.freeze())  # they do nothing, as with SIGSTOP
    thaw = _each(lambda _, server: server.master.thaw())
    kill = _each(lambda _, server: server.stop())
    start = _each(lambda _, server, remember=False: server.master.start(remember=remember))
    rate = _each(
        lambda _, server, rate: server.master.runs(rate)
    )  # their clocks run so much faster than ours from now on
    # What they answer to what would write: "MISCONF" or "OOM"; "" for no more.
    refuse = _each(lambda _, server, how: vars(server.master).update(refuses=how))
    # FUNCTION LOAD of the library (R44), or FUNCTION FLUSH; and ACL SETUSER: may the user of the locks run scripts?
    load = _each(lambda _, server, flush=False: vars(server.master).update(functions=not flush))
    permit = _each(lambda _, server, scripts: vars(server.master).update(scripts=scripts))
    snap = _each(lambda at, server: at._line(server).snap())  # the connections of this process to them break
    # What this process and they send each other is held; and until when.
    cut = _each(lambda at, server, **ways: at._line(server).cut(*_directions(**ways)))
    heal = _each(lambda at, server, **ways: at._line(server).heal(*_directions(**ways)))

    def hush(self, masters: int | Iterable[int] = 5) -> None:
        """The connections of this process to them take bytes and pass nothing on; new ones work."""
        for tcp in [tcp for server in self._servers(masters) for tcp in self._line(server).tcps]:
            tcp.silent = True

    def far(self, master: int, delay: float) -> None:
        """What this process and it send each other takes so long."""
        self._line(self.servers[master])._delay = delay

    def keys(self, name: str = "redlock:job") -> int:
        """The number of masters that have this key now."""
        return sum(value is not None for value in self.values(name))

    def values(self, name: str = "redlock:job") -> list[str | None]:
        """Of each master."""
        found = []
        for server in self.servers:
            server.master.tick()
            key = server.master.find(name)
            found.append(None if key is None else key.value)
        return found

    def left(self, name: str = "redlock:job") -> list[float]:
        """Seconds until this key expires, on each master; 0: it is not there."""
        found: list[float] = []
        for server in self.servers:
            server.master.tick()  # else it is the time of its last command
            key = server.master.find(name)
            found.append(((key.expires or 0) - server.master.now_ms) / 1000 if key is not None else 0.0)
        return found

    def put(self, name: str, value: str | None, *, masters: int | Iterable[int] = 5, ttl: float = 60.0) -> None:
        """As another program would, behind the library's back: a string with an expiry, or None for no key."""
        for server in self._servers(masters):
            server.master.tick()
            if value is None:
                server.master.keys.pop(name, None)
            else:
                server.master.command("SET", name, value, "PX", int(ttl * 1000))

    def _servers(self, masters: int | Iterable[int]) -> list[Server]:
        return self.servers[:masters] if isinstance(masters, int) else [self.servers[index] for index in masters]

    def _line(self, server: Server) -> Any:
        return self.client.lines[f"m{server.master.index}:6379"]

    # -- processes -----------------------------------------------------------------------------------

    def other(self, number: int) -> Client:
        """The process of the life with this number."""
        return self.play.clients[number]

    def crash(self, process: Client | None = None) -> None:
        """SIGKILL."""
        process = process or self.client
        process.crash()
        process.judge.crashed(process)

    def run(self, *words: str, lasts: float = math.inf, obeys: float = math.inf) -> Told:
        """`redlock-run` begins: its command ends by itself after ``lasts`` seconds, and ``obeys`` seconds after SIGTERM."""
        return self.play.begin(words, lasts, obeys)

    def stop(self, process: Client, seconds: float) -> None:
        """SIGSTOP, and SIGCONT so much later."""
        process.stop()
        self.client.world.after(seconds, process.go_on)


class Actor(User):
    """A user whose life is one of a scene."""

    def life(self) -> Steps:
        client, play = self.client, self.client.run
        assert isinstance(play, Play)
        lives = play.lives[play.clients.index(client)]
        at, self.idle = At(client, play), False
        try:
            yield from lives[self.number](at)
        except Exception as error:
            play.failure = play.failure or error
            raise
        play.ended += 1
        self.idle = True
        while not client.over():
            yield at.sleep(0.5)


class Play(Run):
    """One scene."""

    user = Actor

    def __init__(
        self,
        lives: Sequence[Sequence[Life]],
        setting: Setting,
        patches: tuple[Patch, ...] = (),
        begins: Sequence[float] = (),
    ) -> None:
        super().__init__(setting, patches)
        self.lives, self.begins = lives, begins or [0.0] * len(lives)
        self.ended = 0
        self.failure: Exception | None = None  # of a life
        self.log: list[str] = []
        # Whoever gives way to another list says so.
        self.expected: list[str] = []

    def _play(self) -> None:
        for lives, threads, begins in zip(self.lives, self.setting.threads, self.begins, strict=True):
            self._go(begins - self.world.now)
            self.users = len(lives)
            self.add_client(threads=threads)
        self._wait(self._over, LONGEST, "comes to its end")
        for client in self._alive():
            client.stopping = client.stopping_for_good = True
        self._wait(lambda: all(client.exited for client in self._alive()), 60.0, "exits")

    def record(self, record: logging.LogRecord) -> None:
        self.log.append(f"{record.levelname} {record.getMessage()}")
        super().record(record)

    def _look(self) -> None:
        if self.failure is not None:
            raise self.failure
        self.complaints = [text for text in self.complaints if not any(words in text for words in self.expected)]
        super()._look()

    def _over(self) -> bool:
        return self.ended >= sum(
            len(lives) for lives, client in zip(self.lives, self.clients, strict=False) if not client.dead
        )


def play(
    lives: Sequence[Life | tuple[Life, ...]],
    *,
    threads: bool,
    patches: tuple[Patch, ...] = (),
    begins: Sequence[float] = (),
    **fixed: Any,
) -> Play:
    """Raises what a life raises, and `Violation` where the judge finds a promise broken.

    ``begins``: when each process does, in this order; none: all at once.
    """
    of_each = [one if isinstance(one, tuple) else (one,) for one in lives]
    machine = MACHINE | {key: fixed.pop(key) for key in Setting.__match_args__ if key in fixed} | {"users": 1}
    setting = draw(0, threads=threads, calm=True, more=False, clients=len(of_each), besides=machine, **(WORLD | fixed))
    return Play(of_each, setting, (*_broken, *patches), begins).play()  # type: ignore[return-value]


_broken: list[Patch] = []


@contextmanager
def broken(patches: Iterable[Patch]) -> Iterator[None]:
    """Scenes in here are played with a library that is broken so."""
    _broken[:] = patches
    try:
        yield
    finally:
        _broken.clear()


def _awaited(call: Any) -> Steps:
    yield call


def scene(
    *, worlds: Sequence[str] = ("threads", "tasks"), **fixed: Any
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """A test that plays this scene in both worlds.  ``fixed``: of `WORLD` and `MACHINE`, and ``begins`` of `play`."""

    def decorate(written: Callable[..., Any]) -> Callable[..., None]:
        @functools.wraps(written)
        def test(world: str, **arguments: Any) -> None:
            call = partial(written, **arguments)
            if inspect.iscoroutinefunction(written):
                lives = [lambda at: _awaited(partial(call, at))]
            else:
                lives = [call] if inspect.isgeneratorfunction(written) else call()
            play(lives, threads=world == "threads", **fixed)

        keywords = [name for name in inspect.signature(written).parameters if name != "at"]
        of = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in ("world", *keywords)]
        test.__signature__ = inspect.Signature(of)  # type: ignore[attr-defined] # what pytest gives
        in_worlds = ("tasks",) if inspect.iscoroutinefunction(written) else worlds
        played: Callable[..., None] = pytest.mark.parametrize("world", in_worlds)(test)
        return played

    return decorate
