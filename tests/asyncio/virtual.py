"""An event loop in virtual time, and masters that answer on its sockets.

Time stands still while there is something to read, and jumps to the next timer when there is not: a
test knows exactly when things happen, and one that hangs says so at once.  Real are the loop of
asyncio, the sockets (pairs of them, in this process), and everything of the library.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import selectors
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest import mock

import hiredis

from redlock import AsyncMasters, scripts
from redlock._connect import Connector
from redlock._core import wire
from redlock._core.effects import Send, Wait
from redlock._core.outcomes import ErrorReply
from redlock._core.voters import Facts
from tests.core.resp import encoded
from tests.simulation.master import ENGINE, Key, Keyspace

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from redlock._core.effects import Op
    from redlock._core.outcomes import Failure
    from redlock._io.driver_async import Driver
    from redlock._io.stream import Stream

MASTERS = 5
NODE_TIMEOUT = 0.25
START = 1000.0
OTHER = "somebody-else"


class Stuck(AssertionError):  # noqa: N818 - what pytest shows first is its name
    """Nothing is to be read, and no timer is set: this would hang."""


class Clock:
    """Seconds, on our clock.  ``rate``: that of the loop runs so much faster."""

    def __init__(self) -> None:
        self.now = START
        self.rate = 1.0
        self.loop = START

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.loop += seconds
        self.now += seconds / self.rate


class Selector(selectors.SelectSelector):
    """Looks at the real sockets, and never waits."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.rounds = 0  # of the loop
        self._clock = clock
        self._strike: tuple[int, Callable[[], None]] | None = None

    def strike(self, after: int, what: Callable[[], None]) -> None:
        """Do ``what`` when so many rounds of the loop are over; 0: not any more."""
        self._strike = (self.rounds + after, what) if after else None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.rounds += 1
        if self._strike is not None and self._strike[0] == self.rounds:
            self._strike[1]()
            timeout = 0
        ready = super().select(0)
        if not ready and timeout != 0:
            if timeout is None:
                raise Stuck("nothing will ever happen any more")
            self._clock.advance(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Counts what it is asked for."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.selector = Selector(clock)
        self.timers = 0  # that were ever set
        self.complaints: list[dict[str, Any]] = []
        super().__init__(self.selector)
        self.set_exception_handler(lambda _, context: self.complaints.append(context))

    def time(self) -> float:
        return self.clock.loop

    def call_at(self, *args: Any, **options: Any) -> asyncio.TimerHandle:  # type: ignore[override]
        self.timers += 1
        return super().call_at(*args, **options)

    @property
    def scheduled(self) -> list[asyncio.TimerHandle]:
        """Timers that are set, cancelled ones that it has not thrown away yet included."""
        inside: Any = self
        return list(inside._scheduled)

    @property
    def pending(self) -> list[asyncio.TimerHandle]:
        return [timer for timer in self.scheduled if not timer.cancelled()]


# -- masters -------------------------------------------------------------------------------------------


class Counted(socket.socket):
    """The library's end of a pair: what it hands to the kernel, packet by packet."""

    def __init__(self, other: socket.socket) -> None:
        super().__init__(other.family, other.type, other.proto, other.detach())
        self.sent: list[int] = []

    def send(self, data: Any, flags: int = 0) -> int:
        sent = super().send(data, flags)
        self.sent.append(sent)
        return sent


@dataclass(frozen=True)
class Heard:
    """One command, as it came over the wire."""

    script: str
    name: str  # of the first key
    token: str
    text: bool  # EVAL, not EVALSHA
    args: tuple[str, ...] = ()


class Fake:
    """The simulated master, behind a pair of sockets and without any time.  It may stop to read, or to talk."""

    def __init__(self) -> None:
        self.space = Keyspace()
        self.heard: list[Heard] = []
        self.reads = self.talks = True
        self.forgot = False  # its scripts, until it is sent a text
        self.unsaid = bytearray()
        self.connect()

    @property
    def keys(self) -> dict[str, Any]:
        """Whatever keeps anybody away: keys of locks, tickets, marks."""
        return {name: key.value for name, key in self.space.keys.items() if not name.endswith((":fence", ":fleet"))}

    def put(self, name: str, value: str | None) -> None:
        """As another program would; None: it is gone."""
        self.space.keys.pop(name, None)
        if value is not None:
            self.space.keys[name] = Key(value, None if name.endswith(":fence") else 10_000)

    def connect(self) -> None:
        ours, theirs = socket.socketpair()
        self.theirs = Counted(ours)
        self.theirs.setblocking(False)
        self.sock = theirs
        self.sock.setblocking(False)
        self.unsaid.clear()
        self._parser = hiredis.Reader()

    def hear(self) -> None:
        """Read and answer what has come."""
        if not self.reads:
            return
        with contextlib.suppress(BlockingIOError):
            while data := self.sock.recv(65536):
                self._parser.feed(data)
                while (words := self._parser.gets()) is not False:
                    self.unsaid += encoded(self._answer(words))
        if self.talks:
            self.say()

    def say(self, length: int | None = None) -> None:
        """Hand out what was not said yet, or so many bytes of it."""
        if self.unsaid:
            with contextlib.suppress(BlockingIOError, BrokenPipeError):  # they may have gone
                del self.unsaid[: self.sock.send(self.unsaid[:length])]

    def by_token(self) -> dict[str, list[str]]:
        """What was asked for on behalf of each token, in its order."""
        asked: dict[str, list[str]] = {}
        for heard in self.heard:
            asked.setdefault(heard.token, []).append(heard.script)
        return asked

    def _answer(self, words: list[bytes]) -> Any:
        if words == [b"TIME"]:  # it has none, and is not measured (R43)
            return ErrorReply("NOPERM this user has no permissions to run the 'time' command")
        verb, said, number, *rest = (word.decode("latin-1") for word in words)
        script = next(known for known in scripts.ALL if said in (known.sha, known.text))
        keys, args = rest[: int(number)], rest[int(number) :]
        if not keys:  # the text alone
            self.forgot = self.forgot and verb != "EVAL"
            return ErrorReply("NOSCRIPT No matching script.") if self.forgot else [1, b"0"]
        token = next((arg for arg in args if len(arg) >= 40), "")  # of what is asked for a lease
        self.heard.append(Heard(script.name, keys[0], token, text=verb == "EVAL", args=tuple(args)))
        self.forgot = self.forgot and verb != "EVAL"
        if self.forgot:
            return ErrorReply("NOSCRIPT No matching script. Please use EVAL.")
        return ENGINE.run(script.name, script.text, self.space, keys, args)


class Question(Send):
    """Decided by ``need`` answers."""

    def __init__(self, need: int) -> None:
        super().__init__(wire.status("redlock:job"))
        self.open = True
        self.answers: list[int] = []
        self.failures: list[str] = []
        self._need = need

    def answered(self, master: int, value: Any, at: float) -> bool:
        self.answers.append(master)
        return self._counted()

    def failed(self, master: int, failure: Failure, at: float) -> bool:
        self.failures.append(failure.reason)
        return self._counted()

    def _counted(self) -> bool:
        decided = len(self.answers) + len(self.failures) == self._need
        self.open = not decided
        return decided


def asks(question: Question, until: float) -> Op[Any]:
    """The event that it is resumed with."""
    yield question
    return (yield Wait(until, closes=question))


class Deployment:
    """`AsyncMasters` whose connections lead to fakes.  Nothing connects, hence no thread."""

    def __init__(self, loop: VirtualLoop, **options: Any) -> None:
        self.loop, self.clock = loop, loop.clock
        self.fakes = [Fake() for _ in range(MASTERS)]
        urls = [f"redis://fake-{number}:6379" for number in range(MASTERS)]
        quiet = "agreement" not in options  # else each has a timer, and announcements go out in between
        options = {"agreement": "ignore", **options}
        self.masters = AsyncMasters(urls, restart_guard=False, node_timeout=NODE_TIMEOUT, **options)
        self.driver: Driver = self.masters._runtime.driver()
        self.host, self.connections = self.driver.host, self.driver._connections
        self.connections._want_subscribers = lambda: None  # type: ignore[method-assign]
        background = self.driver.background
        background._start_connecting = _connect_never  # type: ignore[method-assign]
        if quiet:
            background._announcer.connected = lambda now: None  # type: ignore[method-assign]
        self.driver.ready.set()
        for number in range(MASTERS):
            self.attach(number)

    def attach(self, number: int) -> None:
        fake, connection = self.fakes[number], self.connections.all[number]
        self.loop.add_reader(fake.sock, fake.hear)
        self.host.keep(fake.theirs)
        self.connections.attach(connection, fake.theirs, Facts(f"run-{number}", 10**6), self.clock.now)

    def hang_up(self, number: int) -> None:
        """The master closes the connection."""
        self.loop.remove_reader(self.fakes[number].sock)
        self.fakes[number].sock.close()

    def mute(self, *numbers: int) -> None:
        """They hear, and do not answer."""
        for number in numbers:
            self.fakes[number].talks = False

    def speak(self) -> None:
        for fake in self.fakes:
            fake.talks = True
            fake.say()

    async def quiet(self) -> None:
        """Until all that is under way has arrived and was answered; no time passes."""
        for _ in range(20):
            await asyncio.sleep(0)

    def keys(self) -> list[dict[str, str]]:
        """Of ours, master by master."""
        return [{name: token for name, token in fake.keys.items() if token != OTHER} for fake in self.fakes]

    def nothing_left(self) -> None:
        assert not self.host.operations
        assert not self.connections.owe()
        assert not any(self.keys()), self.keys()
        assert not self.loop.pending, f"a timer is still set: {self.loop.pending}"
        assert len(asyncio.all_tasks()) == 1

    def shut(self) -> None:
        for fake in self.fakes:
            self.loop.remove_reader(fake.sock)
            fake.sock.close()


def _connect_never(stream: Stream) -> None:
    stream.connector = Connector(stream.endpoint, 0.0)


# Alarms stay for the next operation, or the next lease, at most so long; nobody sets them again.
STANDING = 2.0


def run(scene: Callable[[Deployment], Coroutine[Any, Any, Any]], *, tidy: bool = True, **options: Any) -> Any:
    """Play ``scene`` to its end in virtual time; then, if it is to be ``tidy``, nothing may be left.  ``options``: of the masters."""
    clock = Clock()
    loop = VirtualLoop(clock)
    made: list[Deployment] = []

    async def main() -> Any:
        deployment = Deployment(loop, **options)
        made.append(deployment)
        result = await scene(deployment)
        if tidy:
            deployment.speak()
            await deployment.quiet()
            await asyncio.sleep(STANDING)
            deployment.nothing_left()
            await deployment.masters.close()
            deployment.shut()
        return result

    with mock.patch("redlock._system.clock.now", clock):
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                result = runner.run(main())
        except BaseException:
            for deployment in made:  # no socket is left to whoever comes next
                deployment.driver.shut()
                for fake in deployment.fakes:
                    fake.sock.close()
            raise
    assert not loop.complaints, loop.complaints
    return result


def virtual(test: Callable[..., Coroutine[Any, Any, None]] | None = None, /, **options: Any) -> Any:
    """A test that is played by `run`, with these ``options``; the deployment is its first argument."""
    if test is None:
        return functools.partial(virtual, **options)

    def played(*fixtures: Any, **named: Any) -> None:
        run(lambda deployment: test(deployment, *fixtures, **named), **options)

    functools.update_wrapper(played, test)
    del played.__wrapped__  # type: ignore[attr-defined]
    signature = inspect.signature(test)
    _, *arguments = signature.parameters.values()
    played.__signature__ = signature.replace(parameters=arguments)  # type: ignore[attr-defined]
    return played
